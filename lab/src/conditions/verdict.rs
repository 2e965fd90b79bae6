//! Derives a verdict for each condition from the figures of one contender.

use super::cases::{Crash, Failover, Granted, Lost};
use super::{NEVER_MILLIS, Row};
use crate::baselines::Service;

/// Whether a condition was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Kept.
    Kept,
    /// Broken.
    Broken,
    /// The condition does not apply, or the cell is a figure only.
    Neither,
}

/// A cell of the table.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) verdict: Verdict,
}

/// The headings of the columns.
pub(super) const COLUMNS: [&str; 8] = [
    "exclusion",
    "no deadlock",
    "only the owner unlocks",
    "fault tolerance",
    "next holder after a crash",
    "requests per acquisition, 100 waiting",
    "lost updates",
    "lost updates, fenced",
];

/// Returns a cell for each of [`COLUMNS`].
pub(super) fn cells(row: &Row) -> [Cell; 8] {
    [
        exclusion(row),
        no_deadlock(row),
        owner_only(row),
        fault_tolerance(row),
        next_holder(row),
        requests(row),
        lost(row),
        lost_fenced(row),
    ]
}

fn kept(text: &str) -> Cell {
    Cell {
        text: text.to_owned(),
        verdict: Verdict::Kept,
    }
}

fn broken(text: String) -> Cell {
    Cell {
        text,
        verdict: Verdict::Broken,
    }
}

fn neither(text: impl Into<String>) -> Cell {
    Cell {
        text: text.into(),
        verdict: Verdict::Neither,
    }
}

/// Whether two reported that they hold, at one instant.
fn exclusion(row: &Row) -> Cell {
    let mut text = Vec::new();
    if row.crowd.overlaps > 0 {
        text.push(format!("{} times under contention", row.crowd.overlaps));
    }
    if row.paused.both_claimed {
        text.push("a paused holder continues while the next one holds".to_owned());
    }
    if let Some(Failover {
        both_millis: Some(millis),
        without_end,
        ..
    }) = row.failover
    {
        let end = if without_end {
            "and longer"
        } else {
            "until it was notified"
        };
        text.push(format!(
            "{}: both for {} {end}",
            replaced(row),
            time(millis)
        ));
    }

    if text.is_empty() {
        kept("kept")
    } else {
        broken(format!("broken: {}", text.join("; ")))
    }
}

/// What a failover is, by the service of the contender.
pub(super) fn replaced(row: &Row) -> &'static str {
    match row.contender.service() {
        Service::Folder => "no server",
        Service::Redis => "replica promoted",
        Service::Masters => "one master flushed",
        Service::Ensemble => "leader killed",
    }
}

fn no_deadlock(row: &Row) -> Cell {
    let never = |crash: &Crash| crash.next_millis.is_none();
    match (&row.holder_killed, &row.acquirer_killed) {
        (holder, _) if never(holder) => broken("broken: a crash locks it forever".to_owned()),
        (_, Some(acquirer)) if never(acquirer) => {
            broken("broken: a crash between the two requests locks it forever".to_owned())
        }
        _ => kept("kept"),
    }
}

fn owner_only(row: &Row) -> Cell {
    let mut text = Vec::new();
    if row.owner.refused_freed {
        text.push("a refused client frees it");
    }
    if row.owner.late_freed == Some(true) {
        text.push("a late client frees another's lock");
    }

    if text.is_empty() {
        kept("kept")
    } else {
        broken(format!("broken: {}", text.join("; ")))
    }
}

fn fault_tolerance(row: &Row) -> Cell {
    let Some(down) = row.down else {
        return neither("no server");
    };

    if down.majority_granted {
        return broken("granted without a majority".to_owned());
    }

    let notified = down
        .notified_millis
        .map_or("its holder is not notified".to_owned(), |millis| {
            format!("its holder is notified after {}", time(millis))
        });

    match down.minority {
        Some(Granted {
            after_millis: Some(millis),
        }) => Cell {
            text: format!(
                "a minority down: next grant after {}; a majority: none, {notified}",
                time(millis)
            ),
            verdict: Verdict::Kept,
        },
        Some(Granted { after_millis: None }) => {
            broken(format!("a minority down: no grant; {notified}"))
        }
        None => neither(format!(
            "none, as it is one server; when it is down {notified}"
        )),
    }
}

fn next_holder(row: &Row) -> Cell {
    let holder = after(row.holder_killed);
    match row.acquirer_killed {
        Some(acquirer) => neither(format!(
            "{holder}; killed while acquiring: {}",
            after(acquirer)
        )),
        None => neither(holder),
    }
}

fn after(crash: Crash) -> String {
    crash
        .next_millis
        .map_or(format!("never (in {})", time(NEVER_MILLIS)), time)
}

fn requests(row: &Row) -> Cell {
    let each = row
        .crowd
        .requests_each
        .map_or("no server".to_owned(), |each| each.to_string());
    neither(each)
}

fn lost(row: &Row) -> Cell {
    count(row, |lost| Some(lost.unfenced))
}

fn lost_fenced(row: &Row) -> Cell {
    if row.crowd.lost.fenced.is_none() {
        neither("no token")
    } else {
        count(row, |lost| lost.fenced)
    }
}

/// Returns the sum over the cases, with the count of each case.
fn count(row: &Row, of: impl Fn(Lost) -> Option<usize>) -> Cell {
    let failover = row
        .failover
        .map(|failover| failover.lost)
        .unwrap_or_default();

    let cases = [
        ("paused", row.paused.lost),
        ("failover", failover),
        ("contention", row.crowd.lost),
    ];
    let found = cases.map(|(case, lost)| (case, of(lost).unwrap_or(0)));

    let all: usize = found.iter().map(|(_, count)| count).sum();
    if all == 0 {
        return kept("0");
    }

    let parts = found
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(case, count)| format!("{case} {count}"));
    broken(format!("{all} ({})", parts.collect::<Vec<_>>().join(", ")))
}

/// Formats a time in milliseconds or seconds.
pub(super) fn time(millis: u64) -> String {
    if millis < 1_000 {
        format!("{millis} ms")
    } else {
        format!("{}.{} s", millis / 1_000, millis % 1_000 / 100)
    }
}

#[cfg(test)]
mod tests;
