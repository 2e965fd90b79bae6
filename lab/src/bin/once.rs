//! Shows that a job which five machines start runs once in each period, and how often it runs with
//! a hold of a guessed length instead.
//!
//! `once STORE [once|hold-at-least|shedlock] [NAMES] [PERIODS] [SECONDS]`, where STORE is `file`,
//! `redis`, `zookeeper` or `postgres`, and SECONDS is the length of a period. `ShedLock` is on
//! `postgres`, with its JDBC provider, and has `lockAtLeastFor` of 40 s and `lockAtMostFor` of 60 s.
//! The clocks of the machines are up to 30 s apart. Some of the runs fail, some are killed at a
//! random moment, and the server is killed twice.

use std::any::Any;
use std::collections::HashMap;
use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lab::{Random, Server};
use lab_servers::{Clock, Postgres, Redis, ZooKeeper};
use tempfile::TempDir;

/// By how many seconds the clock of each machine is ahead.
const MACHINES: [i64; 5] = [-15, -7, 0, 6, 15];
/// The runs of the slowest machine, which starts last, neither fail nor are killed, so that each
/// job is completed.
const RELIABLE: usize = 0;
/// The starts of a period are spread over this part of it, as those of different jobs are.
const SPREAD: f64 = 0.4;
/// A killed run lives for less than this.
const KILLED_WITHIN_MILLIS: u64 = 600;
/// The exit code of a run that found its job done.
const DONE: &str = "9";

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let word = |at: usize, otherwise: &str| {
        let word = arguments.get(at);
        word.map_or_else(|| otherwise.to_owned(), Clone::clone)
    };
    let (store, mode) = (word(0, "file"), word(1, "once"));
    let folder = TempDir::new()?;
    let (url, mut server) = start(&store, folder.path())?;
    let program = env::current_exe()?.with_file_name("leasehold");
    ensure!(program.exists(), "build leasehold-cli first");
    let mut trial = Trial {
        shedlock: Vec::new(),
        url,
        program,
        is_once: mode == "once",
        clocks: Clock::several(folder.path(), MACHINES.len()),
        folder: folder.path().to_owned(),
        names: word(2, "100").parse()?,
        periods: word(3, "10").parse()?,
        period: Duration::from_secs(word(4, "75").parse()?),
        began: Instant::now() + Duration::from_secs(16),
        kills: AtomicU64::new(0),
        failures: AtomicU64::new(0),
    };
    for (clock, ahead) in trial.clocks.iter().zip(MACHINES) {
        clock.set(ahead);
    }
    if mode == "shedlock" {
        let peers = trial
            .clocks
            .iter()
            .map(|clock| ShedLock::start(server.as_deref(), clock, &trial.folder));
        trial.shedlock = peers.collect::<Result<_>>()?;
    }
    let trial = trial;

    thread::scope(|scope| {
        let machines: Vec<_> = (0..MACHINES.len())
            .map(|machine| {
                scope.spawn({
                    let trial = &trial;
                    move || trial.play(machine)
                })
            })
            .collect();
        // In the middle of the starts of a period.
        for part in 1..=2 {
            let at = trial.due(0, trial.periods * part / 3) + trial.period.mul_f64(SPREAD / 2.0);
            thread::sleep(at.saturating_duration_since(Instant::now()));
            if let Some(server) = &mut server {
                server.restart();
            }
        }
        let played = machines
            .into_iter()
            .map(|machine| machine.join().expect("no panic"));
        played.collect::<Result<()>>()
    })?;
    trial.report(&store, &mode)
}

/// Starts the service of the store, which keeps its data when it is killed. Returns the URL too.
fn start(store: &str, folder: &Path) -> Result<(String, Option<Box<dyn Server>>)> {
    Ok(match store {
        "file" => (format!("file:{}/store", folder.display()), None),
        "redis" => {
            let server = Redis::configured(&[("appendonly", "yes"), ("appendfsync", "always")]);
            (server.url(), Some(Box::new(server)))
        }
        "zookeeper" => {
            let server = ZooKeeper::start();
            (server.url(), Some(Box::new(server)))
        }
        "postgres" => {
            let server = Postgres::configured(&["fsync=on"]);
            (server.url(), Some(Box::new(server)))
        }
        _ => bail!("there is no store {store}"),
    })
}

