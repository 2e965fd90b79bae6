//! Derives a verdict for each condition from the figures of one contender.

use super::NEVER_MILLIS;
use super::cases::{Both, Crash, Lost, Minority, Row};
use crate::baselines::Service;

use Verdict::{Broken, Kept, Neither};

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
        if_tested(row, unless_broken(&exclusion(row))),
        unless_broken(&deadlocks(row)),
        unless_broken(&owner(row)),
        fault_tolerance(row),
        next_holder(row),
        requests(row),
        lost(row, |lost| Some(lost.unfenced)),
        lost(row, |lost| lost.fenced),
    ]
}

fn cell(verdict: Verdict, text: impl Into<String>) -> Cell {
    let text = text.into();
    Cell { text, verdict }
}

fn unless_broken(violations: &[String]) -> Cell {
    if violations.is_empty() {
        cell(Kept, "kept")
    } else {
        cell(Broken, format!("broken: {}", violations.join("; ")))
    }
}

/// A condition counts as kept only if the cases could have shown that it is broken.
fn if_tested(row: &Row, kept_or_broken: Cell) -> Cell {
    match row.untested() {
        Some(reason) if kept_or_broken.verdict == Kept => {
            cell(Neither, format!("not tested: {reason}"))
        }
        _ => kept_or_broken,
    }
}

/// How two reported that they hold, at one instant.
fn exclusion(row: &Row) -> Vec<String> {
    let mut violations = Vec::new();
    if row.crowd.overlaps > 0 {
        violations.push(format!("{} times under contention", row.crowd.overlaps));
    }
    if row.paused.is_some_and(|paused| paused.both_claimed) {
        violations.push("a paused holder continues".to_owned());
    }

    let replaced = match row.contender.service {
        Service::Folder => "no server",
        Service::Redis | Service::Postgres => "replica promoted",
        Service::Masters => "one master emptied",
        Service::Ensemble => "leader killed",
    };
    let both = row.failover.map_or(Both::Never, |failover| failover.both);
    match both {
        Both::Never | Both::NotTested => {}
        Both::For(millis) => violations.push(format!(
            "{replaced}: both for {} until it was notified",
            time(millis)
        )),
        Both::WithoutEnd(millis) => {
            violations.push(format!("{replaced}: both for {} and more", time(millis)));
        }
    }
    violations
}

fn deadlocks(row: &Row) -> Vec<String> {
    let mut violations = Vec::new();
    if row.holder_killed == Crash::Never {
        violations.push("a crash locks it forever".to_owned());
    } else if row.acquirer_killed == Crash::Never {
        violations.push("a crash between the two requests locks it forever".to_owned());
    }
    violations
}

fn owner(row: &Row) -> Vec<String> {
    let mut violations = Vec::new();
    if row.refused_freed {
        violations.push("a refused client frees it".to_owned());
    }
    if row.paused.is_some_and(|paused| paused.late_freed) {
        violations.push("a late client frees another's lock".to_owned());
    }
    violations
}

fn fault_tolerance(row: &Row) -> Cell {
    let Some(down) = row.down else {
        return cell(Neither, "no server");
    };
    if down.majority_granted {
        return cell(Broken, "granted without a majority");
    }

    let notified = down
        .notified_millis
        .map_or("its holder is not notified".to_owned(), |millis| {
            format!("its holder is notified after {}", time(millis))
        });
    match down.minority {
        Minority::None => cell(Neither, format!("one server; {notified}")),
        Minority::GrantedAfter(millis) => cell(
            Kept,
            format!("a minority down: {}; a majority: {notified}", time(millis)),
        ),
        Minority::NotGranted => cell(Broken, format!("a minority down: no grant; {notified}")),
    }
}

fn next_holder(row: &Row) -> Cell {
    let holder = after(row.holder_killed);
    cell(
        Neither,
        match row.acquirer_killed {
            Crash::OneRequest => holder,
            acquirer => format!("{holder}; killed while acquiring: {}", after(acquirer)),
        },
    )
}

pub(super) fn after(crash: Crash) -> String {
    match crash {
        Crash::NextAfter(millis) => time(millis),
        Crash::Never | Crash::OneRequest => format!("never (in {})", time(NEVER_MILLIS)),
    }
}

