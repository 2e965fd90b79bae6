//! Stores that are unavailable while leasehold waits, holds or releases.

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use lab_servers::{Redis, ZooKeeper};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::sandbox::{Finished, Sandbox, Started, until};

const UNAVAILABLE: &str = "leasehold: the store is unavailable; retrying: ";
const AVAILABLE: &str = "leasehold: the store is available again";

fn masters() -> Vec<Redis> {
    (0..5).map(|_| Redis::start()).collect()
}

fn redlock(masters: &[Redis], settings: &str) -> Sandbox {
    let hosts: Vec<String> = masters.iter().map(Redis::address).collect();
    Sandbox::at(format!("redlock://{}?{settings}", hosts.join(",")))
}

fn count(done: &Finished, line: &str) -> usize {
    done.err.lines().filter(|one| one.starts_with(line)).count()
}

/// Shows G-26.
#[test]
fn run_waits_for_redis_that_is_down_at_start() {
    let mut server = Redis::start();
    server.kill();
    run_waits_for_server(server.url(), || server.restart());
}

/// Shows G-26.
#[test]
fn run_waits_for_masters_that_are_down_at_start() {
    let mut masters = masters();
    let sandbox = redlock(&masters, "quarantine=off");
    masters.iter_mut().for_each(Redis::kill);
    run_waits_for_server(sandbox.url(), || {
        masters.iter_mut().for_each(Redis::restart);
    });
}

/// Shows G-26.
#[test]
fn run_waits_for_zookeeper_that_is_down_at_start() {
    let mut server = ZooKeeper::setup().start();
    server.kill();
    run_waits_for_server(server.url(), || server.restart());
}

fn run_waits_for_server(url: String, restart: impl FnOnce()) {
    let sandbox = Sandbox::at(url);
    let mut run = sandbox.started(&["run", "a", "--", "echo", "ran"]);
    run.wait_for_output(UNAVAILABLE);
    restart();

    let done = run.wait();
    done.assert(0, "ran\n", AVAILABLE);
    assert_eq!((count(&done, UNAVAILABLE), count(&done, AVAILABLE)), (0, 1));
}

/// Masters that accept connections and say nothing.
#[test]
fn error_after_the_time_limit_names_the_servers_that_are_silent() {
    let silent: Vec<_> = (0..3)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let hosts: Vec<_> = silent
        .iter()
        .map(|master| master.local_addr().unwrap().to_string())
        .collect();
    let sandbox = Sandbox::at(format!("redlock://me:secret@{}", hosts.join(",")));

    let done = sandbox.done(&["run", "-w", "1", "a", "--", "true"]);
    done.assert(69, "", &hosts.join(","));
    assert!(!done.err.contains("secret"), "{}", done.err);

    let sandbox = Sandbox::at(format!("redis://{}", hosts[0]));
    let done = sandbox.done(&["run", "-w", "2", "a", "--", "true"]);
    let last = done.err.lines().last().unwrap_or_default();
    assert!(last.contains(&hosts[0]), "{}", done.err);
}

#[test]
fn signal_ends_the_wait_for_an_unavailable_store() {
    let mut server = Redis::start();
    let sandbox = Sandbox::at(server.url());
    server.kill();

    let mut run = sandbox.started(&["run", "a", "--", "true"]);
    run.wait_for_output(UNAVAILABLE);
    run.signal(Signal::SIGTERM);
    run.wait().assert_signal(Signal::SIGTERM, "");
}

