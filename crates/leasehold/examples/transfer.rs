//! Locks within locks: nested ones of one owner, a writer that reads on, and several at once.

use leasehold::{Locks, Owner, Result};

/// A payment run that sets the rate and pays with it.
#[tokio::main]
pub async fn main() -> Result<()> {
    let locks = leasehold::open("memory:").await?;
    let run = Owner::new();
    let ledger = locks.reentrant("ledger").acquire(&run).await?;

    // The writer becomes a reader. Others may read from here on, and no writer comes in between.
    let rates = locks.rwlock("rates");
    let guard = rates.exclusive().acquire().await?;
    println!("the rate is set");
    guard.downgrade().await?;
    assert!(rates.shared().try_acquire().await?.is_ok());
    assert!(rates.exclusive().try_acquire().await?.is_err());

    // They do not wait for each other, because every client acquires the accounts in one order.
    tokio::try_join!(
        transfer(&locks, &run, ["account/3", "account/7"]),
        transfer(&locks, &run, ["account/7", "account/3"]),
    )?;

    guard.release().await?;
    ledger.release().await
}

/// Runs alone or within a payment run, because an owner may acquire the ledger again.
async fn transfer(locks: &Locks, owner: &Owner, accounts: [&str; 2]) -> Result<()> {
    let ledger = locks.reentrant("ledger").acquire(owner).await?;

    // A deposit acquires only its account, so the ledger does not keep it out.
    let both = locks.multi_lock(accounts).acquire().await?;
    println!("{accounts:?} under tokens {:?}", both.tokens());

    both.release().await?;
    ledger.release().await
}
