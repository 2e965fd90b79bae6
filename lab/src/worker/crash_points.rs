//! Processes that end or stop at a chosen step of the protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use anyhow::Result;
use async_trait::async_trait;
use leasehold::Locks;
use leasehold::store::{Intercept, Intercepted, Request, Store};
use rustix::process::{Signal, getpid, kill_process};

use super::recorder::write_event;
use crate::{CrashAction, CrashPoint, Event, EventKind, Side, Step, WorkerConfig, now, open_store};

/// Opens the store of the configuration, wrapped so that the process reaches its crash point, if it
/// has one.
pub(super) async fn open(config: &WorkerConfig) -> Result<Locks> {
    let Some(crash_point) = config.crash_point else {
        return Ok(leasehold::open(&config.store).await?);
    };
    let crashing = CrashingStore {
        store: open_store(&config.store).await?,
        crash_point,
        thread: config.first_thread,
        count: AtomicU32::new(0),
    };

    Ok(Locks::from_store(Intercepted(crashing), &config.store)?)
}

/// A store that kills or stops its process at the crash point.
#[derive(Debug)]
struct CrashingStore {
    store: Arc<dyn Store>,
    crash_point: CrashPoint,
    thread: u32,
    count: AtomicU32,
}

impl CrashingStore {
    /// Kills or stops the process if this is its crash point.
    fn at(&self, step: Step, side: Side) {
        if (step, side) == (self.crash_point.step, self.crash_point.side)
            && self.count.fetch_add(1, SeqCst) + 1 == self.crash_point.nth
        {
            self.trigger()
                .expect("a process can write its event and signal itself");
        }
    }

    fn trigger(&self) -> Result<()> {
        let signal = match self.crash_point.action {
            CrashAction::Kill => {
                write_event(Event {
                    at: now(),
                    thread: self.thread,
                    name: 0,
                    kind: EventKind::Killed,
                })?;
                Signal::KILL
            }
            CrashAction::Stop => Signal::STOP,
        };

        Ok(kill_process(getpid(), signal)?)
    }
}

#[async_trait]
impl Intercept for CrashingStore {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    async fn around<T: Send>(
        &self,
        request: Request,
        reply: impl Future<Output = leasehold::Result<T>> + Send,
    ) -> leasehold::Result<T> {
        let Some(step) = step_of(request) else {
            return reply.await;
        };

        self.at(step, Side::Before);
        let reply = reply.await;
        self.at(step, Side::After);
        reply
    }
}

/// The step that a request is, if crash points may name it.
fn step_of(request: Request) -> Option<Step> {
    match request {
        Request::Enter => Some(Step::Enter),
        Request::Queued => Some(Step::Changed),
        Request::Renew => Some(Step::Renew),
        Request::Leave => Some(Step::Leave),
        Request::Complete => Some(Step::Complete),
        _ => None,
    }
}
