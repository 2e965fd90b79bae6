//! The tasks of clients, each of which runs only while its client does, and what leasehold sees of
//! the world in them.

use std::any::Any;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use leasehold::simulation::{self, BackgroundTask, BootInstant, Connection};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::process::TaskKind;
use crate::world::{Turn, World};

/// Spawns a task of a client. A task of a dead client is dropped.
pub(crate) fn spawn(
    world: &World,
    client: usize,
    kind: TaskKind,
    future: BackgroundTask,
) -> AbortHandle {
    let mut state = world.state();
    if state.clients[client].is_dead {
        drop(state);
        drop(future);
        return tokio::spawn(async {}).abort_handle();
    }

    let number = state.next_task;
    state.next_task += 1;
    state.clients[client].add_task(number, kind);
    drop(state);
    tokio::spawn(ClientTask::new(world.shared(), client, number, future)).abort_handle()
}

impl simulation::World for World {
    fn now(&self) -> BootInstant {
        self.virtual_time.read(self.clock(current_client()))
    }

    fn instant_of(&self, time: BootInstant) -> Instant {
        let clock = self.clock(current_client());
        self.virtual_time.instant_of(clock, time)
    }

    fn draw_id(&self) -> [u8; 16] {
        self.state().id_rng.u128(..).to_be_bytes()
    }

    fn spawn(&self, task: BackgroundTask) -> AbortHandle {
        let client = current_client();
        let kind = if self.state().clients[client].is_open {
            TaskKind::Background
        } else {
            TaskKind::Service
        };
        spawn(self, client, kind, task)
    }

    fn connect(&self, host: &str, _port: u16) -> io::Result<Box<dyn Connection>> {
        Ok(Box::new(self.connect_to(host, current_client())?))
    }
}

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
