//! A server with one lock, and the requests of clients that have one claim each.

use std::sync::Arc;
use std::time::Duration;

use lab_redis_model::{Connection, Message, Reply, Server};

use crate::client::{Script, id_from, id_text};
use crate::queue::layout::record as field;
use crate::queue::messages::{
    Absence, EnterMode, EnterReply, EnterRequest, Nonce, Part, Push, Renewed, parse_renewals,
    with_longest_lease,
};
use crate::queue::orphans::leave_arguments;
use crate::queue::record::{self, CrashCheck, EndedRequest, LivenessRef};
use crate::queue::scripts::{ENTER, INSPECT, LEAVE, LIST, RENEW};
use leasehold_core::store::{Claim, Share, claim_id_from_bytes, parse_words};
use leasehold_core::{ClaimId, Entry, LockState, Name, Token};

pub(super) const KEY: &str = "leasehold:{a}";
/// The `master_replid` of the server.
const HISTORY: &str = "0123456789012345678901234567890123456789";
/// What the server's clock shows at the start, in microseconds.
const START: u64 = 1_750_000_000_000_000;
/// A second that the server's clock never reaches.
const NEVER: u64 = 9_999_999_999;
/// A record outlives its lease by this time, in milliseconds.
pub(super) const DAY: i64 = 24 * 60 * 60 * 1_000;

/// A state of the server. Its time passes only where a test says so.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModelServer {
    server: Server,
    /// In microseconds.
    pub(super) now: u64,
    pub(super) paths: Paths,
    /// What all requests have with a wait after a failover, in milliseconds.
    pub(super) longest_lease: Option<&'static str>,
}

/// The parts of each script that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Paths {
    Both,
    /// All cases take the slow path.
    Slow,
    /// A case that the fast paths do not handle is an error.
    Fast,
}

impl Paths {
    /// Returns this part of a script, unless it is the whole text.
    fn of(self, script: &Script) -> Option<String> {
        if self == Self::Both {
            return None;
        }

        let (fast, slow) = script.text().split_once(SLOW).expect("it has a slow path");
        Some(match self {
            Self::Slow => format!("{SLOW_ONLY}{slow}"),
            _ => format!("{fast}return redis.error_reply('SLOW')"),
        })
    }
}

/// The first line of the slow paths.
const SLOW: &str = "-- The queue of one name: the code of all slow paths.";
/// What the slow paths take over from the fast ones, where those have done nothing.
const SLOW_ONLY: &str = "local key, claim = KEYS[1], ARGV[1] \
    local ids, liveness, life = ARGV[1], ARGV[2], ARGV[3] \
    local replies, others = {}, { 1 }\n--";

/// The claim in the record of the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    pub(super) id: ClaimId,
    pub(super) is_expired: bool,
}

impl ModelServer {
    pub(super) fn start() -> Self {
        let mut server = Self {
            server: Server::new(HISTORY),
            now: START,
            paths: Paths::Both,
            longest_lease: None,
        };
        for script in [&ENTER, &LEAVE, &RENEW] {
            server.execute(0, &["SCRIPT", "LOAD", script.text()]);
        }
        server
    }

    pub(super) fn with(paths: Paths, longest_lease: Option<&'static str>) -> Self {
        Self {
            paths,
            longest_lease,
            ..Self::start()
        }
    }

    pub(super) fn execute(&mut self, connection: Connection, words: &[&str]) -> Reply {
        let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.server
            .execute_or_recall(connection, self.now.cast_signed(), words)
    }

    /// Subscribes a client to its channel of a kind: `alive`, the sign of life, or `inbox`, for
    /// notifications.
    pub(super) fn subscribe(&mut self, connection: Connection, kind: &str, client: u8) {
        let channel = format!("leasehold:{kind}:{}", client_text(client));
        self.execute(connection, &["SUBSCRIBE", &channel]);
    }

    pub(super) fn disconnect(&mut self, connection: Connection) {
        self.server.disconnect(connection);
    }

    /// Lets the server refuse requests that need memory.
    pub(super) fn fill(&mut self) {
        self.server.fill();
    }

    /// Refuses a command to the user of all scripts.
    pub(super) fn deny(&mut self, command: &'static str) {
        self.server.deny(command);
    }

