//! The jobs that run once, as the clients see them.

use std::collections::BTreeSet;

use leasehold::{ClaimId, Locks, Record};

use crate::plan::PERIODS;
use crate::store::name_of;
use crate::world::World;

impl World {
    /// Checks that a job that is done does not start.
    pub(super) fn check_start(&self, name: u8, job: u32) {
        let state = self.state();
        let is_done = state.backend.is_done(name, job) || state.jobs.completed.contains(&job);
        drop(state);
        if is_done {
            self.violate("a job that is done does not start", format!("job {job}"));
        }
    }

    /// Checks that a job is found done only if a claim has begun to complete it.
    pub(super) fn check_done(&self, job: u32) {
        let mut state = self.state();
        state.counts.jobs_found_done += 1;
        let mut completing = state.jobs.completing.iter();
        let has_end = completing.any(|(ended, _)| *ended == job);
        drop(state);
        if !has_end {
            self.violate(
                "a job is done only if it was completed",
                format!("job {job}"),
            );
        }
    }

    /// The claim begins to complete the job that it has started.
    pub(super) fn begin_completion(&self, job: u32, id: ClaimId) {
        self.state().jobs.completing.push((job, id));
    }

    pub(super) fn end_completion(&self, job: u32) {
        let mut state = self.state();
        let is_second = state.jobs.completed.contains(&job);
        state.jobs.completed.push(job);
        state.counts.jobs_completed += 1;
        drop(state);
        if is_second {
            self.violate("a job is completed once", format!("job {job}"));
        }
    }

    /// Checks in the end that each job is recorded once, by a claim that held, and that none is
    /// missing.
    pub(super) async fn check_record(&self, locks: &Locks) {
        match locks.record(name_of(0)).await {
            Ok(record) if self.is_right(&record) => {}
            Ok(record) => {
                let details = format!("{record:?} after {:?}", self.state().jobs);
                self.violate("each job is recorded once, by a claim that held", details);
            }
            Err(error) => self.violate("the record is read in the end", error.to_string()),
        }
    }

    fn is_right(&self, record: &Record) -> bool {
        let recorded: Vec<(u32, ClaimId)> = record
            .completions
            .iter()
            .map(|one| (one.id.parse().expect("a number"), one.claim))
            .collect();
        let ids: BTreeSet<u32> = recorded.iter().map(|(id, _)| *id).collect();

        let state = self.state();
        ids.len() == recorded.len()
            && ids.into_iter().eq(0..PERIODS)
            && recorded
                .iter()
                .all(|one| state.jobs.completing.contains(one))
    }
}
