//! The watchdog: the process that ends the command if leasehold is killed.

use std::fs::{File, read_to_string};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::sandbox::{Finished, Sandbox, Started, is_alive, until};
use crate::servers::end_of_a_killed_run_is_explained;
use crate::terminal::Terminal;

const SESSION: &str = "setsid sleep 1000 & echo $PPID > ready; wait";
const DOUBLE_FORK: &str = "(setsid sh -c '(sleep 1000 &)' &); echo $PPID > ready; sleep 1000";

/// Each process starts the next one in a session of its own, and ends: for 100 s at most.
const FORK_CHAIN: &str = "exec python3 -c '
import os, time
if os.fork():
    open(\"ready\", \"w\").write(f\"{os.getppid()}\\n\")
    time.sleep(1000)
end = time.monotonic() + 100
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
'";

/// One process starts others in sessions of their own without a pause.
const FORK_LOOP: &str = "exec python3 -c '
import os, time
open(\"ready\", \"w\").write(f\"{os.getppid()}\\n\")
for _ in range(3000):
    if not os.fork():
        os.setsid()
        time.sleep(100)
    time.sleep(0.001)
'";

const ALL: [&str; 4] = [SESSION, DOUBLE_FORK, FORK_CHAIN, FORK_LOOP];

/// A locked file that is the standard output of a run. The lock is free when no process has the
/// file: leasehold, its watchdog, or any descendant.
struct Processes(PathBuf);

impl Processes {
    fn start(sandbox: &Sandbox, file: &str, options: &[&str], line: &str) -> (Self, Started) {
        let path = sandbox.path(file);
        let output = File::create(&path).unwrap();
        output.lock().unwrap();

        let command = [options, &["--", "sh", "-c", line]].concat();
        let run = sandbox
            .leasehold(&[&["run", file], &command[..]].concat())
            .stdout(output)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        (Self(path), run.into())
    }

    fn have_ended(&self) -> bool {
        File::open(&self.0).unwrap().try_lock().is_ok()
    }
}

fn busy_loops() -> [Started; 4] {
    [(); 4].map(|()| Started::of(Command::new("sh").args(["-c", "while :; do :; done"])))
}

fn state(pid: Pid) -> char {
    let stat = read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next())
        .unwrap_or('X')
}

/// The watchdog of a nested run releases the lock of that run, and leaves the outer one alone.
///
/// Shows G-36.
#[test]
fn killed_nested_run_releases_its_own_lock() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("crash-grace=off");
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let inner = "sh -c 'echo $$ > ready; exec sleep 1000'";
    let line = format!("{leasehold} run inner --lease 1h -- {inner}; exec sleep 1000");
    let outer = sandbox.started(&["run", "outer", "--", "sh", "-c", &line]);
    sandbox.pid("ready");
    let run = sandbox.holders("inner")[0]["pid"].as_i64().unwrap();
    kill(Pid::from_raw(run.try_into().unwrap()), Signal::SIGKILL).unwrap();
    until("the inner lock is released", || {
        sandbox.holders("inner").is_empty()
    });
    assert_eq!(sandbox.holders("outer").len(), 1);
    drop(outer);
}

/// Shows G-36.
#[test]
fn killed_run_kills_all_descendants() {
    let sandbox = Sandbox::on_redis();
    let cases = [("kill", SESSION)].into_iter();
    let cases = cases.chain(ALL.map(|line| ("term", line)));
    for (number, (on_lost, line)) in cases.enumerate() {
        let options = ["--on-lost", on_lost];
        let (processes, run) =
            Processes::start(&sandbox, &format!("kill-{number}"), &options, line);
        sandbox.pid("ready");
        run.signal(Signal::SIGKILL);
        until(&format!("all processes of {line:?} have ended"), || {
            processes.have_ended()
        });
        std::fs::remove_file(sandbox.path("ready")).unwrap();
    }
}

/// A grace that no test outlasts: only the watchdog can have released the locks.
fn on_patient_redis() -> Sandbox {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("crash-grace=3600s");
    sandbox
}

