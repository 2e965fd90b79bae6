//! What the scripts really do, beside what [`model`](super::model) says of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

use lab_servers::{Raw, Redis, Reply as RedisReply};

use super::lock_model::{
    AbsenceNote, EnterMode, EnterRequest, Holder, Id, Kept, Link, LockModel, ModelPush,
    ModelStanding, Reply, Script, Seen, Waiter,
};

macro_rules! script {
    ($($part:literal),+) => {
        concat!($(include_str!(concat!("../../../../crates/leasehold/src/stores/redis/lua/", $part, ".lua")), "\n"),+)
    };
}

const ENTER: &str = script!("enter/fast", "queue", "enter/slow");
const LEAVE: &str = script!("leave/fast", "queue", "leave/slow");
const RENEW: &str = script!("renew/fast", "queue", "renew/slow");

const KEY: &str = "leasehold:{a}";
const DAY: i64 = 24 * 60 * 60 * 1_000;
const LEASE: i64 = 30_000;
const IDS: Id = 4;
const NONE: &str = "-----------";
/// A second of the server's clock that does not come.
const NEVER: &str = "9999999999";

/// What happens to a line.
#[derive(Clone, Copy, Debug)]
enum Step {
    Enter {
        id: Id,
        mode: EnterMode,
        link: Link,
        expired: bool,
    },
    Renew {
        id: Id,
        link: Link,
    },
    Leave(Id),
    /// The lease of whoever holds ends.
    HolderOver,
    WaiterOver(Id),
    Come(Id),
    Go(Id),
}

/// The server, and what the rule says of it.
struct Both {
    server: Redis,
    /// The id of the server's history, as far as it is compared.
    history: String,
    clients: BTreeMap<Id, Raw>,
    here: BTreeSet<Id>,
    /// Hears all that is told.
    inbox: Raw,
    model: LockModel,
    nonces: u8,
    /// What the scripts say for a token of the rule.
    tokens: Vec<u64>,
}

impl Both {
    fn new() -> Self {
        let server = Redis::start();
        let about = server.info("replication");
        let history = about
            .lines()
            .find_map(|line| line.strip_prefix("master_replid:"))
            .expect("every server has one");
        let history = history[..10].to_owned();
        let mut inbox = server.connection();
        inbox
            .request(&["PSUBSCRIBE", "leasehold:inbox:*"])
            .expect("subscribed");
        let clients = (0..IDS).map(|id| (id, server.connection())).collect();
        let (here, lock_state) = (BTreeSet::new(), LockModel::default());
        Self {
            server,
            history,
            clients,
            here,
            inbox,
            model: lock_state,
            nonces: 0,
            tokens: vec![0],
        }
    }

    fn reset(&mut self) {
        for id in 0..IDS {
            self.go(id);
        }
        self.server.command(&["FLUSHALL"]);
        self.receive();
        (self.model, self.nonces, self.tokens) = (LockModel::default(), 0, vec![0]);
    }

    fn come(&mut self, id: Id) {
        if self.here.insert(id) {
            let channel = format!("leasehold:alive:{}", client(id));
            self.clients
                .get_mut(&id)
                .expect("there are as many")
                .request(&["SUBSCRIBE", &channel])
                .expect("subscribed");
        }
    }

