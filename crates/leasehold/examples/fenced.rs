//! A resource that is safe from a holder who slept past its lease: it refuses smaller tokens than it has seen.

use leasehold::Token;

#[derive(Default)]
struct Account {
    sealed: Option<Token>,
    balance: i64,
}

impl Account {
    /// The first operation under a new token, a read included, shuts out all earlier ones.
    fn seal(&mut self, token: Token) -> Result<&mut i64, String> {
        if self.sealed > Some(token) {
            return Err(format!("token {token} is too old"));
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
    let late = locks.mutex("account").acquire().await?.token();
    let guard = locks.mutex("account").acquire().await?;
    *account.seal(guard.token())? += 100;
    assert!(account.seal(late).is_err());
    guard.release().await?;
    Ok(())
}
