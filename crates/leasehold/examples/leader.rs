//! One of N processes leads. The others know its address, and one of them leads next.

use std::time::Duration;

use leasehold::Token;

/// Two candidates, in one process here.
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let election = leasehold::open("memory:").await?.election("scheduler");
    let leadership = election.campaign("http://10.0.0.7:8080").await?;
    let next = tokio::spawn(election.campaign("http://10.0.0.8:8080"));

    let leader = election.leader().await?.expect("a candidate leads");
    println!("requests go to {}", leader.address());

    // The work stops if the leadership is lost.
    leadership.while_held(lead(leadership.token())).await?;
    leadership.resign().await?;

    let leadership = next.await??;
    assert!(leadership.token() > leader.token);
    leadership.while_held(lead(leadership.token())).await?;
    Ok(leadership.resign().await?)
}

/// A database would receive the token with each write.
async fn lead(token: Token) {
    println!("leading under token {token}");
    tokio::time::sleep(Duration::from_millis(5)).await;
}
