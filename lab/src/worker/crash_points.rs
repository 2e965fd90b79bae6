//! Processes that end or stop at a chosen step of the protocol.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use leasehold::{
    Claim, Entered, Guarantees, LockState, Locks, Name, OnContention, Standing, Store, stores,
};
use rustix::process::{Signal, getpid, kill_process};

use super::recorder::write_event;
use crate::{CrashAction, CrashPoint, Event, EventKind, Side, Step, WorkerConfig, now};

/// Opens the store of the configuration, wrapped so that the process reaches its crash point, if it
/// has one.
pub(super) async fn open(config: &WorkerConfig) -> Result<Locks> {
    let Some(crash_point) = config.crash_point else {
        return Ok(leasehold::open(&config.store).await?);
    };
    let state = CrashPointState {
        crash_point,
        thread: config.first_thread,
        count: AtomicU32::new(0),
    };
    let store = store_at(&config.store).await?;
    Ok(leasehold::from_store(
        CrashingStore { store, state },
        &config.store,
    )?)
}

/// Opens the bare store of a URL.
pub(crate) async fn store_at(url: &str) -> Result<Box<dyn Store>> {
    let scheme = url.split(':').next().context("a URL has a scheme")?;
    Ok(match scheme {
        "file" => Box::new(stores::File::at(Path::new(
            url.trim_start_matches("file:"),
        ))?),
        "redis" if !url.contains("dialect=") => {
            Box::new(stores::Redis::builder(url)?.connect().await?)
        }
        "redis" | "redlock" => Box::new(stores::Redlock::builder(url)?.connect().await?),
        "zookeeper" => Box::new(stores::ZooKeeper::builder(url)?.connect().await?),
        other => bail!("the lab cannot open a bare store of {other}"),
    })
}

/// A store that kills or stops its process at the crash point.
#[derive(Debug)]
struct CrashingStore {
    store: Box<dyn Store>,
    state: CrashPointState,
}

#[derive(Debug)]
struct CrashPointState {
    crash_point: CrashPoint,
    thread: u32,
    count: AtomicU32,
}

impl CrashPointState {
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
impl Store for CrashingStore {
    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    async fn enter(&self, claim: &Claim, timeout: OnContention) -> leasehold::Result<Entered> {
        self.state.at(Step::Enter, Side::Before);
        let reply = self.store.enter(claim, timeout).await;
        self.state.at(Step::Enter, Side::After);
        reply
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> leasehold::Result<Standing> {
        // A holder waits for changes too.
        let waits = matches!(seen, Standing::Queued { .. });
        if waits {
            self.state.at(Step::Changed, Side::Before);
        }
        let reply = self.store.changed(claim, seen).await;
        if waits {
            self.state.at(Step::Changed, Side::After);
        }
        reply
    }

    async fn renew(&self, claims: &[Claim]) -> leasehold::Result<Vec<Option<Duration>>> {
        self.state.at(Step::Renew, Side::Before);
        let reply = self.store.renew(claims).await;
        self.state.at(Step::Renew, Side::After);
        reply
    }

    async fn leave(&self, claim: &Claim) -> leasehold::Result<bool> {
        self.state.at(Step::Leave, Side::Before);
        let reply = self.store.leave(claim).await;
        self.state.at(Step::Leave, Side::After);
        reply
    }

    fn inheritable_fds(&self, claim: &Claim) -> leasehold::Result<Vec<OwnedFd>> {
        self.store.inheritable_fds(claim)
    }

    async fn inspect(&self, name: &Name) -> leasehold::Result<LockState> {
        self.store.inspect(name).await
    }

    async fn list(&self, prefix: &str, count_max: usize) -> leasehold::Result<Vec<Name>> {
        self.store.list(prefix, count_max).await
    }
}
