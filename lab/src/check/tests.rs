//! The checkers with the histories of `histories.txt`.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use leasehold::store::claim_id_from_bytes;

use super::*;
use crate::resources::{Op, duplicates, lost_updates, regress};
use crate::{Event, Hold, Observation, ObservedClaim};

/// What a test knows of a run, as lines between semicolons: events, and
///
/// ```text
/// hold TOKEN GRANTED UNTIL [WEIGHT/CAPACITY] [requested TIME] [seen TIME]
/// saw BEGUN DONE THREAD CLAIM [holds] [of NAME]
/// fault FROM TO
/// end TIME
/// ```
#[derive(Default)]
struct History {
    events: Vec<Event>,
    holds: Vec<Hold>,
    observations: Vec<Observation>,
    disturbed: Vec<Span>,
    end: u64,
}

/// Runs a checker and returns what it found, nothing if that is nothing.
type Check = fn(&str) -> String;

const GRANTED: &str = "1 7 0 requested; 3 7 0 granted 5 1 1;";
/// In milliseconds: five holds, and so four pauses of 7.
const HAND_OVERS: &str = "hold 1 100 160; hold 2 167 227 requested 9; \
    hold 3 234 294 requested 9; hold 4 301 361 requested 9; hold 5 368 428 requested 9;";