struct Trial {
    /// One process for each machine; empty in the other modes.
    shedlock: Vec<ShedLock>,
    url: String,
    program: PathBuf,
    is_once: bool,
    clocks: Vec<Clock>,
    folder: PathBuf,
    names: u32,
    periods: u32,
    period: Duration,
    began: Instant,
    kills: AtomicU64,
    failures: AtomicU64,
}

impl Trial {
    /// When a job is due, by a right clock.
    fn due(&self, name: u32, period: u32) -> Instant {
        let spread = SPREAD * f64::from(name) / f64::from(self.names);
        self.began + self.period.mul_f64(f64::from(period) + spread)
    }

    /// Starts each job when its time has come by the clock of the machine.
    fn play(&self, machine: usize) -> Result<()> {
        thread::scope(|scope| {
            let mut runs = Vec::new();
            for period in 0..self.periods {
                for name in 0..self.names {
                    let due = self.due(name, period);
                    let ahead = MACHINES[machine];
                    let error = Duration::from_secs(ahead.unsigned_abs());
                    let at = if ahead < 0 {
                        due + error
                    } else {
                        due.checked_sub(error)
                            .context("the machine has just started")?
                    };
                    thread::sleep(at.saturating_duration_since(Instant::now()));
                    runs.push(scope.spawn(move || self.run(machine, name, period)));
                }
            }
            let ended = runs.into_iter().map(|run| run.join().expect("no panic"));
            ended.collect()
        })
    }

