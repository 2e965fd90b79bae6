//! Processes that `/proc` shows late, in part or not at all. None has ended for that reason.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::sandbox::{Finished, Sandbox, Started, is_alive, until};
use crate::scripts::BIN;

/// The kernel keeps 15 bytes of this name, and the last ones are a part of a character.
const CUT_NAME: &str = "job_数据同步.sh";

/// Makes a script with this name. The line starts it in a session of its own: it writes its id, and
/// waits for a file.
fn with_cut_name(sandbox: &Sandbox) -> String {
    let script = "#!/bin/sh
        trap '' USR1
        echo $$ > pid
        until [ -e go ] || [ ! -e pid ]; do sleep 0.01; done
        echo end > end";
    let path = sandbox.path(CUT_NAME);
    std::fs::write(&path, script).unwrap();
    set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    format!("setsid ./{CUT_NAME} > /dev/null 2>&1 & until [ -s pid ]; do sleep 0.01; done")
}

/// Shows G-36.
#[test]
fn loss_ends_a_process_whose_name_is_cut_inside_a_character() {
    for sandbox in [Sandbox::new(), Sandbox::on_redis()] {
        let line = format!("{}; exec sleep 1000", with_cut_name(&sandbox));
        let run = sandbox.started(&["run", "a", "--max-hold", "2s", "--", "sh", "-c", &line]);
        let job = sandbox.pid("pid");
        assert_eq!(run.wait().code(), 76);
        assert!(!is_alive(job));
    }
}

/// Shows G-36.
#[test]
fn until_all_end_waits_for_a_process_whose_name_is_cut_inside_a_character() {
    let sandbox = Sandbox::new();
    let line = format!("{}; echo $$ > command", with_cut_name(&sandbox));
    let mut run = sandbox.started(&["run", "a", "--until-all-end", "--", "sh", "-c", &line]);
    let job = sandbox.pid("pid");
    let command = sandbox.path(&format!("/proc/{}", sandbox.pid("command")));
    until("the command was reaped", || !command.exists());
    run.signal(Signal::SIGUSR1);
    run.wait_for_output(&format!("--until-all-end waits for its processes {job}"));
    assert!(!sandbox.is_free("a"));
    sandbox.touch("go");
    assert_eq!(run.wait().code(), 0);
    assert_eq!(sandbox.read("end"), "end\n");
}

/// Shows G-38.
#[test]
fn lost_lock_of_a_script_ends_a_process_whose_name_is_cut_inside_a_character() {
    let sandbox = Sandbox::new();
    let line = with_cut_name(&sandbox);
    let text = format!("leasehold acquire a --while-pid $$ --max-hold 3s || exit; {line}; wait");
    let script = sandbox.start_script(&text);
    let job = sandbox.pid("pid");
    script.wait().assert_signal(Signal::SIGTERM, "");
    until("the lock is free", || sandbox.is_free("a"));
    assert!(!is_alive(job));
}

#[test]
fn leasehold_runs_under_a_name_that_is_cut_inside_a_character() {
    let sandbox = Sandbox::new();
    let copy = sandbox.path(CUT_NAME);
    std::fs::copy(BIN, &copy).unwrap();
    let mut run = Command::new(copy);
    run.args(["run", "a", "--", "echo", "held"]);
    let done: Finished = run
        .env("LEASEHOLD_STORE", sandbox.url())
        .output()
        .unwrap()
        .into();
    done.assert(0, "held\n", "");
}

/// Each process starts the next one and ends, as a daemon does twice. A list of all processes, which
/// is read in steps, now and then has none of them.
///
/// Shows G-36.
#[test]
fn until_all_end_waits_for_a_chain_of_processes() {
    let sandbox = Sandbox::new();
    let chain = "import os, time
os.setsid()
end = time.monotonic() + 2
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    time.sleep(0.0005)
open('end', 'w').write('end')";
    let line = format!("python3 -c \"{chain}\" > /dev/null 2>&1 & sleep 0.5");
    // Another child of leasehold, which is not of the command, outlives both.
    for before in ["", "sleep 1000 > /dev/null 2>&1 & echo $! > other; "] {
        let text = format!("{before}exec leasehold run a --until-all-end -- sh -c '{line}'");
        let text = text
            .replace("'end'", "\\\"end\\\"")
            .replace("'w'", "\\\"w\\\"");
        assert_eq!(sandbox.run_script("sh", &text).code(), 0, "{text}");
        assert_eq!(sandbox.read("end"), "end", "{text}");
        std::fs::remove_file(sandbox.path("end")).unwrap();
    }
    kill(sandbox.pid("other"), Signal::SIGKILL).unwrap();
}

