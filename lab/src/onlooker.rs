//! Somebody who looks at lines while others work, and somebody who tries to end what is not his.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use leasehold::{Claim, ClaimId, Locks, Name, Note, Store};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use crate::now;
use crate::taker::store_at;

/// Between two looks at all lines, and between two tries to meddle.
const LOOKS: Duration = Duration::from_millis(15);
const MEDDLES: Duration = Duration::from_millis(60);
/// Between two tries to open a store.
const OPENS: Duration = Duration::from_millis(50);
/// A store that says nothing for as long is asked again.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Who was in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// When the store was asked.
    pub begun: u64,
    /// When it had answered.
    pub done: u64,
    /// Which lock: its index among the names of the orders.
    pub name: u16,
    /// Those of hands, in order of arrival.
    pub claims: Vec<Claimed>,
}

/// One claim that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Which.
    pub id: ClaimId,
    /// Whose, as its label says.
    pub hand: u32,
    /// Whether it holds.
    pub holds: bool,
}

/// Both, at work. Dropping it lets them go.
#[derive(Debug)]
pub struct Onlooker {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Saw>>>,
}

/// What they saw.
#[derive(Debug)]
pub struct Saw {
    /// The lines, in order of time.
    pub looks: Vec<Look>,
    /// How often a hold was renewed or released in vain by one who does not have it.
    pub meddled: usize,
}

impl Onlooker {
    /// Begins to look at these locks.
    #[must_use]
    pub fn begin(url: String, names: Vec<String>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let both = Both { url, names, is_over: Arc::clone(&is_over) };
        Self { is_over, thread: Some(thread::spawn(move || both.run())) }
    }

    /// What they saw until now.
    ///
    /// # Errors
    /// If somebody's hold was ended or kept alive by one who does not have it.
    pub fn end(mut self) -> Result<Saw> {
        self.is_over.store(true, Ordering::Release);
        let thread = self.thread.take().context("it ends once")?;
        thread.join().map_err(|_| anyhow!("the onlooker panicked"))?
    }
}

impl Drop for Onlooker {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}

struct Both {
    url: String,
    names: Vec<String>,
    is_over: Arc<AtomicBool>,
}

impl Both {
    fn run(&self) -> Result<Saw> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (looks, meddled) = runtime.block_on(async { tokio::join!(self.look(), self.meddle()) });
        Ok(Saw { looks, meddled: meddled? })
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Acquire)
    }

    async fn look(&self) -> Vec<Look> {
        let mut seen = Vec::new();
        let Some(locks) = self.open(|| leasehold::open(&self.url)).await else { return seen };
        while self.goes_on() {
            for (name, number) in self.names.iter().zip(0..) {
                seen.extend(look(&locks, name, number).await);
            }
            sleep(LOOKS).await;
        }
        seen
    }

    /// Each time with a claim that was never granted, for a lock that somebody holds.
    async fn meddle(&self) -> Result<usize> {
        let Some(store) = self.open(|| store_at(&self.url)).await else { return Ok(0) };
        let names = self.names.iter().map(|name| Name::parse(name)).collect::<leasehold::Result<Vec<_>>>()?;
        let mut count = 0;
        while self.goes_on() {
            for name in &names {
                count += usize::from(meddle(&*store, name).await?);
            }
            sleep(MEDDLES).await;
        }
        Ok(count)
    }

    /// A store cannot be opened while faults are done to it.
    async fn open<T, E>(&self, open: impl AsyncFn() -> Result<T, E>) -> Option<T> {
        while self.goes_on() {
            match open().await {
                Ok(opened) => return Some(opened),
                Err(_) => sleep(OPENS).await,
            }
        }
        None
    }
}

/// `None` if the store does not answer.
async fn look(locks: &Locks, name: &str, number: u16) -> Option<Look> {
    let begun = now();
    let line = timeout(ANSWER_MAX, locks.look(name)).await.ok()?.ok()?;
    let claimed = |entry: &leasehold::Entry| {
        let hand = entry.note.label.parse().ok()?;
        Some(Claimed { id: entry.id, hand, holds: entry.token().is_some() })
    };
    Some(Look { begun, done: now(), name: number, claims: line.entries.iter().filter_map(claimed).collect() })
}

/// Whether somebody held, and the store has said that it was not meddled with.
async fn meddle(store: &dyn Store, name: &Name) -> Result<bool> {
    let Ok(Ok(line)) = timeout(ANSWER_MAX, store.look(name)).await else { return Ok(false) };
    let Some(holder) = line.holders().next() else { return Ok(false) };
    let claim = Claim {
        name: name.clone(),
        id: ClaimId::draw(),
        share: holder.share,
        lease: Duration::from_secs(1),
        renewed: true,
        note: Arc::new(Note::here("")?),
    };
    let renewed = timeout(ANSWER_MAX, store.renew(std::slice::from_ref(&claim))).await;
    if let Ok(Ok(answers)) = &renewed {
        ensure!(answers.iter().all(Option::is_none), "a claim that nobody has was renewed: {answers:?} of {name}");
    }
    let left = timeout(ANSWER_MAX, store.leave(&claim)).await;
    if let Ok(Ok(was_there)) = &left {
        ensure!(!was_there, "a claim that nobody has was released, of {name}");
    }
    Ok(matches!((renewed, left), (Ok(Ok(_)), Ok(Ok(_)))))
}
