//! At most four downloads at a time, across all processes of the machine.

use std::time::Duration;

/// Ten tasks share four slots.
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = leasehold::open("file:").await?;

    let tasks = (0..10).map(|number| {
        let slot = locks.semaphore("downloads", 4);
        tokio::spawn(async move {
            let guard = slot.acquire().await?;
            println!("{number} downloads");
            tokio::time::sleep(Duration::from_millis(5)).await;
            guard.release().await
        })
    });

    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(())
}
