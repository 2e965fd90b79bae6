//! The departures that are under way in the background, and who waits for them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use super::fork::is_forked;

static UNDER_WAY: Mutex<UnderWay> = Mutex::new(UnderWay {
    numbers: BTreeSet::new(),
    next: 0,
    continued: Vec::new(),
    wait_until: None,
});
/// Tasks wait for `DEPARTED`, and blocked threads for `DEPARTED_BLOCKING`. Every departure notifies
/// both.
static DEPARTED: Notify = Notify::const_new();
static DEPARTED_BLOCKING: Condvar = Condvar::new();

thread_local! {
    static END_OF_THREAD: EndOfThread = EndOfThread::default();
}

/// The departures that the background completes.
struct UnderWay {
    /// The departures are numbered in the order in which they begin.
    numbers: BTreeSet<u64>,
    next: u64,
    /// Departures that end with the last of those with these numbers.
    continued: Vec<(Departure, Range<u64>)>,
    /// Until when the end of a thread waits for them.
    wait_until: Option<Instant>,
}

impl UnderWay {
    /// Whether one of the departures with these numbers is under way.
    fn has_any(&self, numbers: Range<u64>) -> bool {
        self.numbers.range(numbers).next().is_some()
    }
}

/// One departure that the background completes.
#[derive(Debug)]
pub(crate) struct Departure {
    number: u64,
    /// `None` if its thread was ending already.
    begun_by: Option<Arc<()>>,
}

impl Departure {
    /// Begins the departure that the background completes. The caller has tried it since `since`.
    pub(crate) fn begin(since: Instant) -> Self {
        let mut under_way = UNDER_WAY.lock();
        let number = under_way.next;
        under_way.next += 1;
        under_way.numbers.insert(number);
        under_way.wait_until = under_way.wait_until.max(Some(since + REPLY_MAX));

        let begun_by = END_OF_THREAD.try_with(|end| Arc::clone(&end.begun_here));
        Self {
            number,
            begun_by: begun_by.ok(),
        }
    }

    /// Ends this departure with those that have begun since: one of them goes on with it.
    pub(crate) fn end_with_later(self) {
        let mut under_way = UNDER_WAY.lock();
        let later = self.number + 1..under_way.next;
        if under_way.has_any(later.clone()) {
            under_way.continued.push((self, later));
        }
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        let mut under_way = UNDER_WAY.lock();
        under_way.numbers.remove(&self.number);
        self.begun_by = None;
        let mut continued = under_way.continued.iter();
        let ended = continued.position(|(_, later)| !under_way.has_any(later.clone()));
        let ended = ended.map(|at| under_way.continued.swap_remove(at));

        DEPARTED_BLOCKING.notify_all();
        DEPARTED.notify_waiters();
        drop(under_way);
        // Its end may be that of another one.
        drop(ended);
    }
}

/// Lets the end of this thread wait for departures, also if it begins none itself.
pub(crate) fn wait_at_end_of_thread() {
    // A thread that is ending already does not wait any more.
    let _ = END_OF_THREAD.try_with(|_| ());
}

/// Waits for departures at the end of a thread: the main thread for all of them, and other threads
/// for those that they have begun.
///
/// A program that returns from `main`, or panics there, drops its guards and its runtime on the
/// main thread, and the runtime waits for the ends of its own threads. So the process ends after
/// the departures, although the background thread ends with it.
struct EndOfThread {
    is_main: bool,
    /// Each departure that the thread has begun has a clone.
    begun_here: Arc<()>,
}

impl Default for EndOfThread {
    fn default() -> Self {
        Self {
            is_main: thread::current().name() == Some("main"),
            begun_here: Arc::default(),
        }
    }
}

impl Drop for EndOfThread {
    fn drop(&mut self) {
        // In a forked child no thread completes them, and another thread may have had the mutex.
        if is_forked() {
            return;
        }
        let mut under_way = UNDER_WAY.lock();
        let Some(wait_until) = under_way.wait_until else {
            return;
        };

        let are_under_way = |under_way: &mut UnderWay| {
            if self.is_main {
                !under_way.numbers.is_empty()
            } else {
                Arc::strong_count(&self.begun_here) > 1
            }
        };
        DEPARTED_BLOCKING.wait_while_until(&mut under_way, are_under_way, wait_until);
    }
}

/// How long the end of a thread waits for a reply. A release takes one round trip. If the store has
/// not replied by then, the lease or the crash detection frees the lock.
const REPLY_MAX: Duration = Duration::from_secs(1);

/// Waits for the departures that this process has begun.
pub(crate) async fn drained() {
    if is_forked() {
        return;
    }
    let begun = 0..UNDER_WAY.lock().next;
    departed(begun).await;
}

/// Waits until none of these departures is under way.
async fn departed(numbers: Range<u64>) {
    loop {
        let departed = DEPARTED.notified();

        if is_forked() || !UNDER_WAY.lock().has_any(numbers.clone()) {
            return;
        }
        departed.await;
    }
}

/// As [`drained`], on a thread that may block; returns whether all departures ended within
/// `timeout`.
pub(crate) fn drain_blocking(timeout: Duration) -> bool {
    if is_forked() {
        return true;
    }
    let mut under_way = UNDER_WAY.lock();
    let begun = 0..under_way.next;
    let are_under_way = |under_way: &mut UnderWay| under_way.has_any(begun.clone());

    match Instant::now().checked_add(timeout) {
        Some(deadline) => {
            DEPARTED_BLOCKING.wait_while_until(&mut under_way, are_under_way, deadline);
        }
        None => DEPARTED_BLOCKING.wait_while(&mut under_way, are_under_way),
    }

    !under_way.has_any(begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A departure that has been tried for long begins in the background after a recent one.
    #[test]
    fn later_departure_does_not_shorten_the_wait_of_a_thread() {
        let long_ago = Instant::now();
        let recently = long_ago + REPLY_MAX;
        let wait_until = || UNDER_WAY.lock().wait_until;
        let _recent = Departure::begin(recently);
        let _old = Departure::begin(long_ago);
        assert!(wait_until() >= Some(recently + REPLY_MAX));
        let _last = Departure::begin(recently + REPLY_MAX);
        assert!(wait_until() >= Some(recently + 2 * REPLY_MAX));
    }
}
