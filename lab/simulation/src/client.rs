//! What the clients do, through the public API.

mod acquire;
mod held;
mod job;
mod outcome;

use std::sync::Arc;

use leasehold::Locks;
use tokio::time::sleep;

use crate::plan::{BackendPlan, Operation, PERIODS};
use crate::server::nanos;
use crate::store::name_of;
use crate::world::World;

/// Performs the operations of one task, in order.
pub(crate) async fn run(
    world: Arc<World>,
    client: usize,
    opened: Option<Locks>,
    plan: Vec<Operation>,
) {
    let Some(locks) = locks_of(&world, opened).await else {
        return;
    };
    for operation in plan {
        sleep(operation.pause).await;
        perform(&world, client, &locks, &operation).await;
    }
}

/// Runs all jobs after the faults, unless they are done, and reads the record.
pub(crate) async fn complete_all(world: Arc<World>, client: usize, opened: Option<Locks>) {
    let Some(locks) = locks_of(&world, opened).await else {
        return;
    };
    for job in 0..PERIODS {
        let operation = Operation {
            job: Some(job),
            ..Operation::simple(&world.profile, 0)
        };
        perform(&world, client, &locks, &operation).await;
    }
    world.check_record(&locks).await;
}

/// Acquires and releases a lock, without an option.
pub(crate) async fn acquire_once(
    world: Arc<World>,
    client: usize,
    opened: Option<Locks>,
    name: u8,
) {
    let Some(locks) = locks_of(&world, opened).await else {
        return;
    };
    let operation = Operation::simple(&world.profile, name);
    let limit = world.profile.free_within();
    let is_over = world.time() + nanos(limit);
    while !perform(&world, client, &locks, &operation).await {
        if !world.profile.refuses_after_faults() || world.time() >= is_over {
            return world.violate(
                "a lock can be acquired after the faults",
                format!("lock {name} is not granted within {limit:?}"),
            );
        }
        sleep(operation.lease / 10).await;
    }
}

/// Checks on Redis that no entry has outlived its acquire and its guard.
pub(crate) async fn check_free(world: Arc<World>, opened: Option<Locks>) {
    let Some(locks) = locks_of(&world, opened).await else {
        return;
    };
    sleep(world.profile.free_within()).await;
    match locks.inspect(name_of(0)).await {
        Ok(lock) if lock.entries.is_empty() => {}
        Ok(lock) => world.violate("no entry is left behind", format!("{:?}", lock.entries)),
        Err(error) => world.violate("a lock is inspected after the faults", error.to_string()),
    }
}

/// Acquires, holds and releases; returns whether the lock was granted.
async fn perform(world: &Arc<World>, client: usize, locks: &Locks, operation: &Operation) -> bool {
    let requested = world.time();
    let Some(held) = acquire::acquire(world, client, locks, operation).await else {
        return false;
    };
    held::hold_and_end(world, client, held, operation, requested).await;
    true
}

/// Opens the store of a client, if it is not open: only a store on Redis needs a connection for it.
async fn locks_of(world: &World, opened: Option<Locks>) -> Option<Locks> {
    let BackendPlan::Redis(plan) = &world.profile.backend else {
        return opened;
    };
    loop {
        match leasehold::open(&plan.url).await {
            Ok(locks) => return Some(locks),
            Err(error) if error.is_unavailable() => sleep(world.profile.lease / 10).await,
            Err(error) => {
                world.violate("a store opens", error.to_string());
                return None;
            }
        }
    }
}
