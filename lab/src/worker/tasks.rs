//! Workers that use the async API.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use leasehold::{Lock, Locks, Owner};
use tokio::runtime::Builder;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{sleep, timeout};

use super::hold::{end, hold, passes};
use super::nested::{Acquired, Acquisition, Reentrancy};
use super::recorder::Recorder;
use super::{
    REFUSAL_PAUSE, RETRY, crash_points, job, record_final_usage, record_warm_usage,
    wait_for_signal, waits_for_store,
};
use crate::{EventKind, HoldWork, LockKind, OnError, Start, WorkerConfig};

/// The pauses between cycles are tokio's. A blocking pause would hand the tasks of its thread to
/// another thread, and on a busy machine the number of threads would grow: tokio wakes its idle
/// threads in turn, so none of them is idle for long enough to end.
pub(super) fn run(config: &WorkerConfig) -> Result<()> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(all(Arc::new(config.clone())))
}

async fn all(config: Arc<WorkerConfig>) -> Result<()> {
    let locks = loop {
        match crash_points::open(&config).await {
            Err(error) if waits_for_store(&config, &error) => sleep(RETRY).await,
            opened => break opened?,
        }
    };

    let mut threads = JoinSet::new();
    for thread in config.first_thread..config.first_thread + config.threads {
        threads.spawn(cycles(Arc::clone(&config), locks.clone(), thread));
    }

    while let Some(done) = threads.join_next().await {
        done??;
    }
    // Departing claims need the process: their requests end with it.
    leasehold::drain().await;
    record_final_usage(&config)
}

async fn cycles(config: Arc<WorkerConfig>, locks: Locks, thread: u32) -> Result<()> {
    let owner = Owner::new();
    let mut cycle = 0;
    let mut done = 0;
    while config.goes_on(done) {
        let name = config.name(thread, cycle);
        let recorder = Recorder {
            config: &config,
            thread,
            name,
        };
        match config.start {
            Start::Immediately => {}
            Start::After(micros) => sleep(Duration::from_micros(micros)).await,
            Start::OnSignal => block_in_place(wait_for_signal)?,
        }

        if let Some(job) = config.job {
            job::run(&config, recorder, &locks, job, cycle).await?;
            record_warm_usage(&config, thread, cycle)?;
            cycle += 1;
            done += 1;
            continue;
        }
        recorder.record(EventKind::Requested)?;
        let acquisition = acquisition(&config, &locks, &owner, thread, name);
        let Some(guard) = acquire(&config, recorder, &acquisition).await? else {
            record_warm_usage(&config, thread, cycle)?;
            cycle += 1;
            done += u64::from(config.on_error == OnError::Abort);
            continue;
        };

        match config.work {
            HoldWork::Nothing => hold(&config, recorder, &guard)?,
            _ => block_in_place(|| hold(&config, recorder, &guard))?,
        }
        end(&config, recorder, guard.release(recorder).await?)?;
        record_warm_usage(&config, thread, cycle)?;
        cycle += 1;
        done += 1;
    }
    Ok(())
}

/// A worker whose wait limit ends drops the future. That must leave as little behind as a refusal.
async fn acquire(
    config: &WorkerConfig,
    recorder: Recorder<'_>,
    acquisition: &Acquisition,
) -> Result<Option<Acquired>> {
    let granted = match config.wait_micros {
        Some(micros) => timeout(Duration::from_micros(micros), acquisition.acquire())
            .await
            .ok()
            .transpose(),
        None => acquisition.acquire().await.map(Some),
    };

    match granted {
        Ok(None) => recorder.record(EventKind::TimedOut).map(|()| None),
        Err(error) if passes(config, &error) => {
            recorder.record(EventKind::Refused)?;
            sleep(REFUSAL_PAUSE).await;
            Ok(None)
        }
        granted => Ok(granted?),
    }
}

fn acquisition(
    config: &WorkerConfig,
    locks: &Locks,
    owner: &Owner,
    thread: u32,
    name: u16,
) -> Acquisition {
    if config.max_nesting == 0 {
        return Acquisition::Once(lock(config, locks, thread, name));
    }
    let lock = locks
        .reentrant(&config.names[usize::from(name)])
        .configure(|lock| options(config, lock, thread));

    Acquisition::Reentrancy(Reentrancy {
        lock,
        owner: owner.clone(),
        most: config.max_nesting,
    })
}

fn lock(config: &WorkerConfig, locks: &Locks, thread: u32, name: u16) -> Lock {
    let name_index = usize::from(name);
    let text = &config.names[name_index];
    let lock = match config.kind_of(name) {
        LockKind::Mutex => locks.mutex(text),
        LockKind::Reader => locks.rwlock(text).shared(),
        LockKind::Writer => locks.rwlock(text).exclusive(),
        LockKind::Slots { permits, slots } => locks.semaphore(text, slots).permits(permits),
    };
    options(config, lock, thread)
}

fn options(config: &WorkerConfig, lock: Lock, thread: u32) -> Lock {
    let leased = match config.lease_millis {
        Some(millis) => lock.lease(Duration::from_millis(millis)),
        None => lock,
    };
    let passed_on = match config.cohort {
        Some(max) => leased.cohort(max),
        None => leased,
    };
    passed_on.label(&config.label(thread))
}