/// A descendant in a session of its own ignores TERM and writes until it ends.
///
/// Shows G-36.
#[test]
fn watchdog_of_killed_run_releases_after_the_last_write() {
    let sandbox = on_patient_redis();
    let line = "(setsid sh -c 'trap \"\" TERM; while :; do echo >> log; done' &); \
                until [ -s log ]; do sleep 0.01; done; echo > ready; exec sleep 1000";
    let options = ["run", "a", "--lease", "2h", "--", "sh", "-c", line];
    let run = sandbox.started(&options);
    until("the descendant writes", || sandbox.path("ready").exists());

    let line = "stat -c %s log; sleep 0.2; stat -c %s log";
    let next = sandbox.waiter(&["run", "a", "--quiet", "--", "sh", "-c", line]);
    run.signal(Signal::SIGKILL);
    let seen = next.wait().out;
    let sizes: Vec<_> = seen.lines().collect();
    assert_eq!(sizes.len(), 2, "{seen}");
    assert_eq!(sizes[0], sizes[1]);
}

/// The store cannot be reached, so the watchdog would wait for it before it ends the command, if it
/// released the lock first.
///
/// Shows G-36.
#[test]
fn watchdog_of_killed_run_ends_the_command_before_it_releases() {
    let server = lab_servers::Redis::start();
    let wire = lab_servers::Wire::to(server.address());
    let sandbox = Sandbox::at(format!("{}?crash-grace=3600s", wire.url_of("redis")));
    let line = "echo $$ > ready; exec cat";
    let hold = ["run", "a", "--lease", "2h", "--", "sh", "-c", line];
    let run = sandbox.started(&hold);
    let command = sandbox.pid("ready");

    wire.freeze(true);
    run.signal(Signal::SIGKILL);
    until("the command has ended", || !is_alive(command));
    wire.freeze(false);
    let next = ["run", "a", "--quiet", "--", "true"];
    sandbox.done(&next).assert(0, "", "");
}

/// Shows G-36, G-39.
#[test]
fn watchdog_of_killed_run_releases_all_names_and_slots() {
    let sandbox = on_patient_redis();
    let hold = ["--lease", "2h", "--quiet", "--", "cat"];
    let several = sandbox.started(&[&["run", "b", "a"], &hold[..]].concat());
    let slot = sandbox.started(&[&["run", "gpu", "--slots", "1"], &hold[..]].concat());
    for name in ["a", "b", "gpu"] {
        until("it is held", || sandbox.holders(name).len() == 1);
    }

    several.signal(Signal::SIGKILL);
    slot.signal(Signal::SIGKILL);
    for name in [&["a"][..], &["b"], &["gpu", "--slots", "1"]] {
        let next = [&["run"], name, &["--quiet", "--", "true"]].concat();
        sandbox.done(&next).assert(0, "", "");
    }
}

/// Each run is killed at another moment: while it waits, is granted, starts its command, or works.
/// Its processes write their token. One that wrote beside the next holder would leave a smaller
/// token behind a larger one.
///
/// `LEASEHOLD_RUN_KILLS` is the number of kills, of 16 runs at a time.
///
/// Shows G-01, G-36.
#[test]
fn runs_that_are_killed_at_any_moment_exclude_each_other() {
    const AT_A_TIME: u64 = 16;

    let kills = std::env::var("LEASEHOLD_RUN_KILLS");
    let kills = kills.ok().map(|kills| kills.parse::<u64>().unwrap());
    let mut sandbox = Sandbox::on_redis();
    // A run that is killed before it has a watchdog is noticed by its connection.
    sandbox.set("crash-grace=1s");
    let Some(kills) = kills else {
        return kill_runs(&sandbox, 0, 50);
    };
    std::thread::scope(|scope| {
        let sandbox = &sandbox;
        for lane in 0..AT_A_TIME {
            scope.spawn(move || kill_runs(sandbox, lane, kills.div_ceil(AT_A_TIME)));
        }
    });
}

