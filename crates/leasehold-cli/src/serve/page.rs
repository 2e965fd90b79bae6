//! The page: one document that shows the state without a script, and a script that follows it.

use std::cmp::Reverse;
use std::fmt::Write;
use std::time::Duration;

use hyper::StatusCode;
use leasehold::{Entry, LockState};

use super::Site;
use super::html::{Html, fill};
use super::replies::{self, Reply};
use super::snapshot::Snapshot;
use crate::format::{hindrance, known_age, known_since, time, tokens, whole_seconds};
use crate::usage::Usage;

pub(super) const STYLE: &str = include_str!("page/page.css");
pub(super) const SCRIPT: &str = include_str!("page/page.js");
const DOCUMENT: &str = include_str!("page/page.html");

pub(super) async fn reply(site: &Site, prefix: &str) -> Reply {
    let snapshot = site.scanner.checked().await;
    let html = document(&snapshot, prefix, site.is_breaking_allowed);
    replies::text(StatusCode::OK, "text/html; charset=utf-8", html)
}

fn document(snapshot: &Snapshot, prefix: &str, is_breaking_allowed: bool) -> String {
    fill(DOCUMENT, |key| match key {
        "store" => Html(&snapshot.store).to_string(),
        "prefix" => Html(prefix).to_string(),
        "summary" => Html(&summary(snapshot, prefix)).to_string(),
        "problem" => Html(&problem(snapshot)).to_string(),
        "rows" => rows(snapshot, prefix),
        "empty" => Html(&empty(snapshot, prefix)).to_string(),
        "breaking" => is_breaking_allowed.to_string(),
        other => unreachable!("the page has no value {other}"),
    })
}

fn summary(snapshot: &Snapshot, prefix: &str) -> String {
    let locks = snapshot.locks_of(prefix).count();
    let waiters = snapshot.locks_of(prefix).map(|lock| lock.waiters().count());
    let counted = |count: usize, word| format!("{count} {word}{}", plural(count));
    format!(
        "{} in use, {}, at {}",
        counted(locks, "lock"),
        counted(waiters.sum(), "waiter"),
        time(snapshot.at)
    )
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn empty(snapshot: &Snapshot, prefix: &str) -> String {
    if snapshot.locks_of(prefix).next().is_some() {
        return String::new();
    }
    if prefix.is_empty() {
        return "No lock is in use.".to_owned();
    }
    format!("No lock in use begins with {prefix}")
}

fn problem(snapshot: &Snapshot) -> String {
    let mut problems = Vec::new();
    if let Some(error) = &snapshot.error {
        problems.push(format!("The store cannot be read: {error}"));
    } else if !snapshot.is_complete {
        problems.push("There are more locks than these.".to_owned());
    }
    problems.extend(snapshot.skipped.iter().cloned());
    problems.join("\n")
}

/// The rows of the first locks. The script shows more when the user filters.
///
/// Users look for what is stuck: many waiters, or an old hold. The locks come in order of their
/// names, which the sort keeps among equal ones. A hold without a time comes last. page.js has the
/// same order.
fn rows(snapshot: &Snapshot, prefix: &str) -> String {
    let mut locks: Vec<&LockState> = snapshot.locks_of(prefix).collect();
    locks.sort_by_cached_key(|lock| {
        let oldest = lock.holders().filter_map(known_since).min();
        let waiters = lock.waiters().count();
        (Reverse(waiters), oldest.is_none(), oldest)
    });
    locks.into_iter().take(ROWS_MAX).map(row).collect()
}

fn row(lock_state: &LockState) -> String {
    let name = Html(lock_state.name.as_str());
    let usage = Usage::of(lock_state);
    let kind = usage.map_or("", |usage| usage.kind.name());
    let mut held = usage.map_or_else(String::new, |usage| usage.to_string());
    let waiting = lock_state.waiters().count();
    if waiting > 0 {
        // Writing to a string cannot fail.
        let _ = write!(held, " <span class=\"badge\">{waiting} waiting</span>");
    }
    let holders = holders(lock_state);
    let waiters = waiters(lock_state);

    format!(
        "<tr role=\"row\"><th role=\"rowheader\" scope=\"row\"><bdi>{name}</bdi></th>\
         {}{}{}{}</tr>\n",
        cell("Kind", kind),
        cell("Held", &held),
        cell("Holders", &holders),
        cell("Waiters", &waiters),
    )
}

/// A cell with this HTML. On a phone its label comes first.
fn cell(label: &str, html: &str) -> String {
    format!("<td role=\"cell\" data-label=\"{label}\">{html}</td>")
}

fn holders(lock_state: &LockState) -> String {
    let mut list = String::from("<ul>");
    for entry in lock_state.holders() {
        let (word, tokens) = tokens(entry).unwrap_or_default();
        let is_long = known_age(entry).is_some_and(|age| age >= LONG_HELD);
        let long = if is_long {
            badge("long held")
        } else {
            String::new()
        };
        // Writing to a string cannot fail.
        let _ = write!(
            list,
            "<li>{}{long} <span class=\"token\">{word} {tokens}</span></li>",
            described(entry)
        );
    }
    for holder in &lock_state.external_holders {
        let holder = holder.to_string();
        // Writing to a string cannot fail.
        let _ = write!(list, "<li><bdi>{}</bdi>, flock</li>", Html(&holder));
    }
    list + "</ul>"
}

fn waiters(lock_state: &LockState) -> String {
    let items = lock_state
        .waiters()
        .map(|entry| format!("<li>{}</li>", described(entry)));
    format!("<ol>{}</ol>", items.collect::<String>())
}

/// Shows what its user calls a claim first, then its process, what hinders it, and its age.
fn described(entry: &Entry) -> String {
    let info = &entry.info;
    let mut process = format!("[{}]@{}", info.pid, info.host);
    let mut label = info.label.as_str();
    if label.is_empty() {
        label = &info.program;
    } else {
        process.insert_str(0, &info.program);
    }
    let hindrance = hindrance(entry);
    let hindrance = hindrance.strip_prefix(", ").map_or_else(String::new, badge);
    let age = known_age(entry).map_or_else(String::new, |age| {
        let since = time(info.since);
        let age = whole_seconds(age);
        format!(" <time datetime=\"{since}\">{age}</time>")
    });
    format!(
        "<bdi class=\"label\">{}</bdi> <bdi class=\"who\">{}</bdi>{hindrance}{age}",
        Html(label),
        Html(&process)
    )
}

fn badge(text: &str) -> String {
    format!(" <span class=\"badge warn\">{}</span>", Html(text))
}

/// The most rows of the page. A browser draws them in a few milliseconds.
const ROWS_MAX: usize = 300;
/// A hold of this age is marked. page.js has the same number.
const LONG_HELD: Duration = Duration::from_secs(3600);