/// The kernel discards the signals to the first process of a container that it does not handle.
///
/// Shows G-37.
#[test]
fn signal_ends_the_first_process_of_a_container_without_a_store() {
    let sandbox = Sandbox::at("redis://127.0.0.1:1".to_owned());
    for arguments in [
        &["run", "--once", "1", "a", "--", "true"][..],
        &["elect", "a", "--address", "one:1", "--", "true"],
        &["acquire", "a", "--detach"],
        &["wait", "a"],
    ] {
        let leasehold = sandbox.leasehold(arguments);
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--pid", "--kill-child", "--mount-proc"])
            .arg(leasehold.get_program())
            .args(leasehold.get_args())
            .env("LEASEHOLD_STORE", sandbox.url())
            .env("XDG_RUNTIME_DIR", sandbox.path(""));
        let mut run = Started::of(&mut unshare);
        run.wait_for_output(UNAVAILABLE);

        let pid = run.pid();
        let children = format!("/proc/{pid}/task/{pid}/children");
        let first = std::fs::read_to_string(children).unwrap();
        let first = Pid::from_raw(first.trim().parse().unwrap());
        kill(first, Signal::SIGTERM).unwrap();
        until("it has ended", || !run.is_running());
        // The process in the background may say that it waits no longer, before it is killed too.
        let ended = run.wait();
        let said = ended.err.replace(WAITS_NO_LONGER, "");
        assert_eq!((ended.code(), &*said), (143, ""), "{ended:?}");
    }
}

const WAITS_NO_LONGER: &str =
    "leasehold: a was not granted before the process that waits for it ended\n";