fn kill_runs(sandbox: &Sandbox, lane: u64, kills: u64) {
    let name = format!("kill-{lane}");
    // Lines of 32 bytes do not cross a page, within which a kill tears no write. Nothing arrives in the
    // pipe: the shell itself waits, since a `sleep` would be one process more for each line. Without
    // the trap, and without a session of its own, the kernel may end the writer sooner.
    let write = format!(
        "exec 3<> <(:); while :; do printf \"%31s\\n\" $LEASEHOLD_TOKEN >> {name}; \
         read -t 0.003 -u 3; done"
    );
    let writers = format!("(setsid bash -c 'trap \"\" TERM; {write}' &); {write}");
    let start = || sandbox.started(&["run", &name, "--quiet", "--", "bash", "-c", &writers]);

    let mut waiting = start();
    let mut tokens = Tokens::default();
    for kill in 0..kills {
        let next = start();
        until("it holds the lock", || !sandbox.holders(&name).is_empty());
        sleep(Duration::from_millis((lane + kill) * 37 % 80));
        waiting.signal(Signal::SIGKILL);
        waiting.wait();
        tokens.read(&sandbox.path(&name));
        waiting = next;
    }
    waiting.signal(Signal::SIGKILL);
    waiting.wait();
    tokens.read(&sandbox.path(&name));
    let different = tokens.different;
    assert!(different > kills / 5, "{different} runs have written");
}

/// The tokens that the runs of one name have written.
#[derive(Default)]
struct Tokens {
    read_to: u64,
    last: u64,
    different: u64,
}

impl Tokens {
    /// Reads what has been written since, up to the last whole line.
    fn read(&mut self, path: &Path) {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => panic!("the log cannot be read: {error}"),
        };
        file.seek(SeekFrom::Start(self.read_to)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.read_to += u64::try_from(whole).unwrap();

        for token in text[..whole]
            .lines()
            .map(|line| line.trim().parse().unwrap())
        {
            assert!(token >= self.last, "two runs have written at once");
            self.different += u64::from(token > self.last);
            self.last = token;
        }
    }
}

#[test]
fn release_by_the_watchdog_is_explained() {
    let reason = "released by its watchdog";
    end_of_a_killed_run_is_explained(&on_patient_redis(), &[], reason);
}

/// The watchdog has the password of the run, which is not in its arguments.
///
/// Shows G-36, G-40.
#[test]
fn watchdog_of_killed_run_releases_in_both_stores() {
    let server = lab_servers::Redis::setup().password("hunter2").start();
    let mut sandbox = Sandbox::at(format!("redis://:hunter2@{}", server.address()));
    sandbox.set("crash-grace=3600s");
    let also = lab_servers::Redis::start();
    let also_url = format!("{}?crash-grace=3600s", also.url());
    let line = "cat /proc/$PPID/cmdline > arguments; echo > ready; exec sleep 1000";
    let run = Started::of(
        sandbox
            .leasehold(&["run", "a", "--lease", "2h", "--", "sh", "-c", line])
            .env("LEASEHOLD_ALSO_STORE", &also_url),
    );
    until("the command runs", || sandbox.path("ready").exists());
    assert!(!sandbox.read("arguments").contains("hunter2"));

    run.signal(Signal::SIGKILL);
    for url in [sandbox.url(), also_url] {
        let next = sandbox.leasehold(&["run", "a", "--quiet", "--store", &url, "--", "true"]);
        Finished::from({ next }.output().unwrap()).assert(0, "", "");
    }
}

/// Shows G-36.
#[test]
fn watchdog_of_killed_run_gives_up_with_the_hold() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("crash-grace=1s");
    let run = sandbox.holder("a", &[]);
    sandbox.server_mut().kill();
    run.signal(Signal::SIGKILL);
    // The watchdog is the last process with this pipe.
    run.wait()
        .assert_signal(Signal::SIGKILL, "its locks cannot be released: ");
}

