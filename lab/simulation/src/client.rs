//! What the clients do, through the public API.

mod acquire;
mod held;
mod outcome;

use std::sync::Arc;

use leasehold::Locks;
use tokio::time::sleep;

use crate::plan::{Operation, Wait};
use crate::world::World;

/// Performs the operations of one task, in order.
pub(crate) async fn run(world: Arc<World>, client: usize, locks: Locks, plan: Vec<Operation>) {
    for operation in plan {
        sleep(operation.pause).await;

        let requested = world.time();
        let acquired = acquire::acquire(&world, client, &locks, &operation).await;
        if let Some(held) = acquired {
            held::hold_and_end(&world, client, held, &operation, requested).await;
        }
    }
}

/// Runs a job after the faults, unless it is done.
pub(crate) async fn complete_once(world: Arc<World>, client: usize, locks: Locks, job: u32) {
    let operation = Operation {
        job: Some(job),
        ..Operation::simple(&world.profile, 0)
    };
    let requested = world.time();
    if let Some(held) = acquire::acquire(&world, client, &locks, &operation).await {
        held::hold_and_end(&world, client, held, &operation, requested).await;
    }
    if !world.state().server.records.is_done(0, job) {
        world.violate("a job is completed in the end", format!("job {job}"));
    }
}

/// Acquires and releases a lock, without an option.
pub(crate) async fn acquire_once(world: Arc<World>, client: usize, locks: Locks, name: u8) {
    let operation = Operation::simple(&world.profile, name);
    let Wait::AtMost(limit) = operation.wait else {
        unreachable!("a simple operation has a limit")
    };

    let requested = world.time();
    match acquire::acquire(&world, client, &locks, &operation).await {
        Some(held) => {
            held::hold_and_end(&world, client, held, &operation, requested).await;
        }
        None => world.violate(
            "a lock can be acquired after the faults",
            format!("lock {name} is not granted within {limit:?}"),
        ),
    }
}
