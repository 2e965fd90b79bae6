//! The tasks of any async lock library.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::Peer;
use super::libraries::Library;
use crate::workload::Workload;

/// A peer that runs the tasks with a library. Each thread of a contest is a tokio task.
pub(super) struct Tasks<L: Library> {
    runtime: Runtime,
    library: Arc<L>,
}

impl<L: Library> Tasks<L> {
    /// Connects to the server, in the runtime that sends the later requests.
    pub(super) fn connect(open: impl Future<Output = Result<L>>) -> Result<Self> {
        let runtime = runtime()?;
        let library = Arc::new(runtime.block_on(open)?);
        Ok(Self { runtime, library })
    }
}

impl<L: Library> Peer for Tasks<L> {
    /// The workload is a task of its own, as in a service: the future of `block_on` costs another
    /// `epoll_wait` each time it is woken.
    fn run(&mut self, task: &Workload) -> Result<Option<Vec<u64>>> {
        let running = run(Arc::clone(&self.library), task.clone());
        self.runtime.block_on(self.runtime.spawn(running))?
    }
}

async fn run<L: Library>(library: Arc<L>, task: Workload) -> Result<Option<Vec<u64>>> {
    Ok(Some(match task {
        Workload::Pairs { name, count } => pairs(&library, &name, count).await?,
        Workload::Names { names, each } => many_names(&library, names, each).await?,
        Workload::Contend {
            name,
            threads,
            until,
        } => contend(&library, &name, threads, until).await?,
        _ => return Ok(None),
    }))
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
    name: &str,
    threads: usize,
    until: u64,
) -> Result<Vec<u64>> {
    let mut running = JoinSet::new();
    for _ in 0..threads {
        running.spawn(one_thread(Arc::clone(library), name.to_owned(), until));
    }
    let mut moments = Vec::new();
    while let Some(done) = running.join_next().await {
        moments.append(&mut done??);
    }
    Ok(moments)
}

async fn one_thread<L: Library>(library: Arc<L>, name: String, until: u64) -> Result<Vec<u64>> {
    let mut moments = Vec::new();
    while lab::now() < until {
        moments.push(lab::now());
        let held = library.acquire(&name).await?;
        moments.push(lab::now());
        moments.push(lab::now());
        library.release(held).await?;
    }
    Ok(moments)
}

pub(super) fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Converts a time to whole nanoseconds.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