fn requests(row: &Row) -> Cell {
    let requests = row.crowd.requests_each;
    cell(
        Neither,
        requests.map_or("no server".to_owned(), |each| each.to_string()),
    )
}

/// Returns the sum over the cases, with the count of each case.
fn lost(row: &Row, of: fn(Lost) -> Option<usize>) -> Cell {
    let cases = [
        ("paused", row.paused.map(|paused| paused.lost)),
        ("failover", row.failover.map(|failover| failover.lost)),
        ("contention", Some(row.crowd.lost)),
    ];
    if of(row.crowd.lost).is_none() {
        return cell(Neither, "no token");
    }

    let mut all = 0;
    let mut parts = Vec::new();
    for (case, lost) in cases {
        let count = lost.and_then(of).unwrap_or(0);
        all += count;
        if count > 0 {
            parts.push(format!("{case} {count}"));
        }
    }
    if all == 0 {
        return if_tested(row, cell(Kept, "0"));
    }
    cell(Broken, format!("{all} ({})", parts.join(", ")))
}

/// Formats a time in milliseconds or seconds.
fn time(millis: u64) -> String {
    if millis < 1_000 {
        format!("{millis} ms")
    } else {
        format!("{}.{} s", millis / 1_000, millis % 1_000 / 100)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{Crowd, Down, Failover, Pause};
    use super::*;
    use crate::baselines::contender_named;

    /// A lock on one server that keeps every condition that one server can keep.
    fn good() -> Row {
        let lost = |unfenced| Lost {
            unfenced,
            fenced: Some(0),
        };

        Row {
            contender: contender_named("redis").unwrap(),
            holder_killed: Crash::NextAfter(1_234),
            acquirer_killed: Crash::OneRequest,
            paused: Some(Pause {
                both_claimed: false,
                late_freed: false,
                lost: lost(1),
            }),
            refused_freed: false,
            failover: None,
            down: Some(Down {
                minority: Minority::None,
                majority_granted: false,
                notified_millis: Some(900),
            }),
            crowd: Crowd {
                held: 100,
                overlaps: 0,
                lost: lost(0),
                requests_each: Some(7),
            },
        }
    }

    #[test]
    fn kept_conditions_are_marked_kept() {
        let cells = cells(&good());

        assert_eq!(
            cells.each_ref().map(|cell| cell.verdict),
            [Kept, Kept, Kept, Neither, Neither, Neither, Broken, Kept]
        );
        assert_eq!(cells[4].text, "1.2 s");
    }

    #[test]
    fn conditions_are_not_kept_where_few_clients_held() {
        let failover = |both| Failover {
            both,
            lost: Lost::default(),
        };
        let mut few = good();
        few.crowd.held = 3;
        let mut not_granted = good();
        not_granted.failover = Some(failover(Both::NotTested));

        for row in [few, not_granted] {
            let cells = cells(&row);
            assert_eq!(
                [cells[0].verdict, cells[7].verdict],
                [Neither; 2],
                "{row:?}"
            );
        }
        let mut tested = good();
        tested.failover = Some(failover(Both::Never));
        assert_eq!(cells(&tested)[0].verdict, Kept);
    }

    #[test]
    fn broken_conditions_are_marked_broken() {
        type Change = fn(&mut Row);
        let changes: [(usize, Change); 8] = [
            (0, |row| row.crowd.overlaps = 1),
            (0, |row| row.paused.as_mut().unwrap().both_claimed = true),
            (1, |row| row.holder_killed = Crash::Never),
            (1, |row| row.acquirer_killed = Crash::Never),
            (2, |row| row.refused_freed = true),
            (2, |row| row.paused.as_mut().unwrap().late_freed = true),
            (3, |row| row.down.as_mut().unwrap().majority_granted = true),
            (7, |row| row.crowd.lost.fenced = Some(1)),
        ];

        for (column, change) in changes {
            let mut row = good();
            change(&mut row);
            assert_eq!(cells(&row)[column].verdict, Broken, "{row:?}");
        }
    }
}
