//! Workers that use the blocking API.

use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::{Result, anyhow};
use leasehold::blocking::{self, Guard, Lock, Locks};

use super::hold::{end, hold, passes};
use super::recorder::Recorder;
use super::{
    REFUSAL_PAUSE, RETRY, record_final_usage, record_warm_usage, wait_for_signal, waits_for_store,
};
use crate::{EventKind, LockKind, OnError, Start, WorkerConfig};

pub(super) fn run(config: &WorkerConfig) -> Result<()> {
    let locks = loop {
        match blocking::open(&config.store).map_err(anyhow::Error::from) {
            Err(error) if waits_for_store(config, &error) => sleep(RETRY),
            opened => break opened?,
        }
    };

    thread::scope(|scope| {
        let shared = &locks;
        let threads = config.first_thread..config.first_thread + config.threads;
        let handles: Vec<_> = threads
            .map(|thread| scope.spawn(move || cycles(config, shared, thread)))
            .collect();
        handles
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
    })?;
    // Departing claims need the process: their requests end with it.
    blocking::drain(Duration::MAX);
    record_final_usage(config)
}

fn cycles(config: &WorkerConfig, locks: &Locks, thread: u32) -> Result<()> {
    let mut cycle = 0;
    let mut done = 0;
    while config.goes_on(done) {
        let name = config.name(thread, cycle);
        let recorder = Recorder {
            config,
            thread,
            name,
        };

        match config.start {
            Start::Immediately => {}
            Start::After(micros) => sleep(Duration::from_micros(micros)),
            Start::OnSignal => wait_for_signal()?,
        }
        recorder.record(EventKind::Requested)?;
        let Some(guard) = acquire(config, recorder, &lock(config, locks, thread, name))? else {
            record_warm_usage(config, thread, cycle)?;
            cycle += 1;
            done += u64::from(config.on_error == OnError::Abort);
            continue;
        };

        hold(config, recorder, &guard)?;
        end(config, recorder, guard.release())?;
        record_warm_usage(config, thread, cycle)?;
        cycle += 1;
        done += 1;
    }
    Ok(())
}

fn acquire(config: &WorkerConfig, recorder: Recorder<'_>, lock: &Lock) -> Result<Option<Guard>> {
    let granted = match config.wait_micros {
        Some(micros) => lock
            .try_acquire_for(Duration::from_micros(micros))
            .map(Result::ok),
        None => lock.acquire().map(Some),
    };

    match granted {
        Ok(None) => recorder.record(EventKind::TimedOut).map(|()| None),
        // A short wait limit may end before the store has replied.
        Err(error)
            if passes(config, &error) || config.wait_micros.is_some() && error.is_unavailable() =>
        {
            recorder.record(EventKind::Refused)?;
            sleep(REFUSAL_PAUSE);
            Ok(None)
        }
        granted => Ok(granted?),
    }
}

fn lock(config: &WorkerConfig, locks: &Locks, thread: u32, name: u16) -> Lock {
    let text = &config.names[usize::from(name)];
    let lock = match config.kind_of(name) {
        LockKind::Mutex => locks.mutex(text),
        LockKind::Reader => locks.rwlock(text).shared(),
        LockKind::Writer => locks.rwlock(text).exclusive(),
        LockKind::Slots { permits, slots } => locks.semaphore(text, slots).permits(permits),
    };
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
