//! Eight processes, each of which acquires and releases as fast as it can.

use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use lab::report::{Report, Samples};
use lab::{Api, Recording, Testbed, WorkerConfig};

const PROCESSES: usize = 8;
const CYCLES: u64 = 5_000;
const ROUNDS: usize = 5;

fn main() -> Result<()> {
    let testbed = Testbed::new(env!("CARGO_BIN_EXE_worker"))?;
    let mut samples: [Samples; 6] = Default::default();
    for _ in 0..ROUNDS {
        for (number, names) in [1, PROCESSES].into_iter().enumerate() {
            samples[number * 3].add(leasehold(&testbed, names, Api::Async)?);
            samples[number * 3 + 1].add(leasehold(&testbed, names, Api::Blocking)?);
            samples[number * 3 + 2].add(raw(&testbed, names)?);
        }
    }

    let mut report = Report::new("throughput");
    let limit = "open + flock + close";
    for (samples, names) in samples.chunks(3).zip(["one name", "a name each"]) {
        report.add(
            &format!("time per cycle, {names}, async"),
            &samples[0],
            limit,
            &samples[2],
        );
        report.add(
            &format!("time per cycle, {names}, blocking"),
            &samples[1],
            limit,
            &samples[2],
        );
    }

    report.finish()
}

/// Returns the wall time per cycle of all processes together, including the start of the processes.
fn leasehold(testbed: &Testbed, names: usize, api: Api) -> Result<u64> {
    let begun = Instant::now();
    let start = |number: usize| {
        let names = vec![(number % names).to_string()];
        testbed.start(WorkerConfig {
            names,
            api,
            cycles: CYCLES,
            recording: Recording::Nothing,
            ..WorkerConfig::default()
        })
    };

    let workers = (0..PROCESSES).map(start).collect::<Result<Vec<_>>>()?;
    workers
        .into_iter()
        .try_for_each(|worker| worker.finish().map(drop))?;
    Ok(each(begun))
}

fn raw(testbed: &Testbed, names: usize) -> Result<u64> {
    let files: Vec<_> = (0..names).map(|_| testbed.scratch_file()).collect();
    let begun = Instant::now();
    let start = |number: usize| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_raw"));
        command
            .arg("pairs")
            .arg(&files[number % names])
            .arg(CYCLES.to_string())
            .spawn()
    };
    for mut child in (0..PROCESSES).map(start).collect::<Result<Vec<_>, _>>()? {
        ensure!(child.wait()?.success(), "a raw process failed");
    }

    Ok(each(begun))
}

fn each(begun: Instant) -> u64 {
    let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    nanos / (PROCESSES as u64 * CYCLES)
}
