//! What the hands did that wanted one lock.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::client::Client;
use crate::figures::count;
use crate::peers::nanos;
use crate::workload::Workload;

/// How a lock is fought for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contest {
    /// How many hands each process has.
    pub(crate) threads: usize,
    pub(crate) hold: Duration,
    pub(crate) think: Duration,
    pub(crate) lasts: Duration,
}

impl Contest {
    /// Has several processes fight for it. All that counts happens after the first tenth.
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
            &replies.context("every peer knows contests")?,
            begun + nanos(self.lasts / 10),
            until,
        )
    }
}

/// One turn of one hand: three moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldSpan {
    /// Which process.
    pub(crate) client: usize,
    pub(crate) requested: u64,
    pub(crate) granted: u64,
    pub(crate) releasing: u64,
}

/// All turns of a contest, in the order of their grants.
#[derive(Debug)]
pub(crate) struct HoldSpans {
    all: Vec<HoldSpan>,
    /// The time in which all were there: from some time after the beginning until nobody asks any more.
    from: u64,
    until: u64,
}

impl HoldSpans {
    /// Of the answers of several processes to one task.
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
        ensure!(overlap.is_none(), "two held at once: {overlap:?}");
        Ok(Self {
            all: rounds,
            from,
            until,
        })
    }

    /// All acquisitions, also those at the beginning and the end.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Acquisitions in a millisecond.
    pub(crate) fn rate(&self) -> f64 {
        let inside = self
            .all
            .iter()
            .filter(|span| span.granted >= self.from && span.granted <= self.until)
            .count();
        count(inside) / Duration::from_nanos(self.until - self.from).as_secs_f64() / 1e3
    }

    /// From a release that begins to the grant that follows in another process.
    pub(crate) fn hand_overs_across(&self) -> Vec<u64> {
        self.neighbours()
            .filter(|(a, b)| a.client != b.client)
            .map(idle)
            .collect()
    }

    /// How long each waited.
    pub(crate) fn waits(&self) -> Vec<u64> {
        let inside = self
            .all
            .iter()
            .filter(|span| span.requested >= self.from && span.granted <= self.until);
        inside.map(|span| span.granted - span.requested).collect()
    }

    /// How long nobody held, per hand-over.
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

/// How long nobody held between two.
fn idle((before, after): (&HoldSpan, &HoldSpan)) -> u64 {
    after.granted - before.releasing
}
