//! What a store guarantees.

use std::time::Duration;

/// What a store guarantees, so that nobody has to guess; GUARANTEES.md names the test behind each.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let guarantees = leasehold::open("memory:").await?.guarantees();
/// assert!(guarantees.fifo && guarantees.tokens && guarantees.shares);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a promise of its own, and no two make a state"
)]
#[non_exhaustive]
pub struct Guarantees {
    /// Claims are granted in order of arrival, and none overtakes another.
    pub fifo: bool,
    /// Every grant of a name has a larger token than all before it.
    pub tokens: bool,
    /// Shares other than a whole mutex: reader-writer locks and semaphores.
    pub shares: bool,
    /// A store that hears nothing of a claim for its lease ends it. If not, only a crash or its holder ends a claim.
    pub lease_expiry: bool,
    /// When a holder's crash frees the lock.
    pub crash: CrashDetection,
}

impl Guarantees {
    /// Creates the guarantees of a store that only excludes: no order, tokens, shares or expiry.
    #[must_use]
    pub fn new(crash: CrashDetection) -> Self {
        Self {
            fifo: false,
            tokens: false,
            shares: false,
            lease_expiry: false,
            crash,
        }
    }
}

/// When a crashed holder's lock is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CrashDetection {
    /// As soon as the kernel has cleared the process away.
    Immediate,
    /// After this long without a connection.
    Within(Duration),
    /// When the lease ends.
    LeaseExpiry,
}
