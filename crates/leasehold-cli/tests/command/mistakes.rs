//! Wrong usage, flock's options, and store URLs. Each message names the text to type.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use crate::sandbox::{Finished, Sandbox, Started, until};

/// Every message of wrong usage is one line that begins with `leasehold: `.
#[track_caller]
fn refused(done: &Finished, part: &str) {
    done.assert(64, "", part);
    assert!(done.err.starts_with("leasehold: "), "{done:?}");
    assert_eq!(done.err.lines().count(), 1, "{done:?}");
    assert!(!done.err.contains("--store <URL>"), "{done:?}");
    assert!(!done.err.contains("secret"), "{done:?}");
}

#[test]
fn wrong_store_url_is_refused_with_the_url_to_write() {
    let sandbox = Sandbox::new();
    let here = sandbox.path("").canonicalize().unwrap();
    let absolute = format!(
        "write the whole path, such as file:{}",
        here.join("locks").display()
    );
    for (store, part) in [
        ("memory:", "inside one process"),
        ("memory:x", "inside one process"),
        ("file:locks", absolute.as_str()),
        ("file:./locks", "depends on the working directory"),
        (
            "file:~/locks",
            "write the whole path, such as file:/home/user/folder",
        ),
        ("/var/lock/app", "write file:/var/lock/app"),
        ("locks/app", "use file:, system:"),
        ("", "the URL is empty; use file:"),
        ("etcd://host", "cannot keep locks on etcd; use file:"),
        ("consul://host", "cannot keep locks on Consul"),
        (
            "postgres://me:secret@host",
            "write postgres://user@host/database",
        ),
        ("sentinel://host", "write redis+sentinel://host1"),
        ("valkey://host", "write redis://host"),
        ("localhost:6379", "write redis://localhost:6379"),
        ("redis://me:secret#1@host", "write %2F, %3F, %40 and %23"),
        ("redis://me:secret/1@host", "write %2F, %3F, %40 and %23"),
        ("redis://me:1/secret@host", "write %2F, %3F, %40 and %23"),
        ("redlock://me:secret#1@a,b,c", "write %2F, %3F, %40 and %23"),
        (
            "zookeeper://me:secret/1@host",
            "write %2F, %3F, %40 and %23",
        ),
        (
            "redis://host?password-file=/nowhere",
            "no such file or directory",
        ),
    ] {
        for subcommand in [
            &["run", "a", "--", "echo", "ran"][..],
            &["ls"],
            &["show", "a"],
        ] {
            let mut command = sandbox.leasehold(&["--store", store]);
            let done = command.args(subcommand).output().unwrap();
            refused(&done.into(), part);
        }
    }
    let made = std::fs::read_dir(sandbox.path("")).unwrap();
    assert_eq!(made.count(), 0, "nothing is made");
}

#[test]
fn serve_refuses_all() {
    let sandbox = Sandbox::new();
    refused(
        &sandbox.done(&["serve", "--listen", "127.0.0.1:0", "--all"]),
        "--all",
    );
}

#[track_caller]
fn shows_no_secret(done: &Finished) {
    assert_eq!(done.code(), 64, "{done:?}");
    let shown = format!("{}{}", done.out, done.err);
    let has_secret = shown.contains("quser") || shown.contains("qpass");
    assert!(!has_secret, "{done:?}");
}

/// Shows G-35.
#[test]
fn url_without_its_scheme_shows_no_user_information() {
    let sandbox = Sandbox::new();
    for store in [
        "quser:qpass@host:6379",
        "redis:quser:qpass@host",
        "redis:/quser:qpass@host",
        "//quser:qpass@host",
        "- redis://quser:qpass@host",
        "redis://quser:12/qpass@a@host",
        "redis:quser:://qpass@host",
        "redis://quser:qpass@host?x=y@z",
        "redlock://quser:qpass@a,quser:qpass@b",
        "file:quser:qpass@host",
    ] {
        for subcommand in [&["run", "a", "--", "true"][..], &["doctor"], &["show", "a"]] {
            let with_option = [&["--store", store], subcommand].concat();
            shows_no_secret(&sandbox.done(&with_option));

            let with_variable = sandbox
                .leasehold(subcommand)
                .env("LEASEHOLD_STORE", store)
                .output();
            shows_no_secret(&with_variable.unwrap().into());
        }

        let both = sandbox
            .leasehold(&["run", "a", "--", "true"])
            .env("LEASEHOLD_ALSO_STORE", store)
            .output();
        shows_no_secret(&both.unwrap().into());
    }
}

