//! Processes that end, or stand still, at a step of the protocol that was chosen beforehand.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use leasehold::{Claim, Entered, Line, Locks, Name, Patience, Promises, Standing, Store, stores};
use rustix::process::{Signal, getpid, kill_process};

use super::tell::tell;
use crate::{Event, Fate, Halt, Orders, Side, Step, What, now};

/// The store of the orders; with a fate between it and whoever uses it, if there is one.
pub(super) async fn open(orders: &Orders) -> Result<Locks> {
    let Some(halt) = orders.halt else { return Ok(leasehold::open(&orders.store).await?) };
    let fated = Fated { halt, hand: orders.first_hand, turns: AtomicU32::new(0) };
    let store = store_at(&orders.store).await?;
    Ok(leasehold::over(Halting { store, fated }, &orders.store)?)
}

/// The bare store of a URL.
pub(crate) async fn store_at(url: &str) -> Result<Box<dyn Store>> {
    let scheme = url.split(':').next().context("a URL has a scheme")?;
    Ok(match scheme {
        "file" => Box::new(stores::File::at(Path::new(url.trim_start_matches("file:")))?),
        "redis" if !url.contains("dialect=") => Box::new(stores::Redis::at(url)?.connect().await?),
        "redis" | "redlock" => Box::new(stores::Redlock::at(url)?.connect().await?),
        "zookeeper" => Box::new(stores::ZooKeeper::at(url)?.connect().await?),
        other => bail!("no bare store of {other} is known"),
    })
}

/// A store whose user meets its fate.
#[derive(Debug)]
struct Halting {
    store: Box<dyn Store>,
    fated: Fated,
}

#[derive(Debug)]
struct Fated {
    halt: Halt,
    hand: u32,
    turns: AtomicU32,
}

impl Fated {
    /// Does not return if this is where the process ends.
    fn at(&self, step: Step, side: Side) {
        if (step, side) == (self.halt.step, self.halt.side) && self.turns.fetch_add(1, SeqCst) + 1 == self.halt.turn {
            self.meet().expect("one may signal oneself, and tell of it");
        }
    }

    fn meet(&self) -> Result<()> {
        let signal = match self.halt.fate {
            Fate::Killed => {
                tell(Event { at: now(), hand: self.hand, name: 0, what: What::Killed })?;
                Signal::KILL
            }
            Fate::Stopped => Signal::STOP,
        };
        Ok(kill_process(getpid(), signal)?)
    }
}

#[async_trait]
impl Store for Halting {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    async fn enter(&self, claim: &Claim, patience: Patience) -> leasehold::Result<Entered> {
        self.fated.at(Step::Enter, Side::Before);
        let answer = self.store.enter(claim, patience).await;
        self.fated.at(Step::Enter, Side::After);
        answer
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> leasehold::Result<Standing> {
        // Also whoever holds waits for a change.
        let waits = matches!(seen, Standing::Queued { .. });
        if waits {
            self.fated.at(Step::Changed, Side::Before);
        }
        let answer = self.store.changed(claim, seen).await;
        if waits {
            self.fated.at(Step::Changed, Side::After);
        }
        answer
    }

    async fn renew(&self, claims: &[Claim]) -> leasehold::Result<Vec<Option<Duration>>> {
        self.fated.at(Step::Renew, Side::Before);
        let answer = self.store.renew(claims).await;
        self.fated.at(Step::Renew, Side::After);
        answer
    }

    async fn leave(&self, claim: &Claim) -> leasehold::Result<bool> {
        self.fated.at(Step::Leave, Side::Before);
        let answer = self.store.leave(claim).await;
        self.fated.at(Step::Leave, Side::After);
        answer
    }

    fn anchors(&self, claim: &Claim) -> leasehold::Result<Vec<OwnedFd>> {
        self.store.anchors(claim)
    }

    async fn look(&self, name: &Name) -> leasehold::Result<Line> {
        self.store.look(name).await
    }

    async fn names(&self, prefix: &str, count_max: usize) -> leasehold::Result<Vec<Name>> {
        self.store.names(prefix, count_max).await
    }
}
