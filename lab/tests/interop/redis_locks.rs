//! Real lock libraries and leasehold, contending for one key on one Redis server and on five.
//!
//! `LAB_CYCLES` is how often each party acquires it.
//!
//! Shows G-01, G-03.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::{
    DEADLINE, Hold, HoldWork, LockKind, Start, Testbed, WorkerConfig, check, holds, now, suspended,
};
use lab_servers::Redis;
use leasehold::LossReason;
use leasehold::store::Share;
use rslock::LockManager;

use crate::WORKER;

const CYCLES: u64 = 300;
/// How long one acquire may take on average, with all parties polling on a busy machine.
const TIMEOUT_EACH: Duration = Duration::from_millis(50);

pub(crate) fn cycles() -> Result<u64> {
    Ok(std::env::var("LAB_CYCLES").map_or(Ok(CYCLES), |cycles| cycles.parse())?)
}

#[test]
fn redis_py_and_leasehold_share_a_key() -> Result<()> {
    on_one_server(|url, cycles| program("redis_py", url, &["a"], cycles))
}

#[test]
fn rslock_and_leasehold_share_a_key() -> Result<()> {
    on_one_server(|url, cycles| Ok(rslock(vec![url.to_owned()], cycles)))
}

#[test]
fn rslock_and_leasehold_share_five_masters() -> Result<()> {
    on_five_masters("a", |urls, cycles| Ok(rslock(urls.to_vec(), cycles)))
}

#[test]
fn node_redlock_and_leasehold_share_five_masters() -> Result<()> {
    on_five_masters("a", |urls, cycles| {
        program("node_redlock", &urls.join(","), &["a"], cycles)
    })
}

/// Its ten tries take two seconds. Until it releases them, the votes that it has won block the
/// other parties.
#[test]
fn retrying_node_redlock_and_leasehold_share_five_masters() -> Result<()> {
    let cycles = cycles()?.min(20);
    on_five_masters_for("a", cycles, |urls| {
        program("node_redlock", &urls.join(","), &["a", "10"], cycles)
    })
}

#[test]
fn redsync_and_leasehold_share_a_key() -> Result<()> {
    on_one_server(|url, cycles| program("redsync", url, &["a"], cycles))
}

#[test]
fn redsync_and_leasehold_share_five_masters() -> Result<()> {
    on_five_masters("a", |urls, cycles| {
        program("redsync", &urls.join(","), &["a"], cycles)
    })
}

/// pottery adds a prefix to its keys.
#[test]
fn pottery_and_leasehold_share_five_masters() -> Result<()> {
    on_five_masters("redlock:a", |urls, cycles| {
        program("pottery", &urls.join(","), &["a"], cycles)
    })
}

/// A release after the end of the lease does not release the hold of another library.
#[test]
fn late_release_does_not_free_another_hold() -> Result<()> {
    const COMPARE_AND_DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] \
        then return redis.call('del', KEYS[1]) else return 0 end";
    let redis = Redis::start();
    let testbed = Testbed::at(WORKER, &format!("{}?dialect=plain", redis.url()))?;
    let ended = |lease: u64| {
        testbed
            .locks()
            .mutex("a")
            .lease(Duration::from_millis(lease))
            .no_renewal()
    };
    let leasehold = testbed.run(ended(200).acquire())?;
    ensure!(testbed.run(leasehold.lost()) == LossReason::LeaseExpired);
    lab::until("the key to be gone", || {
        Ok(redis.command(&["GET", "a"]).is_nil().then_some(()))
    })?;
    let set = redis.command(&["SET", "a", "theirs", "NX", "PX", "200"]);
    ensure!(set.text() == "OK");
    let released = testbed.run(leasehold.release());
    ensure!(released.is_err_and(|error| error.is_lost()));
    let holder = redis.command(&["GET", "a"]);
    ensure!(holder.text() == "theirs", "leasehold released their hold");

    let next = testbed.run(testbed.locks().mutex("a").acquire())?;
    let deleted = redis.command(&["EVAL", COMPARE_AND_DELETE, "1", "a", "theirs"]);
    ensure!(deleted.int() == 0);
    next.check()?;
    let holder = redis.command(&["GET", "a"]);
    ensure!(holder.text().starts_with("leasehold:"));
    Ok(testbed.run(next.release())?)
}

