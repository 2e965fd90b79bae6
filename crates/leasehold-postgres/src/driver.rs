//! Who reads and writes on a connection: one background task, and callers when they send.
//!
//! A request that only wakes the background task costs a switch between threads before its first
//! byte is written. So a caller lets the connection write in its own thread. It may read too what
//! has arrived meanwhile, but it never waits for more: the socket wakes the background task alone,
//! whoever has polled last.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;
use parking_lot::{Mutex, MutexGuard};

/// Reads and writes until nothing is left to do. Ready when the connection has ended.
pub(super) type PollConnection = Box<dyn FnMut(&mut Context<'_>) -> Poll<()> + Send>;

/// What the callers of a connection share with its background task.
pub(super) struct Driver {
    /// `None` when it has ended, also by a panic.
    connection: Mutex<Option<Open>>,
    is_closed: AtomicBool,
    signal: Arc<Signal>,
}

/// A connection that has not ended.
struct Open {
    poll: PollConnection,
    signal: Arc<Signal>,
}

impl Drop for Open {
    /// Lets the background task end.
    fn drop(&mut self) {
        self.signal.background.wake();
    }
}

/// Wakes the background task, unless a caller is polling the connection.
#[derive(Debug, Default)]
struct Signal {
    background: AtomicWaker,
    is_caller_polling: AtomicBool,
    is_missed: AtomicBool,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The other side writes and reads in the opposite order, so one of the two wakes the task.
        self.is_missed.store(true, Ordering::SeqCst);
        if !self.is_caller_polling.load(Ordering::SeqCst) {
            self.background.wake();
        }
    }
}

impl Driver {
    pub(super) fn new(poll: PollConnection) -> Self {
        let signal = Arc::<Signal>::default();
        let open = Open {
            poll,
            signal: Arc::clone(&signal),
        };
        Self {
            connection: Mutex::new(Some(open)),
            is_closed: AtomicBool::default(),
            signal,
        }
    }

    /// Drives the connection until it ends: the background task.
    pub(super) async fn run(&self) {
        poll_fn(|context| {
            self.signal.background.register(context.waker());
            // It does not block: the thread of the caller that is polling may be stopped.
            let Some(mut connection) = self.connection.try_lock() else {
                self.signal.wake_by_ref();
                return Poll::Pending;
            };
            self.poll(&mut connection)
        })
        .await;
    }

    /// Sends a request, which its future hands over when it is first polled, and waits for the reply.
    pub(super) async fn send<T>(&self, request: impl Future<Output = T>) -> T {
        let mut request = pin!(request);
        let first = poll_fn(|context| {
            let Some(connection) = self.connection.try_lock() else {
                return Poll::Ready(request.as_mut().poll(context));
            };
            let mut turn = Turn {
                connection,
                _polling: CallerPolling::begin(&self.signal),
            };
            let replied = request.as_mut().poll(context);
            self.signal.is_missed.swap(false, Ordering::SeqCst);
            // The background task is woken if it has ended.
            let _ = self.poll(&mut turn.connection);
            Poll::Ready(replied)
        });
        match first.await {
            Poll::Ready(reply) => reply,
            Poll::Pending => request.await,
        }
    }

    fn poll(&self, connection: &mut Option<Open>) -> Poll<()> {
        // A panic drops it.
        let Some(mut open) = connection.take() else {
            return Poll::Ready(());
        };
        if self.is_closed.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        let waker = Waker::from(Arc::clone(&self.signal));
        let polled = (open.poll)(&mut Context::from_waker(&waker));
        if polled.is_pending() {
            *connection = Some(open);
        }
        polled
    }

    /// Lets the background task close the connection.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.signal.wake_by_ref();
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

/// A caller's turn. It unlocks the connection before it looks whether it has missed something: the
/// background task may have found the connection locked.
struct Turn<'a> {
    connection: MutexGuard<'a, Option<Open>>,
    _polling: CallerPolling<'a>,
}

/// While a caller polls.
struct CallerPolling<'a>(&'a Signal);

