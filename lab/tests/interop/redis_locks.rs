//! Real lock libraries of others, on one server and on five: they and we want one key. `LAB_CYCLES` says how often each takes it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::{DEADLINE, Hold, HoldWork, Start, Testbed, WorkerConfig, check, holds, now};
use lab_servers::Redis;
use leasehold::LossReason;
use rslock::LockManager;
use rustix::time::{ClockId, clock_gettime};

use crate::WORKER;

const CYCLES: u64 = 300;
/// How long one acquisition may take on average, where everybody polls, on a machine that has much else to do.
const TIMEOUT_EACH: Duration = Duration::from_millis(50);

fn cycles() -> Result<u64> {
    Ok(std::env::var("LAB_CYCLES").map_or(Ok(CYCLES), |cycles| cycles.parse())?)
}

#[test]
fn redis_py_and_leasehold_share_a_key() -> Result<()> {
    alone(|url, cycles| program("redis_py", url, &["a"], cycles))
}

#[test]
fn rslock_and_leasehold_share_a_key() -> Result<()> {
    alone(|url, cycles| Ok(rslock(vec![url.to_owned()], cycles)))
}

#[test]
fn rslock_and_leasehold_share_five_masters() -> Result<()> {
    five("a", |urls, cycles| Ok(rslock(urls.to_vec(), cycles)))
}

#[test]
fn node_redlock_and_leasehold_share_five_masters() -> Result<()> {
    five("a", |urls, cycles| {
        program("node_redlock", &urls.join(","), &["a"], cycles)
    })
}

/// Ten tries of its own take it two seconds, in which the votes it has won stand in everybody's way; then it gives them back.
#[test]
fn retrying_node_redlock_and_leasehold_share_five_masters() -> Result<()> {
    let cycles = cycles()?.min(20);
    five_for("a", cycles, |urls| {
        program("node_redlock", &urls.join(","), &["a", "10"], cycles)
    })
}

#[test]
fn redsync_and_leasehold_share_a_key() -> Result<()> {
    alone(|url, cycles| program("redsync", url, &["a"], cycles))
}

#[test]
fn redsync_and_leasehold_share_five_masters() -> Result<()> {
    five("a", |urls, cycles| {
        program("redsync", &urls.join(","), &["a"], cycles)
    })
}

/// It has a prefix for its keys.
#[test]
fn pottery_and_leasehold_share_five_masters() -> Result<()> {
    five("redlock:a", |urls, cycles| {
        program("pottery", &urls.join(","), &["a"], cycles)
    })
}

/// A lease ended during the work, and another has the lock: whoever comes late with his release takes nothing from him.
#[test]
fn late_release_does_not_free_another_hold() -> Result<()> {
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
    ensure!(
        redis
            .command(&["SET", "a", "theirs", "NX", "PX", "200"])
            .text()
            == "OK"
    );
    ensure!(
        testbed
            .run(leasehold.release())
            .is_err_and(|error| error.is_lost())
    );
    ensure!(
        redis.command(&["GET", "a"]).text() == "theirs",
        "our release took it from them"
    );

    let next = testbed.run(testbed.locks().mutex("a").acquire())?;
    let compare_and_delete = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
    ensure!(
        redis
            .command(&["EVAL", compare_and_delete, "1", "a", "theirs"])
            .int()
            == 0
    );
    next.check()?;
    ensure!(
        redis
            .command(&["GET", "a"])
            .text()
            .starts_with("leasehold:")
    );
    Ok(testbed.run(next.release())?)
}

/// Who has it, though it is nobody of ours; and it can be broken.
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
    ensure!(
        holder.info.label == "value 01234567…",
        "{}",
        holder.info.label
    );
    ensure!(
        testbed
            .run(testbed.locks().mutex("a").try_acquire())?
            .is_none()
    );
    ensure!(
        testbed
            .run(testbed.locks().break_hold("a", token))?
            .is_some()
    );
    ensure!(
        testbed
            .run(testbed.locks().mutex("a").try_acquire())?
            .is_some()
    );
    // Whoever came since has another value, and so another number.
    redis.command(&["SET", "a", "fedcba9876543210", "PX", "60000"]);
    ensure!(
        testbed
            .run(testbed.locks().break_hold("a", token))?
            .is_none()
    );
    Ok(())
}

/// Keys of our own formats are no names here, and keys of another type are nobody's lock.
#[test]
fn names_cannot_reach_foreign_or_internal_keys() -> Result<()> {
    let redis = Redis::start();
    let testbed = Testbed::at(WORKER, &format!("{}?dialect=plain", redis.url()))?;
    let refused = testbed.run(testbed.locks().mutex("leasehold:{a}").try_acquire());
    ensure!(refused.is_err_and(|error| error.is_invalid()));
    redis.command(&["HSET", "h", "field", "1"]);
    let error = testbed
        .run(testbed.locks().mutex("h").try_acquire())
        .err()
        .context("no lock is taken there")?;
    ensure!(error.is_damaged(), "{error:?}");
    ensure!(redis.command(&["HGET", "h", "field"]).text() == "1");
    Ok(())
}

/// Another library at work.
struct Others {
    /// When it held, from when until when.
    held: JoinHandle<Result<Vec<(u64, u64)>>>,
    started: Receiver<()>,
}

impl Others {
    /// `work` says each time when it held.
    fn start(work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> Result<()> + Send + 'static) -> Self {
        let (begins, began) = sync_channel(1);
        let held = thread::spawn(move || {
            let mut held = Vec::new();
            work(&mut |granted, until| {
                held.push((granted, until));
                // Only the first is waited for.
                let _ = begins.try_send(());
            })?;
            Ok(held)
        });
        Self {
            held,
            started: began,
        }
    }
}