/// A run and its watchdog are killed together, and the network fails at the same moment. Nobody
/// knows whether the command has ended, so the grace decides, also for a try on the same machine.
///
/// Shows G-36.
#[test]
fn run_killed_with_its_watchdog_is_held_for_the_grace() {
    let server = lab_servers::Redis::start();
    let wire = lab_servers::Wire::to(server.address());
    let sandbox = Sandbox::at(format!("{}?crash-grace=3600s", wire.url_of("redis")));
    let direct = format!("{}?crash-grace=3600s", server.url());
    let refused = || {
        let attempt = ["run", "a", "-n", "--store", &direct, "--", "true"];
        sandbox.done(&attempt).assert(75, "", "held by");
    };
    let line = "echo $PPID > ready; exec cat";
    let run = sandbox.started(&[
        "run", "a", "--lease", "2h", "--quiet", "--", "sh", "-c", line,
    ]);
    let watchdog = sandbox.pid("ready");

    // Neither acts on the other's end, because both are stopped first.
    for pid in [run.pid(), watchdog] {
        kill(pid, Signal::SIGSTOP).unwrap();
        until("the process is stopped", || state(pid) == 'T');
    }
    // Later, the end of the connections might reach the server first.
    wire.freeze(true);
    run.signal(Signal::SIGKILL);
    kill(watchdog, Signal::SIGKILL).unwrap();
    run.wait().assert_signal(Signal::SIGKILL, "");
    refused();

    let connections = || server.command(&["CLIENT", "LIST"]).text().lines().count();
    let before = connections();
    wire.partition();
    until("the server sees the end of the connections", || {
        connections() < before
    });
    refused();
}

/// Of two holds with one name, the later one has another id.
///
/// Shows G-36.
#[test]
fn watchdog_of_killed_run_leaves_the_next_hold_alone() {
    let sandbox = on_patient_redis();
    let run = sandbox.holder("a", &["--lease", "2h"]);
    run.signal(Signal::SIGSTOP);
    let broken = sandbox.done(&["break", "a", "--token", &sandbox.token("a")]);
    assert_eq!(broken.code(), 0);
    let next = sandbox.holder("a", &[]);
    let token = sandbox.token("a");

    run.signal(Signal::SIGKILL);
    // The watchdog is the last process with this pipe.
    run.wait().assert_signal(Signal::SIGKILL, "");
    assert_eq!(sandbox.token("a"), token);
    next.end().assert(0, "", "");
}

/// Shows G-36.
#[test]
fn killed_watchdog_ends_the_run_and_all_descendants() {
    let sandbox = Sandbox::on_redis();
    for (number, line) in ALL.into_iter().enumerate() {
        let name = format!("kill-{number}");
        let (processes, run) = Processes::start(&sandbox, &name, &[], line);
        kill(sandbox.pid("ready"), Signal::SIGKILL).unwrap();
        run.wait()
            .assert_signal(Signal::SIGKILL, "the watchdog of the command was killed");
        assert!(processes.have_ended(), "{line:?}");
        assert!(sandbox.is_free(&name));
        std::fs::remove_file(sandbox.path("ready")).unwrap();
    }
}

/// Shows G-36.
#[test]
fn killed_watchdog_ends_what_until_all_end_waits_for() {
    let sandbox = Sandbox::on_redis();
    let (run, descendant) = until_all_end(&sandbox);
    kill(sandbox.pid("ready"), Signal::SIGKILL).unwrap();
    run.wait()
        .assert_signal(Signal::SIGKILL, "the watchdog of the command was killed");
    assert!(!is_alive(descendant));
}

/// Shows G-36.
#[test]
fn killed_run_kills_what_until_all_end_waits_for() {
    let sandbox = Sandbox::on_redis();
    let (run, descendant) = until_all_end(&sandbox);
    run.signal(Signal::SIGKILL);
    until("the descendant has ended", || !is_alive(descendant));
}

/// Starts a run that waits for a descendant after the end of its command.
fn until_all_end(sandbox: &Sandbox) -> (Started, Pid) {
    let line = "(setsid sleep 1000 > /dev/null 2>&1 & echo $! > pid); \
                echo $$ > command; echo $PPID > ready";
    let run = sandbox.started(&["run", "a", "--until-all-end", "--", "sh", "-c", line]);
    let command = sandbox.pid("command");
    until("the command was reaped", || state(command) == 'X');
    sandbox.pid("ready");
    (run, sandbox.pid("pid"))
}

