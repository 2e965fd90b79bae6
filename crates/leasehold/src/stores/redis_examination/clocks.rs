//! Round trips to a server, and its clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::error_of;
use crate::Result;
use crate::examination::{ExaminedServer, Finding, RoundTrip};
use crate::runtime::clock::BootInstant;
use crate::stores::redis_client::{self, Address, Session};

/// Measures round trips and the clock, and adds risks to locks.
pub(super) async fn examine(
    session: &Session,
    address: &Address,
    server: &mut ExaminedServer,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        samples.push(Sample::take(session).await?);
    }
    let first = Sample::fastest(&samples);
    // The rate follows from two readings that are some time apart.
    tokio::time::sleep(RATE_OVER).await;
    let mut later = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        later.push(Sample::take(session).await?);
    }
    let last = Sample::fastest(&later);

    let all = samples.iter().chain(&later);
    server.round_trip = RoundTrip::of(all.map(|sample| sample.round_trip).collect());
    let ahead_ms = last.ahead / 1_000;
    server.clock_ahead_ms = Some(ahead_ms);
    findings.extend(difference(ahead_ms));
    findings.extend(rate(first, last));
    findings.extend(
        server
            .round_trip
            .and_then(|trip| slowness(trip, address.settings.crash_grace)),
    );
    Ok(())
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

impl Sample {
    async fn take(session: &Session) -> Result<Self> {
        let sent_at = BootInstant::now();
        let reply = session.send(&redis::cmd("TIME")).await.map_err(error_of)?;
        let read_at = BootInstant::now();
        let (seconds, micros) =
            redis::from_redis_value(reply).map_err(|_| redis_client::protocol_error())?;
        let time = redis_client::micros_of(seconds, micros);
        let time = time.and_then(|time| i64::try_from(time).ok());
        let time = time.ok_or_else(redis_client::protocol_error)?;

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

fn difference(ahead_ms: i64) -> Option<Finding> {
    (ahead_ms.abs() > DIFFERENCE_MAX_MS).then(|| {
        let message = format!("the server's clock differs by {ahead_ms} ms from this machine's");
        let remedy = "synchronise the clocks (NTP): the ages of holds in show and ls are wrong, \
                      and tokens after a loss of data may not rise";
        Finding::warning("clock-difference", message, remedy)
    })
}

/// Compares the rates of two clocks. Half of each round trip is the uncertainty.
fn rate(first: Sample, last: Sample) -> Option<Finding> {
    let elapsed = micros_of(last.read_at.duration_since(first.read_at)).max(1);
    let uncertainty = micros_of((first.round_trip + last.round_trip) / 2);
    let drift = (last.against_boot - first.against_boot).abs() - uncertainty;
    let parts_per_million = drift * 1_000_000 / elapsed;
    (parts_per_million > RATE_MAX_PPM).then(|| {
        let message = format!(
            "the server's clock runs {parts_per_million} ppm or more off this machine's, or was \
             set during the examination; leases allow {RATE_MAX_PPM} ppm"
        );
        let remedy =
            "find out which clock is wrong; a virtual machine may need another clock source";
        Finding::danger("clock-rate", message, remedy)
    })
}

/// A holder renews ten times in a crash grace, and gives up after 0.6 of it without a reply.
fn slowness(trip: RoundTrip, crash_grace: Option<Duration>) -> Option<Finding> {
    let grace = crash_grace.unwrap_or(LEASE);
    let message = format!("the 99th percentile of round trips is {:?}", trip.p99);
    if trip.p99 > grace / 4 {
        let remedy = "use a longer crash-grace= and lease, or a server that is nearer";
        Some(Finding::danger("slow", message, remedy))
    } else if trip.p99 > grace / 20 {
        let remedy = "use a longer crash-grace= and lease, or find out what delays replies";
        Some(Finding::warning("slow", message, remedy))
    } else {
        None
    }
}

fn micros_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

const SAMPLES: usize = 50;
const RATE_OVER: Duration = Duration::from_millis(800);
const DIFFERENCE_MAX_MS: i64 = 1_000;
/// The margin that leases have for clocks of different rates.
const RATE_MAX_PPM: i64 = 500;
/// The default lease, which matters without a crash grace.
const LEASE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ms: u64, against_boot: i64) -> Sample {
        Sample {
            read_at: BootInstant::from_nanos(at_ms * 1_000_000),
            round_trip: Duration::from_micros(100),
            ahead: 0,
            against_boot,
        }
    }

    #[test]
    fn rate_is_a_danger_beyond_the_margin_of_leases() {
        // One second: 500 ppm are 500 µs, and the uncertainty of two round trips is 100 µs.
        assert!(rate(sample(0, 0), sample(1_000, 550)).is_none());
        assert!(rate(sample(0, 0), sample(1_000, 700)).is_some());
        assert!(rate(sample(0, 700), sample(1_000, 0)).is_some());
    }

    #[test]
    fn slowness_is_judged_by_the_crash_grace() {
        let code = |millis| {
            let trip = RoundTrip::of(vec![Duration::from_millis(millis)]).expect("a sample");
            slowness(trip, Some(Duration::from_secs(2))).map(|finding| finding.severity.to_string())
        };
        assert_eq!(code(99), None);
        assert_eq!(code(101).as_deref(), Some("warning"));
        assert_eq!(code(501).as_deref(), Some("danger"));
    }
}
