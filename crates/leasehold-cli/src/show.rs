//! `leasehold show`: shows the holders and waiters of a lock.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use leasehold::{
    ClaimProcess, EndedHold, Entry, ExternalHolder, LockState, Name, Pin, PinnedBy, ServerStatus,
    Token,
};
use serde::Serialize;

use crate::commands::{Inspected, Show};
use crate::exit::Exit;
use crate::format::{
    Escaped, age, hindrance, is_missing, known_age, time, tokens, whole_seconds, whole_unit,
};
use crate::once::{self, RecordJson};
use crate::process_state::{is_command_stopped, is_stopped};
use crate::usage::{Kind, Usage};

pub(crate) async fn show(args: &Show) -> Result<Exit> {
    let opened = args.store.open_all().await?;
    let [only] = &opened[..] else {
        return show_all(args, &opened).await;
    };
    let lock_state = only.locks.inspect(&args.name).await?;
    let record = match args.missed_after {
        Some(_) => Some(only.locks.record(&args.name).await?),
        None => once::record_of(&only.locks, &args.name).await?,
    };

    let mut out = io::stdout().lock();
    if args.json {
        let mut lock = LockJson::from(&lock_state);
        lock.record = record.as_ref().map(RecordJson::new).unwrap_or_default();
        writeln!(out, "{}", serde_json::to_string_pretty(&lock)?)?;
    } else {
        let rows = record.as_ref().map(once::rows).unwrap_or_default();
        write!(out, "{}{rows}", block(&lock_state))?;
        writeln!(out, "  {}", args.store.describe(&opened))?;
    }

    if let (Some(record), Some(within)) = (&record, args.missed_after)
        && once::is_missed(&args.name, record, within)
    {
        return Ok(Exit::MISSED);
    }
    if args.exit_code && !is_free(&lock_state) {
        return Ok(Exit::IN_USE);
    }
    Ok(Exit::DONE)
}

/// Shows the lock in each format in which it is in use.
async fn show_all(args: &Show, opened: &[Inspected]) -> Result<Exit> {
    Name::parse(&args.name)?;
    let mut found = Vec::new();
    for inspected in opened {
        let lock_state = inspected.inspect(&args.name).await?;
        if let Some(lock_state) = lock_state.filter(|lock_state| !is_free(lock_state)) {
            found.push((inspected.format, lock_state));
        }
    }

    let mut out = io::stdout().lock();
    if args.json {
        let locks: Vec<LockJson<'_>> = found
            .iter()
            .map(|(format, lock_state)| LockJson::in_format(Some(format), lock_state))
            .collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&locks)?)?;
    } else if found.is_empty() {
        writeln!(out, "{}: free", Escaped(&args.name))?;
    }
    for (format, lock_state) in found.iter().filter(|_| !args.json) {
        write!(out, "{format}: {}", block(lock_state))?;
    }
    if !args.json {
        writeln!(out, "  {}", args.store.describe(opened))?;
    }

    if args.exit_code && !found.is_empty() {
        return Ok(Exit::IN_USE);
    }
    Ok(Exit::DONE)
}

/// Formats a lock as text: a heading, then one row for each holder, waiter and server.
pub(crate) fn block(lock_state: &LockState) -> String {
    // The file store forgets the token of a free lock.
    let last = lock_state
        .last_token
        .map_or_else(String::new, |token| format!(", last token {token}"));
    let state = if is_free(lock_state) {
        "free"
    } else {
        "in use"
    };
    let usage = Usage::of(lock_state)
        .map(|usage| format!(", {}, {usage} held", usage.kind.name()))
        .unwrap_or_default();
    let head = format!("{}: {state}{usage}{last}\n", lock_state.name);

    let external_holders = lock_state
        .external_holders
        .iter()
        .map(|holder| format!("  held (flock): {holder}\n"));
    let holders = lock_state.holders().map(|entry| {
        let is_leader = entry.info.is_candidate;
        row(if is_leader { "leader" } else { "held" }, entry)
    });
    let waiters = lock_state.waiters().zip(1..).map(|(entry, position)| {
        let is_candidate = entry.info.is_candidate;
        let word = if is_candidate { "candidate" } else { "waiting" };
        row(&format!("{word} {position}"), entry)
    });
    let servers = lock_state.servers.iter().map(server_row);

    std::iter::once(head)
        .chain(external_holders)
        .chain(holders)
        .chain(waiters)
        .chain(servers)
        .collect()
}

/// Whether an acquire would be granted at once: the lock is not held, and the store would pass over
/// all waiters.
pub(crate) fn is_free(lock_state: &LockState) -> bool {
    let is_held = lock_state.holders().next().is_some();
    !is_held && lock_state.external_holders.is_empty() && lock_state.waiters().all(is_missing)
}