impl<'a> CallerPolling<'a> {
    fn begin(signal: &'a Signal) -> Self {
        signal.is_caller_polling.store(true, Ordering::SeqCst);
        Self(signal)
    }
}

impl Drop for CallerPolling<'_> {
    fn drop(&mut self) {
        self.0.is_caller_polling.store(false, Ordering::SeqCst);
        if self.0.is_missed.load(Ordering::SeqCst) {
            self.0.background.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::Pin;
    use std::sync::atomic::AtomicU32;

    use futures_util::FutureExt as _;
    use tokio::sync::mpsc;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A connection, and its background task, which waits.
    struct World {
        driver: Arc<Driver>,
        background: Pin<Box<dyn Future<Output = ()> + Send>>,
        wakes: Arc<Count>,
    }

    impl World {
        fn new(poll: impl FnMut(&mut Context<'_>) -> Poll<()> + Send + 'static) -> Self {
            let driver = Arc::new(Driver::new(Box::new(poll)));
            let in_background = Arc::clone(&driver);
            let mut world = Self {
                driver,
                background: Box::pin(async move { in_background.run().await }),
                wakes: Arc::default(),
            };
            assert!(world.run_background().is_pending());
            world
        }

        fn run_background(&mut self) -> Poll<()> {
            let waker = Waker::from(Arc::clone(&self.wakes));
            self.background
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
        }

        /// Whether the background task was woken since the last call.
        fn is_woken(&self) -> bool {
            self.wakes.0.swap(0, Ordering::SeqCst) > 0
        }
    }

    #[test]
    fn caller_writes_its_request_itself() {
        let (requests, mut queue) = mpsc::unbounded_channel();
        let written = Arc::new(Count::default());
        let writer = Arc::clone(&written);
        let world = World::new(move |context| {
            while queue.poll_recv(context).is_ready() {
                Arc::clone(&writer).wake();
            }
            Poll::Pending
        });

        let send = || {
            requests.send(()).expect("the connection is open");
            pending::<()>()
        };
        let request = async { send().await };
        assert_eq!(world.driver.send(request).now_or_never(), None);

        assert_eq!(written.0.load(Ordering::SeqCst), 1);
        assert!(!world.is_woken(), "there is nothing left to do");
        send().now_or_never();
        assert!(world.is_woken(), "nobody else writes it");
    }

    #[test]
    fn what_arrives_after_a_caller_has_read_wakes_the_background_task() {
        let mut polls = 0;
        let world = World::new(move |context| {
            polls += 1;
            if polls == 2 {
                context.waker().wake_by_ref();
            }
            Poll::Pending
        });

        let request = pending::<()>();
        assert_eq!(world.driver.send(request).now_or_never(), None);

        assert!(world.is_woken());
    }

    #[test]
    fn background_task_neither_waits_for_a_caller_nor_misses_its_turn() {
        let background = Arc::new(Mutex::new(None::<World>));
        let during_the_turn = Arc::clone(&background);
        let world = World::new(move |_| {
            if let Some(world) = during_the_turn.lock().as_mut() {
                assert!(world.run_background().is_pending());
            }
            Poll::Pending
        });
        let driver = Arc::clone(&world.driver);
        *background.lock() = Some(world);

        assert_eq!(driver.send(pending::<()>()).now_or_never(), None);

        let world = background.lock().take();
        assert!(world.is_some_and(|world| world.is_woken()));
    }

    #[test]
    fn background_task_ends_with_the_connection() {
        let mut world = World::new(|_| Poll::Pending);
        world.driver.close();
        assert!(world.is_woken() && world.run_background().is_ready());

        let mut polls = 0;
        let mut world = World::new(move |_| {
            polls += 1;
            assert!(polls < 2, "a panic in the turn of a caller");
            Poll::Pending
        });
        let sending = world.driver.send(pending::<()>());
        catch_unwind(AssertUnwindSafe(|| sending.now_or_never())).expect_err("it panics");
        assert!(world.is_woken() && world.run_background().is_ready());
    }
}
