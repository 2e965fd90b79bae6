//! A pool of four GPUs: each job takes one or two that no other job uses, and knows their numbers.
//!
//! `leasehold run gpu --slots 4 -- COMMAND` takes GPUs of the same pool.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use leasehold::Result;
use tokio::task::JoinSet;

static IN_USE: [AtomicBool; 4] = [const { AtomicBool::new(false) }; 4];

/// Ten jobs share the pool.
#[tokio::main]
pub async fn main() -> Result<()> {
    let pool = leasehold::open("file:").await?.semaphore("gpu", 4);
    let gpus = pool.numbered();

    let mut jobs = JoinSet::new();
    for job in 0..10 {
        let permits = 1 + job % 2;
        let acquire = gpus.clone().permits(permits).acquire();
        jobs.spawn(async move {
            let guard = acquire.await?;
            println!("job {job} on GPUs {:?}", guard.slots());
            assert_eq!(guard.slots().len(), permits as usize);
            train(guard.slots()).await;
            guard.release().await
        });
    }
    jobs.join_all().await.into_iter().collect()
}

async fn train(slots: &[u32]) {
    for slot in slots {
        let was_in_use = IN_USE[*slot as usize].swap(true, Relaxed);
        assert!(!was_in_use, "two jobs on GPU {slot}");
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    for slot in slots {
        IN_USE[*slot as usize].store(false, Relaxed);
    }
}