/// The checkers by their names in `histories.txt`.
const CHECKERS: [(&str, Check); 34] = [
    ("holds", |text| {
        let holds = holds(&History::of(text).events).map(|holds| {
            let shown = holds.iter().map(|hold| match hold.observed {
                Some(seen) => format!("{hold}, seen {seen}"),
                None => hold.to_string(),
            });
            shown.collect::<Vec<_>>().join("; ")
        });
        holds.unwrap_or_else(|error| error.to_string())
    }),
    ("the end of a hold that is valid until 20", |text| {
        let history = History::of(&format!("{GRANTED} 4 7 0 valid-until 20; {text}"));
        let holds = holds(&history.events).expect("the history is consistent");
        holds[0].until.to_string()
    }),
    ("exclusion", |text| {
        tokens_of(exclusion(&History::of(text).holds))
    }),
    ("loss_notified", |text| {
        let History {
            holds, disturbed, ..
        } = History::of(text);
        tokens_of(loss_notified(&holds, &disturbed, Duration::from_nanos(5)))
    }),
    ("tokens", |text| tokens_of(tokens(&History::of(text).holds))),
    ("tokens_over_loss", |text| {
        tokens_of(tokens_over_loss(&History::of(text).holds, 0))
    }),
    ("tokens_over_loss with a slack of 2", |text| {
        tokens_of(tokens_over_loss(&History::of(text).holds, 2))
    }),
    ("order", |text| tokens_of(order(&History::of(text).holds))),
    ("refusal between 10 and 40", |text| {
        tokens_of(refusal(&History::of(text).holds, (10, 40)))
    }),
    ("refused_in between 10 and 40", |text| {
        let is_refused = refused_in(&History::of(text).events, (10, 40));
        is_refused.to_string()
    }),
    ("meets_hold", |text| {
        let history = History::of(&format!("hold 1 10 20; hold 2 40 50; {text}"));
        let meets = meets_hold(&history.holds, history.disturbed[0]);
        if meets {
            "met".to_owned()
        } else {
            String::new()
        }
    }),
    ("losses_in a fault from 10 to 20", |text| {
        losses_in(&History::of(text).events, (10, 20), 3).to_string()
    }),
    ("ended", |text| {
        let nested = "4 7 0 valid-until 99; 4 7 0 nested 5 2; 5 7 0 unnested 1";
        error_of(ended(
            &History::of(&format!("{GRANTED} {nested}; {text}")).events,
        ))
    }),
    ("completed_once", |text| {
        error_of(completed_once(&History::of(text).events))
    }),
    ("validity of a lease of 100", |text| {
        let events = History::of(&format!("{GRANTED} {text}")).events;
        error_of(validity(&events, Some(Duration::from_nanos(100))))
    }),
    ("nesting", |text| {
        let history = format!("{GRANTED} {text}; 8 7 0 releasing; 9 7 0 released");
        error_of(nesting(&History::of(&history).events))
    }),
    ("nesting without a hold", |text| {
        error_of(nesting(&History::of(text).events))
    }),
    ("cycles of thread 7", |text| {
        let cycles = cycles(&History::of(text).events);
        let shown = cycles[&7].iter().map(|cycle| {
            let Cycle {
                name,
                requested,
                granted,
                ended,
                ..
            } = cycle;
            format!("{name}: {requested} {granted:?} {ended:?}")
        });
        shown.collect::<Vec<_>>().join(", ")
    }),
    (
        "waits of 10 for the first lock, and of 20 for the second",
        |text| {
            let history = History::of(text);
            let bound = |cycle: &Cycle| Duration::from_nanos(10 * (u64::from(cycle.name) + 1));
            error_of(waits(
                &history.events,
                &history.disturbed,
                history.end,
                bound,
            ))
        },
    ),
    ("hand_over_time in milliseconds, after four", |text| {
        let mut history = History::of(&format!("{HAND_OVERS} {text}"));
        for hold in &mut history.holds {
            for time in [&mut hold.requested, &mut hold.granted, &mut hold.until] {
                *time *= 1_000_000;
            }
        }
        let disturbed = history.disturbed.iter();
        let disturbed: Vec<Span> = disturbed
            .map(|(from, to)| (from * 1_000_000, to * 1_000_000))
            .collect();
        let time = hand_over_time(&history.holds, &disturbed);
        time.map_or_else(String::new, |time| time.as_millis().to_string())
    }),
    ("the holds that were passed on", |text| {
        let tokens = passed_on(&History::of(text).holds);
        let tokens = tokens.iter().map(|(_, token)| token.to_string());
        tokens.collect::<Vec<_>>().join(" ")
    }),
    ("disturbed spans that are extended by 5", |text| {
        let spans = extended(&History::of(text).disturbed, Duration::from_nanos(5));
        let spans = spans.iter().map(|(from, to)| format!("{from}-{to}"));
        spans.collect::<Vec<_>>().join(" ")
    }),
    ("idle_time", |text| {
        let history = History::of(&format!("{GRANTED} {text}"));
        let holds = holds(&history.events).expect("the history is consistent");
        let (time, _) = idle_time(&history.events, &holds, &history.disturbed, history.end);
        time.as_nanos().to_string()
    }),
    ("idle for 900", |text| {
        let history = History::of(text);
        let holds = holds(&history.events).expect("the history is consistent");
        let bound = Duration::from_nanos(900);
        error_of(idle(&history.events, &holds, &[], history.end, bound))
    }),
    ("queue_positions", |text| {
        let history = History::of(text);
        let seen = queue_positions(&history.observations, &history.events, |thread| thread == 7);
        let times: Vec<String> = seen.iter().map(|event| event.at.to_string()).collect();
        times.join(" ")
    }),
    ("overtaking", |text| {
        let history = History::of(text);
        let found = overtaking(&history.observations, &history.holds, &history.disturbed);
        found.map_or_else(String::new, |found| found.by.token.to_string())
    }),
    ("stale_entries of a hold", |text| {
        stale(&history_of_a_hold(text), 0)
    }),
    (
        "stale_entries of a hold that is taken back within 5",
        |text| stale(&history_of_a_hold(text), 5),
    ),
    ("stale_entries", |text| stale(text, 0)),
    ("resource_leaks", |text| {
        error_of(resource_leaks(&History::of(text).events))
    }),
    ("resource_leaks after 17 cycles", |text| {
        let cycles = "1 0 0 requested;".repeat(17);
        error_of(resource_leaks(&History::of(&(cycles + text)).events))
    }),
    ("recovery of two locks since 10", |text| {
        let mut recovery = Recovery::of(2, 10);
        for event in &History::of(text).events {
            recovery.observe(event);
        }
        let missing: Vec<usize> = recovery.missing().collect();
        format!("{:?}, {missing:?} missing", recovery.duration())
    }),
    ("the operations on a resource: regress", |text| {
        let found = regress(&ops(text));
        found.map_or_else(String::new, |(first, second)| format!("{first}, {second}"))
    }),
    (
        "the operations on a resource: lost updates and duplicates",
        |text| {
            let ops = ops(text);
            format!("{} and {}", lost_updates(&ops), duplicates(&ops))
        },
    ),
];

