//! One direction of one connection.

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::io::{ErrorKind, Read};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::link::{Link, Toward};
use super::{Rules, lock, start};

/// The time by which a sleeping thread may wake too late. The thread spins for this time instead of
/// sleeping.
const AWAKE: Duration = Duration::from_micros(60);
/// The maximum number of bytes in the queue. Above it the sender waits, as it does for a full
/// socket. The limit is one second of 500 Mbit/s.
const KEPT_MAX: usize = 64 * 1024 * 1024;
const BUFFER: usize = 64 * 1024;

/// One direction of one connection. A thread reads, and a second thread writes from the first piece
/// that must wait.
///
/// ```text
/// nothing waits, nothing is to wait:  read ───────────────────────────► deliver     by the reader
/// otherwise:                          read ──► queue, until it is due ─► deliver    by the writer
/// ```
///
/// A piece is the bytes of one read. An empty piece marks the end of the stream. A piece leaves the
/// queue after its delivery. So the writer is idle when the queue is empty, and the reader may
/// deliver.
#[derive(Debug)]
pub(super) struct Direction {
    toward: Toward,
    queue: Mutex<Queue>,
    changed: Condvar,
    done: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<Waiting>,
    /// The bytes of all pieces.
    kept: usize,
    has_writer: bool,
}

#[derive(Debug)]
struct Waiting {
    due: Instant,
    piece: Vec<u8>,
}

impl Direction {
    pub(super) fn new(toward: Toward) -> Self {
        Self {
            toward,
            queue: Mutex::default(),
            changed: Condvar::new(),
            done: AtomicBool::new(false),
        }
    }

    /// Reads and forwards pieces until the end of the stream.
    pub(super) fn read_on(&self, link: &Arc<Link>) {
        let mut buffer = vec![0; BUFFER];
        while !link.is_over() {
            match link.source(self.toward).read(&mut buffer) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Ok(size) if size > 0 => self.pass(link, &buffer[..size]),
                // A reset is forwarded as an end of stream. A peer that writes afterwards receives
                // a reset too.
                Ok(_) | Err(_) => return self.pass(link, &[]),
            }
        }
    }

    /// Wakes the waiting threads, so that they check the rules again.
    pub(super) fn wake(&self) {
        // The lock prevents a missed notification. A thread has either observed the change, or
        // already waits.
        let _queue = lock(&self.queue);
        self.changed.notify_all();
    }

    pub(super) fn waiting(&self) -> u64 {
        lock(&self.queue).kept as u64
    }

    /// Whether the end of the stream was delivered.
    pub(super) fn is_done(&self) -> bool {
        self.done.load(SeqCst)
    }

    fn pass(&self, link: &Arc<Link>, piece: &[u8]) {
        let arrived = Instant::now();
        let mut queue = self.with_room(link);
        let (stopped, (delay, losses)) = {
            let rules = link.shared.rules();
            (self.is_stopped(&rules), rules.delay.of_one())
        };
        lock(&link.shared.counts).resent += u64::from(losses);

        if queue.pieces.is_empty() && delay.is_zero() && !stopped {
            drop(queue);
            return self.deliver(link, piece);
        }

        queue.kept += piece.len();
        queue.pieces.push_back(Waiting {
            due: arrived + delay,
            piece: piece.into(),
        });
        self.changed.notify_all();

        if !std::mem::replace(&mut queue.has_writer, true) {
            let link = link.clone();
            let toward = self.toward;
            start("wire queue", move || link.direction(toward).write_on(&link));
        }
    }

    fn with_room(&self, link: &Link) -> MutexGuard<'_, Queue> {
        let is_full = |queue: &mut Queue| queue.kept >= KEPT_MAX && !link.is_over();
        self.changed
            .wait_while(lock(&self.queue), is_full)
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self, rules: &Rules) -> bool {
        rules.frozen || rules.holds_replies && self.toward == Toward::Client
    }

    /// Delivers each piece when it is due, until the end of the stream.
    fn write_on(&self, link: &Link) {
        // By default the kernel may wake a sleeping thread 50 µs late. If this call fails, delays
        // are less exact.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));

        while let Some(piece) = self.next_due(link) {
            self.deliver(link, &piece);
            let mut queue = lock(&self.queue);
            queue.pieces.pop_front();
            queue.kept -= piece.len();
            self.changed.notify_all();
            if piece.is_empty() {
                return;
            }
        }
    }

    /// Waits until the next piece is due and takes its bytes. Its entry stays in the queue. Returns
    /// `None` if the link is closed.
    fn next_due(&self, link: &Link) -> Option<Vec<u8>> {
        let mut queue = lock(&self.queue);
        while !link.is_over() {
            let stopped = self.is_stopped(&link.shared.rules());
            let next = queue.pieces.front_mut().filter(|_| !stopped);
            let left = next
                .as_ref()
                .map(|next| next.due.saturating_duration_since(Instant::now()));
            queue = match (next, left) {
                (Some(next), Some(Duration::ZERO)) => return Some(std::mem::take(&mut next.piece)),
                (_, Some(left)) => self.sleep(queue, left),
                (_, None) => self
                    .changed
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner),
            }
        }

        None
    }

    /// Sleeps until shortly before the due time, and then spins. A change of the queue or the rules
    /// ends the sleep.
    fn sleep<'a>(&'a self, queue: MutexGuard<'a, Queue>, left: Duration) -> MutexGuard<'a, Queue> {
        if let Some(asleep) = left.checked_sub(AWAKE) {
            let slept = self.changed.wait_timeout(queue, asleep);
            return slept.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(queue);
        let begun = Instant::now();
        while begun.elapsed() < left {
            spin_loop();
        }
        lock(&self.queue)
    }

    fn deliver(&self, link: &Link, piece: &[u8]) {
        if piece.is_empty() {
            self.done.store(true, SeqCst);
        }
        link.deliver(self.toward, piece);
    }
}