/// Shows G-35.
#[test]
fn url_at_a_wrong_place_shows_no_user_information() {
    let sandbox = Sandbox::new();
    let url = "redis://quser:qpass@host";
    let with_settings = "postgres://host/db?user=quser&password=qpass";
    for arguments in [
        &["doctor", url][..],
        &[url, "ls"],
        &["ls", "a", url],
        &["run", "a", "-w", url, "--", "true"],
        &["run", "a", "--lease=redis://quser:qpass@host", "--", "true"],
        &["run", "a", "--kill-after", url, "--", "true"],
        &["run", "a", "--redis://quser:qpass@host", "--", "true"],
        &["run", "a", "psql postgres://quser:qpass@host"],
        &["release", "a", "--token", url],
        &["ls", "--dialect", url],
        &["doctor", with_settings],
        &["doctor", "postgres://quser@host/db?password=x@qpass"],
        &["run", "a", "-w", with_settings, "--", "true"],
        &[with_settings, "--", "true"],
        &["run", "postgres://host/db?password=qpass\n", "--", "true"],
    ] {
        shows_no_secret(&sandbox.done(arguments));
    }

    let broken = OsStr::from_bytes(b"redis://quser:qpass\xff@host");
    let with_option = [OsStr::new("ls"), OsStr::new("--store"), broken];
    shows_no_secret(&sandbox.done(&with_option));
    let with_variable = sandbox
        .leasehold(&["ls"])
        .env("LEASEHOLD_STORE", broken)
        .output();
    shows_no_secret(&with_variable.unwrap().into());
}