#[test]
fn checkers_find_the_violations_of_histories_and_no_others() {
    let mut sections = include_str!("histories.txt").split("\n[").skip(1);
    for (checker, check) in CHECKERS {
        let section = sections.next().expect("each checker has histories");
        let (name, lines) = section.split_once("]\n").expect("a name comes first");
        assert_eq!(name, checker);

        for line in lines.lines().filter(|line| !line.starts_with('#')) {
            let Some((history, found)) = line.split_once('→') else {
                assert_eq!(line, "", "it has no →");
                continue;
            };
            assert_eq!(check(history), found.trim(), "{checker}: {history}");
        }
    }
    assert_eq!(sections.next(), None, "it has no checker");
}

fn tokens_of(found: Option<Violation>) -> String {
    found.map_or_else(String::new, |found| {
        format!("{} {}", found.first.token, found.second.token)
    })
}

/// The beginning of an error, which names the rule.
fn error_of<T>(outcome: Result<T>) -> String {
    let text = outcome
        .err()
        .map_or_else(String::new, |error| error.to_string());
    text.split(':').next().unwrap_or_default().to_owned()
}

fn history_of_a_hold(text: &str) -> String {
    format!("{GRANTED} 8 7 0 releasing; {text}; 50 7 0 requested")
}

fn stale(text: &str, taken_back: u64) -> String {
    let history = History::of(text);
    let within = GoneTimes {
        released: Duration::ZERO,
        given_up: Duration::from_nanos(20),
        taken_back: Duration::from_nanos(taken_back),
    };
    let History {
        observations,
        events,
        disturbed,
        ..
    } = &history;

    match error_of(stale_entries(observations, events, disturbed, within)) {
        error if error.starts_with("ObservedClaim") => "stale".to_owned(),
        error => error,
    }
}

fn ops(text: &str) -> Vec<Op> {
    let lines = text.trim().split("; ");
    lines
        .map(|line| line.parse().expect("an operation"))
        .collect()
}

impl History {
    fn of(text: &str) -> Self {
        let mut history = Self {
            end: 1_000,
            ..Self::default()
        };
        for line in text
            .split(';')
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            history.add(line).expect("a line of a history");
        }
        history
    }

    fn add(&mut self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split(' ').collect();
        match *words {
            ["hold", token, granted, until, ref more @ ..] => {
                let until = if until == "-" {
                    u64::MAX
                } else {
                    until.parse()?
                };
                let granted = granted.parse()?;
                // A mutex that was requested just before, unless the line says otherwise.
                let mut hold = Hold {
                    thread: 0,
                    name: 0,
                    requested: granted - 1,
                    observed: None,
                    granted,
                    until,
                    token: token.parse()?,
                    weight: 1,
                    capacity: 1,
                };
                detail(&mut hold, more)?;
                self.holds.push(hold);
            }
            ["saw", begun, done, thread, id, ref more @ ..] => {
                let claim = ObservedClaim {
                    id: claim_id_from_bytes([id.parse()?; 16]),
                    thread: thread.parse()?,
                    holds: more == ["holds"],
                };
                let name = match more {
                    ["of", name] => name.parse()?,
                    _ => 0,
                };
                self.observations.push(Observation {
                    begun: begun.parse()?,
                    done: done.parse()?,
                    name,
                    claims: vec![claim],
                });
            }
            ["fault", from, to] => self.disturbed.push((from.parse()?, to.parse()?)),
            ["end", end] => self.end = end.parse()?,
            _ => self.events.push(line.parse()?),
        }
        Ok(())
    }
}

/// Reads what a line says of a hold that is not a mutex requested just before its grant.
fn detail(hold: &mut Hold, words: &[&str]) -> Result<()> {
    match words {
        [] => Ok(()),
        ["requested", at, rest @ ..] => {
            hold.requested = at.parse()?;
            detail(hold, rest)
        }
        ["seen", at, rest @ ..] => {
            hold.observed = Some(at.parse()?);
            detail(hold, rest)
        }
        [share, rest @ ..] => {
            let Some((weight, capacity)) = share.split_once('/') else {
                bail!("not a share: {share}")
            };
            hold.weight = weight.parse().context("the weight")?;
            hold.capacity = capacity.parse()?;
            detail(hold, rest)
        }
    }
}
