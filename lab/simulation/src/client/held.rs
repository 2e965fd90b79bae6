//! Holding a lock, and giving it back.

use std::sync::Arc;
use std::time::Duration;

use leasehold::ReentrantGuard;
use leasehold::store::ClaimId;
use tokio::time::{sleep, timeout};

use super::acquire::{Held, dropped_at_poll};
use crate::event::What;
use crate::plan::{Bound, Ending, Operation, Profile, Wait, Work};
use crate::server::Nanos;
use crate::world::World;

/// Holds for the time of the operation, and ends the hold as it says.
pub(crate) async fn hold_and_end(
    world: &Arc<World>,
    client: usize,
    held: Held,
    operation: &Operation,
    requested: Nanos,
) {
    let id = world.register(client, &held, operation, requested);
    work(world, &held, id, operation).await;

    if let Some(reason) = held.guard().loss() {
        world.check_loss(client, id, reason);
    }
    end(world, client, held, id, operation).await;
}

async fn work(world: &World, held: &Held, id: ClaimId, operation: &Operation) {
    let guard = held.guard();
    match operation.work {
        Work::Sleep | Work::Nested => sleep(operation.hold).await,
        Work::WatchLoss => {
            world.watch(id, true);
            // The time of the work may pass before the loss.
            let _ = timeout(operation.hold, guard.lost()).await;
            world.watch(id, false);
        }
        Work::WhileHeld => {
            world.watch(id, true);
            // The loss of the hold ends the work; the world checks when.
            let _ = guard.while_held(sleep(operation.hold)).await;
            world.watch(id, false);
        }
        Work::Downgrade => {
            sleep(operation.hold / 2).await;
            world.downgrade(id);
            // The guard may be lost, or the store away. Both are other rules.
            let downgraded = guard.downgrade().await;
            world.state().counts.downgrades += u32::from(downgraded.is_ok());
            sleep(operation.hold / 2).await;
        }
    }
}

async fn end(
    world: &Arc<World>,
    client: usize,
    mut held: Held,
    id: ClaimId,
    operation: &Operation,
) {
    let ending = match &mut held {
        Held::Plain(_) | Held::Job(_) => operation.ending,
        Held::Nested(guards) => {
            release_inner(guards).await;
            Ending::Release
        }
    };
    let was_trusted = world.is_trusted(id);
    let closing = Closing::begin(world, client, id);
    if let Some(job) = operation.job
        && !matches!(ending, Ending::Drop)
    {
        world.begin_completion(job, id);
    }

    match ending {
        Ending::Drop => drop(held),
        Ending::Release => {
            let released = held.release().await;
            match operation.job {
                None => world.check_release(client, id, was_trusted, &released),
                Some(job) => world.check_completion(client, id, operation.name, job, &released),
            }
        }
        Ending::ReleaseDroppedAtPoll(polls) => {
            let released = dropped_at_poll(held.release(), polls).await;
            if released.is_none() {
                world.record(client, What::Dropped("release"));
            }
        }
    }
    drop(closing);
}

/// Releases all guards of an owner but the first.
async fn release_inner(guards: &mut Vec<ReentrantGuard>) {
    while guards.len() > 1 {
        let inner = guards.pop().expect("more than one is left");
        // A lost hold is reported again by the last release.
        let _ = inner.release().await;
        sleep(Duration::from_millis(20)).await;
    }
}

/// A release under way.
struct Closing {
    world: Arc<World>,
    client: usize,
}

impl Closing {
    fn begin(world: &Arc<World>, client: usize, id: ClaimId) -> Self {
        world.record(client, What::Releasing(id));
        let mut state = world.state();
        state.clients[client].releasing += 1;
        if let Some(hold) = state.open_hold(id) {
            hold.is_closed = true;
        }
        drop(state);
        Self {
            world: Arc::clone(world),
            client,
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.world.state().clients[self.client].releasing -= 1;
    }
}

impl Operation {
    /// Creates the operation with which the checker acquires a lock after all faults.
    pub(crate) fn simple(profile: &Profile, name: u8) -> Self {
        Self {
            pause: Duration::ZERO,
            name,
            amount: 1,
            wait: Wait::AtMost(profile.free_within()),
            lease: profile.lease,
            cohort: None,
            hold: Duration::from_millis(1),
            bound: Bound::None,
            work: Work::Sleep,
            ending: Ending::Release,
            job: None,
        }
    }
}
