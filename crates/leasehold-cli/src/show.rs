//! `leasehold show`: who holds a lock and who waits.

use std::io::{self, Write};

use anyhow::Result;
use jiff::Timestamp;
use leasehold::{Entry, LockState, ServerStatus};
use serde::Serialize;

use crate::commands::Store;
use crate::exit::Exit;
use crate::format::{Escaped, claimant, external_holder, time, whole_unit};

pub(crate) async fn show(store: &Store, name: &str, json: bool) -> Result<Exit> {
    let lock_state = store.open().await?.inspect(name).await?;
    let mut out = io::stdout().lock();
    if json {
        writeln!(
            out,
            "{}",
            serde_json::to_string_pretty(&LockJson::from(&lock_state))?
        )?;
    } else {
        write!(out, "{}", block(&lock_state))?;
    }
    Ok(Exit::DONE)
}

/// A line as people read it: what stands first, then one entry a row.
pub(crate) fn block(lock_state: &LockState) -> String {
    let last = lock_state
        .last_token
        .map_or("none yet".to_owned(), |token| token.to_string());
    let state = if lock_state.entries.is_empty() && lock_state.external_holders.is_empty() {
        "free"
    } else {
        "in use"
    };
    let head = format!("{}: {state}, last token {last}\n", lock_state.name);
    let holders = lock_state.holders().map(|entry| row("held", entry));
    let waiters = lock_state
        .waiters()
        .zip(1..)
        .map(|(entry, position)| row(&format!("waiting {position}"), entry));
    let external_holders = lock_state
        .external_holders
        .iter()
        .map(|holder| format!("  held outside the line: {}\n", external_holder(holder)));
    let servers = lock_state.servers.iter().map(server_line);
    std::iter::once(head)
        .chain(external_holders)
        .chain(holders)
        .chain(waiters)
        .chain(servers)
        .collect()
}

/// What one of several servers knows.
fn server_line(server: &ServerStatus) -> String {
    let knows = match (&server.error, server.holder) {
        (Some(error), None) => Escaped(error).to_string(),
        (None, None) => "free".to_owned(),
        (error, Some((_, token))) => {
            let error = error
                .as_ref()
                .map(|error| format!("; {}", Escaped(error)))
                .unwrap_or_default();
            format!(
                "held, token {token}, {} left{error}",
                whole_unit(server.remaining)
            )
        }
    };
    format!("  {}: {knows}\n", Escaped(&server.server))
}

fn row(standing: &str, entry: &Entry) -> String {
    let token = entry
        .token()
        .map(|token| format!(", token {token}"))
        .unwrap_or_default();
    let (share, since, who) = (entry.share, time(entry.info.since), claimant(&entry.info));
    format!("  {standing}: {who}, {share}{token}, since {since}\n")
}

/// A line as programs read it; `show --help` documents it.
#[derive(Serialize)]
pub(crate) struct LockJson<'a> {
    name: &'a str,
    last_token: Option<u64>,
    holders: Vec<HolderJson<'a>>,
    waiters: Vec<WaiterJson<'a>>,
    external_holders: Vec<ExternalHolderJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    servers: Vec<ServerJson<'a>>,
}

#[derive(Serialize)]
struct ServerJson<'a> {
    server: &'a str,
    token: Option<u64>,
    last_token: Option<u64>,
    left_ms: u64,
    trouble: Option<&'a str>,
}

#[derive(Serialize)]
struct ExternalHolderJson<'a> {
    pid: u32,
    program: &'a str,
}

#[derive(Serialize)]
struct HolderJson<'a> {
    token: u64,
    #[serde(flatten)]
    claimant: ClaimantJson<'a>,
}

#[derive(Serialize)]
struct WaiterJson<'a> {
    position: usize,
    #[serde(flatten)]
    claimant: ClaimantJson<'a>,
}

#[derive(Serialize)]
struct ClaimantJson<'a> {
    share: String,
    weight: u32,
    capacity: u32,
    since: Timestamp,
    host: &'a str,
    pid: u32,
    program: &'a str,
    label: &'a str,
}

impl<'a> From<&'a LockState> for LockJson<'a> {
    fn from(lock_state: &'a LockState) -> Self {
        let holder = |entry: &'a Entry| {
            Some(HolderJson {
                token: entry.token()?.get(),
                claimant: entry.into(),
            })
        };
        let waiter = |(entry, position): (&'a Entry, _)| WaiterJson {
            position,
            claimant: entry.into(),
        };
        Self {
            name: lock_state.name.as_str(),
            last_token: lock_state.last_token.map(leasehold::Token::get),
            holders: lock_state.holders().filter_map(holder).collect(),
            waiters: lock_state.waiters().zip(1..).map(waiter).collect(),
            external_holders: lock_state
                .external_holders
                .iter()
                .map(|holder| ExternalHolderJson {
                    pid: holder.pid,
                    program: &holder.program,
                })
                .collect(),
            servers: lock_state.servers.iter().map(ServerJson::from).collect(),
        }
    }
}

impl<'a> From<&'a ServerStatus> for ServerJson<'a> {
    fn from(server: &'a ServerStatus) -> Self {
        Self {
            server: &server.server,
            token: server.holder.map(|(_, token)| token.get()),
            last_token: server.last_token.map(leasehold::Token::get),
            left_ms: server.remaining.as_millis().try_into().unwrap_or(u64::MAX),
            trouble: server.error.as_deref(),
        }
    }
}

impl<'a> From<&'a Entry> for ClaimantJson<'a> {
    fn from(entry: &'a Entry) -> Self {
        let (share, info) = (entry.share, &entry.info);
        Self {
            share: share.to_string(),
            weight: share.weight(),
            capacity: share.capacity(),
            since: time(info.since),
            host: &info.host,
            pid: info.pid,
            program: &info.program,
            label: &info.label,
        }
    }
}
