//! The hold spans of the threads that contend for one lock.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::client::Client;
use crate::figures::count;
use crate::peers::nanos;
use crate::workload::Workload;

/// The settings of a contest: several clients contend for one lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contest {
    /// The number of threads in each process.
    pub(crate) threads: usize,
    pub(crate) hold: Duration,
    pub(crate) think: Duration,
    pub(crate) lasts: Duration,
}

impl Contest {
    /// Lets several processes contend for the lock. Only the time after the first tenth counts.
    pub(crate) fn run(self, clients: &mut [Client]) -> Result<HoldSpans> {
        let begun = lab::now();
        let until = begun + nanos(self.lasts);
        let [hold_micros, think_micros] = [self.hold, self.think].map(|pause| nanos(pause) / 1_000);
        for client in clients.iter_mut() {
            client.begin(&Workload::Contend {
                threads: self.threads,
                hold_micros,
                think_micros,
                until,
            })?;
        }

        let replies = clients
            .iter_mut()
            .map(Client::end)
            .collect::<Result<Option<Vec<_>>>>()?;
        HoldSpans::of(
            &replies.context("every peer supports contests")?,
            begun + nanos(self.lasts / 10),
            until,
        )
    }
}

/// One acquisition by one thread, as three moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldSpan {
    /// The number of the process.
    pub(crate) client: usize,
    pub(crate) requested: u64,
    pub(crate) granted: u64,
    pub(crate) releasing: u64,
}

/// All hold spans of a contest, in the order of their grants.
#[derive(Debug)]
pub(crate) struct HoldSpans {
    all: Vec<HoldSpan>,
    /// The time in which all threads contend. It begins some time after the start of the contest.
    /// It ends when no thread requests the lock any more.
    from: u64,
    until: u64,
}

impl HoldSpans {
    /// Builds the hold spans from the replies of several processes to one task.
    pub(crate) fn of(replies: &[Vec<u64>], from: u64, until: u64) -> Result<Self> {
        let mut rounds = Vec::new();
        for (client, reply) in replies.iter().enumerate() {
            let round = |times: &[u64]| HoldSpan {
                client,
                requested: times[0],
                granted: times[1],
                releasing: times[2],
            };
            rounds.extend(reply.chunks_exact(3).map(round));
        }

        rounds.sort_unstable_by_key(|span| span.granted);
        let overlap = rounds
            .windows(2)
            .find(|two| two[1].granted < two[0].releasing);
        ensure!(
            overlap.is_none(),
            "two clients held the lock at once: {overlap:?}"
        );

        Ok(Self {
            all: rounds,
            from,
            until,
        })
    }

    /// Counts all acquisitions, including those at the beginning and the end.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns the number of acquisitions per millisecond.
    pub(crate) fn rate(&self) -> f64 {
        let inside = self
            .all
            .iter()
            .filter(|span| span.granted >= self.from && span.granted <= self.until)
            .count();
        count(inside) / Duration::from_nanos(self.until - self.from).as_secs_f64() / 1e3
    }

    /// Returns the times from the begin of a release to the next grant, if another process gets it.
    pub(crate) fn hand_overs_across(&self) -> Vec<u64> {
        self.neighbours()
            .filter(|(a, b)| a.client != b.client)
            .map(idle)
            .collect()
    }

    /// Returns the time that each acquisition waited for its grant.
    pub(crate) fn waits(&self) -> Vec<u64> {
        let inside = self
            .all
            .iter()
            .filter(|span| span.requested >= self.from && span.granted <= self.until);
        inside.map(|span| span.granted - span.requested).collect()
    }

    /// Returns the longest time from a grant to the last release before another process is granted.
    pub(crate) fn longest_turn(&self) -> u64 {
        self.turns()
            .map(|turn| turn[turn.len() - 1].releasing - turn[0].granted)
            .max()
            .unwrap_or(0)
    }

    /// Returns the longest time for which a process had no grant between two of its turns.
    pub(crate) fn longest_absence(&self) -> u64 {
        let turns: Vec<&[HoldSpan]> = self.turns().collect();
        turns
            .windows(3)
            .map(|three| three[2][0].granted - three[0][three[0].len() - 1].releasing)
            .max()
            .unwrap_or(0)
    }

    /// Returns the acquisitions of one process without another process between them.
    fn turns(&self) -> impl Iterator<Item = &[HoldSpan]> {
        let inside = |turn: &&[HoldSpan]| {
            turn[0].granted >= self.from && turn[turn.len() - 1].releasing <= self.until
        };
        self.all
            .chunk_by(|one, other| one.client == other.client)
            .filter(inside)
    }

    /// Returns the time for which the lock was free, per hand-over.
    pub(crate) fn idle_times(&self) -> Vec<u64> {
        self.neighbours().map(idle).collect()
    }

    fn neighbours(&self) -> impl Iterator<Item = (&HoldSpan, &HoldSpan)> {
        let inside = |span: &HoldSpan| span.releasing >= self.from && span.releasing <= self.until;
        self.all
            .windows(2)
            .map(|two| (&two[0], &two[1]))
            .filter(move |(a, _)| inside(a))
    }
}

/// Returns the time for which the lock was free between two holds.
fn idle((before, after): (&HoldSpan, &HoldSpan)) -> u64 {
    after.granted - before.releasing
}
