//! Somebody who looks at lines while others work, and somebody who tries to end what is not his.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use leasehold::store::{Claim, Store};
use leasehold::{ClaimId, ClaimantInfo, Locks, Name};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use crate::now;
use crate::worker::store_at;

/// Between two looks at all lines, and between two tries to meddle.
const OBSERVE_INTERVAL: Duration = Duration::from_millis(15);
const INTRUDE_EVERY: Duration = Duration::from_millis(60);
/// Between two tries to open a store.
const REOPEN_EVERY: Duration = Duration::from_millis(50);
/// A store that says nothing for as long is asked again.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// Who was in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// When the store was asked.
    pub begun: u64,
    /// When it had answered.
    pub done: u64,
    /// Which lock: its index among the names of the orders.
    pub name: u16,
    /// Those of hands, in order of arrival.
    pub claims: Vec<ObservedClaim>,
}

/// One claim that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedClaim {
    /// Which.
    pub id: ClaimId,
    /// Whose, as its label says.
    pub thread: u32,
    /// Whether it holds.
    pub holds: bool,
}

/// Both, at work. Dropping it lets them go.
#[derive(Debug)]
pub struct Observer {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Observed>>>,
}

/// What they saw.
#[derive(Debug)]
pub struct Observed {
    /// The lines, in order of time.
    pub observations: Vec<Observation>,
    /// How often a hold was renewed or released in vain by one who does not have it.
    pub intrusions: usize,
}

impl Observer {
    /// Begins to look at these locks.
    #[must_use]
    pub fn begin(url: String, names: Vec<String>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let both = ObserverThread {
            url,
            names,
            is_over: Arc::clone(&is_over),
        };
        Self {
            is_over,
            thread: Some(thread::spawn(move || both.run())),
        }
    }

    /// What they saw until now.
    ///
    /// # Errors
    /// If somebody's hold was ended or kept alive by one who does not have it.
    pub fn end(mut self) -> Result<Observed> {
        self.is_over.store(true, Ordering::Release);
        let thread = self.thread.take().context("it ends once")?;
        thread
            .join()
            .map_err(|_| anyhow!("the onlooker panicked"))?
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}

struct ObserverThread {
    url: String,
    names: Vec<String>,
    is_over: Arc<AtomicBool>,
}

impl ObserverThread {
    fn run(&self) -> Result<Observed> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (observations, intrusions) =
            runtime.block_on(async { tokio::join!(self.observe(), self.intrude()) });
        Ok(Observed {
            observations,
            intrusions: intrusions?,
        })
    }

    fn is_running(&self) -> bool {
        !self.is_over.load(Ordering::Acquire)
    }

    async fn observe(&self) -> Vec<Observation> {
        let mut seen = Vec::new();
        let Some(locks) = self.open(|| leasehold::open(&self.url)).await else {
            return seen;
        };
        while self.is_running() {
            for (name, number) in self.names.iter().zip(0..) {
                seen.extend(observe(&locks, name, number).await);
            }
            sleep(OBSERVE_INTERVAL).await;
        }
        seen
    }

    /// Each time with a claim that was never granted, for a lock that somebody holds.
    async fn intrude(&self) -> Result<usize> {
        let Some(store) = self.open(|| store_at(&self.url)).await else {
            return Ok(0);
        };
        let names = self
            .names
            .iter()
            .map(|name| Name::parse(name))
            .collect::<leasehold::Result<Vec<_>>>()?;
        let mut count = 0;
        while self.is_running() {
            for name in &names {
                count += usize::from(intrude(&*store, name).await?);
            }
            sleep(INTRUDE_EVERY).await;
        }
        Ok(count)
    }

    /// A store cannot be opened while faults are done to it.
    async fn open<T, E>(&self, open: impl AsyncFn() -> Result<T, E>) -> Option<T> {
        while self.is_running() {
            match open().await {
                Ok(opened) => return Some(opened),
                Err(_) => sleep(REOPEN_EVERY).await,
            }
        }
        None
    }
}

/// `None` if the store does not answer.
async fn observe(locks: &Locks, name: &str, number: u16) -> Option<Observation> {
    let begun = now();
    let lock_state = timeout(REPLY_TIMEOUT, locks.inspect(name))
        .await
        .ok()?
        .ok()?;
    let claimed = |entry: &leasehold::Entry| {
        let thread = entry.info.label.parse().ok()?;
        Some(ObservedClaim {
            id: entry.id,
            thread,
            holds: entry.token().is_some(),
        })
    };
    Some(Observation {
        begun,
        done: now(),
        name: number,
        claims: lock_state.entries.iter().filter_map(claimed).collect(),
    })
}

/// Whether somebody held, and the store has said that it was not meddled with.
async fn intrude(store: &dyn Store, name: &Name) -> Result<bool> {
    let Ok(Ok(lock_state)) = timeout(REPLY_TIMEOUT, store.inspect(name)).await else {
        return Ok(false);
    };
    let Some(holder) = lock_state.holders().next() else {
        return Ok(false);
    };
    let info = Arc::new(ClaimantInfo::here("")?);
    let mut claim = Claim::new(name.clone(), holder.share, info);
    claim.lease = Duration::from_secs(1);
    let renewed = timeout(REPLY_TIMEOUT, store.renew(std::slice::from_ref(&claim))).await;
    if let Ok(Ok(answers)) = &renewed {
        ensure!(
            answers.iter().all(Option::is_none),
            "a claim that nobody has was renewed: {answers:?} of {name}"
        );
    }
    let left = timeout(REPLY_TIMEOUT, store.leave(&claim)).await;
    if let Ok(Ok(was_there)) = &left {
        ensure!(
            !was_there,
            "a claim that nobody has was released, of {name}"
        );
    }
    Ok(matches!((renewed, left), (Ok(Ok(_)), Ok(Ok(_)))))
}
