//! A resource that is safe from a holder that slept past its lease: it rejects smaller tokens than it has seen, and
//! the same token of another claim.

use leasehold::FencingToken;

#[derive(Default)]
struct Account {
    sealed: Option<FencingToken>,
    balance: i64,
}

impl Account {
    /// The first operation under a new token, a read included, shuts out all earlier ones.
    fn seal(&mut self, token: FencingToken) -> Result<&mut i64, String> {
        if self
            .sealed
            .is_some_and(|last| !token.is_accepted_after(last))
        {
            return Err(format!("token {} is too old", token.token()));
        }
        self.sealed = Some(token);
        Ok(&mut self.balance)
    }
}

/// A late writer is refused.
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = leasehold::open("memory:").await?;
    let mut account = Account::default();
    let late = locks.mutex("account").acquire().await?.fencing_token();
    let guard = locks.mutex("account").acquire().await?;
    *account.seal(guard.fencing_token())? += 100;
    assert!(account.seal(late).is_err());
    guard.release().await?;
    Ok(())
}
