//! One of N processes leads, and the others wait. The leader's work stops if it loses the lock.

use std::time::Duration;

/// Leads for a moment.
#[tokio::main]
pub async fn main() -> leasehold::Result<()> {
    let locks = leasehold::open("file:").await?;
    let guard = locks
        .mutex("leader")
        .label("http://10.0.0.7:8080")
        .acquire()
        .await?;

    guard.while_held(lead()).await?;
    guard.release().await
}

async fn lead() {
    println!("leading");
    tokio::time::sleep(Duration::from_millis(5)).await;
}
