//! Signals on their way to the command, and the death of leasehold.

use nix::sys::signal::{Signal, kill};

use crate::place::{Place, is_alive, until};

#[test]
fn the_whole_group_hears_them() {
    let place = Place::new();
    let line = "sleep 1000 & echo $! > pid; wait";
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129), (Signal::SIGUSR2, 140)] {
        std::fs::remove_file(place.path("pid")).ok();
        let run = place.started(&["run", "a", "--", "sh", "-c", line]);
        let grandchild = place.pid("pid");
        run.signal(signal);
        run.ended().assert(code, "", "");
        until("the grandchild is gone", || !is_alive(grandchild));
    }
    assert!(place.is_free("a"));
}

#[test]
fn the_command_decides_what_they_mean() {
    let place = Place::new();
    let line = "trap 'echo heard >> said' USR1; trap 'exit 9' INT; echo $$ > pid; while :; do sleep 0.01; done";
    let run = place.started(&["run", "a", "--", "sh", "-c", line]);
    place.pid("pid");
    run.signal(Signal::SIGUSR1);
    until("it was heard", || place.read("said") == "heard\n");
    assert_eq!(place.holders("a").len(), 1);
    run.signal(Signal::SIGINT);
    assert_eq!(run.ended().code(), 9);
}

#[test]
fn a_killed_leasehold_takes_the_command_with_it_and_frees_the_lock() {
    let place = Place::new();
    let run = place.started(&["run", "a", "--", "sh", "-c", "echo $$ > pid; exec sleep 1000"]);
    let command = place.pid("pid");
    run.signal(Signal::SIGKILL);
    drop(run);
    until("the command is gone", || !is_alive(command));
    place.done(&["run", "a", "--wait", "30s", "--", "echo", "next"]).assert(0, "next\n", "");
}

/// The work goes on in what the command started, so nobody else gets in: neither through leasehold nor by flock(1).
#[test]
fn a_killed_leasehold_s_lock_stays_held_until_all_its_work_has_ended() {
    for terms in [&[][..], &["--shared"], &["--slots", "1"]] {
        let place = Place::new();
        let line = "sleep 1000 & echo $! > pid; wait";
        let run = place.started(&[&["run", "a"], terms, &["--", "sh", "-c", line]].concat());
        let grandchild = place.pid("pid");
        run.signal(Signal::SIGKILL);
        drop(run);
        assert_eq!(place.holders("a").len(), 1, "{terms:?}");
        assert_eq!(place.done(&["run", "a", "--wait", "0", "--", "true"]).code(), 75, "{terms:?}");
        assert!(!place.flock("a"), "{terms:?}");
        kill(grandchild, Signal::SIGKILL).unwrap();
        place.done(&["run", "a", "--wait", "30s", "--", "echo", "next"]).assert(0, "next\n", "");
    }
}

/// What a command leaves running in the background does not keep the lock of a run that has ended.
#[test]
fn a_daemon_that_the_command_left_does_not_keep_the_lock() {
    let place = Place::new();
    place.done(&["run", "a", "--", "sh", "-c", "sleep 1000 > /dev/null 2>&1 & echo $! > pid"]).assert(0, "", "");
    let daemon = place.pid("pid");
    assert!(is_alive(daemon) && place.is_free("a") && place.flock("a"));
    place.done(&["run", "a", "--wait", "0", "--", "echo", "next"]).assert(0, "next\n", "");
    kill(daemon, Signal::SIGKILL).unwrap();
}

#[test]
fn stopped_and_continued_from_outside() {
    let place = Place::new();
    let run = place.started(&["run", "a", "--", "sh", "-c", "echo $$ > pid; exec cat"]);
    let command = place.pid("pid");
    let state = |pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let is_stopped = |pid| state(pid).contains(") T ");
    run.signal(Signal::SIGTSTP);
    until("both have stopped", || is_stopped(command) && is_stopped(run.pid()));
    run.signal(Signal::SIGCONT);
    until("both go on", || !is_stopped(command) && !is_stopped(run.pid()));
    run.end().assert(0, "", "");
}
