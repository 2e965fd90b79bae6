//! A job is completed once, by a claim that held.

use std::collections::{HashMap, VecDeque};

use anyhow::{Result, bail, ensure};

use crate::history::in_time;
use crate::{Event, EventKind};

/// A job that ran again after its completion.
#[derive(Clone, Copy, Debug)]
pub struct SecondRun {
    rule: &'static str,
    event: Event,
}

/// Checks that no job starts after its completion, and that only the claim that started it, and that
/// still held, completed it.
///
/// A completion whose reply did not arrive has no event.
///
/// # Errors
/// The first event that contradicts that.
pub fn completed_once(events: &[Event]) -> Result<()> {
    match second_runs(events)?.first() {
        Some(SecondRun { rule, event }) => bail!("{rule}: {event}"),
        None => Ok(()),
    }
}

/// Checks that only the claim that started a job, and that still held, completed it. Returns the runs
/// after a completion, which a store may lose with its data.
///
/// # Errors
/// The first event that contradicts that.
pub fn second_runs(events: &[Event]) -> Result<Vec<SecondRun>> {
    let mut started: HashMap<u32, u64> = HashMap::new();
    let mut completed: HashMap<u16, VecDeque<u64>> = HashMap::new();
    let mut again = Vec::new();
    for event in in_time(events) {
        match event.kind {
            EventKind::Started { id } => {
                let is_done = completed.get(&event.name);
                if is_done.is_some_and(|done| done.contains(&id)) {
                    let rule = "started after its completion";
                    again.push(SecondRun { rule, event });
                }
                started.insert(event.thread, id);
            }
            EventKind::Completed { id } => {
                let holds = started.remove(&event.thread) == Some(id);
                ensure!(holds, "completed without a hold: {event}");
                let done = completed.entry(event.name).or_default();
                if done.contains(&id) {
                    let rule = "completed twice";
                    again.push(SecondRun { rule, event });
                }
                done.push_front(id);
                done.truncate(REMEMBERED);
            }
            EventKind::Granted { .. }
            | EventKind::Expired
            | EventKind::Revoked
            | EventKind::Killed => drop(started.remove(&event.thread)),
            _ => {}
        }
    }
    Ok(again)
}

/// A store keeps the last 32 completions, and some of them have no event.
const REMEMBERED: usize = 16;
