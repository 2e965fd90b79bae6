//! The end of a run: a while without faults, in which the store must work as before them.

use std::time::Duration;

use anyhow::Result;

use super::FaultRun;
use crate::check::hand_over_time;
use crate::faults::Guarantee;
use crate::matrix::settles_within;
use crate::{Hold, holds, now, until, until_within};

/// The least time without faults.
const QUIET_MIN: Duration = Duration::from_millis(500);
/// The fewest holds in this time where the order of grants is not checked.
const HOLDS_MIN: usize = 10;

impl FaultRun {
    /// Runs on without faults, where a checker needs that: until the last fault has no consequences
    /// any more, and then until there is enough to check. Returns when the consequences ended.
    pub(super) fn run_without_faults(&mut self) -> Result<u64> {
        let guarantees = self.testbed.locks().guarantees();
        let Some(time) = settles_within(&self.cell, &guarantees) else {
            return Ok(now());
        };
        until("late bytes to be delivered", || {
            Ok(self.has_no_late_bytes().then_some(()))
        })?;
        // No condition shows that the consequences have ended: this is what the store guarantees.
        std::thread::sleep(time);

        let settled = now();
        until_within(self.cell.bound, "grants without a fault", || {
            let quiet = Duration::from_nanos(now() - settled);
            Ok((quiet >= QUIET_MIN && self.is_enough(settled)?).then_some(()))
        })?;
        Ok(settled)
    }

    /// Whether the holds since then show whether waiters are notified, or whether holds exclude each
    /// other.
    fn is_enough(&mut self, since: u64) -> Result<bool> {
        let mut events = Vec::new();
        for worker in &mut self.workers {
            events.extend_from_slice(worker.all_events()?);
        }
        let all = holds(&events)?;

        Ok(if self.cell.guarantee == Guarantee::TokensOnly {
            let is_new = |hold: &&Hold| hold.requested > since;
            all.iter().filter(is_new).count() >= HOLDS_MIN
        } else {
            hand_over_time(&all, &[(0, since)]).is_some()
        })
    }

    /// A wire that delays no bytes any more keeps some only behind late ones.
    fn has_no_late_bytes(&self) -> bool {
        let routes = [&self.testbed.wires, &self.testbed.holder_route.wires];
        routes.into_iter().flatten().all(|wire| {
            let traffic = wire.traffic();
            traffic.waiting_to_server + traffic.waiting_to_client == 0
        })
    }
}
