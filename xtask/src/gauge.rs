//! How much the machine disturbs a run of the tests.

use std::fmt;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the gauge sleeps between two wake-ups.
const TICK: Duration = Duration::from_millis(5);
/// How often it reads the counters of the kernel. Disturbances are short.
const PERIOD: Duration = Duration::from_secs(1);
/// A later wake-up is a large part of the times that tests measure.
const LATE: Duration = Duration::from_millis(50);
/// In a second of which a larger part is missing, a test can miss its time, in per cent.
const SHARE: f64 = 10.0;

/// A thread that sleeps and notes how late it wakes up.
pub(crate) struct Gauge {
    is_done: Arc<AtomicBool>,
    thread: JoinHandle<Disturbance>,
}

/// The worst that a gauge measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Disturbance {
    /// The latest wake-up of a thread that sleeps.
    pub(crate) latest: Duration,
    /// The part of the cores' time that the hypervisor gave to other machines, in per cent.
    pub(crate) stolen: f64,
    /// The part of the time in which all tasks waited for a disk, in per cent.
    pub(crate) waited_for_disk: f64,
}

/// What the kernel has counted since it booted. Zero where it does not count.
#[derive(Clone, Copy, Default)]
struct Counters {
    stolen: u64,
    cpu: u64,
    waited_for_disk: Duration,
}

impl Gauge {
    pub(crate) fn start() -> Self {
        let is_done = Arc::new(AtomicBool::new(false));

        let ended = Arc::clone(&is_done);
        Self {
            is_done,
            thread: thread::spawn(move || measure(&ended)),
        }
    }

    pub(crate) fn stop(self) -> Disturbance {
        self.is_done.store(true, Ordering::Relaxed);

        self.thread.join().unwrap_or_default()
    }
}

fn measure(is_done: &AtomicBool) -> Disturbance {
    let mut worst = Disturbance::default();
    let mut before = Counters::read();
    let mut read_at = Instant::now();

    while !is_done.load(Ordering::Relaxed) {
        let slept_at = Instant::now();
        thread::sleep(TICK);
        worst.latest = worst.latest.max(slept_at.elapsed().saturating_sub(TICK));

        if read_at.elapsed() >= PERIOD {
            let after = Counters::read();
            worst.include(before, after, read_at.elapsed());
            (before, read_at) = (after, Instant::now());
        }
    }
    worst
}

impl Disturbance {
    /// Notes a period, with the counters at its begin and at its end.
    fn include(&mut self, before: Counters, after: Counters, elapsed: Duration) {
        let waited = after.waited_for_disk.saturating_sub(before.waited_for_disk);
        let waited = 100.0 * waited.as_secs_f64() / elapsed.as_secs_f64().max(0.001);
        let stolen = after.stolen.saturating_sub(before.stolen);
        let stolen = percentage(stolen, after.cpu.saturating_sub(before.cpu));

        self.stolen = self.stolen.max(stolen);
        self.waited_for_disk = self.waited_for_disk.max(waited);
    }

    /// Whether a test that measures time can fail for a reason outside of the tested program.
    pub(crate) fn is_noticeable(&self) -> bool {
        self.latest >= LATE || self.stolen >= SHARE || self.waited_for_disk >= SHARE
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "latest wake-up {} ms; in the worst second {:.0} % stolen, {:.0} % waiting for a disk",
            self.latest.as_millis(),
            self.stolen,
            self.waited_for_disk
        )
    }
}

impl Counters {
    fn read() -> Self {
        let cpu = fs::read_to_string("/proc/stat").unwrap_or_default();
        let disk = fs::read_to_string("/proc/pressure/io").unwrap_or_default();

        Self::parse(&cpu, &disk)
    }

    fn parse(cpu: &str, disk: &str) -> Self {
        // user, nice, system, idle, iowait, irq, softirq, steal
        let times: Vec<u64> = cpu
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            .take(8)
            .filter_map(|time| time.parse().ok())
            .collect();
        let waited = disk
            .lines()
            .find(|line| line.starts_with("full "))
            .and_then(|line| line.rsplit_once("total="))
            .and_then(|(_, micros)| micros.parse().ok())
            .unwrap_or(0);

        Self {
            stolen: times.get(7).copied().unwrap_or(0),
            cpu: times.iter().sum(),
            waited_for_disk: Duration::from_micros(waited),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a percentage with one digit needs no exact counts"
)]
fn percentage(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Disturbance = Disturbance {
        latest: Duration::from_millis(3),
        stolen: 2.0,
        waited_for_disk: 1.0,
    };

    #[test]
    fn counters_of_the_kernel_are_read() {
        let before = Counters::parse(
            "cpu 10 0 0 80 0 0 0 10 5 0\n",
            "full avg10=0 total=1000000\n",
        );
        let after = Counters::parse(
            "cpu 20 0 0 90 0 0 0 90 9 0\n",
            "full avg10=0 total=3000000\n",
        );
        let mut measured = Disturbance::default();
        measured.include(before, after, Duration::from_secs(10));
        measured.include(after, after, Duration::from_secs(10));

        assert!((measured.stolen - 80.0).abs() < 0.01, "{measured}");
        assert!((measured.waited_for_disk - 20.0).abs() < 0.01, "{measured}");
    }

    #[test]
    fn each_kind_of_disturbance_is_noticed() {
        assert!(!QUIET.is_noticeable());

        let latest = Duration::from_millis(60);
        assert!(Disturbance { latest, ..QUIET }.is_noticeable());
        let stolen = 20.0;
        assert!(Disturbance { stolen, ..QUIET }.is_noticeable());
        let waited_for_disk = 20.0;
        assert!(
            Disturbance {
                waited_for_disk,
                ..QUIET
            }
            .is_noticeable()
        );
    }

    #[test]
    fn late_thread_is_measured() {
        let gauge = Gauge::start();
        thread::sleep(Duration::from_millis(50));

        let measured = gauge.stop();
        assert!(measured.latest > Duration::ZERO, "{measured}");
    }
}
