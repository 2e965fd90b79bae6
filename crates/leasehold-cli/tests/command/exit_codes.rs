//! Exit codes, and the environment and the descriptors that COMMAND gets.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use crate::sandbox::{Finished, Sandbox};

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

#[test]
fn exit_code_is_that_of_the_command() {
    let sandbox = Sandbox::new();
    sandbox
        .done(&["run", "a", "--", "echo", "hi"])
        .assert(0, "hi\n", "");
    sandbox
        .done(&["run", "a", "--", "sh", "-c", "exit 3"])
        .assert(3, "", "");
    sandbox
        .done(&["run", "a", "--", "echo", "-n", "--wait", "--"])
        .assert(0, "--wait --", "");
    assert!(sandbox.is_free("a"));
}

#[test]
fn unexecutable_command_exits_126_or_127() {
    let sandbox = Sandbox::new();
    sandbox.done(&["run", "a", "--", "no-such-command"]).assert(
        127,
        "",
        "leasehold: cannot execute no-such-command: ",
    );
    sandbox.touch("plain");
    sandbox.done(&["run", "a", "--", "./plain"]).assert(
        126,
        "",
        "leasehold: cannot execute ./plain: Permission denied",
    );
    std::fs::write(sandbox.path("no-sh"), "#!/missing/sh -e\n").unwrap();
    std::fs::set_permissions(sandbox.path("no-sh"), PermissionsExt::from_mode(0o755)).unwrap();
    sandbox.done(&["run", "a", "--", "./no-sh"]).assert(
        127,
        "",
        "./no-sh: No such file or directory (os error 2); its interpreter is /missing/sh\n",
    );
    std::fs::write(
        sandbox.path("script"),
        "echo from a script without a first line\n",
    )
    .unwrap();
    std::fs::set_permissions(sandbox.path("script"), PermissionsExt::from_mode(0o755)).unwrap();
    sandbox.done(&["run", "a", "--", "./script"]).assert(
        0,
        "from a script without a first line\n",
        "",
    );
    assert!(sandbox.is_free("a"));
}

/// A user has the PATH of root under some sudo and cron, with folders that only root may search.
#[test]
fn missing_command_exits_127_beside_a_folder_that_may_not_be_searched() {
    let sandbox = Sandbox::new();
    let set_mode = |path: &str, mode| {
        let mode = PermissionsExt::from_mode(mode);
        std::fs::set_permissions(sandbox.path(path), mode).unwrap();
    };
    for folder in ["closed", "open"] {
        std::fs::create_dir(sandbox.path(folder)).unwrap();
    }
    sandbox.touch("open/plain");
    set_mode("closed", 0o700);
    set_mode("", 0o777);
    let [closed, open] = ["closed", "open"].map(|folder| sandbox.path(folder));
    let path = format!("{}:{}:/usr/bin:/bin", closed.display(), open.display());

    for (program, code, reason) in [
        ("no-such-command", 127, "No such file or directory"),
        ("plain", 126, "Permission denied"),
    ] {
        let mut run = std::process::Command::new("setpriv");
        run.args([
            "--reuid=54430",
            "--regid=54430",
            "--clear-groups",
            LEASEHOLD,
        ])
        .args(["run", "a", "--", program])
        .env("LEASEHOLD_STORE", sandbox.url())
        .env("PATH", &path);
        let done: Finished = run.output().unwrap().into();
        done.assert(code, "", &format!("cannot execute {program}: {reason}"));
    }
}

#[test]
fn non_utf8_text_is_accepted_as_command_and_refused_as_name() {
    let sandbox = Sandbox::new();
    let broken = std::ffi::OsStr::from_bytes(b"a\xffb");
    let mut run = sandbox.leasehold(&["run"]);
    let done: Finished = run
        .arg(broken)
        .args(["--", "true"])
        .output()
        .unwrap()
        .into();
    done.assert(64, "", "the argument \"a\u{fffd}b\" is not valid UTF-8");
    let mut run = sandbox.leasehold(&["run", "a", "--", "printf", "%s"]);
    assert_eq!(run.arg(broken).output().unwrap().stdout, broken.as_bytes());
}

#[test]
fn lock_kind_mismatch_exits_64() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &["--slots", "2"]);
    sandbox
        .done(&["run", "a", "--", "true"])
        .assert(64, "", "semaphore of 2 slots");
    sandbox
        .done(&["run", "a", "--slots", "3", "--", "true"])
        .assert(64, "", "semaphore of 3 slots");
    assert_eq!(holder.end().code(), 0);
}

#[test]
fn unavailable_store_exits_69() {
    let sandbox = Sandbox::new();
    let with_files = |limit: u32| -> Finished {
        let mut shell = std::process::Command::new("sh");
        let line = format!(
            "ulimit -n {limit}; exec {} show a",
            env!("CARGO_BIN_EXE_leasehold")
        );
        shell
            .args(["-c", &line])
            .env("LEASEHOLD_STORE", sandbox.url())
            .output()
            .unwrap()
            .into()
    };
    // With few descriptors leasehold cannot start, with many it succeeds. Between these numbers the
    // store cannot be opened.
    let codes: Vec<_> = (8..40).map(|limit| with_files(limit).code()).collect();
    assert!(
        codes.contains(&69) && codes.iter().all(|code| [0, 69, 70].contains(code)),
        "{codes:?}"
    );
    assert_eq!(codes.last(), Some(&0));
}