    fn go(&mut self, id: Id) {
        if self.here.remove(&id) {
            let channel = format!("leasehold:alive:{}", client(id));
            self.clients
                .get_mut(&id)
                .expect("there are as many")
                .request(&["UNSUBSCRIBE", &channel])
                .expect("subscribed");
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Come(id) => self.come(id),
            Step::Go(id) => self.go(id),
            Step::HolderOver => {
                if let Some(holder) = &mut self.model.holder {
                    holder.expired = true;
                    self.server
                        .command(&["PEXPIRE", KEY, &(DAY - 1).to_string()]);
                }
            }
            Step::WaiterOver(id) => {
                if let Some(waiter) = self.model.queue.iter_mut().find(|waiter| waiter.id == id) {
                    waiter.expired = true;
                    let claims = format!("{KEY}:claims");
                    let entry = self.server.command(&["HGET", &claims, &text(id)]);
                    let over = format!("{:016}{}", 1, &entry.text()[16..]);
                    self.server.command(&["HSET", &claims, &text(id), &over]);
                }
            }
            Step::Enter {
                id,
                mode,
                link,
                expired,
            } => self.enter(id, mode, link, expired),
            Step::Renew { id, link } => {
                let (expected, pushes) =
                    self.by_the_model(|script| script.renew(id, link, AbsenceNote::Ends));
                let (liveness, life) = (
                    format!("{NONE}{}", self.link(id, link)),
                    (DAY + LEASE).to_string(),
                );
                let events =
                    self.server
                        .command(&["EVAL", RENEW, "1", KEY, &text(id), &liveness, &life]);
                let expected = match expected {
                    Kept::Held => "1".to_owned(),
                    Kept::Gone => "0".to_owned(),
                    Kept::Queued(position, Seen::Present) => format!("Q{position:08}"),
                    Kept::Queued(position, Seen::Absent) => format!("A{position:08}"),
                    Kept::Queued(position, Seen::AbsenceNote) => format!("a{position:08}"),
                };
                assert_eq!(events.text(), format!("{}{expected}", text(id)), "{step:?}");
                assert_eq!(self.receive(), pushes, "{step:?}");
            }
            Step::Leave(id) => {
                let (expected, pushes) = self.by_the_model(|script| script.leave(id));
                let events = self.server.command(&[
                    "EVAL",
                    LEAVE,
                    "1",
                    KEY,
                    &format!("H{}", text(id)),
                    &client(id),
                ]);
                assert_eq!(
                    events.text(),
                    format!("{}{}", u8::from(expected), text(id)),
                    "{step:?}"
                );
                self.observe_tokens();
                assert_eq!(self.receive(), pushes, "{step:?}");
            }
        }
        assert_eq!(
            self.read(),
            (self.model.holder, self.model.queue.clone()),
            "after {step:?}"
        );
    }

    fn enter(&mut self, id: Id, mode: EnterMode, link: Link, expired: bool) {
        self.nonces += 1;
        let holder = self
            .model
            .holder
            .filter(|holder| expired && holder.nonce != 0 && !holder.expired);
        let expired: Vec<(Id, u8)> = holder
            .map(|holder| (holder.id, holder.nonce))
            .into_iter()
            .collect();
        let request = EnterRequest {
            id,
            mode,
            link,
            nonce: self.nonces,
            expired,
        };
        let (expected, pushes) = self.by_the_model(|script| script.enter(&request));
        let letter = match mode {
            EnterMode::Queue => 'Q',
            EnterMode::TryNow => 'R',
            EnterMode::Refresh => 'F',
            EnterMode::Look => 'L',
        };
        let record = format!(
            "{:016}H{}{NONE}{} v1 1 1 {LEASE} 0 1 h p l",
            0,
            text(id),
            self.link(id, link)
        );
        let mut config = format!("{letter}{:016}{}", 0, nonce(request.nonce));
        for (id, known) in &request.expired {
            let _ = write!(config, "{}{}", text(*id), nonce(*known));
        }
        let life = (DAY + LEASE).to_string();
        let events = self
            .server
            .command(&["EVAL", ENTER, "1", KEY, &record, &life, &config, NEVER]);
        self.observe_tokens();
        let events = self.reply(events.text(), id);
        assert_eq!(
            (events, self.receive()),
            (expected, pushes),
            "{request:?} of {:?}",
            self.model
        );
    }