/// Shows G-26.
#[test]
fn wait_zero_without_server_fails_at_once() {
    let mut server = Redis::start();
    let sandbox = Sandbox::at(server.url());
    server.kill();

    let begun = Instant::now();
    let done = sandbox.done(&["run", "a", "--wait", "0", "--", "true"]);
    done.assert(69, "", "cannot be reached");
    assert_eq!(done.err.lines().count(), 1, "{done:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "it has waited");
}

/// Shows G-26.
#[test]
fn wait_limit_includes_the_outage_at_start() {
    let mut server = Redis::start();
    let sandbox = Sandbox::at(server.url());
    server.kill();

    let begun = Instant::now();
    let done = sandbox.done(&["run", "a", "--wait", "2s", "--", "true"]);
    done.assert(69, "", UNAVAILABLE);
    assert_eq!(done.err.lines().count(), 2, "{done:?}");
    let waited = begun.elapsed().as_secs();
    assert!((2..10).contains(&waited), "it has waited for {waited} s");
}

/// A wait that ends while the store is unreachable exits 69. With a reachable store it exits 75.
fn wait_ends_by_its_store(sandbox: &Sandbox, kill: impl FnOnce()) {
    let _holder = sandbox.holder("a", &[]);
    sandbox
        .done(&["run", "a", "--wait", "300ms", "--", "true"])
        .assert(75, "", "not granted within 300ms: held by");

    let mut waiter = sandbox.started(&["run", "a", "--wait", "4s", "--", "true"]);
    waiter.wait_for_output("waiting for a: ");
    kill();
    assert_eq!(waiter.wait().code(), 69);
}

/// Shows G-26.
#[test]
fn wait_without_server_ends_with_69() {
    let mut server = Redis::start();
    wait_ends_by_its_store(&Sandbox::at(server.url()), || server.kill());
}

/// The last state that it saw may be as old as the silence of the server.
///
/// Shows G-26.
#[test]
fn wait_on_a_silent_server_ends_with_69() {
    let server = Redis::start();
    let sandbox = Sandbox::at(server.url());
    let _holder = sandbox.holder("a", &["--lease", "1m"]);
    let wait = sandbox.started(&["wait", "--wait", "4s", "a"]);
    until("the wait is notified of changes", || {
        let clients = server.command(&["CLIENT", "LIST"]);
        let flags = |line: &str| line.split(" flags=").nth(1)?.split(' ').next()?.find('t');
        clients.text().lines().any(|line| flags(line).is_some())
    });

    server.pause();
    let done = wait.wait();
    server.resume();
    assert_eq!(done.code(), 69, "{done:?}");
}

/// Shows G-26.
#[test]
fn wait_without_masters_ends_with_69() {
    let mut masters: Vec<Redis> = (0..5).map(|_| Redis::start()).collect();
    let hosts: Vec<String> = masters.iter().map(Redis::address).collect();
    let sandbox = Sandbox::at(format!("redlock://{}?quarantine=off", hosts.join(",")));
    wait_ends_by_its_store(&sandbox, || masters.iter_mut().for_each(Redis::kill));
}

/// The restarted server is empty. By then the holder has stopped its command.
///
/// Shows G-26.
#[test]
fn waiter_goes_on_after_a_long_outage() {
    let mut server = Redis::start();
    let sandbox = Sandbox::at(server.url());
    let holder = sandbox.holder("a", &[]);
    let mut waiter = sandbox.waiter(&["run", "a", "--", "echo", "ran"]);

    server.kill();
    waiter.wait_for_output(UNAVAILABLE);
    assert_eq!(holder.wait().code(), 76);
    server.restart();

    let done = waiter.wait();
    done.assert(0, "ran\n", AVAILABLE);
    assert_eq!((count(&done, UNAVAILABLE), count(&done, AVAILABLE)), (0, 1));
}

/// Shows G-26.
#[test]
fn waiters_go_on_after_all_masters_were_killed() {
    let mut masters = masters();
    let sandbox = redlock(&masters, "quarantine=off");
    let holder = sandbox.holder("a", &["--lease", "10s"]);
    let mut waiters: Vec<_> = (0..4)
        .map(|_| sandbox.started(&["run", "a", "--lease", "10s", "--", "echo", "ran"]))
        .collect();
    for waiter in &mut waiters {
        waiter.wait_for_output("waiting for a: ");
    }

    masters.iter_mut().for_each(Redis::kill);
    for waiter in &mut waiters {
        let line = waiter.wait_for_output(UNAVAILABLE);
        assert!(line.contains("of 5 masters"), "{line}");
    }
    assert_eq!(holder.wait().code(), 76);
    masters.iter_mut().for_each(Redis::restart);

    for waiter in waiters {
        let done = waiter.wait();
        done.assert(0, "ran\n", AVAILABLE);
        assert_eq!(count(&done, UNAVAILABLE), 0, "{done:?}");
    }
}

/// The votes of new masters do not count until the longest lease of any client has passed.
///
/// Shows G-26.
#[test]
fn first_run_on_new_masters_waits_with_the_reason() {
    let masters = masters();
    let sandbox = redlock(&masters, "longest-lease=5s");
    let run = ["run", "a", "--lease", "5s"];

    let done = sandbox.done(&[&run[..], &["--wait", "0", "--", "true"]].concat());
    done.assert(69, "", "its vote counts in ");

    let done = sandbox.done(&[&run[..], &["--", "echo", "ran"]].concat());
    done.assert(0, "ran\n", "its vote counts in ");
    assert_eq!((count(&done, UNAVAILABLE), count(&done, AVAILABLE)), (1, 1));
}

/// A release without a limit takes ten seconds. The limit of this test includes the end of the run.
///
/// Shows G-10.
#[test]
fn release_without_server_ends_within_a_second() {
    for is_killed in [false, true] {
        let mut server = Redis::start();
        let sandbox = Sandbox::at(server.url());
        let run = sandbox.holder("a", &[]);
        if is_killed {
            server.kill();
        } else {
            server.pause();
        }

        let begun = Instant::now();
        let done = run.end();
        let took = begun.elapsed();
        done.assert(0, "", "leasehold: cannot release a: ");
        assert_eq!(done.err.lines().count(), 1, "{done:?}");
        assert!(
            took < Duration::from_millis(1_500),
            "killed: {is_killed}, {took:?}"
        );
    }
}

#[test]
fn loss_is_reported_once() {
    let sandbox = Sandbox::on_redis();
    let run = sandbox.holder("a", &["--lease", "3s"]);
    sandbox.server().command(&["FLUSHALL"]);
    let done = run.wait();
    done.assert(76, "", "leasehold: lost a: ");
    assert_eq!(done.err.lines().count(), 1, "{done:?}");

    let mut sandbox = Sandbox::on_redis();
    sandbox.set("crash-grace=2s");
    let run = sandbox.holder("a", &[]);
    sandbox.server().pause();
    let done = run.wait();
    done.assert(76, "", "leasehold: losing a: ");
    assert_eq!(done.err.lines().count(), 1, "{done:?}");
}

/// The crash grace is 10 s by default. The waiter checks the holder every 0.4 s.
///
/// Shows G-02.
#[test]
fn crashed_holder_frees_the_lock_within_grace_and_half_a_second() {
    let sandbox = Sandbox::on_redis();
    let holder = sandbox.holder("a", &[]);
    let waiter = sandbox.waiter(&["run", "a", "--quiet", "--", "date", "+%s.%N"]);
    let killed_at = SystemTime::now();
    holder.signal(Signal::SIGKILL);

    let done = waiter.wait();
    let granted_at = Duration::from_secs_f64(done.out.trim().parse().unwrap());
    let killed_at = killed_at.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let took = granted_at.saturating_sub(killed_at);
    assert!(took < Duration::from_millis(10_600), "{took:?}");
}

/// Processes share no clock but the server's, which has no part in crash detection.
///
/// Shows G-02.
#[test]
fn tries_of_separate_processes_learn_of_a_crash_when_the_lease_ends() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("crash-grace=500ms");
    let holder = sandbox.holder("a", &["--lease", "4s"]);
    let begun = Instant::now();
    holder.signal(Signal::SIGKILL);

    until("a try is granted", || {
        let done = sandbox.done(&["run", "a", "--wait", "0", "--quiet", "--", "true"]);
        done.code() == 0
    });
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "the lease is over"
    );
}

