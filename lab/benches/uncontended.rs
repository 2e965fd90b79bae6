//! Acquire and release when no other client wants the lock.

use anyhow::Result;
use lab::Testbed;
use lab::raw::{open, open_lock_close};
use lab::report::{Report, Samples};
use leasehold::{Lock, blocking};

const BATCHES: usize = 200;
const PAIRS: usize = 250;

fn main() -> Result<()> {
    let testbed = Testbed::new(env!("CARGO_BIN_EXE_worker"))?;
    let info = testbed.scratch_file();
    let kept = open(&testbed.scratch_file())?;
    let file = testbed.locks().mutex("a");
    let memory = testbed.run(leasehold::open("memory:"))?.mutex("a");
    let threads = blocking::open(&testbed.url())?.mutex("b");
    let mut samples: [Samples; 5] = Default::default();
    // The measurements are interleaved, so that other load on the machine affects all alike.
    for _ in 0..BATCHES {
        let [leasehold, by_threads, in_memory, opened, kept_open] = &mut samples;
        pairs(opened, || Ok(open_lock_close(&info)?))?;
        pairs(kept_open, || {
            Ok(kept.lock().and_then(|()| kept.unlock())?)
        })?;
        testbed.run(async_pairs(leasehold, &file))?;
        testbed.run(async_pairs(in_memory, &memory))?;
        pairs(by_threads, || Ok(threads.acquire()?.release()?))?;
    }

    let [leasehold, by_threads, in_memory, opened, kept_open] = &samples;
    let mut report = Report::new("uncontended");
    report.add(
        "file store, async",
        leasehold,
        "open + flock + close",
        opened,
    );
    report.add(
        "file store, blocking",
        by_threads,
        "open + flock + close",
        opened,
    );
    report.add(
        "file store, async",
        leasehold,
        "flock + unlock of an open file",
        kept_open,
    );
    report.add(
        "memory store, async",
        in_memory,
        "flock + unlock of an open file",
        kept_open,
    );
    report.finish()
}

fn pairs(samples: &mut Samples, pair: impl Fn() -> Result<()>) -> Result<()> {
    (0..PAIRS).try_for_each(|_| samples.time(&pair))
}

async fn async_pairs(samples: &mut Samples, lock: &Lock) -> Result<()> {
    for _ in 0..PAIRS {
        let begun = lab::now();
        lock.acquire().await?.release().await?;
        samples.add(lab::now() - begun);
    }
    Ok(())
}
