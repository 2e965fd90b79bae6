//! A resource that rejects the writes of a holder that slept past its lease.
//!
//! It rejects a smaller token than it has seen, and the same token of another claim.

use leasehold::FencingToken;

#[derive(Default)]
struct Account {
    sealed: Option<FencingToken>,
    balance: i64,
}

impl Account {
    /// Rejects all earlier tokens from now on. Every operation seals first, and so does a read.
    fn seal(&mut self, token: FencingToken) -> Result<&mut i64, String> {
        let is_late = |last| !token.is_accepted_after(last);
        if self.sealed.is_some_and(is_late) {
            return Err(format!("token {} is too old", token.token()));
        }

        self.sealed = Some(token);
        Ok(&mut self.balance)
    }
}

/// Rejects a late writer.
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = leasehold::open("memory:").await?;
    let mut account = Account::default();

    let late = locks.mutex("account").acquire().await?.fencing_token()?;
    let guard = locks.mutex("account").acquire().await?;
    *account.seal(guard.fencing_token()?)? += 100;
    assert!(account.seal(late).is_err());
    guard.release().await?;
    Ok(())
}
