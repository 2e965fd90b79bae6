//! Exit codes, and what the command finds.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use crate::place::{Done, Place};

#[test]
fn as_the_command_ends() {
    let place = Place::new();
    place.done(&["run", "a", "--", "echo", "hi"]).assert(0, "hi\n", "");
    place.done(&["run", "a", "--", "sh", "-c", "exit 3"]).assert(3, "", "");
    place.done(&["run", "a", "--", "sh", "-c", "kill -TERM $$"]).assert(143, "", "");
    place.done(&["run", "a", "--", "sh", "-c", "kill -KILL $$"]).assert(137, "", "");
    place.done(&["run", "a", "echo", "-n", "--wait"]).assert(0, "--wait", "");
    assert!(place.is_free("a"));
}

#[test]
fn as_a_shell_when_it_cannot_be_executed() {
    let place = Place::new();
    place.done(&["run", "a", "--", "no-such-command"]).assert(127, "", "leasehold: cannot execute no-such-command: ");
    place.touch("plain");
    place.done(&["run", "a", "--", "./plain"]).assert(126, "", "leasehold: cannot execute ./plain: Permission denied");
    std::fs::write(place.path("script"), "echo from a script without a first line\n").unwrap();
    std::fs::set_permissions(place.path("script"), PermissionsExt::from_mode(0o755)).unwrap();
    place.done(&["run", "a", "--", "./script"]).assert(0, "from a script without a first line\n", "");
    assert!(place.is_free("a"));
}

#[test]
fn wrong_usage_is_64() {
    let place = Place::new();
    let cases: &[&[&str]] = &[
        &[],
        &["nonsense"],
        &["run"],
        &["run", "a"],
        &["run", "a", "--"],
        &["run", "a", "--wiat", "1s", "--", "true"],
        &["run", "a", "--wait", "soon", "--", "true"],
        &["run", "a", "--wait", "30", "--", "true"],
        &["run", "a", "--lease", "1ms", "--", "true"],
        &["run", "a", "--max-hold", "0", "--", "true"],
        &["run", "a", "--slots", "0", "--", "true"],
        &["run", "a", "--slots", "2", "--take", "3", "--", "true"],
        &["run", "a", "--take", "1", "--", "true"],
        &["run", "a", "--slots", "2", "--shared", "--", "true"],
        &["run", "a", "--on-lost", "panic", "--", "true"],
        &["run", "a", "--fixed", "--lease", "4s", "--grace", "3s", "--", "true"],
        &["run", "a", "--max-hold", "4s", "--grace", "3s", "--", "true"],
        &["run", "a", "--max-hold", "4s", "--hold-at-least", "5s", "--", "true"],
        &["run", "a", "--label", &"x".repeat(65), "--", "true"],
        &["run", "", "--", "true"],
        &["run", &"x".repeat(513), "--", "true"],
        &["run", "a", "--store", "nonsense:", "--", "true"],
        &["show"],
        &["show", ""],
        &["break", "a"],
        &["break", "a", "--token", "0"],
        &["man", "nonsense"],
        &["completions", "nonsense"],
    ];
    for arguments in cases {
        let done = place.done(arguments);
        assert_eq!((done.code(), done.out.as_str()), (64, ""), "{arguments:?}: {done:?}");
        assert!(!done.err.is_empty(), "{arguments:?} says nothing");
    }
}

#[test]
fn text_that_is_not_utf8_is_a_command_but_no_name() {
    let place = Place::new();
    let broken = std::ffi::OsStr::from_bytes(b"a\xffb");
    let mut run = place.leasehold(&["run"]);
    let done: Done = run.arg(broken).args(["--", "true"]).output().unwrap().into();
    done.assert(64, "", "invalid UTF-8");
    let mut run = place.leasehold(&["run", "a", "--", "printf", "%s"]);
    assert_eq!(run.arg(broken).output().unwrap().stdout, broken.as_bytes());
}

