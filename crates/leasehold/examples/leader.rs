//! One of N processes leads, and the others wait. The leader's work stops if it loses the election.

use std::time::Duration;

/// Leads for a moment.
#[tokio::main]
pub async fn main() -> leasehold::Result<()> {
    let election = leasehold::open("file:").await?.election("leader");
    let leadership = election.campaign("http://10.0.0.7:8080").await?;

    leadership.while_held(lead()).await?;
    leadership.resign().await
}

async fn lead() {
    println!("leading");
    tokio::time::sleep(Duration::from_millis(5)).await;
}
