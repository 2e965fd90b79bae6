//! Tests of verdict.

use super::super::cases::{Crowd, Down, Owner, Pause};
use super::*;
use crate::baselines::Contender;

/// A lock on one server that keeps every condition that one server can keep.
fn good() -> Row {
    let lost = Lost {
        unfenced: 0,
        fenced: Some(0),
    };

    Row {
        contender: Contender::LeaseholdRedis,
        holder_killed: Crash {
            next_millis: Some(1_234),
        },
        acquirer_killed: None,
        paused: Pause {
            next_held: true,
            both_claimed: false,
            lost: Lost {
                unfenced: 1,
                ..lost
            },
        },
        owner: Owner {
            refused_freed: false,
            late_freed: Some(false),
        },
        failover: None,
        down: Some(Down {
            minority: None,
            majority_granted: false,
            majority_millis: 5,
            notified_millis: Some(900),
        }),
        crowd: Crowd {
            held: 100,
            overlaps: 0,
            lost,
            took_millis: 1_000,
            requests_each: Some(7),
        },
    }
}

fn verdicts(row: &Row) -> [Verdict; 8] {
    cells(row).map(|cell| cell.verdict)
}

#[test]
fn kept_conditions_are_marked_kept() {
    use Verdict::{Broken, Kept, Neither};
    assert_eq!(
        verdicts(&good()),
        [Kept, Kept, Kept, Neither, Neither, Neither, Broken, Kept]
    );
    assert_eq!(cells(&good())[4].text, "1.2 s");
}

#[test]
fn broken_conditions_are_marked_broken() {
    let broken = |change: fn(&mut Row), column: usize| {
        let mut row = good();
        change(&mut row);
        assert_eq!(verdicts(&row)[column], Verdict::Broken, "{row:?}");
    };
    broken(|row| row.crowd.overlaps = 1, 0);
    broken(|row| row.paused.both_claimed = true, 0);
    broken(|row| row.holder_killed.next_millis = None, 1);
    broken(
        |row| row.acquirer_killed = Some(Crash { next_millis: None }),
        1,
    );

    broken(|row| row.owner.refused_freed = true, 2);
    broken(|row| row.owner.late_freed = Some(true), 2);
    broken(
        |row| {
            row.down = row.down.map(|down| Down {
                majority_granted: true,
                ..down
            });
        },
        3,
    );
    broken(|row| row.crowd.lost.fenced = Some(1), 7);
}
