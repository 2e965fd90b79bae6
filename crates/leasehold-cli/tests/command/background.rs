//! Locks that a script holds in the background: acquire and release.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::sandbox::{Finished, Sandbox, Started, is_alive, is_stopped, until};
use crate::scripts::holding;

#[test]
fn stopped_background_holder_is_named_and_has_the_name_of_the_program() {
    let sandbox = Sandbox::new();
    let acquired = sandbox.done(&["acquire", "a", "--detach"]);
    assert_eq!(acquired.code(), 0, "{acquired:?}");
    let pid = sandbox.holders("a")[0]["pid"].to_string();
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    assert_eq!(name, "leasehold\n");

    let pid = Pid::from_raw(pid.parse().unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    until("the holder is shown as stopped", || {
        sandbox.holders("a")[0]["stopped"] == true
    });
    kill(pid, Signal::SIGCONT).unwrap();
    let release = ["release", "a", "--token", acquired.out.trim()];
    sandbox.done(&release).assert(0, "", "");
}

/// The script waits for the command, which waits for the end of the script.
#[test]
fn run_and_wait_say_that_their_own_script_holds_the_lock() {
    let sandbox = Sandbox::new();
    let text = "token=$(leasehold acquire a --while-pid $$) || exit
                echo $$ $token
                sh -c 'leasehold run a --wait 1s -- true; leasehold wait a --wait 1s' 2> own
                leasehold release a --token $token
                leasehold acquire a --detach > token
                leasehold run a --wait 1s -- true 2> detached
                leasehold release a --token $(cat token)";
    let done = sandbox.run_script("sh", text);
    assert_eq!(done.code(), 0, "{done:?}");

    let (pid, token) = done.out.trim().split_once(' ').unwrap();
    let advice = format!(
        "its owner, process {pid}, has started this command; to release it: leasehold release a \
         --token {token}"
    );
    let own = sandbox.read("own");
    assert_eq!(own.matches(&advice).count(), 3, "{own}");
    assert!(
        !sandbox
            .read("detached")
            .contains("has started this command")
    );
}

#[test]
fn script_holds_a_lock_over_several_commands() {
    let sandbox = Sandbox::new();
    let text = "token=$(leasehold acquire a --while-pid $$) || exit
                leasehold show --exit-code a > shown; echo $?
                leasehold run a --wait 0 --quiet -- true; echo $?
                leasehold release a --token $token; echo $?
                leasehold run a --wait 0 -- echo free
                leasehold release a --token $token 2> again; echo $?";
    for shell in ["sh", "bash"] {
        let done = sandbox.run_script(shell, text);
        done.assert(0, "1\n75\n0\nfree\n1\n", "");
        assert!(sandbox.read("shown").contains(&format!("({shell})")));
        assert!(
            sandbox
                .read("again")
                .contains("no claim holds it with this token")
        );
    }
}

/// Shows G-38.
#[test]
fn killed_script_frees_the_lock() {
    let sandbox = Sandbox::new();
    let text = "leasehold acquire a --while-pid $$ > token; exec sleep 1000";
    let script = sandbox.start_script(text);
    until("the lock is held", || sandbox.read("token").ends_with('\n'));
    let holder = sandbox.holder_pid("a");

    script.signal(Signal::SIGKILL);
    sandbox
        .done(&["run", "a", "--wait", "30s", "--", "echo", "next"])
        .assert(0, "next\n", "");
    until("the background process is gone", || !is_alive(holder));
}

/// It handles TERM before KILL, as it would if it ran.
///
/// Shows G-38.
#[test]
fn stopped_script_is_continued_to_handle_the_loss() {
    let sandbox = Sandbox::new();
    let text = "trap 'echo cleaned > log; exit 3' TERM
                leasehold acquire a --kill-after 20s --while-pid $$ > token
                kill -STOP $$; while :; do sleep 0.01; done";
    let script = sandbox.start_script(text);
    until("the script has stopped", || is_stopped(script.pid()));

    let token = sandbox.token("a");
    assert_eq!(sandbox.done(&["break", "a", "--token", &token]).code(), 0);
    assert_eq!(script.wait().code(), 3);
    assert_eq!(sandbox.read("log"), "cleaned\n");
}

/// Shows G-38.
#[test]
fn killed_background_process_frees_the_lock() {
    let sandbox = Sandbox::new();
    let done = sandbox.done(&["acquire", "a", "--detach"]);
    kill(sandbox.holder_pid("a"), Signal::SIGKILL).unwrap();
    sandbox
        .done(&["run", "a", "--wait", "30s", "--", "echo", "next"])
        .assert(0, "next\n", "");
    sandbox
        .done(&["release", "a", "--token", done.out.trim()])
        .assert(1, "", "cannot release a");
}

/// Shows G-38.
#[test]
fn broken_background_hold_cannot_be_released() {
    let sandbox = Sandbox::new();
    let token = sandbox.done(&["acquire", "a", "--detach"]).out;
    let holder = sandbox.holder_pid("a");
    sandbox.done(&["break", "a", "--token", token.trim()]);
    until("the background process has ended", || !is_alive(holder));
    sandbox
        .done(&["release", "a", "--token", token.trim()])
        .assert(1, "", "the lock was lost at ");
}

/// Shows G-38.
#[test]
fn detached_hold_outlives_its_script() {
    let sandbox = Sandbox::new();
    let token = sandbox.run_script("sh", "leasehold acquire a --detach").out;
    assert_eq!(sandbox.token("a"), token.trim());
    sandbox
        .done(&["release", "a", "--token", token.trim()])
        .assert(0, "", "");
    // The process that held the lock removes the files, and has them locked for a moment.
    until("the lock is free", || sandbox.flock("a"));
}

/// A release that returned before the lock is free would fail a try that follows.
///
/// Shows G-38.
#[test]
fn lock_is_free_when_release_returns() {
    let sandbox = Sandbox::new();
    let text = "for i in 1 2 3 4 5 6 7 8 9 10; do
                    token=$(leasehold acquire a --quiet --wait 0 --while-pid $$) || exit
                    leasehold release a --token $token || exit
                done";
    sandbox.run_script("sh", text).assert(0, "", "");
}

/// Shows G-38.
#[test]
fn release_ends_no_other_hold() {
    let sandbox = Sandbox::new();
    let run = sandbox.holder("run", &[]);
    sandbox
        .done(&["release", "run", "--token", &sandbox.token("run")])
        .assert(1, "", "no process of this user listens here");
    assert_eq!(sandbox.holders("run").len(), 1);
    run.end().assert(0, "", "");

    let (hold, token) = holding(&sandbox, &["a"]);
    let (other, other_token) = holding(&sandbox, &["b"]);
    let done = sandbox.done(&["release", "a", "--token", &other_token]);
    done.assert(1, "", "no claim holds it with this token");
    assert_eq!(
        (sandbox.token("a"), sandbox.token("b")),
        (token.clone(), other_token)
    );

    sandbox
        .done(&["release", "a", "--token", &token])
        .assert(0, "", "");
    hold.wait().assert(0, "", "");
    other.end().assert(0, "", "");
}

/// A lock whose token was not printed could not be released.
///
/// Shows G-38.
#[test]
fn killed_acquire_leaves_the_queue() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &[]);
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        let acquire = sandbox.waiter(&["acquire", "a", "--detach", "--quiet"]);
        acquire.signal(signal);
        until("the queue is empty", || sandbox.waiters("a").is_empty());
    }
    holder.end().assert(0, "", "");
    assert!(sandbox.is_free("a"));
}

