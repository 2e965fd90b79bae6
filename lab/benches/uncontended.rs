//! Acquire and release when nobody else wants the lock.

use anyhow::Result;
use lab::Site;
use lab::raw::{open, open_lock_close};
use lab::report::{Report, Samples};
use leasehold::{Lock, blocking};

const BATCHES: usize = 200;
const PAIRS: usize = 250;

fn main() -> Result<()> {
    let site = Site::new(env!("CARGO_BIN_EXE_taker"))?;
    let (note, kept) = (site.note(), open(&site.note())?);
    let file = site.locks().mutex("a");
    let memory = site.run(leasehold::open("memory:"))?.mutex("a");
    let threads = blocking::open(&site.url())?.mutex("b");
    let mut samples: [Samples; 5] = Default::default();
    // Interleaved, so that whatever else the machine does meets all alike.
    for _ in 0..BATCHES {
        let [ours, by_threads, in_memory, opened, kept_open] = &mut samples;
        pairs(opened, || Ok(open_lock_close(&note)?))?;
        pairs(kept_open, || Ok(kept.lock().and_then(|()| kept.unlock())?))?;
        site.run(async_pairs(ours, &file))?;
        site.run(async_pairs(in_memory, &memory))?;
        pairs(by_threads, || Ok(threads.acquire()?.release()?))?;
    }
    let [ours, by_threads, in_memory, opened, kept_open] = &samples;
    let mut report = Report::new("uncontended");
    report.add("file store, async", ours, "open + flock + close", opened);
    report.add("file store, blocking", by_threads, "open + flock + close", opened);
    report.add("file store, async", ours, "flock + unlock of an open file", kept_open);
    report.add("memory store, async", in_memory, "flock + unlock of an open file", kept_open);
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
