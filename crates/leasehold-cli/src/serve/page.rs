//! The page: one document that shows the state without a script, and a script that follows it.

use std::cmp::Reverse;
use std::fmt::Write;

use hyper::StatusCode;
use leasehold::{Entry, LockState};

use super::html::{Html, fill};
use super::replies::{self, Reply};
use super::routes::Site;
use super::snapshot::Snapshot;
use crate::format::{age, hindrance, time, tokens, whole_seconds};
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
        "breaking" => is_breaking_allowed.to_string(),
        other => unreachable!("the page has no value {other}"),
    })
}

fn summary(snapshot: &Snapshot, prefix: &str) -> String {
    let locks = snapshot.locks_of(prefix).count();
    let waiters = snapshot.locks_of(prefix).map(|lock| lock.waiters().count());
    let at = time(snapshot.at);
    format!(
        "{locks} locks in use, {} waiters, at {at}",
        waiters.sum::<usize>()
    )
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
/// names, which the sort keeps among equal ones. page.js has the same order.
fn rows(snapshot: &Snapshot, prefix: &str) -> String {
    let mut locks: Vec<&LockState> = snapshot.locks_of(prefix).collect();
    locks.sort_by_cached_key(|lock| {
        let oldest = lock.holders().map(|holder| holder.info.since).min();
        (Reverse(lock.waiters().count()), oldest)
    });
    locks.into_iter().take(ROWS_MAX).map(row).collect()
}

fn row(lock_state: &LockState) -> String {
    let name = Html(lock_state.name.as_str());
    let usage = Usage::of(lock_state);
    let kind = usage.map_or("", |usage| usage.kind.name());
    let held = usage.map_or_else(String::new, |usage| usage.to_string());
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
        // Writing to a string cannot fail.
        let _ = write!(
            list,
            "<li>{}, {word} <b class=\"token\">{tokens}</b></li>",
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

fn described(entry: &Entry) -> String {
    let holder = entry.info.to_string();
    let since = time(entry.info.since);
    let age = whole_seconds(age(entry));
    let hindrance = hindrance(entry);
    format!(
        "<bdi>{}</bdi>{hindrance}, <time datetime=\"{since}\">{age}</time>",
        Html(&holder)
    )
}

/// The most rows of the page. A browser draws them in a few milliseconds.
const ROWS_MAX: usize = 300;