#[test]
fn crash_grace_of_the_url_applies_to_the_run() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("crash-grace=500ms");

    let holder = sandbox.holder("a", &[]);
    let waiter = sandbox.waiter(&["run", "a", "--quiet", "--", "true"]);
    let begun = Instant::now();
    holder.signal(Signal::SIGKILL);
    waiter.wait().assert(0, "", "");
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "the default applies"
    );
}

/// A holder that renews every third or tenth of its lease sends six renewals in 18 s or more.
#[test]
fn holder_sends_a_heartbeat_each_second() {
    let sandbox = Sandbox::on_redis();
    let holder = sandbox.holder("a", &[]);
    let begun = Instant::now();
    let first = heartbeats(sandbox.server());
    until("six heartbeats", || {
        heartbeats(sandbox.server()) >= first + 6
    });

    let took = begun.elapsed();
    assert!(took < Duration::from_secs(7), "{took:?}");
    holder.end().assert(0, "", "");
}

fn heartbeats(server: &Redis) -> u64 {
    let stats = server.info("commandstats");
    let calls = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_pubsub|numsub:calls="))
        .and_then(|calls| calls.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[test]
fn hold_notices_the_end_of_its_owner_while_the_server_is_down() {
    let mut server = Redis::start();
    server.kill();
    let sandbox = Sandbox::at(server.url());
    let mut hold = sandbox.started(&["hold", "a"]);
    hold.wait_for_output(UNAVAILABLE);
    hold.end().assert(75, "", "a was not granted before");
}

/// The server fails between the grants of the two stores.
///
/// Shows G-26, G-40.
#[test]
fn run_waits_for_the_server_of_its_second_store_after_the_first_grant() {
    let mut server = Redis::start();
    let sandbox = Sandbox::new();
    let also = server.url();
    let holder = sandbox.holder("a", &[]);
    let mut run = sandbox.waiter(&["run", "a", "--also-store", &also, "--", "echo", "ran"]);

    server.kill();
    holder.end().assert(0, "", "");
    run.wait_for_output(UNAVAILABLE);
    server.restart();
    run.wait().assert(0, "ran\n", AVAILABLE);
}

#[test]
fn run_waits_for_the_server_of_its_second_store() {
    let mut server = Redis::start();
    server.kill();
    let sandbox = Sandbox::new();
    let also = server.url();
    let mut run = sandbox.started(&["run", "a", "--also-store", &also, "--", "echo", "ran"]);
    run.wait_for_output(UNAVAILABLE);
    server.restart();
    run.wait().assert(0, "ran\n", AVAILABLE);
}
