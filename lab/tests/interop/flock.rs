//! The real flock(1), in both directions.
//!
//! Shows G-21.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::backends::file;
use lab::{Api, HoldWork, LockKind, Peer, Process, Testbed, WorkerConfig, check};
use leasehold::Lock;

use crate::WORKER;

/// Starts a shell that locks a file. It prints `held`, and continues after each line of its input.
fn start(script: &str, file: &Path) -> Result<Peer> {
    Peer::start(Peer::command("sh").args(["-ceu", script, "sh"]).arg(file))
}

/// Starts a shell, and waits until it holds the file.
fn holding(script: &str, file: &Path) -> Result<Peer> {
    let mut shell = start(script, file)?;
    expect(&mut shell, "held")?;
    Ok(shell)
}

fn expect(shell: &mut Peer, expected: &str) -> Result<()> {
    let line = shell.receive_line()?;
    ensure!(line == expected, "{line:?} instead of {expected:?}");
    Ok(())
}

const EXCLUSIVE: &str = "flock \"$1\" -c 'echo held; read line'";
const SHARED: &str = "flock -s \"$1\" -c 'echo held; read line'";
/// Unlocks the file without closing it.
const BY_NUMBER: &str =
    "exec 9>\"$1\"; flock 9; echo held; read line; flock -u 9; echo unlocked; read line";

/// Whether `flock -n` locks the file.
fn flock_locks(option: &str, file: &Path) -> Result<bool> {
    let mut command = Command::new("flock");
    command.args([option, "-n"]).arg(file).arg("true");
    let status = command.status().context("flock(1) does not start")?;
    ensure!(
        matches!(status.code(), Some(0 | 1)),
        "flock(1) failed: {status}"
    );
    Ok(status.success())
}

fn leasehold_locks(testbed: &Testbed, lock: &Lock) -> Result<bool> {
    let Ok(guard) = testbed.run(lock.try_acquire())? else {
        return Ok(false);
    };
    testbed.run(guard.release())?;
    Ok(true)
}

/// Every kind of lock; the two kinds of a read-write lock share a name.
fn kinds(testbed: &Testbed) -> [Lock; 4] {
    let locks = testbed.locks();
    [
        locks.mutex("mutex"),
        locks.rwlock("rw").shared(),
        locks.rwlock("rw").exclusive(),
        locks.semaphore("slots", 3),
    ]
}

#[test]
fn flock_holder_excludes_leasehold() -> Result<()> {
    let testbed = file::start(WORKER)?;
    for lock in kinds(&testbed) {
        let mut shell = holding(EXCLUSIVE, &file::lock_file(&testbed, lock.name()))?;
        ensure!(
            !leasehold_locks(&testbed, &lock)?,
            "{} beside flock",
            lock.name()
        );
        shell.send_line("")?;
        shell.wait()?;
        ensure!(
            leasehold_locks(&testbed, &lock)?,
            "{} after flock",
            lock.name()
        );
    }

    Ok(())
}

#[test]
fn shared_flock_admits_only_readers_and_slots() -> Result<()> {
    let testbed = file::start(WORKER)?;
    for (lock, expected) in kinds(&testbed).into_iter().zip([false, true, false, true]) {
        let _shell = holding(SHARED, &file::lock_file(&testbed, lock.name()))?;
        ensure!(
            leasehold_locks(&testbed, &lock)? == expected,
            "{} beside flock -s",
            lock.name()
        );
    }
    Ok(())
}

#[test]
fn leasehold_holder_excludes_flock() -> Result<()> {
    let testbed = file::start(WORKER)?;
    for (lock, shared_expected) in kinds(&testbed).into_iter().zip([false, true, false, true]) {
        let file = file::lock_file(&testbed, lock.name());
        let guard = testbed.run(lock.acquire())?;
        ensure!(
            !flock_locks("-x", &file)?,
            "flock -x beside {}",
            lock.name()
        );
        ensure!(
            flock_locks("-s", &file)? == shared_expected,
            "flock -s beside {}",
            lock.name()
        );
        testbed.run(guard.release())?;
        ensure!(flock_locks("-x", &file)?, "flock -x after {}", lock.name());
    }

    Ok(())
}

#[test]
fn flock_is_granted_after_release() -> Result<()> {
    let testbed = file::start(WORKER)?;
    for lock in kinds(&testbed) {
        let guard = testbed.run(lock.acquire())?;
        let mut shell = start(EXCLUSIVE, &file::lock_file(&testbed, lock.name()))?;
        testbed.run(guard.release())?;
        expect(&mut shell, "held")?;
        shell.send_line("")?;
        shell.wait()?;
    }
    Ok(())
}

#[test]
fn waiter_is_granted_when_flock_exits() -> Result<()> {
    waiters_are_granted_after(EXCLUSIVE, |mut shell| {
        shell.send_line("")?;
        Ok(Some(shell))
    })
}

#[test]
fn waiter_is_granted_when_flock_unlocks_without_closing() -> Result<()> {
    waiters_are_granted_after(BY_NUMBER, |mut shell| {
        shell.send_line("")?;
        expect(&mut shell, "unlocked")?;
        Ok(Some(shell))
    })
}

#[test]
fn waiter_is_granted_when_flock_holder_is_killed() -> Result<()> {
    waiters_are_granted_after(BY_NUMBER, |shell| shell.kill().map(|_| None))
}