    /// Moves a key to another node of the cluster.
    pub(super) fn move_away(&mut self, key: &str) {
        self.server.move_away(key);
    }

    /// Lets scripts catch errors as tables, as Redis 7 does.
    pub(super) fn throw_tables(&mut self) {
        self.server.throw_tables();
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += u64::try_from(time.as_micros()).expect("a test takes hours");
    }

    /// Returns the notifications since the last call, each with its claim.
    pub(super) fn take_pushes(&mut self) -> Vec<(ClaimId, Push)> {
        let messages = self.server.take_messages();
        messages.iter().map(push).collect()
    }

    pub(super) fn enter(&mut self, request: &EnterRequest<'_>) -> EnterReply {
        let reply = text_of(self.send_enter(request));
        EnterReply::parse(&reply, &id_text(request.claim.id)).expect("a reply about the claim")
    }

    pub(super) fn send_enter(&mut self, request: &EnterRequest<'_>) -> Reply {
        let arguments = enter_arguments(request, self.longest_lease);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.send(&ENTER, &arguments)
    }

    pub(super) fn renew(&mut self, claim: &Claim, liveness: &LivenessRef) -> Renewed {
        let reply = text_of(self.send_renew(claim, liveness));
        let renewed = parse_renewals(&reply, &id_text(claim.id), 1);
        renewed.expect("a reply about the claim")[0]
    }

    pub(super) fn send_renew(&mut self, claim: &Claim, liveness: &LivenessRef) -> Reply {
        let life = record::life(claim).to_string();
        let arguments = [&*id_text(claim.id), &liveness.to_string(), &life];
        self.send(&RENEW, &arguments)
    }

    /// Removes a claim; `false` if it is not there.
    pub(super) fn leave(&mut self, number: u8) -> bool {
        text_of(self.send_leave(number)).starts_with('1')
    }

    pub(super) fn send_leave(&mut self, number: u8) -> Reply {
        self.send_leave_as('H', number, number)
    }

    /// Lets a client remove a claim with a request of this kind; `false` if it is not there.
    pub(super) fn leave_as(&mut self, kind: char, number: u8, client: u8) -> bool {
        text_of(self.send_leave_as(kind, number, client)).starts_with('1')
    }

    fn send_leave_as(&mut self, kind: char, number: u8, client: u8) -> Reply {
        let request = format!("{kind}{}", id_text(id(number)));
        let client = client_text(client);
        self.send(
            &LEAVE,
            &leave_arguments(&request, &client, self.longest_lease),
        )
    }

    /// Sends all requests about a claim. Those that the server refuses must have no effect.
    pub(super) fn assert_refused_without_effect(&mut self, claim: &Claim) {
        let number = claim.id.to_bytes()[0];
        let link = liveness(number, 1, None);
        let id = id_text(claim.id);
        let [expected, life] = [link.to_string(), record::life(claim).to_string()];
        let [leave, client] = [format!("H{id}"), client_text(number)];
        let entering = [
            EnterMode::Queue,
            EnterMode::TryNow,
            EnterMode::Refresh,
            EnterMode::Poll,
        ]
        .map(|mode| enter_arguments(&request(claim, mode, link.clone()), None));

        let mut requests = vec![
            (&RENEW, vec![&*id, &expected, &life]),
            (&LEAVE, leave_arguments(&leave, &client, None)),
        ];
        requests.extend(entering.iter().map(|arguments| {
            let arguments = arguments.iter().map(String::as_str);
            (&ENTER, arguments.collect())
        }));
        for (script, arguments) in requests {
            let mut after = self.clone();
            let words = [&["EVALSHA", script.hash(), "1", KEY], &*arguments].concat();
            if let Reply::Error(error) = after.execute(0, &words) {
                assert_eq!(&after, self, "{number}: {error}");
            }
        }
    }

    /// Returns the holders and waiters.
    pub(super) fn inspect(&mut self) -> Vec<Entry> {
        self.lock_state().entries
    }

    pub(super) fn lock_state(&mut self) -> LockState {
        record::lock_state(Name::parse("a").expect("a name"), &self.inspected())
            .expect("the scripts keep records")
    }

    /// Returns the token of the holder.
    pub(super) fn held_token(&mut self) -> Option<Token> {
        self.lock_state().holders().next()?.token()
    }