/// One server, and what others do there.
fn alone(others: impl Fn(&str, u64) -> Result<Others>) -> Result<()> {
    let redis = Redis::start();
    let cycles = cycles()?;
    contend(
        &format!("{}?dialect=plain", redis.url()),
        "a",
        cycles,
        || others(&redis.url(), cycles),
    )?;
    let left = redis.command(&["KEYS", "*"]);
    ensure!(
        left.list().is_empty() || left.texts() == ["leasehold:plain:{a}:waits"],
        "{left:?}"
    );
    Ok(())
}

/// Five servers, of which each library takes a majority.
fn five(name: &str, others: impl Fn(&[String], u64) -> Result<Others>) -> Result<()> {
    let cycles = cycles()?;
    five_for(name, cycles, |urls| others(urls, cycles))
}

fn five_for(name: &str, cycles: u64, others: impl Fn(&[String]) -> Result<Others>) -> Result<()> {
    let masters: Vec<Redis> = (0..5).map(|_| Redis::start()).collect();
    let (urls, hosts): (Vec<String>, Vec<String>) = masters
        .iter()
        .map(|redis| (redis.url(), redis.address()))
        .unzip();
    contend(
        &format!("redlock://{}?dialect=classic", hosts.join(",")),
        name,
        cycles,
        || others(&urls),
    )
}

/// A process of ours and one of another library take a lock in turn, and never both.
fn contend(url: &str, name: &str, cycles: u64, others: impl Fn() -> Result<Others>) -> Result<()> {
    let testbed = Testbed::at(WORKER, url)?;
    let work = HoldWork::Sleep(200);
    // It has opened the store when they begin, so that they meet however few cycles there are.
    let config = WorkerConfig {
        names: vec![name.to_owned()],
        cycles,
        work,
        start: Start::OnSignal,
        ..WorkerConfig::default()
    };
    let mut leasehold = testbed.start_recording(config)?;
    let theirs = others()?;
    theirs
        .started
        .recv_timeout(DEADLINE)
        .context("they do not begin")?;
    (0..cycles).try_for_each(|_| leasehold.send_signal())?;
    let timeout = DEADLINE + TIMEOUT_EACH * u32::try_from(2 * cycles)?;
    let leasehold = holds(&leasehold.finish_within(timeout)?)?;
    let theirs = theirs.held.join().expect("it does not panic")?;
    ensure!(
        (leasehold.len() as u64, theirs.len() as u64) == (cycles, cycles),
        "{} and {} holds",
        leasehold.len(),
        theirs.len()
    );
    let external_holder = |(token, (granted, until)): (u64, &(u64, u64))| Hold {
        thread: u32::MAX,
        name: 0,
        requested: *granted,
        observed: None,
        granted: *granted,
        until: *until,
        token,
        weight: 1,
        capacity: 1,
    };
    let mut all: Vec<Hold> = leasehold
        .into_iter()
        .chain((1..).zip(&theirs).map(external_holder))
        .collect();
    all.sort_unstable_by_key(|hold| hold.granted);
    let rounds = all
        .windows(2)
        .filter(|two| two[0].thread != two[1].thread)
        .count();
    println!("{} holds, {rounds} times by the other one", all.len());
    ensure!(rounds > 1, "they were not in each other's way");
    check::exclusion(&all).map_or(Ok(()), Err)?;
    testbed.check_empty(&[name.to_owned()])
}

/// A client in another language; of its terms, the first is the lock's name. It has found its library in the folder where `cargo xtask` put it.
fn program(client: &str, url: &str, config: &[&str], cycles: u64) -> Result<Others> {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = lab.join("../target/peers").join(client);
    let files = lab.join("tests/interop/clients");
    let kept = |folder: &Path, file: String| Some(folder.join(file)).filter(|path| path.exists());
    let mut runs = [("node", "js"), ("python3", "py")].into_iter();
    let script =
        runs.find_map(|(runs, kind)| Some((runs, kept(&files, format!("{client}.{kind}"))?)));
    let built = || Some(("env", kept(&library, "client".to_owned())?));
    let (runs, script) = script
        .filter(|_| library.exists())
        .or_else(built)
        .context("cargo xtask needs fetches it")?;
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", runs])
        .arg(script)
        .args([url, config[0], &cycles.to_string()])
        .args(&config[1..]);
    command
        .env("PYTHONPATH", &library)
        .env("NODE_PATH", library.join("node_modules"))
        .stdout(Stdio::piped());
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start {client}"))?;
    let output = child.stdout.take().context("its stdout is a pipe")?;
    let ahead = if runs == "node" { suspended() } else { 0 };
    Ok(Others::start(move |held| {
        for line in BufReader::new(output).lines() {
            let line = line?;
            let (granted, until) = line
                .split_once(' ')
                .with_context(|| format!("it says {line:?}"))?;
            held(
                granted.parse::<u64>()? + ahead,
                until.parse::<u64>()? + ahead,
            );
        }
        ensure!(child.wait()?.success(), "it failed");
        Ok(())
    }))
}

/// For how long the machine was suspended: what the monotonic clock does not count.
fn suspended() -> u64 {
    let monotonic = clock_gettime(ClockId::Monotonic);
    let nanos =
        monotonic.tv_sec.cast_unsigned() * 1_000_000_000 + monotonic.tv_nsec.cast_unsigned();
    // Less than a microsecond has passed between the two.
    let ahead = now().saturating_sub(nanos);
    if ahead < 1_000_000 { 0 } else { ahead }
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
                // So that others have their turns.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        })
    })
}