/// Waiters of each exclusive kind wait while a shell holds. When it `ends` that, they are granted
/// in order.
fn waiters_are_granted_after(
    script: &str,
    ends: impl Fn(Peer) -> Result<Option<Peer>>,
) -> Result<()> {
    let testbed = file::start(WORKER)?;
    for kind in [
        LockKind::Mutex,
        LockKind::Writer,
        LockKind::Slots {
            permits: 3,
            slots: 3,
        },
    ] {
        let shell = holding(script, &file::lock_file(&testbed, "a"))?;
        let config = WorkerConfig {
            kind,
            work: HoldWork::UntilSignal,
            ..WorkerConfig::default()
        };
        let mut events = Vec::new();
        let mut waiters: Vec<Process> = Vec::new();
        for _ in 0..2 {
            let waiter = testbed.start(config.clone())?;
            events.push(testbed.wait_until_waiting("a", waiter.first_thread())?);
            waiters.push(waiter);
        }

        let _still_runs = ends(shell)?;
        for mut waiter in waiters {
            waiter.wait_for_grant()?;
            waiter.send_signal()?;
            events.extend(waiter.finish()?);
        }
        ensure!(check::all(&events)?.len() == 2);
    }
    file::check_clean(&testbed, &["a".to_owned()])
}

#[test]
fn second_waiter_is_granted_after_first_waiter_is_killed() -> Result<()> {
    let testbed = file::start(WORKER)?;
    let mut shell = holding(BY_NUMBER, &file::lock_file(&testbed, "a"))?;
    let first = testbed.start(WorkerConfig::default())?;
    let mut events = vec![testbed.wait_until_waiting("a", first.first_thread())?];
    let behind = testbed.start(WorkerConfig::default())?;
    events.push(testbed.wait_until_waiting("a", behind.first_thread())?);

    events.extend(first.kill()?);
    shell.send_line("")?;
    events.extend(behind.finish()?);
    ensure!(check::all(&events)?.len() == 1);
    file::check_clean(&testbed, &["a".to_owned()])
}

/// A waiter that has timed out does not lock the file when the external holder ends.
#[test]
fn timed_out_waits_leave_the_file_unlocked() -> Result<()> {
    let testbed = file::start(WORKER)?;
    let mut shell = holding(BY_NUMBER, &file::lock_file(&testbed, "a"))?;
    let impatient = WorkerConfig {
        cycles: 20,
        wait_micros: Some(2_000),
        ..WorkerConfig::default()
    };
    let timed_out = [Api::Async, Api::Blocking].map(|api| {
        testbed.start(WorkerConfig {
            api,
            threads: 4,
            ..impatient.clone()
        })
    });
    for worker in timed_out {
        let holds = check::all(&worker?.finish()?)?;
        ensure!(holds.is_empty(), "granted beside flock");
    }

    let lock = testbed.locks().mutex("a");
    for _ in 0..20 {
        let granted = testbed.run(lock.try_acquire_for(Duration::from_millis(2)))?;
        ensure!(granted.is_err(), "granted beside flock");
    }

    shell.send_line("")?;
    expect(&mut shell, "unlocked")?;
    lab::until("flock to get the file", || {
        Ok(flock_locks("-x", &file::lock_file(&testbed, "a"))?.then_some(()))
    })?;
    ensure!(
        leasehold_locks(&testbed, &lock)?,
        "leasehold cannot lock the file"
    );
    file::check_clean(&testbed, &["a".to_owned()])
}

/// The test of the articles, with flock(1) in half of the workers.
#[test]
fn workers_and_flock_count_down_together() -> Result<()> {
    const EACH: u64 = 25;
    const SCRIPT: &str = "n=$(cat \"$2\"); sleep 0.001; echo $((n - 1)) >\"$2\"";
    const LOOP: &str = "i=0; while [ $i -lt $4 ]; do \
        flock \"$1\" sh -ceu \"$3\" sh \"$1\" \"$2\"; i=$((i + 1)); done";
    let testbed = file::start(WORKER)?;
    // leasehold never removes a lock file that it did not make.
    let _opened = testbed.locks();
    std::fs::write(file::lock_file(&testbed, "a"), "")?;
    let file = testbed.scratch_file();
    std::fs::write(&file, (8 * EACH + 1).to_string())?;
    let work = HoldWork::CountDown {
        file: file.display().to_string(),
        micros: 500,
    };

    let leasehold = (0..4).map(|_| {
        testbed.start(WorkerConfig {
            cycles: EACH,
            work: work.clone(),
            ..WorkerConfig::default()
        })
    });
    let leasehold = leasehold.collect::<Result<Vec<_>>>()?;
    let foreign = (0..4).map(|_| {
        let mut command = Command::new("sh");
        command
            .args(["-ceu", LOOP, "sh"])
            .arg(file::lock_file(&testbed, "a"))
            .arg(&file)
            .arg(SCRIPT)
            .arg(EACH.to_string());
        Ok(command.spawn()?)
    });

    for mut shell in foreign.collect::<Result<Vec<_>>>()? {
        ensure!(shell.wait()?.success(), "a loop of flock(1) failed");
    }
    let mut events = Vec::new();
    for worker in leasehold {
        events.extend(worker.finish()?);
    }
    check::all(&events)?;
    let last = std::fs::read_to_string(&file)?;
    ensure!(last.trim_end() == "1", "the count ended at {last}");
    file::check_clean(&testbed, &["a".to_owned()])
}
