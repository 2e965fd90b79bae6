//! The time from a release in one process to the grant in another process that waits.

use std::fs;
use std::io::Write;

use anyhow::Result;
use lab::raw;
use lab::report::{Report, Samples};
use lab::{Api, EventKind, HoldWork, Peer, Process, Start, Testbed, WorkerConfig, now};

const ROUNDS: usize = 1_000;
const RAW: &str = env!("CARGO_BIN_EXE_raw");

fn main() -> Result<()> {
    let testbed = Testbed::new(env!("CARGO_BIN_EXE_worker"))?;
    let mut tasks = leasehold(&testbed, "tasks", Api::Async)?;
    let mut threads = leasehold(&testbed, "threads", Api::Blocking)?;
    let file = testbed.scratch_file();
    let mut lockers = [
        raw::start(RAW, "locker", &file)?,
        raw::start(RAW, "locker", &file)?,
    ];
    lockers[0].send_line("")?;
    lockers[0].receive_line()?;

    let watched = testbed.scratch_file();
    fs::write(&watched, "")?;
    let mut sleeper = raw::start(RAW, "sleeper", &watched)?;
    sleeper.receive_line()?;

    let mut samples: [Samples; 4] = Default::default();
    for _ in 0..ROUNDS {
        samples[0].add(hand_over(&testbed, "tasks", &mut tasks)?);
        samples[1].add(hand_over(&testbed, "threads", &mut threads)?);
        samples[2].add(flock_hand_over(&mut lockers)?);
        samples[3].add(wake(
            &mut sleeper,
            &mut fs::File::options().append(true).open(&watched)?,
        )?);
    }

    let [tasks, threads, flock, inotify] = &samples;
    let mut report = Report::new("handover");
    report.add("file store, async", tasks, "inotify wake-up", inotify);
    report.add("file store, blocking", threads, "inotify wake-up", inotify);
    report.add("file store, async", tasks, "blocking flock(2)", flock);
    report.add("file store, blocking", threads, "blocking flock(2)", flock);
    report.finish()
}

/// Starts two workers, of which the first holds the lock.
fn leasehold(testbed: &Testbed, name: &str, api: Api) -> Result<[Process; 2]> {
    let config = WorkerConfig {
        names: vec![name.to_owned()],
        api,
        cycles: u64::MAX,
        start: Start::OnSignal,
        work: HoldWork::UntilSignal,
        ..WorkerConfig::default()
    };
    let mut workers = [testbed.start(config.clone())?, testbed.start(config)?];
    workers[0].send_signal()?;
    workers[0].wait_for_grant()?;
    Ok(workers)
}

fn hand_over(testbed: &Testbed, name: &str, workers: &mut [Process; 2]) -> Result<u64> {
    workers.swap(0, 1);
    let [next, holder] = workers;
    next.send_signal()?;
    testbed.wait_until_waiting(name, next.first_thread())?;
    holder.send_signal()?;
    let begun = holder.wait_for(|kind| *kind == EventKind::Releasing)?.at;
    Ok(next.wait_for_grant()?.at - begun)
}

fn flock_hand_over(lockers: &mut [Peer; 2]) -> Result<u64> {
    lockers.swap(0, 1);
    let [next, holder] = lockers;
    next.send_line("")?;
    raw::wait_until_waiting(next)?;
    holder.send_line("")?;
    let begun: u64 = holder.receive()?;
    Ok(next.receive::<u64>()? - begun)
}

fn wake(sleeper: &mut Peer, file: &mut fs::File) -> Result<u64> {
    let begun = now();
    file.write_all(b"x")?;
    Ok(sleeper.receive::<u64>()? - begun)
}
