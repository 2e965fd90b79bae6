//! Runs the scripts on a server and compares them with the [lock model](super::lock_model).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

use lab_servers::{Raw, Redis, Reply as RedisReply};
use leasehold::modelled::redis_layout::{Field, absence, entry, grant, record, reply};
use leasehold::modelled::redis_scripts;

use super::lock_model::{
    AbsenceNote, EnterMode, EnterRequest, Holder, Id, Kept, Link, LockModel, ModelPush,
    ModelStanding, Reply, Script, Seen, Waiter,
};

const KEY: &str = "leasehold:{a}";
const DAY: i64 = 24 * 60 * 60 * 1_000;
const LEASE: i64 = 30_000;
const IDS: Id = 4;
const NONE: &str = "-----------";
/// A second that the server's clock never reaches.
const NEVER: &str = "9999999999";

/// An event at a lock.
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
    /// The lease of the holder ends.
    HolderOver,
    WaiterOver(Id),
    Come(Id),
    Go(Id),
}

/// A server and the model, which receive the same events.
struct Both {
    server: Redis,
    enter_script: &'static str,
    leave_script: &'static str,
    renew_script: &'static str,
    /// The first characters of `master_replid`, as records store them.
    history: String,
    clients: BTreeMap<Id, Raw>,
    here: BTreeSet<Id>,
    /// Receives all notifications.
    inbox: Raw,
    model: LockModel,
    nonces: u8,
    /// The tokens of the scripts. The index is the token of the model.
    tokens: Vec<u64>,
}