#[test]
fn a_store_of_another_kind_is_64() {
    let place = Place::new();
    let holder = place.holder("a", &["--slots", "2"]);
    place.done(&["run", "a", "--", "true"]).assert(64, "", "the name is in use as a semaphore of 2 slots");
    place.done(&["run", "a", "--slots", "3", "--", "true"]).assert(64, "", "semaphore of 3 slots");
    assert_eq!(holder.end().code(), 0);
}

#[test]
fn a_store_that_cannot_work_now_is_69() {
    let place = Place::new();
    let with_files = |limit: u32| -> Done {
        let mut shell = std::process::Command::new("sh");
        let line = format!("ulimit -n {limit}; exec {} show a", env!("CARGO_BIN_EXE_leasehold"));
        shell.args(["-c", &line]).env("LEASEHOLD_STORE", place.url()).output().unwrap().into()
    };
    // With few, leasehold itself cannot start; with many, all is well; between them it is the store that cannot.
    let codes: Vec<_> = (8..40).map(|limit| with_files(limit).code()).collect();
    assert!(codes.contains(&69) && codes.iter().all(|code| [0, 69, 70].contains(code)), "{codes:?}");
    assert_eq!(codes.last(), Some(&0));
}

#[test]
fn a_damaged_store_is_70() {
    let place = Place::new();
    place.done(&["run", "a", "--", "true"]).assert(0, "", "");
    std::fs::write(place.path("store/a.line"), "this is no line").unwrap();
    place.done(&["run", "a", "--", "true"]).assert(70, "", "leasehold: cannot acquire \"a\" on file:/");
    place.done(&["run", "b", "--", "true"]).assert(0, "", "");
}

#[test]
fn a_store_that_refuses_is_77() {
    // Nobody may make a folder there, not even root.
    let done = Place::new().done(&["run", "a", "--store", "file:/sys/leasehold?local=yes", "--", "true"]);
    done.assert(77, "", "permission denied");
    assert_eq!(done.err.lines().count(), 1);
}

#[test]
fn the_command_finds_its_grant() {
    let place = Place::new();
    let line = r#"echo "$LEASEHOLD_NAME|$LEASEHOLD_TOKEN|$LEASEHOLD_STORE""#;
    let done = place.done(&["run", "ü b", "--", "sh", "-c", line]);
    let token = place.show("ü b")["last_token"].to_string();
    done.assert(0, &format!("ü b|{token}|{}\n", place.url()), "");
}

#[test]
fn the_command_finds_the_store_from_elsewhere() {
    let place = Place::new();
    let line = "cd / && echo $LEASEHOLD_STORE";
    let done = place.done(&["run", "a", "--store", "file:here", "--", "sh", "-c", line]);
    done.assert(0, &format!("file:{}\n", place.path("here").canonicalize().unwrap().display()), "");
}

#[test]
fn what_is_ignored_stays_ignored() {
    let place = Place::new();
    let line = "trap '' HUP; exec \"$@\" run a -- grep SigIgn: /proc/self/status";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", line, "sh", env!("CARGO_BIN_EXE_leasehold")]).env("LEASEHOLD_STORE", place.url());
    let done: Done = shell.output().unwrap().into();
    let mask = done.out.trim().strip_prefix("SigIgn:\t").unwrap();
    let [hup, pipe] = [1, 13].map(|signal| u64::from_str_radix(mask, 16).unwrap() >> (signal - 1) & 1);
    assert_eq!((hup, pipe), (1, 0), "hangups stay ignored, and what Rust ignores for itself is not passed on");
}

#[test]
fn standard_input_is_the_commands() {
    let place = Place::new();
    std::fs::write(place.path("in"), "through\n".repeat(100_000)).unwrap();
    let input = std::fs::File::open(place.path("in")).unwrap();
    let mut run = place.leasehold(&["run", "a", "--", "cat"]);
    let done: Done = run.stdin(input).output().unwrap().into();
    done.assert(0, &place.read("in"), "");
}
