//! The observer, which inspects queues during a run, and the intruder, which tries to end holds of
//! others.

mod stale_claim;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use leasehold::store::{Claim, Store, claimant_here};
use leasehold::{ClaimId, Locks, Name};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use crate::now;

use stale_claim::use_stale_claim;
pub use stale_claim::{Grants, INTRUDER_NAME, StaleClaim};

/// The pauses between two inspections of all queues, and between two intrusions.
const OBSERVE_INTERVAL: Duration = Duration::from_millis(15);
const INTRUDE_EVERY: Duration = Duration::from_millis(60);
/// The pause between two attempts to open a store.
const REOPEN_EVERY: Duration = Duration::from_millis(50);
/// How long to wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// One inspection of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// When the request was sent.
    pub begun: u64,
    /// When the reply arrived.
    pub done: u64,
    /// The index of the lock's name.
    pub name: u16,
    /// The claims of worker threads, in order of arrival.
    pub claims: Vec<ObservedClaim>,
}

/// One observed claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedClaim {
    /// The id of the claim.
    pub id: ClaimId,
    /// The thread, as the label says.
    pub thread: u32,
    /// Whether the claim is held.
    pub holds: bool,
}

/// The running observer and intruder. Dropping it stops both.
#[derive(Debug)]
pub struct Observer {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Observed>>>,
}

/// What the observer and the intruder report.
#[derive(Debug)]
pub struct Observed {
    /// The inspections, in order of time.
    pub observations: Vec<Observation>,
    /// How often the intruder failed to renew or release a hold of another client, as it should.
    pub intrusions: usize,
}

impl Observer {
    /// Starts to inspect these locks.
    #[must_use]
    pub fn begin(url: String, names: Vec<String>, grants: Grants) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let both = ObserverThread {
            url,
            names,
            grants,
            is_over: Arc::clone(&is_over),
        };
        Self {
            is_over,
            thread: Some(thread::spawn(move || both.run())),
        }
    }

    /// Stops both and returns what they report.
    ///
    /// # Errors
    /// If the intruder renewed or released a hold of another client.
    pub fn end(mut self) -> Result<Observed> {
        self.is_over.store(true, Ordering::Release);
        let thread = self.thread.take().context("the observer ends once")?;
        thread
            .join()
            .map_err(|_| anyhow!("the observer panicked"))?
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
    grants: Grants,
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

    /// Intrudes with a claim that was never granted, where a lock is held.
    ///
    /// Shows S6.
    async fn intrude(&self) -> Result<usize> {
        let Some(store) = self.open(|| open_store(&self.url)).await else {
            return Ok(0);
        };
        let names = self
            .names
            .iter()
            .map(|name| Name::parse(name))
            .collect::<leasehold::Result<Vec<_>>>()?;
        let own = Name::parse(INTRUDER_NAME)?;
        let mut count = 0;

        while self.is_running() {
            for name in &names {
                count += usize::from(intrude(&*store, name).await?);
            }
            count += usize::from(use_stale_claim(&*store, &own, self.grants).await?);
            sleep(INTRUDE_EVERY).await;
        }
        Ok(count)
    }

    /// Retries until the store opens, because it cannot be opened during some faults.
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

/// Returns `None` if the store does not reply.
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

/// Returns whether the lock was held and the store rejected the intrusion.
async fn intrude(store: &dyn Store, name: &Name) -> Result<bool> {
    let Ok(Ok(lock_state)) = timeout(REPLY_TIMEOUT, store.inspect(name)).await else {
        return Ok(false);
    };
    let Some(holder) = lock_state.holders().next() else {
        return Ok(false);
    };
    let info = Arc::new(claimant_here("")?);
    let mut claim = Claim::new(name.clone(), holder.share, info);
    claim.lease = Duration::from_secs(1);
    let renewed = timeout(REPLY_TIMEOUT, store.renew(std::slice::from_ref(&claim))).await;

    if let Ok(Ok(replies)) = &renewed {
        ensure!(
            replies.iter().all(Option::is_none),
            "a claim without an entry was renewed: {replies:?} of {name}"
        );
    }
    let left = timeout(REPLY_TIMEOUT, store.leave(&claim)).await;
    if let Ok(Ok(was_there)) = &left {
        ensure!(
            !was_there,
            "a claim without an entry was released, of {name}"
        );
    }
    Ok(matches!((renewed, left), (Ok(Ok(_)), Ok(Ok(_)))))
}

/// Opens the store of a URL without an engine, for tests that send requests themselves.
pub async fn open_store(url: &str) -> leasehold::Result<Arc<dyn Store>> {
    Ok(leasehold::open(url).await?.store())
}
