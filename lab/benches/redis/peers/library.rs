//! The tasks of any async lock library, on a runtime with one thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Peer;
use crate::workload::Workload;

/// A lock library.
pub(crate) trait Library: Sized + Send + Sync + 'static {
    /// The value that a holder of a lock has.
    type Held: Send;

    /// Connects to the server, in the runtime that sends the later requests.
    fn open(url: &str) -> impl Future<Output = Result<Self>> + Send;
    /// Waits until the client holds the lock.
    fn acquire(&self, name: &str) -> impl Future<Output = Result<Self::Held>> + Send;
    /// Releases the lock.
    fn release(&self, held: Self::Held) -> impl Future<Output = Result<()>> + Send;
}

/// A peer that runs the tasks with a library. Each thread of a contest is a tokio task.
pub(crate) struct Tasks<L: Library> {
    runtime: Runtime,
    library: Arc<L>,
    kept: Vec<L::Held>,
}

impl<L: Library> Tasks<L> {
    pub(crate) fn connect(url: &str) -> Result<Box<dyn Peer>> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let library = Arc::new(runtime.block_on(L::open(url))?);
        Ok(Box::new(Self {
            runtime,
            library,
            kept: Vec::new(),
        }))
    }
}

impl<L: Library> Peer for Tasks<L> {
    fn run(&mut self, task: &Workload) -> Result<Option<Vec<u64>>> {
        let library = Arc::clone(&self.library);

        match *task {
            Workload::Pairs { ref name, count } => self
                .runtime
                .block_on(pairs(&library, name, count))
                .map(Some),
            Workload::Names { names, each } => self
                .runtime
                .block_on(many_names(&library, names, each))
                .map(Some),
            Workload::Contend {
                threads,
                hold_micros,
                think_micros,
                until,
            } => {
                // The time to hold the lock, and the time without the lock.
                let pauses = [hold_micros, think_micros].map(Duration::from_micros);
                self.runtime
                    .block_on(contend(&library, threads, pauses, until))
                    .map(Some)
            }
            Workload::Hold { names } => {
                let begun = Instant::now();
                self.kept = self.runtime.block_on(hold(&library, names))?;
                Ok(Some(vec![nanos(begun.elapsed())]))
            }
            _ => Ok(None),
        }
    }
}

async fn pairs<L: Library>(library: &Arc<L>, name: &str, count: usize) -> Result<Vec<u64>> {
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        let held = library.acquire(name).await?;
        library.release(held).await?;
        took.push(nanos(begun.elapsed()));
    }
    Ok(took)
}

async fn many_names<L: Library>(library: &Arc<L>, names: usize, each: usize) -> Result<Vec<u64>> {
    let begun = Instant::now();
    let mut threads = JoinSet::new();
    for name in 0..names {
        let library = Arc::clone(library);
        threads.spawn(async move { pairs(&library, &format!("n{name}"), each).await });
    }
    while let Some(done) = threads.join_next().await {
        done??;
    }
    Ok(vec![nanos(begun.elapsed())])
}

async fn contend<L: Library>(
    library: &Arc<L>,
    threads: usize,
    pauses: [Duration; 2],
    until: u64,
) -> Result<Vec<u64>> {
    let mut running = JoinSet::new();
    for _ in 0..threads {
        running.spawn(one_thread(Arc::clone(library), pauses, until));
    }
    let mut rounds = Vec::new();
    while let Some(done) = running.join_next().await {
        rounds.append(&mut done??);
    }
    Ok(rounds)
}

async fn one_thread<L: Library>(
    library: Arc<L>,
    pauses: [Duration; 2],
    until: u64,
) -> Result<Vec<u64>> {
    let mut rounds = Vec::new();
    while lab::now() < until {
        rounds.push(lab::now());
        let held = library.acquire("c").await?;
        rounds.push(lab::now());
        pause(pauses[0]).await;
        rounds.push(lab::now());
        library.release(held).await?;
        pause(pauses[1]).await;
    }
    Ok(rounds)
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

async fn hold<L: Library>(library: &Arc<L>, names: usize) -> Result<Vec<L::Held>> {
    const AT_ONCE: usize = 64;
    let mut threads = JoinSet::new();
    for thread in 0..AT_ONCE {
        let library = Arc::clone(library);
        threads.spawn(async move {
            let mut held = Vec::new();
            for name in (thread..names).step_by(AT_ONCE) {
                held.push(library.acquire(&format!("h{name}")).await?);
            }
            anyhow::Ok(held)
        });
    }

    let mut held = Vec::with_capacity(names);
    while let Some(done) = threads.join_next().await {
        held.append(&mut done??);
    }

    Ok(held)
}

/// Converts a time to whole nanoseconds.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
