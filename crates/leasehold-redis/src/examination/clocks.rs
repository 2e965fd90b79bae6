//! Round trips to a server, and its clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::client;
use crate::client::Session;
use leasehold_core::internal::BootInstant;
use leasehold_core::internal::examination::percentiles;
use leasehold_core::{Result, RoundTrip};

/// Readings of a server's clock, some time apart.
pub(super) struct Clock {
    pub(super) round_trip: RoundTrip,
    first: Sample,
    last: Sample,
}

/// One reading of the server's clock.
#[derive(Clone, Copy, Debug)]
struct Sample {
    read_at: BootInstant,
    round_trip: Duration,
    /// By how much the server's clock was ahead of the wall clock, in microseconds.
    ahead: i64,
    /// The server's time minus that of the clock that never steps, in microseconds.
    against_boot: i64,
}

const SAMPLES: usize = 50;
const RATE_OVER: Duration = Duration::from_millis(800);

impl Clock {
    pub(super) async fn read(session: &Session) -> Result<Self> {
        let earlier = Sample::take_several(session).await?;
        // The rate follows from two readings that are some time apart.
        tokio::time::sleep(RATE_OVER).await;
        let later = Sample::take_several(session).await?;

        let samples = earlier.iter().chain(&later);
        let round_trips = samples.map(|sample| sample.round_trip).collect();
        Ok(Self {
            round_trip: percentiles(round_trips).expect("there are samples"),
            first: Sample::fastest(&earlier),
            last: Sample::fastest(&later),
        })
    }

    pub(super) fn ahead_ms(&self) -> i64 {
        self.last.ahead / 1_000
    }

    /// Returns the least difference of the clocks' rates.
    ///
    /// Half of each round trip is the uncertainty.
    pub(super) fn rate_ppm(&self) -> i64 {
        let Self { first, last, .. } = self;
        let elapsed = micros_of(last.read_at.duration_since(first.read_at)).max(1);
        let uncertainty = micros_of((first.round_trip + last.round_trip) / 2);
        let drift = (last.against_boot - first.against_boot).abs() - uncertainty;
        drift * 1_000_000 / elapsed
    }
}

impl Sample {
    async fn take_several(session: &Session) -> Result<Vec<Self>> {
        let mut samples = Vec::with_capacity(SAMPLES);
        for _ in 0..SAMPLES {
            samples.push(Self::take(session).await?);
        }
        Ok(samples)
    }

    async fn take(session: &Session) -> Result<Self> {
        let sent_at = BootInstant::now();
        let (seconds, micros) = session.request(&client::command("TIME")).await?;
        let read_at = BootInstant::now();
        let time = client::micros_of(seconds, micros)
            .and_then(|time| i64::try_from(time).ok())
            .ok_or_else(client::protocol_error)?;

        let round_trip = read_at.duration_since(sent_at);
        // The server read its clock in the middle of the round trip, within half of it.
        let server = time + micros_of(round_trip / 2);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let boot = i64::try_from(read_at.as_nanos() / 1_000).unwrap_or(i64::MAX);
        Ok(Self {
            read_at,
            round_trip,
            ahead: server - micros_of(wall.unwrap_or_default()),
            against_boot: server - boot,
        })
    }

    fn fastest(samples: &[Self]) -> Self {
        let fastest = samples.iter().min_by_key(|sample| sample.round_trip);
        *fastest.expect("there are samples")
    }
}

fn micros_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two readings: each has its time in milliseconds, and the difference of the clocks.
    fn between(first: (u64, i64), last: (u64, i64)) -> Clock {
        let round_trip = Duration::from_micros(100);
        let sample = |(at_ms, against_boot): (u64, i64)| Sample {
            read_at: BootInstant::from_nanos(at_ms * 1_000_000),
            round_trip,
            ahead: 0,
            against_boot,
        };
        Clock {
            round_trip: percentiles(vec![round_trip]).expect("a sample"),
            first: sample(first),
            last: sample(last),
        }
    }

    #[test]
    fn rate_is_that_beyond_the_uncertainty_of_the_readings() {
        // In one second, the uncertainty of two round trips is 100 µs.
        assert_eq!(between((0, 0), (1_000, 600)).rate_ppm(), 500);
        assert_eq!(between((0, 700), (1_000, 0)).rate_ppm(), 600);
    }
}