#[test]
fn damaged_store_exits_70() {
    let sandbox = Sandbox::new();
    sandbox.done(&["run", "a", "--", "true"]).assert(0, "", "");
    std::fs::write(sandbox.path("store/a.queue"), "foreign text").unwrap();
    sandbox.done(&["run", "a", "--", "true"]).assert(
        70,
        "",
        "leasehold: cannot acquire \"a\" on file:/",
    );
    sandbox.done(&["run", "b", "--", "true"]).assert(0, "", "");
}

#[test]
fn denied_store_exits_77() {
    // No user may create a folder there, not even root.
    let done = Sandbox::new().done(&[
        "run",
        "a",
        "--store",
        "file:/sys/leasehold?local=yes",
        "--",
        "true",
    ]);
    done.assert(77, "", "permission denied");
    assert_eq!(done.err.lines().count(), 1);
}

#[test]
fn command_gets_name_token_and_store_in_environment() {
    let sandbox = Sandbox::new();
    let line = r#"echo "$LEASEHOLD_NAME|$LEASEHOLD_TOKEN|$LEASEHOLD_STORE"
        exec "$0" show "$LEASEHOLD_NAME" --json > shown"#;
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let done = sandbox.done(&["run", "ü b", "--", "sh", "-c", line, leasehold]);

    let shown: serde_json::Value = serde_json::from_str(&sandbox.read("shown")).unwrap();
    let token = shown["last_token"].as_str().unwrap();
    done.assert(0, &format!("ü b|{token}|{}\n", sandbox.url()), "");
}

#[test]
fn command_gets_the_store_of_the_option() {
    let sandbox = Sandbox::new();
    let store = format!("file:{}", sandbox.path("here").display());
    let line = "cd / && echo $LEASEHOLD_STORE";
    let done = sandbox.done(&["run", "a", "--store", &store, "--", "sh", "-c", line]);
    done.assert(0, &format!("{store}\n"), "");
}

#[test]
fn ignored_signals_stay_ignored_in_the_command() {
    let sandbox = Sandbox::new();
    let line = "trap '' HUP; exec \"$@\" run a -- grep SigIgn: /proc/self/status";
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", line, "sh", env!("CARGO_BIN_EXE_leasehold")])
        .env("LEASEHOLD_STORE", sandbox.url());
    let done: Finished = shell.output().unwrap().into();
    let mask = done.out.trim().strip_prefix("SigIgn:\t").unwrap();
    let [hup, pipe] =
        [1, 13].map(|signal| u64::from_str_radix(mask, 16).unwrap() >> (signal - 1) & 1);
    assert_eq!(
        (hup, pipe),
        (1, 0),
        "HUP stays ignored; PIPE, which Rust ignores for itself, is reset for the command"
    );
}

/// leasehold blocks the stop signal for itself. A command could not be stopped by Ctrl-Z.
///
/// Shows G-37.
#[test]
fn command_gets_the_signal_mask_of_the_caller() {
    let sandbox = Sandbox::new();
    let mask = ["grep", "SigBlk:", "/proc/self/status"];
    let output = std::process::Command::new(mask[0])
        .args(&mask[1..])
        .output()
        .unwrap();
    let own = String::from_utf8(output.stdout).unwrap();
    sandbox
        .done(&[&["run", "a", "--"], &mask[..]].concat())
        .assert(0, &own, "");
    let inner = [LEASEHOLD, "run", "a", "--reentrant", "--"];
    sandbox
        .done(&[&["run", "a", "--"], &inner[..], &mask].concat())
        .assert(0, &own, "");
}

#[test]
fn standard_input_goes_to_the_command() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("in"), "through\n".repeat(100_000)).unwrap();
    let input = std::fs::File::open(sandbox.path("in")).unwrap();
    let mut run = sandbox.leasehold(&["run", "a", "--", "cat"]);
    let done: Finished = run.stdin(input).output().unwrap().into();
    done.assert(0, &sandbox.read("in"), "");
}

/// A full disk behind standard output is an error of every subcommand that prints.
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("a", &[]);
    let cases: [&[&str]; 7] = [
        &["--help"],
        &["--version"],
        &["run", "--help"],
        &["man"],
        &["completions", "bash"],
        &["ls", "--json"],
        &["show", "a"],
    ];
    for arguments in cases {
        let full = std::fs::File::create("/dev/full").expect("opened");
        let mut command = sandbox.leasehold(arguments);
        let output = command.stdout(full).output().expect("started");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(70), "{arguments:?}: {text}");
        assert!(
            text.contains("cannot write to standard output: No space left on device"),
            "{arguments:?}: {text}"
        );
    }
}
