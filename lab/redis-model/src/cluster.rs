//! A cluster of servers, each of which has the keys of some slots.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::group::{Group, Member, PORT, Pair, named};
use crate::host::Host;
use crate::reply::Reply;

const SLOTS: u16 = 16_384;

/// Masters with a replica each, and the slots of the masters.
///
/// The nodes do not notice anything by themselves: a test begins each failover. `PUBLISH` reaches
/// the subscribers of its node only, because a client subscribes on every node.
#[derive(Debug)]
pub struct Cluster {
    pairs: Vec<Pair>,
    view: View,
}

/// The slots as a node sees them.
#[derive(Clone, Debug)]
struct View {
    epoch: u64,
    /// The host names of the masters.
    masters: Vec<String>,
    /// The index of the master of each slot.
    owners: Vec<usize>,
    /// The slots that are being moved, each with the index of its next master.
    moving: BTreeMap<u16, usize>,
}

/// What one node replies.
#[derive(Debug)]
pub(crate) struct Node {
    name: String,
    view: View,
}

impl Cluster {
    /// Starts pairs of a master and a replica with these host names. Each master has an equal part
    /// of the slots.
    #[must_use]
    pub fn start(names: &[[&str; 2]], lag: Duration) -> Self {
        let pairs: Vec<Pair> = names.iter().map(|pair| Pair::start(*pair, lag)).collect();
        let slots = usize::from(SLOTS);
        let view = View {
            epoch: 1,
            masters: Vec::new(),
            owners: (0..slots).map(|slot| slot * pairs.len() / slots).collect(),
            moving: BTreeMap::new(),
        };

        let mut cluster = Self { pairs, view };
        cluster.inform_all();
        cluster
    }

    /// Returns the node with this host name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<Arc<Host>> {
        named(self.pairs.iter().flat_map(Pair::members), name)
    }

    /// Returns the index of the pair that has the slot of a key.
    #[must_use]
    pub fn owner_of(&self, key: &str) -> usize {
        self.view.owners[usize::from(slot_of(key.as_bytes()))]
    }

    /// Returns the master of a pair.
    #[must_use]
    pub fn master(&self, pair: usize) -> &Arc<Host> {
        &self.pairs[pair].master.host
    }

    /// Promotes the replica of a pair with what it has received. The old master does not learn of
    /// it until it [rejoins](Self::rejoin) the cluster.
    pub fn fail_over(&mut self, pair: usize) {
        self.pairs[pair].fail_over();
        self.view.epoch += 1;
        self.name_masters();

        let old = &self.pairs[pair].other.name;
        for member in self.members().filter(|member| member.name != *old) {
            self.inform(member);
        }
    }

    /// Makes the old master of a pair a replica. Its connections stay.
    pub fn rejoin(&self, pair: usize) {
        self.pairs[pair].rejoin();
        self.inform(&self.pairs[pair].other);
    }

    /// Begins to move the slot of a key to the master of another pair. All keys stay.
    pub fn begin_move(&mut self, key: &str, to: usize) {
        self.view.moving.insert(slot_of(key.as_bytes()), to);
        self.inform_all();
    }

    /// Moves one key of a slot that is being moved.
    pub fn move_key(&self, key: &str) {
        let to = self.view.moving[&slot_of(key.as_bytes())];
        let from = self.master(self.owner_of(key));
        self.master(to)
            .take_keys(from, |known| known == key.as_bytes());
    }

    /// Moves the other keys of the slot of a key. From then on the slot has its new master.
    pub fn end_move(&mut self, key: &str) {
        let slot = slot_of(key.as_bytes());
        let begun = self.view.moving.remove(&slot);
        let to = begun.expect("the move of the slot has begun");
        let from = self.master(self.owner_of(key));
        self.master(to)
            .take_keys(from, |known| slot_of(known) == slot);

        self.view.owners[usize::from(slot)] = to;
        self.view.epoch += 1;
        self.inform_all();
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        self.pairs.iter().flat_map(Pair::members)
    }

    fn name_masters(&mut self) {
        let masters = self.pairs.iter().map(|pair| pair.master.name.clone());
        self.view.masters = masters.collect();
    }

    fn inform_all(&mut self) {
        self.name_masters();
        for member in self.members() {
            self.inform(member);
        }
    }

    fn inform(&self, member: &Member) {
        member.host.join(Group::Cluster(Node {
            name: member.name.clone(),
            view: self.view.clone(),
        }));
    }
}