/// A CI system sets the variable to an empty text if its secret is missing.
///
/// Shows G-35.
#[test]
fn empty_store_variable_is_refused() {
    let sandbox = Sandbox::new();
    let message = "leasehold: LEASEHOLD_STORE is empty (a missing secret?); set a URL, or file: \
                   for the locks of this user\n";
    for arguments in [
        &["run", "a", "--", "echo", "ran"][..],
        &["elect", "a", "--address", "b", "--", "echo", "ran"],
        &["hold", "a"],
        &["acquire", "a", "--detach"],
        &["release", "a", "--token", "1"],
        &["wait", "a"],
        &["ls"],
        &["show", "a"],
        &["watch", "a"],
        &["break", "a", "--token", "1"],
        &["doctor"],
        &["serve"],
        &["gc"],
    ] {
        let mut command = sandbox.leasehold(arguments);
        command
            .env("LEASEHOLD_STORE", "")
            .env("XDG_STATE_HOME", sandbox.path("state"));
        let mut command = Started::of(&mut command);
        until("the command has ended", || !command.is_running());
        let done = command.wait();
        assert_eq!((done.code(), done.err.as_str()), (64, message), "{done:?}");
    }
    assert!(!sandbox.path("state").exists());

    let mut stated = sandbox.leasehold(&["ls", "--store", &sandbox.url()]);
    let done = stated.env("LEASEHOLD_STORE", "").output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// A secret that `echo` has made ends with a line break.
///
/// Shows G-35.
#[test]
fn white_space_around_the_url_selects_no_other_store() {
    let sandbox = Sandbox::new();
    let url = sandbox.url();
    let holder = sandbox.holder("a", &[]);
    for (before, behind) in [("", "\n"), ("", " "), ("\t", ""), ("", "\r\n"), (" ", "\n")] {
        let text = format!("{before}{url}{behind}");
        let run = |arguments: &[&str], variable: &str| -> Finished {
            let mut run = sandbox.leasehold(arguments);
            run.env(variable, &text).output().unwrap().into()
        };

        let tried = ["run", "-nq", "a", "--", "echo", "ran"];
        run(&tried, "LEASEHOLD_STORE").assert(75, "", "");
        let other = format!("file:{}", sandbox.path("other").display());
        let tried = ["run", "-nq", "--store", &other, "a", "--", "echo", "ran"];
        run(&tried, "LEASEHOLD_ALSO_STORE").assert(75, "", "");

        for option in ["--store", "--also-store"] {
            let tried = ["run", "-n", option, &text, "a", "--", "echo", "ran"];
            refused(&sandbox.done(&tried), "the URL has a ");
        }
    }

    let state = sandbox.path("other").display().to_string();
    for (value, place) in [
        (format!("{state} "), "a space (U+0020) at its end"),
        (format!(" {state}"), "a space (U+0020) at its beginning"),
    ] {
        let mut by_default = sandbox.leasehold(&["run", "a", "--", "echo", "ran"]);
        by_default
            .env_remove("LEASEHOLD_STORE")
            .env("XDG_STATE_HOME", value);
        let done = by_default.output().unwrap().into();
        refused(&done, &format!("XDG_STATE_HOME has {place}"));
    }

    let mut made: Vec<_> = std::fs::read_dir(sandbox.path("")).unwrap().collect();
    made.retain(|entry| entry.as_ref().unwrap().path().is_dir());
    assert_eq!(made.len(), 2, "the stores of the test: {made:?}");
    assert_eq!(holder.end().code(), 0);
}

/// A script with CRLF at the ends of its lines passes `deploy\r`.
#[test]
fn name_with_a_character_that_nobody_sees_is_refused() {
    let sandbox = Sandbox::new();
    for (name, part) in [
        ("deploy\r", "a carriage return (U+000D) at its end"),
        ("deploy\n", "a line feed (U+000A) at its end"),
        (" deploy", "a space (U+0020) at its beginning"),
        ("dep\tloy", "a tab (U+0009)"),
        (
            "deploy\u{202c}",
            "an invisible character (U+202C) at its end",
        ),
    ] {
        for arguments in [
            &["run", "b", name, "--", "echo", "ran"][..],
            &["run", "--name", name, "b", "--", "echo", "ran"],
            &["elect", name, "--address", "b", "--", "echo", "ran"],
            &["hold", name],
            &["acquire", name, "--detach"],
            &["wait", name],
        ] {
            refused(&sandbox.done(arguments), part);
        }

        sandbox.done(&["ls", name]).assert_names(&[]);
        assert_eq!(sandbox.done(&["show", name]).code(), 0);
        for subcommand in ["break", "release", "check"] {
            let done = sandbox.done(&[subcommand, name, "--token", "1"]);
            assert!([1, 76].contains(&done.code()), "{done:?}");
        }
    }
    let done = sandbox.done(&["run", "nightly report", "--", "echo", "ran"]);
    done.assert(0, "ran\n", "");

    let name = "redis://quser:qpass@host ";
    shows_no_secret(&sandbox.done(&["run", name, "--", "true"]));
}

#[test]
fn variable_that_is_not_utf8_is_named() {
    let sandbox = Sandbox::new();
    let broken = OsStr::from_bytes(b"file:/\xff");
    for variable in ["LEASEHOLD_STORE", "LEASEHOLD_ALSO_STORE"] {
        let mut command = sandbox.leasehold(&["run", "a", "--", "true"]);
        let done = command.env(variable, broken).output().unwrap();
        refused(&done.into(), variable);
    }
}

/// While the scripts of a machine move from flock(1), some of them still lock the file.
#[test]
fn path_of_a_file_as_a_name_is_reported_on_a_folder() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("x.lock").display().to_string();
    let run = |options: &[&str]| {
        let options = [options, &["run", &file, "--", "echo", "ran"]].concat();
        sandbox.done(&options)
    };
    run(&[]).assert(0, "ran\n", "");

    sandbox.touch("x.lock");
    let done = run(&[]);
    let part = format!("flock(1) on the file {file} is another lock; docs/from-flock.md");
    done.assert(0, "ran\n", &part);
    assert_eq!(done.err.lines().count(), 1, "{done:?}");
    run(&["-q"]).assert(0, "ran\n", "");

    let acquired = sandbox.done(&["acquire", "--detach", &file]);
    assert_eq!(
        acquired.err.matches("another lock").count(),
        1,
        "{acquired:?}"
    );
    let token = acquired.out.trim();
    sandbox
        .done(&["release", &file, "--token", token])
        .assert(0, "", "");

    let server = Sandbox::on_redis();
    server
        .done(&["run", &file, "--", "echo", "ran"])
        .assert(0, "ran\n", "");
}

