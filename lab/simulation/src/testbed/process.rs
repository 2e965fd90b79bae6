//! Processes, each with a clock of its own.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use leasehold::simulation::BackgroundTask;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::Testbed;
use crate::clock::Clock;

/// A process that can be paused and killed, and whose clock runs at a rate of its own. What a test
/// does outside of all processes follows the true time.
#[derive(Debug)]
pub struct Process(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    state: Mutex<ProcessState>,
}

#[derive(Debug, Default)]
struct ProcessState {
    is_paused: bool,
    is_dead: bool,
    /// How to wake the tasks that were polled since the last change.
    wakers: Vec<Waker>,
}

impl Process {
    /// Starts a process whose clock is fast by this number of millionths, or slow if negative.
    #[must_use]
    pub fn start(drift: i64) -> Self {
        let testbed = Testbed::current();
        let mut state = testbed.state.lock();
        state.processes += 1;
        Self(Arc::new(Shared {
            clock: Clock::new(state.processes, drift),
            state: Mutex::default(),
        }))
    }

    /// Runs a future as a task of this process. After a [`kill`](Self::kill) it is cancelled.
    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        tokio::spawn(Task::new(Arc::clone(&self.0), Box::pin(future)))
    }

    /// Pauses the process, as `kill -STOP` does.
    pub fn pause(&self) {
        self.0.change(|state| state.is_paused = true);
    }

    /// Resumes the process.
    pub fn resume(&self) {
        self.0.change(|state| state.is_paused = false);
    }

    /// Kills the process. Its connections end.
    pub fn kill(&self) {
        self.0.change(|state| state.is_dead = true);
    }
}

impl Shared {
    /// Changes the state and wakes all tasks, which then read it.
    fn change(&self, change: impl FnOnce(&mut ProcessState)) {
        let mut state = self.state.lock();
        change(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);

        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A task of a process: it runs only while the process does.
struct Task<T> {
    process: Arc<Shared>,
    /// `None` once it has ended.
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

impl<T> Task<T> {
    fn new(process: Arc<Shared>, future: Pin<Box<dyn Future<Output = T> + Send>>) -> Self {
        Self {
            process,
            future: Some(future),
        }
    }

    fn end(&mut self) {
        let future = self.future.take();
        as_process(&self.process, || drop(future));
    }
}

impl<T> Future for Task<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let this = &mut *self;
        let mut state = this.process.state.lock();
        if state.is_dead {
            drop(state);
            this.end();
            return Poll::Ready(None);
        }
        let waker = context.waker();
        if !state.wakers.iter().any(|kept| kept.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
        if state.is_paused {
            return Poll::Pending;
        }
        drop(state);

        let future = this.future.as_mut();
        let future = future.expect("a task is not polled after its end");
        as_process(&this.process, || future.as_mut().poll(context)).map(Some)
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Makes a task of the background a part of the process that spawns it.
pub(super) fn in_current(task: BackgroundTask) -> BackgroundTask {
    match CURRENT.with_borrow(Option::clone) {
        Some(process) => {
            let task = Task::new(process, task);
            Box::pin(async { task.await.unwrap_or_default() })
        }
        None => task,
    }
}

/// Returns the clock of the process whose code runs.
pub(super) fn current_clock() -> Clock {
    CURRENT.with_borrow(|process| {
        let process = process.as_ref();
        process.map_or_else(|| Clock::new(0, 0), |process| process.clock)
    })
}

fn as_process<T>(process: &Arc<Shared>, work: impl FnOnce() -> T) -> T {
    let previous = CURRENT.replace(Some(Arc::clone(process)));
    let done = work();
    CURRENT.set(previous);
    done
}

thread_local! {
    /// The process whose code runs.
    static CURRENT: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}