    fn by_the_model<T>(
        &mut self,
        ask: impl FnOnce(&mut Script<'_>) -> T,
    ) -> (T, Vec<(Id, ModelPush)>) {
        let here = self.here.clone();
        let there = |id: Id| here.contains(&id);
        let mut script = Script::on(&mut self.model, &there);
        let reply = ask(&mut script);
        (reply, script.pushes)
    }

    fn link(&self, id: Id, link: Link) -> String {
        let server = if link.verdict {
            &*self.history
        } else {
            "----------"
        };
        format!(
            "{}{:08}{server}{:07}",
            client(id),
            link.epoch,
            if link.verdict { 5_000 } else { 0 }
        )
    }

    /// The token of the rule for one of the scripts', which rise.
    fn token(&self, text: &str) -> u8 {
        let number = text.parse::<u64>().expect("digits");
        self.tokens
            .iter()
            .zip(0..)
            .find(|(token, _)| **token == number)
            .expect("it was given")
            .1
    }

    /// What stands in the key is the last that was given: one that is new is above all others.
    fn observe_tokens(&mut self) {
        let state = self.server.request(&["GET", KEY]);
        if state.is_nil() {
            return;
        }
        let last: u64 = state.text()[..16].parse().expect("digits");
        let known = *self.tokens.last().expect("there is a first");
        assert!(last >= known, "a token fell from {known} to {last}");
        if last > known {
            self.tokens.push(last);
        }
    }

    fn reply(&self, events: &str, id: Id) -> Reply {
        assert_eq!(events[17..39], text(id));
        let number = &events[..16];
        let (standing, last) = match &events[16..17] {
            "H" => (ModelStanding::Held(self.token(number)), number),
            "N" | "Q" => (
                ModelStanding::Queued(number.parse().expect("digits")),
                &events[39..55],
            ),
            _ => (ModelStanding::Gone, &events[39..55]),
        };
        let position = events
            .get(55..63)
            .map_or(0, |position| position.parse().expect("digits"));
        let absences = events.get(73..).unwrap_or_default().as_bytes().chunks(40);
        let absences = absences.map(|absence| {
            let absence = std::str::from_utf8(absence).expect("text");
            assert_eq!(&absence[33..], "0005000");
            (id_of(&absence[..22]), nonce_of(&absence[22..33]))
        });
        Reply {
            standing,
            last: self.token(last),
            is_next: &events[16..17] == "N",
            position,
            absences: absences.collect(),
        }
    }

    /// What was told until now.
    fn receive(&mut self) -> Vec<(Id, ModelPush)> {
        static TURN: AtomicU32 = AtomicU32::new(0);
        let end = format!("end {}", TURN.fetch_add(1, Ordering::Relaxed));
        self.server
            .command(&["PUBLISH", "leasehold:inbox:end", &end]);
        let mut pushes = Vec::new();
        loop {
            let RedisReply::List(message) = self.inbox.receive_reply().expect("heard") else {
                panic!("no message")
            };
            let push = message[3].text();
            if push == end {
                return pushes;
            }
            pushes.push(match &push[..1] {
                "H" => {
                    assert_eq!(&push[39..], KEY);
                    (
                        id_of(&push[17..39]),
                        ModelPush::Held(self.token(&push[1..17])),
                    )
                }
                "N" => (id_of(&push[1..]), ModelPush::Next),
                _ => (id_of(&push[1..]), ModelPush::Gone),
            });
        }
    }

    /// Who holds and who waits, as it stands in the keys.
    fn read(&self) -> (Option<Holder>, Vec<Waiter>) {
        let state = self.server.request(&["GET", KEY]);
        let state = if state.is_nil() { "" } else { state.text() };
        let holds = matches!(state.get(16..17), Some("H" | "W"));
        let holder = holds.then(|| Holder {
            id: id_of(&state[17..39]),
            token: self.token(&state[..16]),
            link: link_of(state),
            nonce: nonce_of(&state[39..50]),
            expired: self.server.command(&["PTTL", KEY]).int() <= DAY,
        });
        let queue = self
            .server
            .command(&["ZRANGE", &format!("{KEY}:queue"), "0", "-1"]);
        let waiter = |id: &str| {
            let entry = self.server.command(&["HGET", &format!("{KEY}:claims"), id]);
            let record = &entry.text()[16..];
            Waiter {
                id: id_of(id),
                link: link_of(record),
                expired: entry.text().starts_with("0000000000000001"),
            }
        };
        (holder, queue.texts().into_iter().map(waiter).collect())
    }
}

fn client(id: Id) -> String {
    format!("client-{id:04}")
}

fn text(id: Id) -> String {
    format!("{id:022}")
}

fn id_of(text: &str) -> Id {
    text.parse().expect("digits")
}

fn nonce(number: u8) -> String {
    format!("nonce-{number:05}")
}

fn nonce_of(text: &str) -> u8 {
    if text == NONE {
        0
    } else {
        text[6..].parse().expect("digits")
    }
}

fn link_of(record: &str) -> Link {
    Link {
        epoch: record[61..69].parse().expect("digits"),
        verdict: &record[69..79] != "----------",
    }
}

/// A generator of which each run is repeated by its seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: u8) -> u8 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u8::try_from((self.0 >> 33) % u64::from(count)).expect("less than a byte")
    }

    fn link(&mut self) -> Link {
        Link {
            epoch: self.below(3),
            verdict: self.below(4) > 0,
        }
    }

    fn step(&mut self) -> Step {
        let id = self.below(IDS);
        match self.below(16) {
            0..=6 => {
                let mode = [
                    EnterMode::Queue,
                    EnterMode::Queue,
                    EnterMode::Refresh,
                    EnterMode::Look,
                    EnterMode::Look,
                    EnterMode::TryNow,
                ][usize::from(self.below(6))];
                Step::Enter {
                    id,
                    mode,
                    link: self.link(),
                    expired: self.below(2) == 0,
                }
            }
            7 | 8 => Step::Renew {
                id,
                link: self.link(),
            },
            9 | 10 => Step::Leave(id),
            11 => Step::HolderOver,
            12 => Step::WaiterOver(id),
            13 => Step::Come(id),
            _ => Step::Go(id),
        }
    }
}

