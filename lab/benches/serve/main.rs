//! `leasehold serve` on a store with 10,000 locks that change 100 times a second, while a browser
//! shows them.

#[path = "../../../crates/leasehold-cli/tests/command/serve/browser.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "it belongs to the tests of the page"
)]
mod browser;
mod sandbox;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use lab_servers::Redis;
use leasehold::{Guard, Locks};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::time::{MissedTickBehavior, interval};

use browser::Browser;

const LOCKS: usize = 10_000;
/// How many acquires or releases a second change the locks that the page shows first.
const CHANGES_PER_SECOND: u32 = 100;
const CHANGING_LOCKS: u64 = 50;
const ACQUIRED_AT_ONCE: usize = 64;
const TIME: Duration = Duration::from_secs(30);
/// The targets: in per cent of a core, and in milliseconds.
const CPU_MAX: f64 = 5.0;
const FRAME_MAX: f64 = 16.0;

/// Shows other rows.
const FILTERS: [&str; 4] = ["lock-1", "lock-25", "change", ""];

/// Measures each drawing of the page, with the layout that follows it, and the longest pause
/// between two frames.
const PROBE: &str = "
    var costs = [], pauses = [], last = performance.now();
    const draws = drawFrame;
    drawFrame = () => {
        const begun = performance.now();
        draws();
        document.body.offsetHeight;
        costs.push(performance.now() - begun);
    };
    const frame = (now) => { pauses.push(now - last); last = now; requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
    true";

fn main() -> Result<()> {
    let server = Redis::start();
    let runtime = Runtime::new()?;
    let locks = runtime.block_on(leasehold::open(&server.url()))?;
    let _held = runtime.block_on(hold_all(&locks))?;
    runtime.spawn(change(locks));

    let site = Site::start(&server.url())?;
    let mut browser = Browser::open(&site.url);
    browser.wait_for("locks.size >= 10000 && rows.size === 300");
    browser.value(PROBE);

    let cpu = cpu_seconds(&site.process)?;
    let begun = Instant::now();
    for prefix in FILTERS {
        sleep(TIME / u32::try_from(FILTERS.len())?);
        browser.value(&format!("find('prefix').value = {prefix:?}; draw()"));
    }
    let cpu = 100.0 * (cpu_seconds(&site.process)? - cpu) / begun.elapsed().as_secs_f64();
    let costs = numbers(&browser.value("costs"))?;
    let pauses = numbers(&browser.value("pauses"))?;

    println!("leasehold serve, {LOCKS} locks, {CHANGES_PER_SECOND} changes a second, one page");
    println!("  CPU time of a core: {cpu:.1} % (goal {CPU_MAX} %)");
    let drawing = percentile(&costs, 100);
    let p50 = percentile(&costs, 50);
    println!(
        "  {} drawings with their layout: p50 {p50:.1} ms, longest {drawing:.1} ms (goal \
         {FRAME_MAX} ms)",
        costs.len()
    );
    let [p50, p99] = [percentile(&pauses, 50), percentile(&pauses, 99)];
    let longest = percentile(&pauses, 100);
    println!("  between frames: p50 {p50:.1} ms, p99 {p99:.1} ms, longest {longest:.1} ms");

    ensure!(costs.len() > 3, "the page was drawn {} times", costs.len());
    ensure!(cpu <= CPU_MAX && drawing <= FRAME_MAX, "a target is missed");
    Ok(())
}

async fn hold_all(locks: &Locks) -> leasehold::Result<Vec<Guard>> {
    let acquires = (0..LOCKS).map(|number| async move {
        let name = format!("lock-{number:05}");
        locks.mutex(&name).acquire().await
    });

    stream::iter(acquires)
        .buffer_unordered(ACQUIRED_AT_ONCE)
        .try_collect()
        .await
}

/// Acquires locks one after the other, and releases them in this order.
async fn change(locks: Locks) -> leasehold::Result<()> {
    let mut ticks = interval(Duration::from_secs(1) / CHANGES_PER_SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);

    loop {
        let mut held = Vec::new();
        for number in 0..CHANGING_LOCKS {
            ticks.tick().await;
            held.push(locks.mutex(format!("change-{number}")).acquire().await?);
        }
        for guard in held {
            ticks.tick().await;
            guard.release().await?;
        }
    }
}

/// A running `leasehold serve` of the same build, which `cargo xtask bench` builds first.
struct Site {
    process: Child,
    url: String,
}

impl Site {
    fn start(store: &str) -> Result<Self> {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_worker")).with_file_name("leasehold");
        let mut process = Command::new(program)
            .args(["serve", "--store", store, "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start leasehold serve; `cargo xtask bench` builds it")?;

        let mut line = String::new();
        let stdout = process.stdout.take().context("its stdout is a pipe")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let url = line.trim().strip_prefix("listening on ");
        let url = url.context("it prints its address")?.to_owned();
        Ok(Self { process, url })
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// The CPU time that all threads of a process have used.
fn cpu_seconds(process: &Child) -> Result<f64> {
    let mut nanos = 0;
    for thread in fs::read_dir(format!("/proc/{}/task", process.id()))? {
        let times = fs::read_to_string(thread?.path().join("schedstat"))?;
        let used = times.split(' ').next().context("schedstat is empty")?;
        nanos += used.parse::<u64>()?;
    }

    Ok(Duration::from_nanos(nanos).as_secs_f64())
}

fn numbers(value: &Value) -> Result<Vec<f64>> {
    let mut numbers: Vec<f64> = serde_json::from_value(value.clone())?;
    numbers.sort_by(f64::total_cmp);
    ensure!(!numbers.is_empty(), "the page measured nothing");
    Ok(numbers)
}

fn percentile(sorted: &[f64], hundredths: usize) -> f64 {
    sorted[(sorted.len() * hundredths).div_ceil(100) - 1]
}