/// Half of the runs are killed at different times after their start, the others as soon as the
/// command runs.
///
/// Shows G-36.
#[test]
fn run_that_is_killed_while_it_starts_leaves_no_process() {
    const RUNS: u64 = 100;

    let sandbox = Sandbox::on_redis();
    let _load = busy_loops();

    let runs = (0..RUNS).map(|number| {
        let line = format!("setsid sleep 1000 & echo > ready-{number}; wait");
        let (processes, run) = Processes::start(&sandbox, &format!("a{number}"), &[], &line);
        if number % 2 == 0 {
            sleep(Duration::from_millis(number));
        } else {
            let ready = sandbox.path(&format!("ready-{number}"));
            until("the command runs", || ready.exists());
        }
        run.signal(Signal::SIGKILL);
        processes
    });
    for processes in runs.collect::<Vec<_>>() {
        until("all processes have ended", || processes.have_ended());
    }
}

/// leasehold may not know the command yet.
///
/// Shows G-36.
#[test]
fn watchdog_that_is_killed_by_a_command_that_starts_leaves_no_process() {
    const RUNS: u64 = 30;

    let sandbox = Sandbox::on_redis();
    let _load = busy_loops();

    for number in 0..RUNS {
        let line = "kill -KILL $PPID; setsid sleep 1000 2> /dev/null & wait";
        let (processes, run) = Processes::start(&sandbox, &format!("a{number}"), &[], line);
        let done = run.wait();
        assert!(
            done.err.contains("the watchdog of the command was killed"),
            "{done:?}"
        );
        assert!(processes.have_ended());
    }
}

/// The watchdog starts the command and then finds no `/dev/null`.
///
/// Shows G-36.
#[test]
fn watchdog_that_fails_is_not_reported_as_killed() {
    let sandbox = Sandbox::on_redis();
    let run = sandbox.leasehold(&["run", "a", "--", "sleep", "1000"]);
    let mut unshared = Command::new("unshare");
    unshared
        .args(["--mount", "sh", "-ec"])
        .arg("mount -t tmpfs none /dev; exec \"$0\" \"$@\"")
        .arg(run.get_program())
        .args(run.get_args())
        .env("LEASEHOLD_STORE", sandbox.url());

    let done = Started::of(&mut unshared).wait();
    let ended = "the watchdog of the command has ended";
    assert!(done.err.contains(ended), "{done:?}");
    assert!(!done.err.contains("was killed"), "{done:?}");
    assert!(sandbox.is_free("a"));
}

#[test]
fn signal_to_the_parent_of_the_command_is_forwarded() {
    let sandbox = Sandbox::on_redis();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        // dash may miss an INT while it starts a process. So this loops over short sleeps.
        let line = format!(
            "kill -{} $PPID; while :; do sleep 0.01; done",
            signal as i32
        );
        sandbox
            .done(&["run", "a", "--", "sh", "-c", &line])
            .assert_signal(signal, "");
    }

    let line = "trap 'echo caught; exit 3' USR1; kill -USR1 $PPID; while :; do sleep 0.01; done";
    let done = sandbox.done(&["run", "a", "--", "sh", "-c", line]);
    // The signal ends a sleep too, and the shell may print that.
    assert_eq!(
        (done.code(), done.out.as_str()),
        (3, "caught\n"),
        "{done:?}"
    );
    assert!(sandbox.is_free("a"));
}

/// leasehold does not handle these signals. The last two are real-time signals.
#[test]
fn signal_that_ends_leasehold_ends_it_through_the_parent_of_the_command_too() {
    let sandbox = Sandbox::on_redis();
    for signal in [Signal::SIGALRM as i32, 34, 64] {
        let line = format!("kill -{signal} $PPID; sleep 1000");
        let (processes, run) = Processes::start(&sandbox, &format!("a{signal}"), &[], &line);
        let done = run.wait();
        assert_eq!(
            (done.status.signal(), done.err.as_str()),
            (Some(signal), ""),
            "{done:?}"
        );
        until("all processes have ended", || processes.have_ended());
    }
}

