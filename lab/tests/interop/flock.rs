//! The real flock(1), in both directions.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::{Api, Face, Orders, Process, Site, Work, check};
use leasehold::Lock;

use crate::TAKER;

/// A shell that holds a file locked: it says `held`, and goes on at each line it reads.
struct Shell {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Shell {
    fn start(script: &str, file: &Path) -> Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-ceu", script, "sh"]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a shell")?;
        let says = BufReader::new(child.stdout.take().context("its stdout is a pipe")?);
        Ok(Self { child, says })
    }

    /// One that has the file locked already.
    fn holding(script: &str, file: &Path) -> Result<Self> {
        let mut shell = Self::start(script, file)?;
        shell.hear("held")?;
        Ok(shell)
    }

    fn hear(&mut self, word: &str) -> Result<()> {
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        ensure!(line.trim_end() == word, "{line:?} instead of {word:?}");
        Ok(())
    }

    fn go_on(&mut self) -> Result<()> {
        Ok(self.child.stdin.as_mut().context("its stdin is a pipe")?.write_all(b"\n")?)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It may have ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const ALONE: &str = "flock \"$1\" -c 'echo held; read line'";
const TOGETHER: &str = "flock -s \"$1\" -c 'echo held; read line'";
/// Unlocks without closing the file.
const BY_NUMBER: &str = "exec 9>\"$1\"; flock 9; echo held; read line; flock -u 9; echo unlocked; read line";

/// Whether `flock -n` gets the file.
fn flock_gets(option: &str, file: &Path) -> Result<bool> {
    let status = Command::new("flock").args([option, "-n"]).arg(file).arg("true").status().context("flock(1)")?;
    ensure!(matches!(status.code(), Some(0 | 1)), "flock(1) failed: {status}");
    Ok(status.success())
}

fn we_get(site: &Site, lock: &Lock) -> Result<bool> {
    let guard = site.run(lock.try_acquire())?;
    let granted = guard.is_some();
    if let Some(guard) = guard {
        site.run(guard.release())?;
    }
    Ok(granted)
}

/// The faces, each of a lock of its own.
fn faces(site: &Site) -> [Lock; 4] {
    let locks = site.locks();
    [locks.mutex("mutex"), locks.rwlock("rw").shared(), locks.rwlock("rw").exclusive(), locks.semaphore("slots", 3)]
}

#[test]
fn flock_keeps_us_out() -> Result<()> {
    let site = Site::new(TAKER)?;
    for lock in faces(&site) {
        let mut shell = Shell::holding(ALONE, &site.lock_file(lock.name()))?;
        ensure!(!we_get(&site, &lock)?, "{} beside flock", lock.name());
        shell.go_on()?;
        shell.child.wait()?;
        ensure!(we_get(&site, &lock)?, "{} after flock", lock.name());
    }
    Ok(())
}

#[test]
fn a_shared_flock_lets_readers_and_slots_in_only() -> Result<()> {
    let site = Site::new(TAKER)?;
    for (lock, expected) in faces(&site).into_iter().zip([false, true, false, true]) {
        let _shell = Shell::holding(TOGETHER, &site.lock_file(lock.name()))?;
        ensure!(we_get(&site, &lock)? == expected, "{} beside flock -s", lock.name());
    }
    Ok(())
}

#[test]
fn we_keep_flock_out() -> Result<()> {
    let site = Site::new(TAKER)?;
    for (lock, shared_expected) in faces(&site).into_iter().zip([false, true, false, true]) {
        let file = site.lock_file(lock.name());
        let guard = site.run(lock.acquire())?;
        ensure!(!flock_gets("-x", &file)?, "flock -x beside {}", lock.name());
        ensure!(flock_gets("-s", &file)? == shared_expected, "flock -s beside {}", lock.name());
        site.run(guard.release())?;
        ensure!(flock_gets("-x", &file)?, "flock -x after {}", lock.name());
    }
    Ok(())
}

#[test]
fn flock_is_served_when_we_release() -> Result<()> {
    let site = Site::new(TAKER)?;
    for lock in faces(&site) {
        let guard = site.run(lock.acquire())?;
        let mut shell = Shell::start(ALONE, &site.lock_file(lock.name()))?;
        site.run(guard.release())?;
        shell.hear("held")?;
        shell.go_on()?;
        shell.child.wait()?;
    }
    Ok(())
}

#[test]
fn we_are_served_when_flock_ends() -> Result<()> {
    served_after(ALONE, Shell::go_on)
}

#[test]
fn we_are_served_when_flock_unlocks_without_closing() -> Result<()> {
    served_after(BY_NUMBER, |shell| {
        shell.go_on()?;
        shell.hear("unlocked")
    })
}

#[test]
fn we_are_served_when_a_holder_of_flock_is_killed() -> Result<()> {
    served_after(BY_NUMBER, |shell| Ok(shell.child.kill()?))
}

/// Takers of each exclusive face wait while a shell holds, and are granted in their order when it `ends`.
fn served_after(script: &str, ends: impl Fn(&mut Shell) -> Result<()>) -> Result<()> {
    let site = Site::new(TAKER)?;
    for face in [Face::Mutex, Face::Writer, Face::Slots { take: 3, of: 3 }] {
        let mut shell = Shell::holding(script, &site.lock_file("a"))?;
        let orders = Orders { face, work: Work::Told, ..Orders::default() };
        let mut events = Vec::new();
        let mut waiters: Vec<Process> = Vec::new();
        for _ in 0..2 {
            let waiter = site.start(orders.clone())?;
            events.push(site.see_waiting("a", waiter.hand())?);
            waiters.push(waiter);
        }
        ends(&mut shell)?;
        for mut waiter in waiters {
            waiter.hear_granted()?;
            waiter.tell()?;
            events.extend(waiter.finish()?);
        }
        ensure!(check::all(&events)?.len() == 2);
    }
    site.check_clean(&["a".to_owned()])
}

#[test]
fn the_one_behind_is_served_when_the_first_waiter_was_killed() -> Result<()> {
    let site = Site::new(TAKER)?;
    let mut shell = Shell::holding(BY_NUMBER, &site.lock_file("a"))?;
    let first = site.start(Orders::default())?;
    let mut events = vec![site.see_waiting("a", first.hand())?];
    let behind = site.start(Orders::default())?;
    events.push(site.see_waiting("a", behind.hand())?);
    events.extend(first.kill()?);
    shell.go_on()?;
    events.extend(behind.finish()?);
    ensure!(check::all(&events)?.len() == 1);
    site.check_clean(&["a".to_owned()])
}

/// Whoever gave up waiting for a stranger does not take the lock when the stranger ends.
#[test]
fn waits_that_were_given_up_leave_the_file_unlocked() -> Result<()> {
    let site = Site::new(TAKER)?;
    let mut shell = Shell::holding(BY_NUMBER, &site.lock_file("a"))?;
    let impatient = Orders { cycles: 20, patience: Some(2_000), ..Orders::default() };
    let given_up = [Api::Async, Api::Blocking].map(|api| site.start(Orders { api, hands: 4, ..impatient.clone() }));
    for taker in given_up {
        ensure!(check::all(&taker?.finish()?)?.is_empty(), "granted beside flock");
    }
    let lock = site.locks().mutex("a");
    for _ in 0..20 {
        ensure!(site.run(lock.try_acquire_for(Duration::from_millis(2)))?.is_none(), "granted beside flock");
    }
    shell.go_on()?;
    shell.hear("unlocked")?;
    lab::until("flock to get the file", || Ok(flock_gets("-x", &site.lock_file("a"))?.then_some(())))?;
    ensure!(we_get(&site, &lock)?, "not to be had by us");
    site.check_clean(&["a".to_owned()])
}

/// The articles' test, with half of the takers foreign.
#[test]
fn takers_and_flock_count_down_together() -> Result<()> {
    const EACH: u64 = 25;
    const SCRIPT: &str = "n=$(cat \"$2\"); sleep 0.001; echo $((n - 1)) >\"$2\"";
    const LOOP: &str = "i=0; while [ $i -lt $4 ]; do flock \"$1\" sh -ceu \"$3\" sh \"$1\" \"$2\"; i=$((i + 1)); done";
    let site = Site::new(TAKER)?;
    let file = site.note();
    std::fs::write(&file, (8 * EACH + 1).to_string())?;
    let work = Work::CountDown { file: file.display().to_string(), micros: 500 };
    let ours = (0..4).map(|_| site.start(Orders { cycles: EACH, work: work.clone(), ..Orders::default() }));
    let ours = ours.collect::<Result<Vec<_>>>()?;
    let foreign = (0..4).map(|_| {
        let mut command = Command::new("sh");
        command.args(["-ceu", LOOP, "sh"]).arg(site.lock_file("a")).arg(&file).arg(SCRIPT).arg(EACH.to_string());
        Ok(command.spawn()?)
    });
    for mut shell in foreign.collect::<Result<Vec<_>>>()? {
        ensure!(shell.wait()?.success(), "a loop of flock(1) failed");
    }
    let mut events = Vec::new();
    for taker in ours {
        events.extend(taker.finish()?);
    }
    check::all(&events)?;
    let left = std::fs::read_to_string(&file)?;
    ensure!(left.trim_end() == "1", "it ended at {left}");
    site.check_clean(&["a".to_owned()])
}