#[test]
fn encrypted_url_of_a_port_without_tls_is_refused_with_advice() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let store = format!("rediss://{}", listener.local_addr().unwrap());
    let done = Sandbox::new().done(&["show", "a", "--store", &store]);
    done.assert(69, "", "check that this port uses TLS");
}

#[test]
fn unreachable_zookeeper_is_reported_with_the_reason_of_each_server() {
    let store = "zookeeper://127.0.0.1:1,127.0.0.1:2";
    let done = Sandbox::new().done(&["show", "a", "--store", store]);
    done.assert(69, "", "127.0.0.1:1: connection refused");
    assert!(
        done.err.contains("127.0.0.1:2: connection refused"),
        "{done:?}"
    );
}

#[test]
fn line_without_a_shell_is_refused_with_the_option_to_write() {
    let sandbox = Sandbox::new();
    sandbox.done(&["run", "a", "--", "echo a; echo b"]).assert(
        127,
        "",
        "to run a line in a shell, write -c in place of --",
    );
    assert!(sandbox.is_free("a"));
}

#[test]
fn usage_error_is_one_line_that_names_the_help() {
    let sandbox = Sandbox::new();
    let done = sandbox.done(&["run", "a", "--wiat", "1s", "--", "true"]);
    refused(
        &done,
        "unexpected argument '--wiat' found; tip: a similar argument exists: '--wait'",
    );
    assert!(
        done.err.ends_with("; see `leasehold run --help`\n"),
        "{done:?}"
    );
}

/// flock(1) is run beside leasehold, with the same options.
#[test]
fn options_of_flock_mean_the_same() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("file").display().to_string();
    let holder = sandbox.holder("a", &[]);
    let flock = std::fs::File::create(&file).unwrap();
    flock.lock().unwrap();

    for options in [
        &["-n", "-E", "9"][..],
        &["-nE9"],
        &["-w", "0.1", "-E", "9"],
        &["-w0.1", "--conflict-exit-code", "9"],
        &["--timeout", "0.1", "-E", "9"],
        &["--nonblock", "-E9", "-s"],
        &["-n", "-E9", "-x"],
        &["-e", "--nb", "-E", "0"],
        &["-w", "60", "-n", "-E", "0"],
    ] {
        let begun = Instant::now();
        let ours = sandbox.done(&[&["run", "-q"], options, &["a", "-c", "echo ran"]].concat());
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{options:?} waits"
        );
        assert_eq!(
            (ours.out.as_str(), ours.err.as_str()),
            ("", ""),
            "{options:?}"
        );

        // flock(1) does not let -n override -w.
        if options.contains(&"60") {
            continue;
        }
        let theirs = std::process::Command::new("flock")
            .args(options)
            .args([&file, "-c", "echo ran"])
            .status()
            .unwrap();
        assert_eq!(Some(ours.code()), theirs.code(), "{options:?}");
    }
    assert_eq!(holder.end().code(), 0);
}