/// An inspection shows the holder of another library, and the hold can be broken.
#[test]
fn foreign_holder_is_shown_and_can_be_broken() -> Result<()> {
    let redis = Redis::start();
    let testbed = Testbed::at(WORKER, &format!("{}?dialect=plain", redis.url()))?;
    redis.command(&["SET", "a", "0123456789abcdef", "NX", "PX", "60000"]);
    let lock_state = testbed.inspect("a")?;
    let [holder] = &lock_state.entries[..] else {
        anyhow::bail!("{lock_state:?}")
    };
    let token = holder.token().context("it holds")?;
    let label = &holder.info.label;
    ensure!(label == "value 01234567…", "{label}");

    let locks = testbed.locks();
    ensure!(testbed.run(locks.mutex("a").try_acquire())?.is_err());
    ensure!(testbed.run(locks.break_hold("a", token))?.is_some());
    ensure!(testbed.run(locks.mutex("a").try_acquire())?.is_ok());

    // A later holder has another value, and so another token.
    redis.command(&["SET", "a", "fedcba9876543210", "PX", "60000"]);
    ensure!(testbed.run(locks.break_hold("a", token))?.is_none());
    Ok(())
}

/// A name cannot be a key of leasehold's own formats, and a key of another type is not a lock.
#[test]
fn names_cannot_reach_foreign_or_internal_keys() -> Result<()> {
    let redis = Redis::start();
    let testbed = Testbed::at(WORKER, &format!("{}?dialect=plain", redis.url()))?;
    let refused = testbed.run(testbed.locks().mutex("leasehold:{a}").try_acquire());
    ensure!(refused.is_err_and(|error| error.is_invalid()));
    redis.command(&["HSET", "h", "field", "1"]);
    let tried = testbed.run(testbed.locks().mutex("h").try_acquire());
    let error = tried.err().context("a hash was locked")?;
    ensure!(error.is_damaged(), "{error:?}");
    ensure!(redis.command(&["HGET", "h", "field"]).text() == "1");
    Ok(())
}

/// Another library that acquires and releases the lock.
pub(crate) struct Others {
    /// The begin and the end of each of its holds.
    held: JoinHandle<Result<Vec<(u64, u64)>>>,
    started: Receiver<()>,
}

impl Others {
    /// Starts a thread. `work` reports the begin and the end of each hold.
    pub(crate) fn start(
        work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> Result<()> + Send + 'static,
    ) -> Self {
        let (begins, started) = sync_channel(1);
        let held = thread::spawn(move || {
            let mut held = Vec::new();
            work(&mut |granted, until| {
                held.push((granted, until));
                // The receiver waits for the first hold only.
                let _ = begins.try_send(());
            })?;
            Ok(held)
        });
        Self { held, started }
    }
}

/// Runs another library and leasehold on one server.
fn on_one_server(others: impl Fn(&str, u64) -> Result<Others>) -> Result<()> {
    let redis = Redis::start();
    let cycles = cycles()?;
    let url = format!("{}?dialect=plain", redis.url());
    contend(&url, "a", cycles, || others(&redis.url(), cycles))?;

    let keys = redis.command(&["KEYS", "*"]);
    let is_clean = keys.list().is_empty() || keys.texts() == ["leasehold:plain:{a}:waits"];
    ensure!(is_clean, "{keys:?}");
    Ok(())
}

/// Runs another library and leasehold on five servers, of which each acquires a majority.
fn on_five_masters(name: &str, others: impl Fn(&[String], u64) -> Result<Others>) -> Result<()> {
    let cycles = cycles()?;
    on_five_masters_for(name, cycles, |urls| others(urls, cycles))
}

fn on_five_masters_for(
    name: &str,
    cycles: u64,
    others: impl Fn(&[String]) -> Result<Others>,
) -> Result<()> {
    let masters: Vec<Redis> = (0..5).map(|_| Redis::start()).collect();
    let urls: Vec<String> = masters.iter().map(Redis::url).collect();
    let hosts: Vec<String> = masters.iter().map(Redis::address).collect();
    let url = format!("redlock://{}?dialect=classic", hosts.join(","));
    contend(&url, name, cycles, || others(&urls))
}

/// Lets a process of leasehold and another library contend. The two must never hold at once.
pub(crate) fn contend(
    url: &str,
    name: &str,
    cycles: u64,
    others: impl Fn() -> Result<Others>,
) -> Result<()> {
    contend_for(url, (name, LockKind::Mutex), Share::MUTEX, cycles, others)
}