#[test]
fn stop_of_the_parent_of_the_command_stops_leasehold_alone() {
    let sandbox = Sandbox::on_redis();
    let run = sandbox.started(&["run", "a", "--", "sh", "-c", "echo $PPID > ready; exec cat"]);
    let watchdog = sandbox.pid("ready");
    kill(watchdog, Signal::SIGSTOP).unwrap();
    until("leasehold has stopped, and the watchdog runs", || {
        state(run.pid()) == 'T' && state(watchdog) == 'S'
    });
    kill(watchdog, Signal::SIGCONT).unwrap();
    until("leasehold runs", || state(run.pid()) == 'S');
    run.end().assert(0, "", "");
}

#[test]
fn terminal_stop_of_the_parent_of_the_command_stops_leasehold_and_the_command() {
    let sandbox = Sandbox::on_redis();
    let line = "echo $$ > pid; echo $PPID > ready; exec cat";
    // The kernel stops a process only where a process of another group could continue it.
    let mut command = sandbox.leasehold(&["run", "a", "--", "sh", "-c", line]);
    let run = Started::of(command.process_group(0));
    let (watchdog, command) = (sandbox.pid("ready"), sandbox.pid("pid"));
    kill(watchdog, Signal::SIGTSTP).unwrap();
    until("both have stopped", || {
        state(run.pid()) == 'T' && state(command) == 'T'
    });
    kill(watchdog, Signal::SIGCONT).unwrap();
    until("both have continued", || {
        state(run.pid()) == 'S' && state(command) == 'S'
    });
    run.end().assert(0, "", "");
}

/// The watchdog blocks signals itself, and the command inherits the mask.
#[test]
fn command_has_the_signal_mask_that_leasehold_was_started_with() {
    for sandbox in [Sandbox::new(), Sandbox::on_redis()] {
        let line = "import os, signal, sys; \
                    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, 40}); \
                    os.execvp(sys.argv[1], sys.argv[1:])";
        let mut python = Command::new("python3");
        python
            .args([
                "-c",
                line,
                env!("CARGO_BIN_EXE_leasehold"),
                "run",
                "a",
                "--",
            ])
            .args(["grep", "SigBlk", "/proc/self/status"])
            .env("LEASEHOLD_STORE", sandbox.url());
        let done: Finished = python.output().unwrap().into();
        done.assert(0, "SigBlk:\t0000008000000200\n", "");
    }
}

#[test]
fn command_below_the_watchdog_has_the_terminal() {
    let sandbox = Sandbox::on_redis();
    let mut terminal = Terminal::shell(&sandbox);
    terminal.types("$LEASEHOLD run a -- sh -c 'echo sta\"\"rted; read x; echo \"got <$x>\"'\n");
    terminal.until_shows("started");
    terminal.types("\x1a");
    terminal.until_shows("Stopped");
    terminal.types("fg\n");
    terminal.until_shows("LEASEHOLD run a");
    terminal.types("hello\n");
    terminal.until_shows("got <hello>");

    terminal.types("$LEASEHOLD run a -- sh -c 'echo sta\"\"rted; exec sleep 1000'\n");
    terminal.until_shows("started");
    terminal.types("\x03");
    terminal.types("echo co\"\"de=$?\n");
    terminal.until_shows("code=130");
}

/// A zombie would keep its id for the rest of the hold.
#[test]
fn command_is_reaped_when_the_lock_outlasts_it() {
    let sandbox = Sandbox::on_redis();
    let arguments = ["run", "a", "--hold-at-least", "1h", "--", "sh", "-c"];
    let run = sandbox.started(&[&arguments[..], &["echo $$ > pid"]].concat());
    let command = sandbox.pid("pid");
    until("the command was reaped", || state(command) == 'X');
    run.signal(Signal::SIGTERM);
    run.wait().assert(0, "", "");
}