/// Sets the number from which on a process gets no further descriptors.
fn limit_descriptors(pid: Pid, limit: u32) {
    let mut prlimit = Command::new("prlimit");
    prlimit.args([
        "--pid",
        &pid.to_string(),
        &format!("--nofile={limit}:{limit}"),
    ]);
    assert!(prlimit.status().unwrap().success());
}

fn highest_descriptor(pid: Pid) -> u32 {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.map(|name| name.parse().unwrap()).max().unwrap()
}

/// Shows G-36.
#[test]
fn loss_ends_descendants_although_no_descriptor_is_free() {
    for sandbox in [Sandbox::new(), Sandbox::on_redis()] {
        let line = "setsid sh -c 'echo $$ > pid; exec sleep 1000' > /dev/null 2>&1 &
                    echo $PPID > parent; wait";
        let run = sandbox.started(&["run", "a", "--max-hold", "3s", "--", "sh", "-c", line]);
        let descendant = sandbox.pid("pid");
        limit_descriptors(run.pid(), 3);
        limit_descriptors(sandbox.pid("parent"), 3);
        assert_eq!(run.wait().code(), 76);
        assert!(!is_alive(descendant));
    }
}

/// Returns the limit that leaves a process one free descriptor.
fn limit_with_one_free(pid: Pid) -> u32 {
    let is_free = |number: &u32| !Path::new(&format!("/proc/{pid}/fd/{number}")).exists();
    (0..).filter(is_free).nth(1).unwrap()
}

/// Shows G-36.
#[test]
fn loss_sends_term_to_other_sessions_with_one_free_descriptor() {
    let sandbox = Sandbox::new();
    let line = "setsid sh -c 'trap \"echo cleaned > log; exit 0\" TERM; echo $$ > pid
                              while :; do sleep 0.01; done' & trap '' TERM; wait";
    let run = sandbox.started(&["run", "a", "-k", "9s", "--", "sh", "-c", line]);
    let descendant = sandbox.pid("pid");
    let token = sandbox.token("a");
    limit_descriptors(run.pid(), limit_with_one_free(run.pid()));
    assert_eq!(sandbox.done(&["break", "a", "--token", &token]).code(), 0);
    assert_eq!(run.wait().code(), 76);
    assert_eq!(sandbox.read("log"), "cleaned\n");
    assert!(!is_alive(descendant));
}

/// Shows G-38.
#[test]
fn lost_lock_of_a_script_ends_descendants_although_no_descriptor_is_free() {
    let sandbox = Sandbox::new();
    let text = "leasehold acquire a --while-pid $$ --max-hold 5s --on-lost kill || exit
                setsid sh -c 'echo $$ > pid; exec sleep 1000' > /dev/null 2>&1 & wait";
    let script = sandbox.start_script(text);
    let descendant = sandbox.pid("pid");
    let holder = sandbox.holder_pid("a");
    limit_descriptors(holder, highest_descriptor(holder) + 1);
    script.wait().assert_signal(Signal::SIGKILL, "");
    until("the lock is free", || sandbox.is_free("a"));
    assert!(!is_alive(descendant));
}

/// A start of `sh -c` as a user other than root, in the sandbox.
fn as_user(sandbox: &Sandbox, line: &str) -> Command {
    set_permissions(sandbox.path(""), Permissions::from_mode(0o777)).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args([
            "--reuid=54301",
            "--regid=54301",
            "--clear-groups",
            "sh",
            "-c",
        ])
        .arg(line)
        .current_dir(sandbox.path(""))
        .env("LEASEHOLD", BIN)
        .env("LEASEHOLD_STORE", sandbox.url())
        .env("XDG_RUNTIME_DIR", sandbox.path(""));
    command
}

/// Nobody but root can tell whose child a process of another user is.
///
/// Shows G-36, G-38.
#[test]
fn hidden_processes_of_other_users_are_neither_ended_nor_waited_for() {
    for mode in ["1", "2"] {
        let sandbox = Sandbox::new();
        let line = "$LEASEHOLD run a --until-all-end -- sh -c 'setsid sleep 0.3 &'; echo $?
                    $LEASEHOLD run a --max-hold 1s -- sh -c 'setsid sleep 1000 & wait'; echo $?
                    sh -c '$LEASEHOLD acquire -q a --while-pid $$ --max-hold 1s
                           setsid sleep 1000 & wait' > /dev/null; echo $?
                    $LEASEHOLD run a -- ps -C sleep -o pid=";
        let user = as_user(&sandbox, line);
        let mount = format!("mount -t proc -o hidepid={mode} proc /proc");
        let text = format!("{mount}; sleep 1000 & \"$@\"; kill $! && echo alive");
        let mut container = Command::new("unshare");
        container
            .args(["--mount", "--pid", "--fork", "sh", "-c", &text, "sh"])
            .arg(user.get_program())
            .args(user.get_args())
            .current_dir(sandbox.path(""))
            .envs(
                user.get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
        let done = Started::of(&mut container).wait();
        assert_eq!(done.out, "0\n76\n143\nalive\n", "hidepid={mode}: {done:?}");
    }
}

/// Makes a set-uid program, which a leasehold of another user may not signal. Returns the line that
/// starts it: it writes its id, and waits for a file.
fn program_of_root(sandbox: &Sandbox) -> &'static str {
    let program = sandbox.path("setpriv");
    std::fs::copy("/usr/bin/setpriv", &program).unwrap();
    set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    "./setpriv --reuid=0 sh -c 'trap \"\" TERM; echo $$ > pid
        until [ -e go ] || [ ! -e pid ]; do sleep 0.01; done' > /dev/null 2>&1"
}