    /// Returns the record of the holder.
    pub(super) fn held(&mut self) -> Option<String> {
        let inspected = self.inspected();
        // The token and the last end come before the records.
        let first = inspected.get(2)?.get(1..)?;
        (field::MODE.read(first) == Some("H")).then(|| first.to_owned())
    }

    /// Tells that the process of a holder has ended, whose record was read earlier.
    pub(super) fn revoke_ended(&mut self, record: &str) -> bool {
        let seen = record::bound_hold(&format!("-{record}")).expect("the record of a holder");
        let request = EndedRequest {
            seen: &seen,
            seen_by: &claim(u8::MAX, Duration::ZERO),
        };
        let request = request.to_string();
        let client = client_text(u8::MAX);
        let arguments = leave_arguments(&request, &client, self.longest_lease);
        text_of(self.send(&LEAVE, &arguments)).starts_with('1')
    }

    fn inspected(&mut self) -> Vec<String> {
        self.execute(0, &["SCRIPT", "LOAD", INSPECT.text()]);
        let words = ["EVALSHA", INSPECT.hash(), "1", KEY];
        let Reply::List(replies) = self.execute(0, &words) else {
            panic!("the reply is a list");
        };
        replies.into_iter().map(text_of).collect()
    }

    /// Whether the name is among those with a holder or a waiter.
    pub(super) fn is_listed(&mut self) -> bool {
        self.execute(0, &["SCRIPT", "LOAD", LIST.text()]);
        let words = ["EVALSHA", LIST.hash(), "0", "0", KEY, "100", "string"];
        match self.execute(0, &words) {
            Reply::List(page) => page[1..].contains(&Reply::Bytes(KEY.into())),
            reply => panic!("a page is {reply:?}"),
        }
    }

    fn send(&mut self, script: &Script, arguments: &[&str]) -> Reply {
        let text = self.paths.of(script);
        let call = text
            .as_ref()
            .map_or(["EVALSHA", script.hash()], |text| ["EVAL", text]);
        let words = [&call, &["1", KEY][..], arguments].concat();
        self.execute(0, &words)
    }

    pub(super) fn record(&mut self) -> String {
        match self.execute(0, &["GET", KEY]) {
            Reply::Bytes(text) => String::from_utf8(text).expect("a record is a text"),
            _ => String::new(),
        }
    }

    /// Returns the values of the lock's keys, and how long they live. A free lock has only its token,
    /// which lives at least a day.
    pub(super) fn contents(&mut self) -> Vec<Reply> {
        let state = self.record();
        if field::MODE.read(&state) == Some("~") {
            return vec![Reply::Bytes(
                field::TOKEN.read(&state).expect("a token").into(),
            )];
        }

        let [key, claims, queue, holders] = keys();
        let reading: [&[&str]; 4] = [
            &["GET", &key],
            &["HGETALL", &claims],
            &["ZRANGE", &queue, "0", "-1", "WITHSCORES"],
            &["ZRANGE", &holders, "0", "-1", "WITHSCORES"],
        ];
        let mut contents = reading.map(|words| self.execute(0, words)).to_vec();
        contents.extend(self.lives().into_iter().map(Reply::Int));
        contents
    }

    /// Returns how long each key of the lock lives, in milliseconds: -1 if it has no expiry, -2 if it
    /// is not there.
    pub(super) fn lives(&mut self) -> [i64; 4] {
        keys().map(|key| self.life(&key))
    }

    fn life(&mut self, key: &str) -> i64 {
        match self.execute(0, &["PTTL", key]) {
            Reply::Int(life) => life,
            reply => panic!("the life of a key is {reply:?}"),
        }
    }

    /// Returns the number of keys on the server.
    pub(super) fn keys(&mut self) -> usize {
        match self.execute(0, &["SCAN", "0"]) {
            Reply::List(page) => match &page[..] {
                [_, Reply::List(keys)] => keys.len(),
                page => panic!("a page is {page:?}"),
            },
            reply => panic!("a page is {reply:?}"),
        }
    }