    /// Runs a job as cron would, and notes in its log that it has become known as completed.
    fn run(&self, machine: usize, name: u32, period: u32) -> Result<()> {
        let seed = u64::from(period * self.names + name) * 8 + machine as u64;
        let mut random = Random::seeded(seed);
        let may_fail = machine != RELIABLE;
        let killed_after = (may_fail && random.below(3) == 0)
            .then(|| Duration::from_millis(random.below(KILLED_WITHIN_MILLIS)));
        let fails = may_fail && random.below(4) == 0;
        // A slow clock or a repeated start: a period may be tried after its successor.
        let period = if may_fail && random.below(20) == 0 {
            period.saturating_sub(1)
        } else {
            period
        };

        loop {
            let line = format!(
                "echo ran {period} >> {name}; sleep 0.005; exit {}",
                u8::from(fails)
            );
            if let Some(peer) = self.shedlock.get(machine) {
                match peer.run(&format!("job-{name}"), killed_after, &line)? {
                    0 => return self.note(name, &format!("completed {period}")),
                    -1 => self.kills.fetch_add(1, Ordering::Relaxed),
                    1 => self.failures.fetch_add(1, Ordering::Relaxed),
                    75 => 0,
                    _ => continue,
                };
                return Ok(());
            }
            let mut command = Command::new(&self.program);
            command.args(["run", "--quiet"]);
            if self.is_once {
                command.args(["--once", &period.to_string(), "--done-exit-code", DONE]);
            } else {
                command.args(["--nonblock", "--hold-at-least", "40s"]);
            }
            command
                .args([&format!("job-{name}"), "--", "sh", "-c", &line])
                .current_dir(&self.folder)
                .env("LEASEHOLD_STORE", &self.url)
                .envs(self.clocks[machine].environment())
                .stdin(Stdio::null())
                .stderr(Stdio::null());
            let mut child = command.spawn()?;
            if let Some(after) = killed_after {
                thread::sleep(after);
                self.kills.fetch_add(1, Ordering::Relaxed);
                child.kill()?;
                child.wait()?;
                return Ok(());
            }
            match child.wait()?.code() {
                Some(0 | 9) => return self.note(name, &format!("completed {period}")),
                Some(1) => {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                Some(75) if !self.is_once => return Ok(()),
                // The server is down, or it is not known whether the success was recorded.
                Some(69 | 76) => {}
                code => bail!("a run of job-{name} ended with {code:?}"),
            }
        }
    }

    fn note(&self, name: u32, line: &str) -> Result<()> {
        let path = self.folder.join(name.to_string());
        let mut log = File::options().append(true).create(true).open(path)?;
        Ok(log.write_all(format!("{line}\n").as_bytes())?)
    }

    fn report(&self, store: &str, mode: &str) -> Result<()> {
        let mut count = Count::default();
        for name in 0..self.names {
            let log = std::fs::read_to_string(self.folder.join(name.to_string()));
            count.read(&log.context("a log")?, self.periods);
        }
        let jobs = self.names * self.periods;
        let (kills, failures) = (
            self.kills.load(Ordering::Relaxed),
            self.failures.load(Ordering::Relaxed),
        );
        println!(
            "| store | mode | jobs | runs killed | failed | started | completed | started after their completion |"
        );
        println!("|---|---|---|---|---|---|---|---|");
        println!(
            "| {store} | {mode} | {jobs} | {kills} | {failures} | {} | {} | {} |",
            count.started, count.completed, count.again
        );
        let is_right = count.completed == jobs && count.again == 0;
        ensure!(
            is_right || !self.is_once,
            "a job was not completed, or ran again"
        );
        Ok(())
    }
}

/// The process of one machine with `ShedLock`, which runs all its jobs.
struct ShedLock {
    process: Child,
    lines: Mutex<ChildStdin>,
    next: AtomicU64,
    replies: Arc<Mutex<HashMap<u64, Sender<i32>>>>,
}

impl ShedLock {
    fn start(server: Option<&dyn Server>, clock: &Clock, folder: &Path) -> Result<Self> {
        let server = server.and_then(|server| (server as &dyn Any).downcast_ref::<Postgres>());
        let server = server.context("ShedLock is on postgres")?;
        let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
        let jars = lab.join("../target/jars/*");
        let mut process = Command::new("java")
            .arg("-cp")
            .arg(&jars)
            .arg(lab.join("tests/interop/peers/ShedLockPeer.java"))
            .arg(format!(
                "jdbc:postgresql://{}/postgres?user=postgres",
                server.address()
            ))
            .envs(clock.environment())
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let lines = process.stdin.take().context("it is a pipe")?;
        let mut output = BufReader::new(process.stdout.take().context("it is a pipe")?).lines();
        let first = output
            .next()
            .context("ShedLock does not start: cargo xtask bench installs it")??;
        ensure!(first == "ready", "ShedLock does not start: {first}");

        let replies: Arc<Mutex<HashMap<u64, Sender<i32>>>> = Arc::default();
        let waiting = Arc::clone(&replies);
        thread::spawn(move || {
            for line in output.map_while(Result::ok) {
                let (id, code) = line.split_once(' ').expect("a number and a code");
                let id = id.parse().expect("a number");
                let reply = waiting.lock().expect("no panic").remove(&id);
                // A run that is not waited for has ended with this program.
                let _ = reply
                    .expect("a run has one reply")
                    .send(code.parse().expect("a code"));
            }
        });
        Ok(Self {
            process,
            lines: Mutex::new(lines),
            next: AtomicU64::new(0),
            replies,
        })
    }

    /// Returns the exit code; -1 if it was killed.
    fn run(&self, name: &str, killed_after: Option<Duration>, command: &str) -> Result<i32> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (reply, replied) = channel();
        self.replies.lock().expect("no panic").insert(id, reply);
        let millis = killed_after.map_or(600_000, |after| after.as_millis());
        writeln!(
            self.lines.lock().expect("no panic"),
            "{id} {name} {millis} {command}"
        )?;
        replied.recv().context("ShedLock has ended")
    }
}

impl Drop for ShedLock {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the logs of all names say.
#[derive(Default)]
struct Count {
    started: u32,
    completed: u32,
    again: u32,
}

impl Count {
    fn read(&mut self, log: &str, periods: u32) {
        let mut completed = vec![false; periods as usize];
        for line in log.lines() {
            let (what, period) = line.split_once(' ').expect("a word and a period");
            let is_completed = &mut completed[period.parse::<usize>().expect("a period")];
            if what == "ran" {
                self.started += 1;
                self.again += u32::from(*is_completed);
            } else {
                *is_completed = true;
            }
        }
        self.completed += u32::try_from(completed.iter().filter(|done| **done).count())
            .expect("there are few periods");
    }
}