#[test]
fn busy_exit_code_is_75_unless_stated_and_does_not_change_other_codes() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &[]);
    assert_eq!(sandbox.done(&["run", "-qn", "a", "--", "true"]).code(), 75);
    assert_eq!(
        sandbox
            .done(&["run", "-qnE", "0", "a", "--", "false"])
            .code(),
        0
    );
    for waiting in [
        ["hold", "-qn", "-E", "3", "a"],
        ["acquire", "-qn", "-E", "3", "a"],
        ["wait", "-qn", "-E", "3", "a"],
    ] {
        let own_pid = std::process::id().to_string();
        let owner: &[&str] = match waiting[0] {
            "wait" => &[],
            _ => &["--while-pid", &own_pid],
        };
        let done = sandbox.done(&[&waiting, owner].concat());
        assert_eq!(done.code(), 3, "{waiting:?}: {done:?}");
    }
    refused(
        &sandbox.done(&["run", "-E", "256", "a", "--", "true"]),
        "256",
    );
    assert_eq!(holder.end().code(), 0);
    assert_eq!(
        sandbox
            .done(&["run", "-nE", "7", "a", "--", "false"])
            .code(),
        1
    );
}

#[test]
fn shared_and_exclusive_options_override_each_other() {
    let sandbox = Sandbox::new();
    let reader = sandbox.holder("a", &["-s"]);
    assert_eq!(
        sandbox
            .done(&["run", "-nx", "-s", "a", "--", "true"])
            .code(),
        0
    );
    assert_eq!(
        sandbox
            .done(&["run", "-qns", "-x", "a", "--", "true"])
            .code(),
        75
    );
    assert_eq!(reader.end().code(), 0);
}

#[test]
fn line_runs_in_the_shell_of_the_variable() {
    let sandbox = Sandbox::new();
    let line = |shell: Option<&str>| -> Finished {
        let mut run =
            sandbox.leasehold(&["run", "a", "-c", "echo \"$0\" \"$LEASEHOLD_NAME\"; exit 3"]);
        match shell {
            Some(shell) => run.env("SHELL", shell),
            None => run.env_remove("SHELL"),
        };
        run.output().unwrap().into()
    };
    line(Some("/bin/bash")).assert(3, "/bin/bash a\n", "");
    line(Some("")).assert(3, "/bin/sh a\n", "");
    line(None).assert(3, "/bin/sh a\n", "");
}

#[test]
fn options_may_stand_before_the_subcommand_and_the_last_one_wins() {
    let sandbox = Sandbox::new();
    let url = sandbox.url();
    let done = sandbox.done(&[
        "--store",
        "etcd://nowhere",
        "run",
        "--store",
        &url,
        "a",
        "--",
        "true",
    ]);
    done.assert(0, "", "");
    let done = sandbox.done(&["--store", &url, "--json", "ls"]);
    done.assert(0, "[]\n", "");
    let holder = sandbox.holder("a", &[]);
    let done = sandbox.done(&["-qw", "60", "run", "--wait", "0", "a", "--", "true"]);
    done.assert(75, "", "");
    assert_eq!(holder.end().code(), 0);
}

#[test]
fn name_that_begins_with_a_hyphen_is_accepted() {
    let sandbox = Sandbox::new();
    sandbox
        .done(&["run", "--name=-x", "-c", "echo \"$LEASEHOLD_NAME\""])
        .assert(0, "-x\n", "");
    for show in [
        &["show", "--json", "--name=-x"][..],
        &["show", "--name=-x", "--json"],
    ] {
        let done = sandbox.done(show);
        assert!(
            done.code() == 0 && done.out.contains("\"name\": \"-x\""),
            "{done:?}"
        );
    }
    assert_eq!(sandbox.done(&["show", "--", "-x"]).code(), 0);
}

#[test]
fn names_of_a_shell_line_stand_before_or_after_it() {
    let sandbox = Sandbox::new();
    for run in [
        ["run", "a", "b", "-c", "true"],
        ["run", "-c", "true", "a", "b"],
    ] {
        sandbox.done(&run).assert(0, "", "");
    }
}
