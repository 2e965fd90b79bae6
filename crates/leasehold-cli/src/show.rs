//! `leasehold show`: who holds a lock and who waits.

use std::io::{self, Write};

use anyhow::Result;
use jiff::Timestamp;
use leasehold::{Entry, Line, View};
use serde::Serialize;

use crate::commands::Store;
use crate::exit::Exit;
use crate::words::{Plain, as_term, stranger, time, who};

pub(crate) async fn show(store: &Store, name: &str, json: bool) -> Result<Exit> {
    let line = store.open().await?.look(name).await?;
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&Shown::from(&line))?)?;
    } else {
        write!(out, "{}", block(&line))?;
    }
    Ok(Exit::DONE)
}

/// A line as people read it: what stands first, then one entry a row.
pub(crate) fn block(line: &Line) -> String {
    let last = line.last.map_or("none yet".to_owned(), |token| token.to_string());
    let state = if line.entries.is_empty() && line.strangers.is_empty() { "free" } else { "in use" };
    let head = format!("{}: {state}, last token {last}\n", line.name);
    let holders = line.holders().map(|entry| row("held", entry));
    let waiters = line.waiters().zip(1..).map(|(entry, position)| row(&format!("waiting {position}"), entry));
    let strangers = line.strangers.iter().map(|by| format!("  held outside the line: {}\n", stranger(by)));
    let views = line.views.iter().map(view);
    std::iter::once(head).chain(strangers).chain(holders).chain(waiters).chain(views).collect()
}

/// What one of several servers knows.
fn view(view: &View) -> String {
    let knows = match (&view.trouble, view.holder) {
        (Some(trouble), None) => Plain(trouble).to_string(),
        (None, None) => "free".to_owned(),
        (trouble, Some((_, token))) => {
            let trouble = trouble.as_ref().map(|trouble| format!("; {}", Plain(trouble))).unwrap_or_default();
            format!("held, token {token}, {} left{trouble}", as_term(view.left))
        }
    };
    format!("  {}: {knows}\n", Plain(&view.place))
}

fn row(standing: &str, entry: &Entry) -> String {
    let token = entry.token().map(|token| format!(", token {token}")).unwrap_or_default();
    let (share, since, who) = (entry.share, time(entry.note.since), who(&entry.note));
    format!("  {standing}: {who}, {share}{token}, since {since}\n")
}

/// A line as programs read it; `show --help` documents it.
#[derive(Serialize)]
pub(crate) struct Shown<'a> {
    name: &'a str,
    last_token: Option<u64>,
    holders: Vec<Holder<'a>>,
    waiters: Vec<Waiter<'a>>,
    strangers: Vec<Outside<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    servers: Vec<ServerStatus<'a>>,
}

#[derive(Serialize)]
struct ServerStatus<'a> {
    server: &'a str,
    token: Option<u64>,
    last_token: Option<u64>,
    left_ms: u64,
    trouble: Option<&'a str>,
}

#[derive(Serialize)]
struct Outside<'a> {
    pid: u32,
    program: &'a str,
}

#[derive(Serialize)]
struct Holder<'a> {
    token: u64,
    #[serde(flatten)]
    claimant: Claimant<'a>,
}

#[derive(Serialize)]
struct Waiter<'a> {
    position: usize,
    #[serde(flatten)]
    claimant: Claimant<'a>,
}

#[derive(Serialize)]
struct Claimant<'a> {
    share: String,
    weight: u32,
    capacity: u32,
    since: Timestamp,
    host: &'a str,
    pid: u32,
    program: &'a str,
    label: &'a str,
}

impl<'a> From<&'a Line> for Shown<'a> {
    fn from(line: &'a Line) -> Self {
        let holder = |entry: &'a Entry| Some(Holder { token: entry.token()?.get(), claimant: entry.into() });
        let waiter = |(entry, position): (&'a Entry, _)| Waiter { position, claimant: entry.into() };
        Self {
            name: line.name.as_str(),
            last_token: line.last.map(leasehold::Token::get),
            holders: line.holders().filter_map(holder).collect(),
            waiters: line.waiters().zip(1..).map(waiter).collect(),
            strangers: line.strangers.iter().map(|by| Outside { pid: by.pid, program: &by.program }).collect(),
            servers: line.views.iter().map(ServerStatus::from).collect(),
        }
    }
}

impl<'a> From<&'a View> for ServerStatus<'a> {
    fn from(view: &'a View) -> Self {
        Self {
            server: &view.place,
            token: view.holder.map(|(_, token)| token.get()),
            last_token: view.last.map(leasehold::Token::get),
            left_ms: view.left.as_millis().try_into().unwrap_or(u64::MAX),
            trouble: view.trouble.as_deref(),
        }
    }
}

impl<'a> From<&'a Entry> for Claimant<'a> {
    fn from(entry: &'a Entry) -> Self {
        let (share, note) = (entry.share, &entry.note);
        Self {
            share: share.to_string(),
            weight: share.weight(),
            capacity: share.capacity(),
            since: time(note.since),
            host: &note.host,
            pid: note.pid,
            program: &note.program,
            label: &note.label,
        }
    }
}