fn row(standing: &str, entry: &Entry) -> String {
    let holder = entry.info.to_string();
    let share = entry.share;
    let token = tokens(entry)
        .map(|(word, tokens)| format!(", {word} {tokens}"))
        .unwrap_or_default();
    let left = entry
        .lease_left
        .map_or_else(String::new, |left| format!(", {} left", whole_unit(left)));
    let hindrance = hindrance(entry);

    let times = known_age(entry).map_or_else(String::new, |age| {
        let age = whole_seconds(age);
        let since = time(entry.info.since);
        format!(", for {age}, since {since}")
    });
    let pins: String = entry.pins.iter().map(pin_row).collect();
    format!("  {standing}: {holder}{hindrance}, {share}{token}{times}{left}\n{pins}")
}

/// Formats a transaction that pins the grant of a holder.
fn pin_row(pin: &Pin) -> String {
    let by = match &pin.by {
        PinnedBy::Session(pid) => format!("the transaction of process {pid} on the server"),
        PinnedBy::Prepared(gid) => format!("the prepared transaction {}", Escaped(gid)),
        other => format!("{other:?}"),
    };
    let overdue = pin.overdue.map_or_else(String::new, |overdue| {
        let overdue = whole_unit(overdue);
        format!(", {overdue} after the end of the hold")
    });
    let right = pin
        .missing_right
        .as_ref()
        .map_or_else(String::new, |right| format!("; ending it needs {right}"));
    // A prepared transaction cannot go back to a savepoint.
    let trap = match pin.by {
        PinnedBy::Session(_) => " (until it ends, or rolls back to a savepoint before its check)",
        _ => "",
    };
    format!("    pinned by {by}{overdue}{right}{trap}\n")
}

/// Formats the status that one of several servers reports.
fn server_row(server: &ServerStatus) -> String {
    let error = server.error.as_deref().map(Escaped);
    let state = match (server.holder, error) {
        (Some((_, token)), error) => {
            let remaining = whole_unit(server.remaining);
            let error = error.map(|error| format!("; {error}")).unwrap_or_default();
            format!("held, token {token}, {remaining} left{error}")
        }
        (None, Some(error)) => error.to_string(),
        (None, None) => "free".to_owned(),
    };

    format!("  {}: {state}\n", Escaped(&server.server))
}

/// A lock as `show --help` documents it.
///
/// Tokens are strings: JavaScript and jq round 64-bit numbers.
#[derive(Serialize)]
pub(crate) struct LockJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<&'a str>,
    name: &'a str,
    state: &'static str,
    kind: Option<&'static str>,
    held: u32,
    capacity: Option<u32>,
    last_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<EndedJson>,
    #[serde(flatten)]
    record: RecordJson<'a>,
    holders: Vec<ClaimJson<'a>>,
    waiters: Vec<ClaimJson<'a>>,
    external_holders: Vec<ExternalHolderJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    servers: Vec<ServerJson<'a>>,
}

/// How the last hold ended that its client did not release.
#[derive(Serialize)]
struct EndedJson {
    token: String,
    reason: String,
}

#[derive(Serialize)]
struct ClaimJson<'a> {
    #[serde(flatten)]
    standing: StandingJson,
    share: String,
    weight: u32,
    capacity: Option<u32>,
    since: Timestamp,
    age_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_left_ms: Option<u64>,
    host: &'a str,
    pid: u32,
    program: &'a str,
    label: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    candidate: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    connected: Option<bool>,
    stopped: bool,
    command_stopped: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<ProcessJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pins: Vec<PinJson<'a>>,
}

#[derive(Serialize)]
struct PinJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gid: Option<&'a str>,
    overdue_ms: Option<u64>,
    missing_right: Option<&'a str>,
}

#[derive(Serialize)]
struct ProcessJson<'a> {
    state: &'static str,
    processes: Vec<ExternalHolderJson<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum StandingJson {
    Held {
        token: String,
    },
    HeldByCohort {
        first_token: String,
        last_token: String,
    },
    Waiting {
        position: usize,
    },
}

#[derive(Serialize)]
struct ExternalHolderJson<'a> {
    pid: u32,
    program: &'a str,
}

#[derive(Serialize)]
struct ServerJson<'a> {
    server: &'a str,
    state: &'static str,
    token: Option<String>,
    last_token: Option<String>,
    remaining_ms: u64,
    error: Option<&'a str>,
}