fn random_steps(seeds: std::ops::Range<u64>) {
    let mut both = Both::new();
    for seed in seeds {
        both.reset();
        let mut dice = Dice(seed);
        for number in 0..40 {
            let step = dice.step();
            println!("seed {seed}, step {number}: {step:?}");
            both.step(step);
        }
    }
}

#[test]
fn scripts_match_the_lock_model() {
    random_steps(0..150);
}

fn fixture() -> Both {
    let mut both = Both::new();
    let link = Link {
        epoch: 1,
        verdict: true,
    };
    both.step(Step::Come(1));
    for id in [0, 1] {
        both.step(Step::Enter {
            id,
            mode: EnterMode::Queue,
            link,
            expired: false,
        });
    }
    assert!(
        both.model
            .holder
            .is_some_and(|holder| holder.id == 0 && holder.nonce != 0),
        "its absence is noted"
    );
    both
}

/// What is noted of a holder's absence ends with its renewal, entering again, and coming back, and only what is still noted
/// is taken for a long absence.
#[test]
fn crash_detection_scripts_match_the_model() {
    let link = Link {
        epoch: 1,
        verdict: true,
    };
    let find = |expired| Step::Enter {
        id: 1,
        mode: EnterMode::Refresh,
        link,
        expired,
    };
    for comes_back in [
        Step::Renew { id: 0, link },
        Step::Renew {
            id: 0,
            link: Link { epoch: 0, ..link },
        },
        Step::Enter {
            id: 0,
            mode: EnterMode::Refresh,
            link,
            expired: false,
        },
        Step::Come(0),
    ] {
        let mut both = fixture();
        both.step(comes_back);
        if matches!(comes_back, Step::Come(_)) {
            both.step(find(true));
            both.step(Step::Go(0));
        }
        assert!(
            both.model.holder.is_some_and(|holder| holder.id == 0),
            "{comes_back:?}"
        );
        both.step(find(false));
        both.step(find(false));
        both.step(find(true));
        assert!(
            both.model.holder.is_some_and(|holder| holder.id == 1),
            "{comes_back:?}"
        );
    }
    second_absence_has_a_new_nonce();
    absence_on_another_server_is_ignored();
}

