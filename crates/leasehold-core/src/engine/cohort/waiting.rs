//! An acquire that waits in a cohort.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::Cohort;
use crate::Result;
use crate::engine::Hold;
use crate::runtime::departures::Departure;

/// An acquire in the order of its cohort.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) number: u64,
    pub(super) max_hold: Option<Duration>,
    pub(super) grant: oneshot::Sender<Result<Hold>>,
}

/// The wait of one acquire. Dropping it leaves the cohort.
///
/// A hold that was granted meanwhile is in the channel: it is dropped too, and so passed on.
pub(super) struct LocalWait {
    cohort: Arc<Cohort>,
    number: u64,
    max_hold: Option<Duration>,
    granted: oneshot::Receiver<Result<Hold>>,
}

impl LocalWait {
    /// Joins the cohort at the end. Returns how many acquires of the process are ahead.
    pub(super) fn join(cohort: &Arc<Cohort>, max_hold: Option<Duration>) -> (Self, u32) {
        let (grant, granted) = oneshot::channel();
        let mut state = cohort.state.lock();

        let ahead = state.waiters.len() + usize::from(state.passable.is_some());
        let number = state.joined;
        state.joined += 1;
        state.departing = None;
        state.waiters.push_back(Waiter {
            number,
            max_hold,
            grant,
        });
        drop(state);

        let waiting = Self {
            cohort: Arc::clone(cohort),
            number,
            max_hold,
            granted,
        };
        (waiting, u32::try_from(ahead).unwrap_or(u32::MAX))
    }

    /// Waits again, in the same position, after the granted hold was lost.
    pub(super) fn rejoin(&mut self) {
        let (grant, granted) = oneshot::channel();
        self.granted = granted;
        let waiter = Waiter {
            number: self.number,
            max_hold: self.max_hold,
            grant,
        };

        let mut state = self.cohort.state.lock();
        let ahead = state
            .waiters
            .partition_point(|waiter| waiter.number < self.number);
        state.waiters.insert(ahead, waiter);
    }

    pub(super) async fn granted(&mut self) -> Result<Hold> {
        let granted = (&mut self.granted).await;
        granted.expect("a waiter leaves its cohort with a hold or an error")
    }
}

impl Drop for LocalWait {
    fn drop(&mut self) {
        let mut state = self.cohort.state.lock();
        state.waiters.retain(|waiter| waiter.number != self.number);

        if state.waiters.is_empty() && state.acquiring.is_some() {
            state.departing = Some(Departure::begin(Instant::now()));
            self.cohort.unused.notify_one();
        }
    }
}