impl StandingJson {
    /// The tokens of a holder; `None` for a waiter.
    fn of_holder(entry: &Entry) -> Option<Self> {
        let first_token = entry.first_token()?.to_string();
        let last_token = entry.token()?.to_string();
        Some(if first_token == last_token {
            Self::Held { token: last_token }
        } else {
            Self::HeldByCohort {
                first_token,
                last_token,
            }
        })
    }
}

impl<'a> From<&'a LockState> for LockJson<'a> {
    fn from(lock_state: &'a LockState) -> Self {
        let holder = |entry| Some(ClaimJson::new(entry, StandingJson::of_holder(entry)?));
        let external_holders = lock_state.external_holders.iter();
        let usage = Usage::of(lock_state);

        Self {
            format: None,
            name: lock_state.name.as_str(),
            state: if is_free(lock_state) {
                "free"
            } else {
                "in_use"
            },
            kind: usage.map(|usage| usage.kind.name()),
            held: usage.map_or(0, |usage| usage.held),
            capacity: usage.and_then(|usage| usage.kind.capacity()),
            last_token: text(lock_state.last_token),
            ended: lock_state.ended.as_ref().map(EndedJson::from),
            record: RecordJson::default(),
            holders: lock_state.holders().filter_map(holder).collect(),
            waiters: lock_state
                .waiters()
                .zip(1..)
                .map(|(entry, position)| ClaimJson::new(entry, StandingJson::Waiting { position }))
                .collect(),
            external_holders: external_holders.map(ExternalHolderJson::from).collect(),
            servers: lock_state.servers.iter().map(ServerJson::from).collect(),
        }
    }
}

impl From<&EndedHold> for EndedJson {
    fn from(ended: &EndedHold) -> Self {
        Self {
            token: ended.token.to_string(),
            reason: ended.reason.to_string(),
        }
    }
}

impl<'a> LockJson<'a> {
    /// The lock, and the format of its entries if there are several.
    pub(crate) fn in_format(format: Option<&'a str>, lock_state: &'a LockState) -> Self {
        Self {
            format,
            ..Self::from(lock_state)
        }
    }
}

impl<'a> ClaimJson<'a> {
    fn new(entry: &'a Entry, standing: StandingJson) -> Self {
        let share = entry.share;
        let info = &entry.info;

        Self {
            standing,
            share: share.to_string(),
            weight: share.weight(),
            capacity: Kind::of(share).capacity(),
            since: time(info.since),
            age_seconds: age(entry).as_secs(),
            lease_left_ms: entry.lease_left.map(millis),
            host: &info.host,
            pid: info.pid,
            program: &info.program,
            label: &info.label,
            candidate: info.is_candidate,
            connected: entry.connected,
            stopped: is_stopped(info),
            command_stopped: is_command_stopped(info),
            process: entry.process.as_ref().map(ProcessJson::from),
            pins: entry.pins.iter().map(PinJson::from).collect(),
        }
    }
}

impl<'a> From<&'a Pin> for PinJson<'a> {
    fn from(pin: &'a Pin) -> Self {
        let (pid, gid) = match &pin.by {
            PinnedBy::Session(pid) => (Some(*pid), None),
            PinnedBy::Prepared(gid) => (None, Some(gid.as_str())),
            _ => (None, None),
        };
        Self {
            pid,
            gid,
            overdue_ms: pin.overdue.map(millis),
            missing_right: pin.missing_right.as_deref(),
        }
    }
}

impl<'a> From<&'a ClaimProcess> for ProcessJson<'a> {
    fn from(process: &'a ClaimProcess) -> Self {
        let state = match process {
            ClaimProcess::OtherNamespace(_) => "other_namespace",
            ClaimProcess::Ended { .. } => "ended",
            _ => "unseen",
        };
        let processes = process.processes().iter();
        Self {
            state,
            processes: processes.map(ExternalHolderJson::from).collect(),
        }
    }
}

impl<'a> From<&'a ExternalHolder> for ExternalHolderJson<'a> {
    fn from(holder: &'a ExternalHolder) -> Self {
        Self {
            pid: holder.pid,
            program: &holder.program,
        }
    }
}

impl<'a> From<&'a ServerStatus> for ServerJson<'a> {
    fn from(server: &'a ServerStatus) -> Self {
        Self {
            server: &server.server,
            state: match (server.holder, &server.error) {
                (Some(_), _) => "held",
                (None, None) => "free",
                (None, Some(_)) => "unknown",
            },
            token: text(server.holder.map(|(_, token)| token)),
            last_token: text(server.last_token),
            remaining_ms: millis(server.remaining),
            error: server.error.as_deref(),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

fn text(token: Option<Token>) -> Option<String> {
    token.as_ref().map(Token::to_string)
}