fn second_absence_has_a_new_nonce() {
    let mut both = fixture();
    let link = Link {
        epoch: 1,
        verdict: true,
    };
    let first = both.model.holder.expect("it holds").nonce;
    both.step(Step::Renew { id: 0, link });
    both.step(Step::Enter {
        id: 1,
        mode: EnterMode::Refresh,
        link,
        expired: false,
    });
    let expired = format!("F{:016}{}{}{}", 0, nonce(99), text(0), nonce(first));
    let record = format!(
        "{:016}H{}{NONE}{} v1 1 1 {LEASE} 0 1 h p l",
        0,
        text(1),
        both.link(1, link)
    );
    let events = both.server.command(&[
        "EVAL",
        ENTER,
        "1",
        KEY,
        &record,
        &(DAY + LEASE).to_string(),
        &expired,
        NEVER,
    ]);
    assert_eq!(
        &events.text()[16..17],
        "N",
        "an earlier absence was taken for this one"
    );
}

/// The holder's connection is to another server, or to this one before a failover: nothing is known of it here.
fn absence_on_another_server_is_ignored() {
    let mut both = Both::new();
    let link = Link {
        epoch: 1,
        verdict: true,
    };
    let here = std::mem::replace(&mut both.history, "0123456789".to_owned());
    both.step(Step::Come(1));
    both.server.command(&["DEL", KEY]);
    let record = format!(
        "{:016}H{}{NONE}{} v1 1 1 {LEASE} 0 1 h p l",
        0,
        text(0),
        both.link(0, link)
    );
    let enter = |record: &str, nonce: &str| {
        let config = format!("Q{:016}{nonce}", 0);
        let events = both.server.command(&[
            "EVAL",
            ENTER,
            "1",
            KEY,
            record,
            &(DAY + LEASE).to_string(),
            &config,
            NEVER,
        ]);
        events.text().to_owned()
    };
    assert_eq!(&enter(&record, &nonce(1))[16..17], "H");
    let waits = format!(
        "{:016}H{}{NONE}{}00000001{here}0005000 v1 1 1 {LEASE} 0 1 h p l",
        0,
        text(1),
        client(1)
    );
    let events = enter(&waits, &nonce(2));
    assert_eq!(
        (&events[16..17], events.len()),
        ("N", 73),
        "absence was noted: {events}"
    );
}

/// Grants, hand-overs and departures, one waiter of them over and one of them gone.
#[test]
fn handover_scripts_match_the_model() {
    let link = Link {
        epoch: 1,
        verdict: false,
    };
    for over in 1..IDS {
        let mut both = Both::new();
        for id in 0..IDS {
            both.step(Step::Enter {
                id,
                mode: EnterMode::Queue,
                link,
                expired: false,
            });
        }
        both.step(Step::WaiterOver(over));
        for id in (0..IDS).filter(|id| *id != over) {
            assert!(
                both.model.holder.is_some_and(|holder| holder.id == id),
                "{id} holds in its turn"
            );
            both.step(Step::Leave(id));
        }
        assert_eq!((both.model.holder, both.model.queue.len()), (None, 0));
    }
}

/// The clock that a client proposes a token by may stand where the last was given.
#[test]
fn proposed_token_must_exceed_the_last_token() {
    let server = Redis::start();
    // A week ahead of the server's clock, by which no token can be given.
    let last = u64::try_from(server.time()).expect("after 1970") + 7 * 24 * 3_600 * 1_000_000;
    for ahead in [0u64, 1] {
        server.command(&["SET", KEY, &format!("{last:016}~"), "PX", &DAY.to_string()]);
        let link = format!("{}00000001----------0000000", client(0));
        let record = format!(
            "{:016}H{}{NONE}{link} v1 1 1 {LEASE} 0 1 h p l",
            last + ahead,
            text(0)
        );
        let config = format!("Q{:016}{}", 0, nonce(1));
        let events = server.command(&[
            "EVAL",
            ENTER,
            "1",
            KEY,
            &record,
            &(DAY + LEASE).to_string(),
            &config,
            NEVER,
        ]);
        let token: u64 = events.text()[..16].parse().expect("digits");
        assert_eq!(token, last + 1, "{ahead} ahead");
    }
}