/// The command starts a program of another user.
///
/// Shows G-36.
#[test]
fn lock_is_not_released_beside_processes_that_kill_does_not_end() {
    let sandbox = Sandbox::new();
    let program = program_of_root(&sandbox);
    std::fs::write(sandbox.path("job"), format!("{program} & exec sleep 1000")).unwrap();
    let line = "exec $LEASEHOLD run a -- sh job";
    let mut run = Started::of(&mut as_user(&sandbox, line));
    let left = sandbox.pid("pid");
    let done = |line: &str| -> Finished { as_user(&sandbox, line).output().unwrap().into() };
    let token =
        done("$LEASEHOLD show a --json | grep -o '\"token\": *\"[0-9]*' | grep -o '[0-9]*$'");
    let broken = done(&format!("$LEASEHOLD break a --token {}", token.out.trim()));
    assert_eq!(broken.code(), 0, "{broken:?}");

    let report = run.wait_for_output("processes of the command still run after KILL: ");
    assert!(report.contains(&left.to_string()), "{report}");
    assert!(
        report.ends_with("the folder frees it when they have ended"),
        "{report}"
    );
    assert_eq!(run.wait().code(), 76);
    assert_eq!(done("$LEASEHOLD run -n a -- true").code(), 75);
    sandbox.touch("go");
    assert_eq!(done("$LEASEHOLD run -w 60s a -- true").code(), 0);
}

/// Shows G-01, G-36.
#[test]
fn watchdog_of_killed_run_releases_nothing_beside_a_process_that_it_cannot_end() {
    let mut sandbox = Sandbox::on_redis();
    // A grace that no test outlasts.
    sandbox.set("crash-grace=3600s");
    let program = program_of_root(&sandbox);
    std::fs::write(sandbox.path("job"), format!("{program} & exec sleep 1000")).unwrap();
    let line = "exec $LEASEHOLD run a --lease 2h -- sh job";
    let mut run = Started::of(&mut as_user(&sandbox, line));
    let left = sandbox.pid("pid");

    run.signal(Signal::SIGKILL);
    let report = run.wait_for_output("leasehold was killed; ");
    assert!(report.contains(&left.to_string()), "{report}");
    // The watchdog is the last process with this pipe, but for the one that is left.
    sandbox.touch("go");
    run.wait();
    assert_eq!(sandbox.holders("a").len(), 1);
}

/// The command itself is a program of another user, as with sudo.
///
/// Shows G-36.
#[test]
fn run_ends_beside_a_command_that_kill_does_not_end() {
    for sandbox in [Sandbox::new(), Sandbox::on_redis()] {
        let program = program_of_root(&sandbox);
        std::fs::write(sandbox.path("job"), format!("exec {program}")).unwrap();
        let line = "exec $LEASEHOLD run a --max-hold 2s -- sh job";
        let mut run = Started::of(&mut as_user(&sandbox, line));
        let left = sandbox.pid("pid");
        until("the run has ended", || !run.is_running());
        let report = run.wait_for_output(&format!("still run after KILL: {left}"));
        assert!(
            report.ends_with("another client may hold it beside them"),
            "{report}"
        );
        assert_eq!(run.wait().code(), 76);
        assert!(is_alive(left));
        sandbox.touch("go");
        until("the command has ended", || !is_alive(left));
    }
}

/// Shows G-36.
#[test]
fn second_signal_ends_a_run_that_waits_for_processes_that_kill_does_not_end() {
    let sandbox = Sandbox::on_redis();
    let program = program_of_root(&sandbox);
    let job = format!("echo $PPID > parent; {program} & exec sleep 1000");
    std::fs::write(sandbox.path("job"), job).unwrap();
    let line = "exec $LEASEHOLD run a -- sh job";
    let mut run = Started::of(&mut as_user(&sandbox, line));
    let left = sandbox.pid("pid");
    kill(sandbox.pid("parent"), Signal::SIGKILL).unwrap();

    let report = run.wait_for_output("; the lock stays held while they run");
    assert!(report.contains(&left.to_string()), "{report}");
    run.signal(Signal::SIGTERM);
    run.wait_for_output("; another signal ends leasehold");
    run.signal(Signal::SIGINT);
    assert_eq!(run.wait().code(), 76);
    assert!(!sandbox.is_free("a"));
    sandbox.touch("go");
}