/// Shows G-38.
#[test]
fn script_killed_while_it_waits_leaves_the_queue() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &[]);
    let text = "leasehold acquire a --quiet --while-pid $$; true";
    let script = sandbox.start_script(text);
    until("acquire is queued", || !sandbox.waiters("a").is_empty());
    script.signal(Signal::SIGKILL);
    until("the queue is empty", || sandbox.waiters("a").is_empty());
    holder.end().assert(0, "", "");
}

/// A stopped `acquire` prints no token, and its script can no longer continue it.
#[test]
fn stopped_acquire_of_a_killed_script_does_not_keep_the_lock() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &[]);
    let text = "leasehold acquire a --quiet --while-pid $$ & echo $! > pid; wait";
    let script = sandbox.start_script(text);
    until("acquire is queued", || !sandbox.waiters("a").is_empty());
    let acquire = sandbox.pid("pid");
    kill(acquire, Signal::SIGSTOP).unwrap();
    holder.end().assert(0, "", "");
    until("it is granted", || sandbox.holders("a").len() == 1);

    script.signal(Signal::SIGKILL);
    until("the lock is free", || sandbox.is_free("a"));
    kill(acquire, Signal::SIGKILL).unwrap();
}

/// A token that cannot be printed would be lost with the lock held.
///
/// Shows G-38.
#[test]
fn acquire_without_a_reader_of_the_token_releases_the_lock() {
    let sandbox = Sandbox::new();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut acquire = sandbox.leasehold(&["acquire", "a", "--detach"]);
    let done = acquire.stdout(full).output().unwrap();
    assert_eq!(done.status.code(), Some(70), "{done:?}");
    until("the lock is free", || sandbox.is_free("a"));

    let mut hold = sandbox.leasehold(&["hold", "a"]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let hold = hold.stdin(Stdio::piped()).stdout(full).spawn().unwrap();
    assert_eq!(Started::from(hold).wait().code(), 70);
    assert!(sandbox.is_free("a"));
}

/// An open file of the caller, such as a lock of flock(1), must not stay open in the background.
#[test]
fn background_hold_keeps_no_file_of_its_caller_open() {
    let sandbox = Sandbox::new();
    let text = "exec 9> file 8> other; flock 9; leasehold acquire a --detach";
    let token = sandbox.run_script("bash", text).out;
    let holder = sandbox.holder_pid("a");

    let flock = ["-n", "file", "true"];
    let locked = Command::new("flock")
        .args(flock)
        .current_dir(sandbox.path(""))
        .status();
    assert!(locked.unwrap().success());
    for fd in 0..3 {
        let path = format!("/proc/{holder}/fd/{fd}");
        assert_eq!(
            std::fs::read_link(path).unwrap(),
            std::path::Path::new("/dev/null")
        );
    }
    sandbox
        .done(&["release", "a", "--token", token.trim()])
        .assert(0, "", "");
}

/// As under cron: hardly an environment, no terminal, a session of its own, no input.
#[test]
fn acquire_works_from_cron_and_hold_names_the_option() {
    let sandbox = Sandbox::new();
    let text = "token=$(leasehold acquire a --while-pid $$) || exit
                leasehold release a --token $token || exit
                leasehold hold a; echo $?
                leasehold hold a --while-pid $$ > token & wait_for=$!
                while ! [ -s token ]; do sleep 0.01; done
                leasehold release a --token $(cat token) && wait $wait_for; echo $?";
    let shell = sandbox.script("sh", text);

    let mut cron = Command::new("setsid");
    cron.args(["--wait", "sh", "-c", text])
        .current_dir(sandbox.path(""))
        .stdin(Stdio::null())
        .env_clear();
    let kept = shell
        .get_envs()
        .filter(|(name, _)| *name == "PATH" || *name == "LEASEHOLD_STORE");
    cron.envs(kept.filter_map(|(name, value)| Some((name, value?))));

    let done: Finished = cron.output().unwrap().into();
    done.assert(0, "64\n0\n", "--while-pid");
    assert!(sandbox.is_free("a"));
}

/// In a container, a script is the first process.
#[test]
fn first_process_of_a_container_is_an_owner() {
    let sandbox = Sandbox::new();
    let inner = "leasehold acquire a --while-pid $$ --on-lost ignore || exit
                 leasehold show --exit-code a > shown; echo $?";
    let text = format!("unshare --pid --fork --mount-proc sh -c '{inner}'");
    let done = sandbox.run_script("sh", &text);
    let (_token, code) = done.out.split_once('\n').unwrap();
    assert_eq!((code, done.code()), ("1\n", 0), "{done:?}");
    until("the lock is free", || sandbox.is_free("a"));
}

/// The server refuses the requests of the holder alone. So it keeps the lock, and `release` sees that.
///
/// Shows G-38.
#[test]
fn release_that_the_store_does_not_confirm_is_not_reported_as_done() {
    let sandbox = Sandbox::on_redis();
    let user = |rules: &[&str]| {
        let command = [&["ACL", "SETUSER", "holder"], rules].concat();
        sandbox.server().command(&command);
    };
    user(&["on", ">secret", "~*", "&*", "+@all"]);
    let url = format!("redis://holder:secret@{}", sandbox.server().address());
    let token = sandbox.done(&["acquire", "a", "--detach", "--store", &url]);
    let token = token.out.trim();

    user(&["-@all"]);
    let release = sandbox.done(&["release", "a", "--token", token]);
    release.assert(69, "", "has not confirmed it");
    assert_eq!(sandbox.token("a"), token);
}

/// The server has forgotten the lock, and the holder learns of that by the request.
///
/// Shows G-38.
#[test]
fn hold_that_was_lost_before_its_release_exits_with_76() {
    let sandbox = Sandbox::on_redis();
    let (hold, _) = holding(&sandbox, &["a", "--lease", "1h"]);
    let claim = claim_of(&sandbox, "a");
    sandbox.server().command(&["FLUSHALL"]);

    assert!(is_replied_to(0, &claim, &format!("r{claim}")));
    let lost = "leasehold: lost a: the store no longer had it when it was released";
    hold.wait().assert(76, "", lost);
}

/// Another user may listen on the address of a claim. `release` must not take its reply.
#[test]
fn release_ignores_a_socket_of_another_user() {
    let sandbox = Sandbox::new();
    let run = HeldRun::start(&sandbox);
    let _hostile = run.hostile_listener(
        "s.listen()",
        "while True:\n    c = s.accept()[0]; c.sendall(b'\\0')",
    );

    let released = sandbox.done(&["release", "a", "--token", &run.token]);
    released.assert(1, "", "no process of this user listens here");
    run.run.end().assert(0, "", "");
}

/// A listener that accepts nothing would otherwise keep the caller, whom no signal then ends.
#[test]
fn check_ends_although_the_queue_of_the_address_is_full() {
    let sandbox = Sandbox::new();
    let run = HeldRun::start(&sandbox);
    let full = "s.listen(0); c = socket.socket(socket.AF_UNIX); c.connect(s.getsockname())";
    let _hostile = run.hostile_listener(full, "import time; time.sleep(1000)");

    let checked = sandbox.done(&["check", "a", "--token", &run.token]);
    checked.assert(0, "", "");
    run.run.end().assert(0, "", "");
}

/// A run that holds the lock `a`, as its command sees the hold.
struct HeldRun {
    run: Started,
    token: String,
    claim: String,
}

impl HeldRun {
    fn start(sandbox: &Sandbox) -> Self {
        let line = "echo $LEASEHOLD_TOKEN $LEASEHOLD_CLAIM > ids; exec cat";
        let run = sandbox.started(&["run", "a", "--", "sh", "-c", line]);
        until("the run holds the lock", || {
            sandbox.read("ids").ends_with('\n')
        });
        let ids = sandbox.read("ids");
        let (token, claim) = ids.trim().split_once(' ').unwrap();
        Self {
            run,
            token: token.to_owned(),
            claim: claim.to_owned(),
        }
    }

    /// Binds the address of the claim as another user, whose Python code listens and then goes on.
    fn hostile_listener(&self, listen: &str, then: &str) -> Started {
        let claim = &self.claim;
        let server = format!(
            "import hashlib, socket\n\
             s = socket.socket(socket.AF_UNIX)\n\
             s.bind('\\0leasehold/' + hashlib.sha1(b'{claim}').hexdigest())\n\
             {listen}\n\
             print('ready', flush=True)\n\
             {then}\n"
        );
        let mut hostile = Command::new("setpriv");
        hostile
            .args(["--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c"])
            .arg(&server)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut hostile = Started::from(hostile.spawn().unwrap());
        let mut ready = String::new();
        BufReader::new(hostile.out()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        hostile
    }
}

/// Sends a request to the holder of a claim, as a user. Returns whether a reply came.
fn is_replied_to(user: u32, claim: &str, request: &str) -> bool {
    let client = format!(
        "import hashlib, socket\n\
         s = socket.socket(socket.AF_UNIX)\n\
         s.connect('\\0leasehold/' + hashlib.sha1(b'{claim}').hexdigest())\n\
         try:\n    s.sendall(b'{request}')\n    print(len(s.recv(1)))\n\
         except ConnectionError:\n    print(0)\n"
    );
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={user}"));
    command.args(["--clear-groups", "/usr/bin/python3", "-c", &client]);
    let done: Finished = command.output().unwrap().into();
    assert_eq!(done.code(), 0, "{done:?}");
    done.out == "1\n"
}

fn claim_of(sandbox: &Sandbox, name: &str) -> String {
    let locks = leasehold::blocking::open(&sandbox.url()).unwrap();
    locks.inspect(name).unwrap().entries[0].id.to_string()
}

/// All users can list the addresses of sockets. Only the user of the holder is replied to.
///
/// Shows G-38.
#[test]
fn claim_id_is_a_secret_that_a_request_must_have() {
    let sandbox = Sandbox::new();
    let token = sandbox.done(&["acquire", "a", "--detach"]).out;
    let claim = claim_of(&sandbox, "a");
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    assert!(sockets.contains("@leasehold/") && !sockets.contains(&claim));

    let wrong = "0".repeat(claim.len());
    assert!(!is_replied_to(0, &claim, &format!("r{wrong}")));
    assert!(!is_replied_to(0, &claim, &format!("c{wrong}")));
    for request in [format!("r{claim}"), format!("c{claim}")] {
        assert!(!is_replied_to(54_301, &claim, &request), "another user");
    }
    assert!(is_replied_to(0, &claim, &format!("c{claim}")));
    let release = ["release", "a", "--token", token.trim()];
    sandbox.done(&release).assert(0, "", "");
}

/// In a user namespace without a map, all users have one number.
#[test]
fn holder_without_a_number_takes_no_user_for_its_own() {
    let sandbox = Sandbox::new();
    let done = sandbox
        .script("unshare -U sh", "leasehold acquire a --detach")
        .output();
    let done: Finished = done.unwrap().into();
    assert_eq!(done.code(), 0, "{done:?}");

    let claim = claim_of(&sandbox, "a");
    for user in [0, 54_301] {
        assert!(!is_replied_to(user, &claim, &format!("r{claim}")), "{user}");
    }
    let holder = sandbox.holder_pid("a");
    assert!(is_alive(holder));
    kill(holder, Signal::SIGTERM).unwrap();
    until("the lock is free", || sandbox.is_free("a"));
}

#[test]
fn background_holder_leaves_the_working_directory() {
    let sandbox = Sandbox::new();
    sandbox.touch("password");
    sandbox.done(&["acquire", "a", "--detach"]);
    let directory = format!("/proc/{}/cwd", sandbox.holder_pid("a"));
    assert_eq!(std::fs::read_link(directory).unwrap(), Path::new("/"));
}

/// The holder reads the file again when it connects again, from another working directory.
#[test]
fn background_holder_finds_a_relative_password_file_again() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("password-file=password");
    let mut admin = sandbox.server().connection();
    let mut set_password = |password: &str| {
        std::fs::write(sandbox.path("password"), password).unwrap();
        for request in [
            &["CONFIG", "SET", "requirepass", password][..],
            &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
        ] {
            assert!(!admin.request(request).unwrap().is_error());
        }
    };
    set_password("first");
    let token = sandbox.done(&["acquire", "a", "--detach"]).out;

    set_password("second");
    sandbox
        .done(&["release", "a", "--token", token.trim()])
        .assert(0, "", "");
    assert!(sandbox.is_free("a"));
}

/// All users can read the arguments of a process.
#[test]
fn background_process_does_not_show_the_url_of_its_store() {
    let sandbox = Sandbox::on_redis();
    let url = sandbox.url();
    let equals = format!("--store={url}");
    for options in [&["--store", &url][..], &[&equals]] {
        let mut acquire = sandbox.leasehold(&["acquire", "--detach"]);
        acquire.args(options).args(["--", "--store"]);
        acquire.env_remove("LEASEHOLD_STORE");
        let done: Finished = acquire.output().unwrap().into();
        assert_eq!(done.code(), 0, "{done:?}");

        let pid = sandbox.holder_pid("--store");
        let arguments = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(arguments.contains("__background"), "{arguments}");
        assert!(!arguments.contains("redis:"), "{arguments}");
        let release = ["release", "--token", done.out.trim(), "--", "--store"];
        sandbox.done(&release).assert(0, "", "");
    }
}