    /// Returns the exclusive holder.
    pub(super) fn holder(&mut self) -> Option<Holder> {
        let state = self.record();
        let is_held = matches!(field::MODE.read(&state), Some("H" | "W"));
        is_held.then(|| Holder {
            id: id_of(field::CLAIM.read(&state).expect("a record has a claim")),
            is_expired: self.life(KEY) <= DAY,
        })
    }

    pub(super) fn is_held_by(&mut self, number: u8) -> bool {
        let holder = self.holder();
        holder.is_some_and(|holder| holder.id == id(number))
    }

    /// Returns the claims that wait.
    pub(super) fn waiters(&mut self) -> Vec<ClaimId> {
        let queue = format!("{KEY}:queue");
        match self.execute(0, &["ZRANGE", &queue, "0", "-1"]) {
            Reply::List(waiters) => waiters.iter().map(waiter).collect(),
            reply => panic!("the queue is {reply:?}"),
        }
    }
}

/// The keys of the lock.
fn keys() -> [String; 4] {
    ["", ":claims", ":queue", ":holders"].map(|part| format!("{KEY}{part}"))
}

fn text_of(reply: Reply) -> String {
    match reply {
        Reply::Bytes(text) => String::from_utf8(text).expect("a script replies with a text"),
        reply => panic!("the reply of a script is {reply:?}"),
    }
}

/// Every notification goes to the client of its claim. That of a grant names the lock.
fn push(message: &Message) -> (ClaimId, Push) {
    let text = std::str::from_utf8(&message.text).expect("a notification is a text");
    let (id, push, key) = Push::parse(text).expect("the scripts send notifications");
    let is_grant = matches!(push, Push::Held(_));
    assert_eq!(key, if is_grant { KEY } else { "" }, "{text}");
    let inbox = format!("leasehold:inbox:{}", client_text(id.to_bytes()[0]));
    assert_eq!(message.channel, inbox.as_bytes(), "{text}");
    (id, push)
}

fn waiter(reply: &Reply) -> ClaimId {
    match reply {
        Reply::Bytes(text) => id_of(std::str::from_utf8(text).expect("an id is a text")),
        reply => panic!("a waiter is {reply:?}"),
    }
}

fn id_of(text: &str) -> ClaimId {
    id_from(text).expect("the scripts keep ids")
}

pub(super) fn id(number: u8) -> ClaimId {
    claim_id_from_bytes([number; 16])
}

fn client_text(number: u8) -> String {
    format!("client-{number:04}")
}

/// Returns the claim of a client.
pub(super) fn claim(number: u8, lease: Duration) -> Claim {
    let mut info = "0 1 host program label".split(' ');
    let info = parse_words(&mut info).expect("five words");

    let name = Name::parse("a").expect("a name");
    let mut claim = Claim::new(name, Share::MUTEX, Arc::new(info));
    claim.id = id(number);
    claim.lease = lease;
    claim
}

pub(super) fn enter_arguments(
    request: &EnterRequest<'_>,
    longest_lease: Option<&str>,
) -> Vec<String> {
    let life = record::life(request.claim);
    let longest = longest_lease.unwrap_or_default();
    let arguments: [Part<'_>; 5] = [&request.record(), &life, request, &NEVER, &longest];
    let arguments = with_longest_lease(&arguments, longest_lease).iter();
    arguments.map(ToString::to_string).collect()
}

pub(super) fn request(claim: &Claim, mode: EnterMode, liveness: LivenessRef) -> EnterRequest<'_> {
    EnterRequest {
        claim,
        mode,
        proposal: 0,
        highest_token: 0,
        liveness,
        nonce: Nonce(0),
        expired: Vec::new(),
    }
}

/// Returns the absence of a holder that a reply has named with this nonce.
pub(super) fn absence(holder: u8, nonce: u8) -> Absence {
    Absence {
        claim: id_text(id(holder)).to_string(),
        nonce: Nonce(nonce.into()).to_string(),
        grace: Duration::ZERO,
    }
}

/// Returns the connection of a client, whose absence counts after a grace.
pub(super) fn liveness(number: u8, epoch: u32, grace: Option<Duration>) -> LivenessRef {
    LivenessRef {
        client: client_text(number).into(),
        epoch,
        crash_check: grace.map(|grace| CrashCheck {
            server: HISTORY[..field::SERVER.len].into(),
            grace,
        }),
    }
}
