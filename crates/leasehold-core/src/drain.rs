//! Waiting for the departures that are under way in the background.

use crate::runtime::background::on_background;
use crate::runtime::departures;

/// Waits until every release and cancellation that this process has begun has reached its store.
///
/// A dropped guard is released by the background thread, which ends when the process exits. The end
/// of the main thread waits up to a second for all releases, and that of another thread for those
/// that it has begun. So a program that returns from `main`, or panics there, need not call this.
/// One that is ended by `std::process::exit` in another thread, or that wants to wait for longer,
/// calls it first:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::open("memory:").await?;
/// drop(locks.mutex("nightly").acquire().await?);
/// leasehold::drain().await;
/// assert!(locks.inspect("nightly").await?.entries.is_empty());
/// # Ok(()) }
/// ```
///
/// It covers all stores of the process, and what was dropped before the call. A store that sends no
/// reply delays it by about the lease of the claims to release. Wrap it in a timeout to wait for a
/// shorter time.
///
/// # Cancel safety
/// It only waits; dropping it has no effect.
pub async fn drain() {
    on_background(departures::drained()).await;
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Instant;

    use futures_util::FutureExt;

    use super::*;
    use crate::runtime::departures::Departure;

    /// The end of a departure may begin another one that goes on with it.
    #[tokio::test]
    async fn drain_waits_for_what_goes_on_with_a_departure() {
        let first = Departure::begin(Instant::now());
        let mut draining = pin!(drain());
        assert_eq!(draining.as_mut().now_or_never(), None);

        let second = Departure::begin(Instant::now());
        first.end_with_later();
        assert_eq!(draining.as_mut().now_or_never(), None);

        drop(second);
        draining.await;
    }
}
