//! Items that the simulated world of the lab needs. They are not a part of the API, but for
//! [`Memory::on_tokio_clock`].

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{self, Validity};
use crate::runtime::simulation::follow_tokio_clock;
use crate::stores::Memory;
use crate::{ClaimId, Guard};

pub use crate::runtime::clock::BootInstant;
pub use crate::runtime::simulation::{BackgroundTask, Connection, Scope, World, enter};

/// The validity of a guard, read without an effect on the guard.
///
/// [`Guard::check`] records a loss when it reads the clock. A checker that called it would hide a
/// loss that the library itself did not notice.
#[derive(Clone, Debug)]
pub struct Probe {
    validity: Arc<Validity>,
}

impl Probe {
    /// Creates the probe of a guard. It outlives the guard.
    #[must_use]
    pub fn of(guard: &Guard) -> Self {
        Self {
            validity: guard.hold().validity(),
        }
    }

    /// Returns the id of the claim.
    #[must_use]
    pub fn claim_id(&self) -> ClaimId {
        self.validity.claim.id
    }

    /// Returns until when the guard is valid; 0 after a recorded end.
    #[must_use]
    pub fn expires_at(&self) -> BootInstant {
        self.validity.expires_at()
    }
}

/// Returns for how long a client relies on a lease, from before its request.
#[must_use]
pub fn safe_duration(lease: Duration) -> Duration {
    engine::safe_duration(lease)
}

impl Memory {
    /// Creates an empty store for a test that pauses the time of tokio.
    ///
    /// From here on all locks that are used in the current runtime follow its clock: waits, leases,
    /// renewals, `max_hold` and losses. A `sleep` in paused time ends at once, and every renewal
    /// until then takes place. After `tokio::time::advance` none has, as after a suspend of the
    /// machine.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold::{Locks, LossReason, stores::Memory};
    /// use tokio::time::{advance, sleep};
    ///
    /// #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// async fn main() -> leasehold::Result<()> {
    ///     let locks = Locks::from_store(Memory::on_tokio_clock(), "memory:")?;
    ///     let guard = locks.mutex("nightly").acquire().await?;
    ///     sleep(Duration::from_secs(3600)).await;
    ///     guard.check()?;
    ///
    ///     advance(Duration::from_secs(3600)).await;
    ///     assert_eq!(guard.loss(), Some(LossReason::RenewalTimedOut));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// It needs the feature `test-util`. The clock is that of the present runtime, so make a store
    /// in each test. A call from a thread outside of the runtime, such as one of
    /// [`blocking`](crate::blocking), follows the clock of the machine. Don't wait for a lock in
    /// `spawn_blocking`: tokio's paused time does not advance while such a thread runs.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    pub fn on_tokio_clock() -> Self {
        follow_tokio_clock();
        Self::new()
    }
}
