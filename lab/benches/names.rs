//! One process holds ten thousand names at once: the cost of each name as their number grows.

use std::time::{Duration, Instant};

use anyhow::Result;
use lab::Testbed;
use lab::raw::open;
use lab::report::{Report, Samples};
use rustix::process::{Resource, getrlimit, setrlimit};

const NAMES: usize = 10_000;
const TENTH: usize = NAMES / 10;

fn main() -> Result<()> {
    raise_descriptors()?;
    let testbed = Testbed::new(env!("CARGO_BIN_EXE_worker"))?;
    let folder = testbed.scratch_file();
    std::fs::create_dir(&folder)?;

    let mut acquired = Vec::new();
    let mut locked = Vec::new();
    let mut released = Vec::new();
    let mut guards = Vec::new();
    for name in 0..NAMES {
        let lock = testbed.locks().mutex(name.to_string());
        let begun = Instant::now();
        guards.push(testbed.run(lock.acquire())?);
        acquired.push(begun.elapsed());
        let begun = Instant::now();
        let file = open(&folder.join(name.to_string()))?;
        file.lock()?;
        locked.push(begun.elapsed());
    }

    for guard in guards {
        let begun = Instant::now();
        testbed.run(guard.release())?;
        released.push(begun.elapsed());
    }

    let mut report = Report::new("names");
    let limit = "create + flock";
    report.add(
        "acquire, first 1,000 names",
        &samples(&acquired[..TENTH]),
        limit,
        &samples(&locked[..TENTH]),
    );

    let last = NAMES - TENTH..;
    report.add(
        "acquire, last 1,000 of 10,000",
        &samples(&acquired[last.clone()]),
        limit,
        &samples(&locked[last]),
    );

    let first = samples(&released[..TENTH]);
    report.add(
        "release of 1,000, none held",
        &samples(&released[NAMES - TENTH..]),
        "while 10,000 are held",
        &first,
    );
    report.finish()
}

/// Raises the limit of open files, as each held name keeps a file open.
fn raise_descriptors() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

fn samples(times: &[Duration]) -> Samples {
    times.iter().copied().collect()
}
