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