impl Node {
    /// Returns the reply to a request that the data of the node do not decide.
    pub(crate) fn reply(
        &self,
        words: &[Vec<u8>],
        is_asking: bool,
        has_key: impl FnMut(&[u8]) -> bool,
    ) -> Option<Reply> {
        let upper = |at: usize| words.get(at).map(|word| word.to_ascii_uppercase());
        match (upper(0)?.as_slice(), upper(1).as_deref()) {
            (b"ASKING", None) => Some(Reply::ok()),
            (b"CLUSTER", Some(b"INFO")) => {
                let epoch = self.view.epoch;
                let text = format!("cluster_state:ok\r\ncluster_current_epoch:{epoch}\r\n");
                Some(Reply::text(text))
            }
            (b"CLUSTER", Some(b"SLOTS")) => Some(self.view.slots()),
            _ => self.redirect(keys_of(words), is_asking, has_key),
        }
    }

    /// Returns the error if the node does not execute a request with these keys.
    fn redirect(
        &self,
        keys: &[Vec<u8>],
        is_asking: bool,
        mut has_key: impl FnMut(&[u8]) -> bool,
    ) -> Option<Reply> {
        let slot = slot_of(keys.first()?);
        if keys.iter().any(|key| slot_of(key) != slot) {
            let text = "CROSSSLOT Keys in request don't hash to the same slot";
            return Some(Reply::Error(text.to_owned()));
        }

        let View { masters, .. } = &self.view;
        let owner = &masters[self.view.owners[usize::from(slot)]];
        let next = self.view.moving.get(&slot).map(|to| &masters[*to]);
        let present = keys.iter().filter(|key| has_key(key)).count();
        let lacks_some = present < keys.len();
        let try_again = || "TRYAGAIN Multiple keys request during rehashing of slot".to_owned();

        let error = match (*owner == self.name, next) {
            (true, Some(_)) if lacks_some && present > 0 => Some(try_again()),
            (true, Some(next)) if lacks_some => Some(format!("ASK {slot} {next}:{PORT}")),
            (true, _) => None,
            (false, Some(next)) if *next == self.name && is_asking => {
                (lacks_some && keys.len() > 1).then(try_again)
            }
            (false, _) => Some(format!("MOVED {slot} {owner}:{PORT}")),
        };
        error.map(Reply::Error)
    }
}

impl View {
    /// Returns the reply to `CLUSTER SLOTS`.
    fn slots(&self) -> Reply {
        let mut first = 0;
        let ranges = self.owners.chunk_by(|one, next| one == next).map(|range| {
            let begin = first;
            first += range.len();
            let master = [
                Reply::text(&self.masters[range[0]]),
                Reply::Int(i64::from(PORT)),
            ];
            let master = Reply::List(master.to_vec());
            Reply::List(vec![Reply::count(begin), Reply::count(first - 1), master])
        });
        Reply::List(ranges.collect())
    }
}

/// Returns the keys of a request.
fn keys_of(words: &[Vec<u8>]) -> &[Vec<u8>] {
    let name = words[0].to_ascii_uppercase();
    match (name.as_slice(), words) {
        (b"EVAL" | b"EVALSHA", [_, _, count, rest @ ..]) => {
            let count = std::str::from_utf8(count).ok();
            let count = count.and_then(|count| count.parse().ok()).unwrap_or(0);
            rest.get(..count).unwrap_or_default()
        }
        (name, [_, key, ..]) if !WITHOUT_KEY.contains(&name) => std::slice::from_ref(key),
        _ => &[],
    }
}

/// The commands with arguments of which none is a key.
const WITHOUT_KEY: &[&[u8]] = &[
    b"AUTH",
    b"CLIENT",
    b"INFO",
    b"PUBLISH",
    b"PUBSUB",
    b"SCAN",
    b"SCRIPT",
    b"SUBSCRIBE",
    b"UNSUBSCRIBE",
];

/// Returns the slot of a key: of the part between the first braces, if there is one.
fn slot_of(key: &[u8]) -> u16 {
    let position = |bytes: &[u8], brace| bytes.iter().position(|byte| *byte == brace);
    let tag = position(key, b'{').map(|open| &key[open + 1..]);
    let tag = tag.and_then(|rest| rest.get(..position(rest, b'}')?));
    let tag = tag.filter(|tag| !tag.is_empty());
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM, as the specification of Redis Cluster requires.
fn crc16(bytes: &[u8]) -> u16 {
    let shifted = |crc: u16, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, shifted)
    })
}
