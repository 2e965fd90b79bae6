//! One task of a client: it runs only while the client does.

use std::any::Any;
use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use leasehold::simulation::BackgroundTask;

use crate::world::{Turn, World};

/// A future that belongs to one client.
///
/// The world decides at each poll whether the client is paused or dead, and whether other tasks run
/// first. After the poll the world checks all invariants.
pub(crate) struct ClientTask {
    world: Arc<World>,
    client: usize,
    number: u64,
    /// `None` once it has ended.
    future: Option<BackgroundTask>,
}

impl ClientTask {
    pub(crate) fn new(
        world: Arc<World>,
        client: usize,
        number: u64,
        future: BackgroundTask,
    ) -> Self {
        Self {
            world,
            client,
            number,
            future: Some(future),
        }
    }

    /// Ends the task. Its future is dropped as a part of the client.
    fn end(&mut self) {
        let client = CURRENT.replace(self.client);
        self.future = None;
        CURRENT.set(client);
        self.world.task_ended(self.client, self.number);
    }
}

impl Future for ClientTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.world.turn(self.client, self.number, context.waker()) {
            Turn::Run => {}
            Turn::Paused => return Poll::Pending,
            Turn::Deferred => {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Turn::Dead => {
                self.end();
                return Poll::Ready(());
            }
        }

        let client = CURRENT.replace(self.client);
        let future = self
            .future
            .as_mut()
            .expect("a task is not polled after its end");
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        CURRENT.set(client);

        let polled = polled.unwrap_or_else(|panic| {
            self.world.violate("a task panics", text_of(&*panic));
            Poll::Ready(())
        });
        if polled.is_ready() {
            self.end();
        }
        self.world.check(self.client);
        polled
    }
}

/// An aborted task ends here.
impl Drop for ClientTask {
    fn drop(&mut self) {
        if self.future.is_some() {
            self.end();
        }
    }
}

/// Returns the client whose code runs.
pub(crate) fn current_client() -> usize {
    CURRENT.get()
}

/// Runs `work` as a part of a client.
pub(crate) fn as_client<T>(client: usize, work: impl FnOnce() -> T) -> T {
    let previous = CURRENT.replace(client);
    let done = work();
    CURRENT.set(previous);
    done
}

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}
