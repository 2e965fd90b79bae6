//! The hold spans of the threads that contend for one lock.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::client::Client;
use crate::figures::count;
use crate::peers::nanos;
use crate::workload::Workload;

/// The settings of a contest: several clients contend for one lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contest {
    /// The number of threads in each process.
    pub(crate) threads: usize,
    pub(crate) lasts: Duration,
}

impl Contest {
    /// Lets several processes contend for the lock. Only the time after the first tenth counts.
    pub(crate) fn run(self, clients: &mut [Client]) -> Result<HoldSpans> {
        let begun = lab::now();
        let until = begun + nanos(self.lasts);
        let task = Workload::Contend {
            name: "c".to_owned(),
            threads: self.threads,
            until,
        };
        clients
            .iter_mut()
            .try_for_each(|client| client.begin(&task))?;

        let mut spans = Vec::new();
        for (number, client) in clients.iter_mut().enumerate() {
            let moments = client.end()?;
            spans.extend(moments.chunks_exact(3).map(|times| HoldSpan {
                client: number,
                granted: times[1],
                releasing: times[2],
            }));
        }
        HoldSpans::of(spans, begun + nanos(self.lasts / 10), until)
    }
}

/// One acquisition by one thread.
#[derive(Clone, Copy, Debug)]
struct HoldSpan {
    /// The number of the process.
    client: usize,
    granted: u64,
    releasing: u64,
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
    fn of(mut all: Vec<HoldSpan>, from: u64, until: u64) -> Result<Self> {
        all.sort_unstable_by_key(|span| span.granted);
        let overlap = all.windows(2).find(|two| two[1].granted < two[0].releasing);
        ensure!(
            overlap.is_none(),
            "two clients held the lock at once: {overlap:?}"
        );
        Ok(Self { all, from, until })
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
        self.all
            .windows(2)
            .filter(|two| two[0].releasing >= self.from && two[0].releasing <= self.until)
            .filter(|two| two[0].client != two[1].client)
            .map(|two| two[1].granted - two[0].releasing)
            .collect()
    }
}