/// As [`contend`], with a kind of lock, and the share that the other library takes.
pub(crate) fn contend_for(
    url: &str,
    (name, kind): (&str, LockKind),
    share: Share,
    cycles: u64,
    others: impl Fn() -> Result<Others>,
) -> Result<()> {
    let testbed = Testbed::at(WORKER, url)?;
    // It opens the store before the other library begins, so that the two meet in any number of
    // cycles.
    let config = WorkerConfig {
        names: vec![name.to_owned()],
        kinds: HashMap::from([(name.to_owned(), kind)]),
        cycles,
        work: HoldWork::Sleep(200),
        start: Start::OnSignal,
        ..WorkerConfig::default()
    };
    let mut leasehold = testbed.start(config)?;
    let theirs = others()?;
    theirs
        .started
        .recv_timeout(DEADLINE)
        .context("the other library does not begin")?;
    (0..cycles).try_for_each(|_| leasehold.send_signal())?;

    let timeout = DEADLINE + TIMEOUT_EACH * u32::try_from(2 * cycles)?;
    let leasehold = holds(&leasehold.finish_within(timeout)?)?;
    let theirs = theirs.held.join().expect("it does not panic")?;
    let counts = [leasehold.len(), theirs.len()];
    let is_complete = counts.iter().all(|count| *count as u64 == cycles);
    ensure!(is_complete, "{counts:?} holds in {cycles} cycles");

    let external_hold = |(token, (granted, until)): (u64, &(u64, u64))| Hold {
        thread: u32::MAX,
        name: 0,
        requested: *granted,
        observed: None,
        granted: *granted,
        until: *until,
        token,
        weight: share.weight(),
        capacity: share.capacity(),
    };
    let mut all: Vec<Hold> = leasehold
        .into_iter()
        .chain((1..).zip(&theirs).map(external_hold))
        .collect();
    all.sort_unstable_by_key(|hold| hold.granted);

    let rounds = all
        .windows(2)
        .filter(|two| two[0].thread != two[1].thread)
        .count();
    println!("{} holds, {rounds} changes between the parties", all.len());
    ensure!(rounds > 1, "the two did not contend");
    check::exclusion(&all).map_or(Ok(()), Err)?;
    testbed.check_empty(&[name.to_owned()])
}

/// Starts a client in another language. The first of its arguments is the lock's name.
///
/// It uses the library that `cargo xtask install` has put into the folder `target/peers`.
fn program(client: &str, url: &str, arguments: &[&str], cycles: u64) -> Result<Others> {
    let mut command = client_command(client, url, arguments, cycles)?;
    let started = command.stdout(Stdio::piped()).spawn();
    let mut child = started.with_context(|| format!("cannot start {client}"))?;
    let output = child.stdout.take().context("its stdout is a pipe")?;
    let is_node = client.starts_with("node");
    let offset = if is_node { suspended() } else { 0 };
    Ok(Others::start(move |held| {
        for line in BufReader::new(output).lines() {
            let line = line?;
            let (granted, until) = line
                .split_once(' ')
                .with_context(|| format!("it prints {line:?}"))?;
            let granted: u64 = granted.parse()?;
            let until: u64 = until.parse()?;
            held(granted + offset, until + offset);
        }
        ensure!(child.wait()?.success(), "the client failed");
        Ok(())
    }))
}

/// Returns the command that starts a client.
pub(crate) fn client_command(
    client: &str,
    url: &str,
    arguments: &[&str],
    cycles: u64,
) -> Result<Command> {
    let library = lab_folder().join("../target/peers").join(client);
    let (interpreter, script) =
        find_client(client, &library).context("cargo xtask install fetches it")?;
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", interpreter])
        .arg(script)
        .args([url, arguments[0], &cycles.to_string()])
        .args(&arguments[1..])
        .env("PYTHONPATH", &library)
        .env("NODE_PATH", library.join("node_modules"));
    Ok(command)
}

/// Returns the interpreter and the file of a client: a script of this folder, or a compiled program
/// in the library's folder.
fn find_client(client: &str, library: &Path) -> Option<(&'static str, PathBuf)> {
    let scripts = lab_folder().join("tests/interop/clients");
    for (interpreter, extension) in [("node", "js"), ("python3", "py")] {
        let script = scripts.join(format!("{client}.{extension}"));
        if script.exists() && library.exists() {
            return Some((interpreter, script));
        }
    }
    let compiled = library.join("client");
    compiled.exists().then_some(("env", compiled))
}

fn lab_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rslock(urls: Vec<String>, cycles: u64) -> Others {
    Others::start(move |held| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async move {
            let mut manager = LockManager::new(urls);
            manager.set_retry(u32::MAX, Duration::from_millis(5));
            for _ in 0..cycles {
                let guard = manager
                    .acquire("a".as_bytes(), Duration::from_secs(30))
                    .await?;
                let granted = now();
                let releasing = now();
                guard.release().await;
                held(granted, releasing);
                // This lets the other party acquire.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        })
    })
}