/// Runs a command line where a filter refuses `pidfd_open`(2), whose number is 434 everywhere.
fn without_pidfd_open(sandbox: &Sandbox, line: &str) -> Command {
    without_system_call(sandbox, "434", line)
}

/// Runs a command line where a filter refuses a system call. Python evaluates its number.
fn without_system_call(sandbox: &Sandbox, number: &str, line: &str) -> Command {
    let filter = "import ctypes, errno, os, struct, sys
ops = [(0x20, 0, 0, 0), (0x15, 0, 1, eval(sys.argv[2])),
       (0x06, 0, 0, 0x50000 | errno.EPERM), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *op) for op in ops))
program = struct.pack('HxxxxxxP', len(ops), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execvp('sh', ['sh', '-c', sys.argv[1]])";
    let mut python = Command::new("python3");
    python
        .args(["-c", filter, line, number])
        .current_dir(sandbox.path(""))
        .env("LEASEHOLD", BIN)
        .env("LEASEHOLD_STORE", sandbox.url());
    python
}

/// leasehold cannot stop itself where tgkill(2) fails, which is an error while the command runs.
///
/// Shows G-36.
#[test]
fn error_of_the_supervision_does_not_release_the_lock_beside_descendants() {
    const TGKILL: &str = "{'x86_64': 234}.get(os.uname().machine, 131)";

    let sandbox = Sandbox::new();
    // It names itself when it has left the process group of the command.
    let line = "exec $LEASEHOLD run a -- sh -c \"
                    setsid sh -c 'echo \\$\\$ > pid; exec sleep 1000' & wait\"";
    let mut run = Started::of(&mut without_system_call(&sandbox, TGKILL, line));
    let descendant = sandbox.pid("pid");
    run.signal(Signal::SIGTSTP);
    until("leasehold has ended", || !run.is_running());
    let next = ["run", "-n", "a", "--", "true"];
    sandbox.done(&next).assert(75, "", "a was not granted");

    kill(descendant, Signal::SIGKILL).unwrap();
    assert_eq!(run.wait().code(), 70);
}

#[test]
fn owner_whose_end_cannot_be_observed_is_refused_with_the_system_call() {
    let sandbox = Sandbox::new();
    let line = "exec $LEASEHOLD acquire a --while-pid $$";
    let done: Finished = without_pidfd_open(&sandbox, line).output().unwrap().into();
    done.assert(64, "", ": pidfd_open: Operation not permitted");
    assert!(done.err.contains("acquire --detach"), "{done:?}");
}

/// Shows G-36.
#[test]
fn loss_sends_term_to_other_sessions_without_pidfd_open() {
    let sandbox = Sandbox::new();
    let line = "exec $LEASEHOLD run a --max-hold 20s -k 9s -- sh -c \"
                    setsid sh -c 'trap \\\"echo cleaned > log; exit 0\\\" TERM; echo \\$\\$ > pid
                                  while :; do sleep 0.01; done' & wait; wait\"";
    let run = Started::of(&mut without_pidfd_open(&sandbox, line));
    let descendant = sandbox.pid("pid");
    let token = sandbox.token("a");
    assert_eq!(sandbox.done(&["break", "a", "--token", &token]).code(), 0);
    assert_eq!(run.wait().code(), 76);
    assert_eq!(sandbox.read("log"), "cleaned\n");
    assert!(!is_alive(descendant));
}

/// Shows G-36.
#[test]
fn loss_ends_the_group_where_proc_belongs_to_another_namespace() {
    let sandbox = Sandbox::new();
    let line = "sleep 1000 & echo $! > pid; wait; sleep 1000";
    let text = "$LEASEHOLD run a --max-hold 2s -- sh -c \"$0\"; echo $?
                # The number is that of this namespace.
                kill -0 $(cat pid) 2> /dev/null || echo ended
                $LEASEHOLD run a --until-all-end -- true; echo $?";
    let mut container = Command::new("unshare");
    container
        .args(["--pid", "--fork", "sh", "-c", text, line])
        .current_dir(sandbox.path(""))
        .env("LEASEHOLD", BIN)
        .env("LEASEHOLD_STORE", sandbox.url());
    let done: Finished = container.output().unwrap().into();
    done.assert(
        0,
        "76\nended\n70\n",
        "/proc belongs to another PID namespace",
    );
}