impl Both {
    fn new() -> Self {
        let server = Redis::start();
        let about = server.info("replication");
        let history = about
            .lines()
            .find_map(|line| line.strip_prefix("master_replid:"))
            .expect("every server has a replication id");
        let history = history[..record::SERVER.len].to_owned();
        let mut inbox = server.connection();
        inbox
            .request(&["PSUBSCRIBE", "leasehold:inbox:*"])
            .expect("subscribed");

        let clients = (0..IDS).map(|id| (id, server.connection())).collect();
        let [enter_script, leave_script, renew_script] = redis_scripts::texts();
        Self {
            server,
            enter_script,
            leave_script,
            renew_script,
            history,
            clients,
            here: BTreeSet::new(),
            inbox,
            model: LockModel::default(),
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
        self.model = LockModel::default();
        self.nonces = 0;
        self.tokens = vec![0];
    }

    fn come(&mut self, id: Id) {
        if self.here.insert(id) {
            let channel = format!("leasehold:alive:{}", client(id));
            self.clients
                .get_mut(&id)
                .expect("each claim has a connection")
                .request(&["SUBSCRIBE", &channel])
                .expect("subscribed");
        }
    }

    fn go(&mut self, id: Id) {
        if self.here.remove(&id) {
            let channel = format!("leasehold:alive:{}", client(id));
            self.clients
                .get_mut(&id)
                .expect("each claim has a connection")
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
                    let present = self.server.command(&["HGET", &claims, &text(id)]);
                    let present = entry::RECORD.read(present.text()).expect("the claim waits");
                    let over = format!("{:016}{present}", 1);
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
                let liveness = format!("{NONE}{}", self.link(id, link));
                let life = (DAY + LEASE).to_string();
                let events = self.server.command(&[
                    "EVAL",
                    self.renew_script,
                    "1",
                    KEY,
                    &text(id),
                    &liveness,
                    &life,
                ]);
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
                    self.leave_script,
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
            self.state(),
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
            EnterMode::Poll => 'L',
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
        let events = self.server.command(&[
            "EVAL",
            self.enter_script,
            "1",
            KEY,
            &record,
            &life,
            &config,
            NEVER,
        ]);
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
        request: impl FnOnce(&mut Script<'_>) -> T,
    ) -> (T, Vec<(Id, ModelPush)>) {
        let here = self.here.clone();
        let there = |id: Id| here.contains(&id);
        let mut script = Script::on(&mut self.model, &there);
        let reply = request(&mut script);
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

    /// Returns the model's token for a token of the scripts.
    fn token(&self, text: &str) -> u8 {
        let number = text.parse::<u64>().expect("digits");
        let known = self
            .tokens
            .iter()
            .zip(0..)
            .find(|(token, _)| **token == number);
        known.expect("a script gave it").1
    }

    /// Remembers the token in the key. A new token must exceed all earlier tokens.
    fn observe_tokens(&mut self) {
        let state = self.server.request(&["GET", KEY]);
        if state.is_nil() {
            return;
        }
        let last: u64 = read(record::TOKEN, state.text()).parse().expect("digits");
        let known = *self.tokens.last().expect("the first token exists");
        assert!(last >= known, "a token fell from {known} to {last}");
        if last > known {
            self.tokens.push(last);
        }
    }

    fn reply(&self, text: &str, id: Id) -> Reply {
        assert_eq!(id_of(read(reply::CLAIM, text)), id);
        let number = read(reply::NUMBER, text);
        let state = read(reply::STANDING, text);
        let standing = match state {
            "H" => ModelStanding::Held(self.token(number)),
            "N" | "Q" => ModelStanding::Queued(number.parse().expect("digits")),
            _ => ModelStanding::Gone,
        };
        let last = reply::LAST_TOKEN.read(text).unwrap_or(number);
        let position = reply::POSITION
            .read(text)
            .map_or(0, |position| position.parse().expect("digits"));

        let absences = reply::ABSENCES.read(text).unwrap_or_default();
        let absences = absences.as_bytes().chunks(absence::GRACE.end());
        let absences = absences.map(|chunk| {
            let chunk = std::str::from_utf8(chunk).expect("text");
            assert_eq!(read(absence::GRACE, chunk), "0005000");
            let holder = id_of(read(absence::CLAIM, chunk));
            (holder, nonce_of(read(absence::NONCE, chunk)))
        });
        Reply {
            standing,
            last: self.token(last),
            is_next: state == "N",
            position,
            absences: absences.collect(),
        }
    }

    /// Returns the notifications that were sent until now.
    fn receive(&mut self) -> Vec<(Id, ModelPush)> {
        static TURN: AtomicU32 = AtomicU32::new(0);
        let end = format!("end {}", TURN.fetch_add(1, Ordering::Relaxed));
        self.server
            .command(&["PUBLISH", "leasehold:inbox:end", &end]);

        let mut pushes = Vec::new();
        loop {
            let RedisReply::List(message) = self.inbox.receive_reply().expect("a message") else {
                panic!("the reply is not a message")
            };
            let push = message[3].text();
            if push == end {
                return pushes;
            }
            pushes.push(match &push[..1] {
                "H" => {
                    assert_eq!(read(grant::KEY, push), KEY);
                    let token = self.token(read(grant::TOKEN, push));
                    (id_of(read(grant::CLAIM, push)), ModelPush::Held(token))
                }
                "N" => (id_of(&push[1..]), ModelPush::Next),
                _ => (id_of(&push[1..]), ModelPush::Gone),
            });
        }
    }

    /// Reads the holder and the waiters from the keys.
    fn state(&self) -> (Option<Holder>, Vec<Waiter>) {
        let state = self.server.request(&["GET", KEY]);
        let state = if state.is_nil() { "" } else { state.text() };
        let holds = matches!(record::MODE.read(state), Some("H" | "W"));
        let holder = holds.then(|| Holder {
            id: id_of(read(record::CLAIM, state)),
            token: self.token(read(record::TOKEN, state)),
            link: link_of(state),
            nonce: nonce_of(read(record::NONCE, state)),
            expired: self.server.command(&["PTTL", KEY]).int() <= DAY,
        });

        let queue = self
            .server
            .command(&["ZRANGE", &format!("{KEY}:queue"), "0", "-1"]);
        let waiter = |id: &str| {
            let value = self.server.command(&["HGET", &format!("{KEY}:claims"), id]);
            let record = read(entry::RECORD, value.text());
            Waiter {
                id: id_of(id),
                link: link_of(record),
                expired: read(entry::DEADLINE, value.text()) == "0000000000000001",
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

fn link_of(text: &str) -> Link {
    Link {
        epoch: read(record::EPOCH, text).parse().expect("digits"),
        verdict: read(record::SERVER, text) != "----------",
    }
}

fn read(field: Field, text: &str) -> &str {
    field.read(text).expect("the text has the field")
}

/// A random generator. The same seed repeats a run.
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
                    EnterMode::Poll,
                    EnterMode::Poll,
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

/// Shows G-01, S12.
#[test]
fn scripts_match_the_lock_model() {
    random_steps(0..150);
}

/// In the model, each claim belongs to a client of its own. A client may also have several claims.
#[test]
fn renewal_of_another_claim_of_the_same_client_is_refused() {
    let mut both = Both::new();
    let link = Link {
        epoch: 1,
        verdict: true,
    };
    both.step(Step::Come(0));
    both.step(Step::Enter {
        id: 0,
        mode: EnterMode::Queue,
        link,
        expired: false,
    });

    let liveness = format!("{NONE}{}", both.link(0, link));
    let life = (DAY + LEASE).to_string();
    for (id, letter) in [(1, '0'), (0, '1')] {
        let script = ["EVAL", both.renew_script, "1", KEY];
        let arguments = [&text(id), &liveness, &life];
        let reply = both
            .server
            .command(&[&script[..], &arguments.map(String::as_str)].concat());
        assert_eq!(reply.text(), format!("{}{letter}", text(id)));
    }
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

/// A holder's renewal, refresh or reconnect clears the note of its absence. A contender revokes a
/// hold only by the nonce that the record still has.
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
    let first = both.model.holder.expect("the claim holds").nonce;
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
        both.enter_script,
        "1",
        KEY,
        &record,
        &(DAY + LEASE).to_string(),
        &expired,
        NEVER,
    ]);
    assert_eq!(
        read(reply::STANDING, events.text()),
        "N",
        "an earlier absence was taken for this one"
    );
}

/// The holder is connected to another server, or to this server before a failover. This server has
/// no record of the connection.
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
            both.enter_script,
            "1",
            KEY,
            record,
            &(DAY + LEASE).to_string(),
            &config,
            NEVER,
        ]);
        events.text().to_owned()
    };
    assert_eq!(read(reply::STANDING, &enter(&record, &nonce(1))), "H");

    let waits = format!(
        "{:016}H{}{NONE}{}00000001{here}0005000 v1 1 1 {LEASE} 0 1 h p l",
        0,
        text(1),
        client(1)
    );
    let events = enter(&waits, &nonce(2));
    assert_eq!(
        (read(reply::STANDING, &events), events.len()),
        ("N", reply::ABSENCES.start),
        "absence was noted: {events}"
    );
}

/// Grants, hand-overs and departures, while the lease of one waiter is over.
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

/// A client may propose the token that the server gave last.
#[test]
fn proposed_token_must_exceed_the_last_token() {
    let server = Redis::start();
    let [enter_script, ..] = redis_scripts::texts();
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
            enter_script,
            "1",
            KEY,
            &record,
            &(DAY + LEASE).to_string(),
            &config,
            NEVER,
        ]);
        let token: u64 = read(reply::NUMBER, events.text()).parse().expect("digits");
        assert_eq!(token, last + 1, "{ahead} ahead");
    }
}
