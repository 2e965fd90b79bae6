//! What a server replies about itself: its clock, and its fields in INFO.

use std::sync::atomic::{AtomicU64, Ordering};

use super::reply_error;
use super::request::command;
use super::session::Session;
use leasehold_core::Result;
use leasehold_core::internal::BootInstant;

/// The largest time that a token has digits for: the year 2286, in microseconds.
const TIME_MAX: u64 = 9_999_999_999_999_999;

/// The server's clock, as this client reads it.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    /// Microseconds to add to this machine's clock.
    ahead: AtomicU64,
}

impl ServerClock {
    /// Returns the server's time. It is never ahead of the server, except for the difference in
    /// rate of two clocks since the last reply.
    pub(crate) fn micros(&self) -> u64 {
        (BootInstant::now().as_nanos() / 1_000).wrapping_add(self.ahead.load(Ordering::Relaxed))
    }

    /// Sets the clock to the server's time in a reply that was read at `read`.
    pub(crate) fn set(&self, server_micros: u64, read: BootInstant) {
        self.ahead.store(
            server_micros.wrapping_sub(read.as_nanos() / 1_000),
            Ordering::Relaxed,
        );
    }
}

/// Returns a server's time in microseconds; `None` if no clock shows it.
pub(crate) fn micros_of(seconds: u64, micros: u64) -> Option<u64> {
    let whole = seconds.checked_mul(1_000_000)?;
    let time = whole.checked_add(micros)?;
    (time <= TIME_MAX).then_some(time)
}

/// Sets the clock to the time of the server.
pub(super) async fn read_clock(session: &Session, clock: &ServerClock) -> Result<()> {
    let (seconds, micros) = session.request(&command("TIME")).await?;
    let read = BootInstant::now();
    let time = micros_of(seconds, micros).ok_or_else(reply_error::protocol_error)?;
    clock.set(time, read);
    Ok(())
}

/// Returns a section of INFO; empty if the user may not read it.
pub(super) async fn info_section(session: &Session, section: &str) -> Result<String> {
    let mut request = command("INFO");
    request.arg(section);
    match session.request(&request).await {
        Err(error) if error.is_denied() || error.is_unsupported() => Ok(String::new()),
        section => section,
    }
}

/// Returns the value of a field in a section of INFO.
pub(crate) fn field<'a>(about: &'a str, name: &str) -> Option<&'a str> {
    about
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A token has no digits for a later time.
        #[test]
        fn time_of_a_server_ends_in_2286(seconds: u64, micros: u64) {
            prop_assert!(micros_of(seconds, micros).is_none_or(|time| time <= TIME_MAX));
        }
    }

    #[test]
    fn impossible_time_is_refused() {
        assert_eq!(micros_of(u64::MAX, 5), None);
        assert_eq!(micros_of(1, u64::MAX), None);
        assert_eq!(micros_of(1, 5), Some(1_000_005));
    }
}
