//! The store of a machine: /etc/leasehold/store.
//!
//! Each script runs in a mount namespace with a copy of /etc, as root.

use std::process::Command;

use crate::sandbox::{Finished, Sandbox};

/// Runs a script with a folder /etc/leasehold and the user alice. `$L` is the program, `$U` the URL
/// of the sandbox's store, and `$D` a folder that ends with the namespace.
fn on_machine(sandbox: &Sandbox, script: &str) -> Finished {
    const SET_UP: &str = "umask 022; mkdir $D; mount -t tmpfs none $D; chmod 755 $D
        cp -a /etc $D; mount --bind $D/etc /etc; rm -rf /etc/leasehold; mkdir /etc/leasehold
        echo 'alice:x:54321:54321::/:/bin/sh' >> /etc/passwd
        echo 'alice:!:20000::::::' >> /etc/shadow";

    let mut shell = Command::new("unshare");
    shell
        .args(["--mount", "sh", "-ec", &format!("{SET_UP}\n{script}")])
        .env("L", env!("CARGO_BIN_EXE_leasehold"))
        .env("U", sandbox.url())
        .env("D", sandbox.path("machine"))
        .env("XDG_STATE_HOME", sandbox.path("state"))
        .env_remove("LEASEHOLD_STORE")
        .env_remove("LEASEHOLD_HELD")
        .env_remove("LEASEHOLD_LOG");
    shell.output().unwrap().into()
}

/// cron and sudo reset the environment, and a system service has no HOME.
///
/// Shows G-35.
#[test]
fn machine_store_is_found_in_every_environment() {
    let sandbox = Sandbox::on_redis();
    let script = "printf '# all machines\n\n%s\n' $U > /etc/leasehold/store
        $L show q
        env -i HOME=/ LOGNAME=root SHELL=/bin/sh PATH=/usr/bin:/bin sh -c \"$L show q\"
        env -i $L show q
        sudo -u alice $L show q
        $L run q -- sudo -u alice $L run -n q -- true || echo $?
        $L run --store file:$D/locks q -- sudo -u alice $L run -n q -- echo other store
        rm /etc/leasehold/store; $L show q; rmdir /etc/leasehold; $L show q";
    let done = on_machine(&sandbox, script);

    let url = sandbox.url();
    let found = format!("q: free\n  store {url} (from /etc/leasehold/store)\n").repeat(4);
    let folder = sandbox.path("state/leasehold");
    let missing = format!("q: free\n  store file:{} (by default)\n", folder.display()).repeat(2);
    assert_eq!(
        done.out,
        format!("{found}75\nother store\n{missing}"),
        "{}",
        done.err
    );
    let refusal = format!("; store {url} (from /etc/leasehold/store)\n");
    assert!(done.err.contains(&refusal), "{done:?}");
}

#[test]
fn option_and_variable_come_before_the_machine_store() {
    let sandbox = Sandbox::new();
    let script = "echo nonsense > /etc/leasehold/store
        $L show q --store $U
        LEASEHOLD_STORE=$U $L show q
        LEASEHOLD_STORE=$U $L run q -- $L show other
        LEASEHOLD_STORE= $L show q || echo $?
        LEASEHOLD_ALSO_STORE=$U $L run q -- true || echo $?";
    let done = on_machine(&sandbox, script);

    let shown = |name, origin| format!("{name}: free\n  store {} (from {origin})\n", sandbox.url());
    let option = shown("q", "--store");
    let variable = shown("q", "LEASEHOLD_STORE");
    let nested = shown("other", "LEASEHOLD_STORE");
    assert_eq!(
        done.out,
        format!("{option}{variable}{nested}64\n64\n"),
        "{}",
        done.err
    );
    assert!(
        done.err
            .ends_with("; the URL is from /etc/leasehold/store\n"),
        "{done:?}"
    );
}

/// What is done to the file or its folder, and the exit code and the message of `ls`. alice uses the
/// command in the last two.
const UNUSABLE: [(&str, i32, &str); 28] = [
    (
        "mv $F $F.url; ln -s $F.url $F; chown -h alice $F",
        77,
        "/etc/leasehold/store belongs to the user 54321; run `sudo chown -h root /etc/leasehold/store`",
    ),
    (
        "chown alice $F; mv $F $F.url; ln -s store.url $F",
        77,
        "/etc/leasehold/store.url belongs to the user 54321; ",
    ),
    (
        "mkdir -m 777 $D/open; mv $F $D/open; ln -s $D/open/store $F",
        77,
        "machine/open; run `sudo chmod go-w ",
    ),
    (
        "mkdir -m 1777 $D/tmp; ln -s $D/tmp /etc/leasehold/x; ln -sf x/store $F",
        77,
        "machine/tmp/store: No such file or directory",
    ),
    (
        "ln -sf store $F",
        77,
        "/etc/leasehold/store leads through more than 16 links",
    ),
    ("ln -sf ../../etc $F", 77, "etc is not a regular file"),
    (
        "chown 65534 $F",
        77,
        "in a user namespace, name the store with --store or LEASEHOLD_STORE",
    ),
    (
        "mkfifo $D/fifo; mv $D/fifo $F",
        77,
        "/etc/leasehold/store is not a regular file",
    ),
    (
        "rm $F; mkdir $F",
        77,
        "/etc/leasehold/store is not a regular file",
    ),
    (
        "chown alice $F",
        77,
        "belongs to the user 54321; run `sudo chown -h root /etc/leasehold/store`",
    ),
    (
        "chmod 664 $F",
        77,
        "users other than root may change /etc/leasehold/store; run `sudo chmod go-w",
    ),
    (
        "chmod 606 $F",
        77,
        "users other than root may change /etc/leasehold/store; ",
    ),
    (
        "chown alice /etc/leasehold",
        77,
        "/etc/leasehold belongs to the user 54321; ",
    ),
    (
        "chmod 1777 /etc/leasehold",
        77,
        "users other than root may change /etc/leasehold; ",
    ),
    (
        "chmod 770 /etc/leasehold",
        77,
        "users other than root may change /etc/leasehold; ",
    ),
    (
        "mv $F /etc/leasehold.url; rmdir /etc/leasehold; mv /etc/leasehold.url /etc/leasehold",
        77,
        "/etc/leasehold is not a folder",
    ),
    (
        "echo '# redis://host' > $F",
        64,
        "/etc/leasehold/store has no URL; ",
    ),
    (
        "printf 'redis://\\377' > $F",
        64,
        "/etc/leasehold/store is not a text in UTF-8",
    ),
    (
        "yes | head -c 70000 > $F",
        64,
        "/etc/leasehold/store is longer than 65536 bytes",
    ),
    (
        "echo file > $F",
        64,
        "names another folder for each user; write file:/some/folder",
    ),
    (
        "echo file:/// > $F",
        64,
        "the root folder of this machine; write file:/some/folder; the URL is from /etc/leasehold/store",
    ),
    (
        "echo \"file:$D/x # of all machines\" > $F",
        64,
        "has a comment behind it; write the comment on a line of its own; the URL is from /etc/",
    ),
    (
        "printf 'file:/srv/lo\\tcks' > $F",
        64,
        "has a tab (U+0009); remove it; the URL is from /etc/leasehold/store",
    ),
    (
        "echo memory: > $F",
        64,
        "; the URL is from /etc/leasehold/store",
    ),
    (
        "echo redis://me:secret@host > $F",
        64,
        "/etc/leasehold/store has a password; write ?password-file=",
    ),
    (
        "echo redis://host?password=secret > $F",
        64,
        "/etc/leasehold/store has a password; ",
    ),
    (
        "chmod 600 $F",
        77,
        "cannot open /etc/leasehold/store: Permission denied",
    ),
    (
        "chmod 700 /etc/leasehold",
        77,
        "cannot open /etc/leasehold/store: Permission denied",
    ),
];

/// A mounted `ConfigMap` is a read-only folder of mode 0777 with links. The links of NixOS lead to
/// the folder /nix/store, which is sticky.
///
/// Shows G-35.
#[test]
fn links_that_only_root_can_change_are_followed() {
    let sandbox = Sandbox::new();
    let script =
        "E=/etc/leasehold; mkdir -m 1775 $D/nix; mkdir $D/nix/etc; echo $U > $D/nix/etc/store
        chown :54321 $D/nix; ln -s $D/nix/etc /etc/static; ln -s /etc/static/store $E/store
        $L show q
        rm $E/store; mkdir $E/..one; echo $U > $E/..one/store; ln -s ..one $E/..data
        ln -s ..data/store $E/store; $L show q
        chmod 777 $E; $L show q || echo $?
        mount --bind $E $E; mount -o remount,bind,ro $E; $L show q
        umount $E; chmod 755 $E; mv $E /etc/real; ln -s real $E; $L show q";
    let done = on_machine(&sandbox, script);

    let url = sandbox.url();
    let shown = format!("q: free\n  store {url} (from /etc/leasehold/store)\n");
    let shown_twice = shown.repeat(2);
    assert_eq!(
        done.out,
        format!("{shown_twice}77\n{shown_twice}"),
        "{}",
        done.err
    );
}

/// Another store in its place would exclude nobody.
///
/// Shows G-35.
#[test]
fn machine_store_that_cannot_be_used_is_an_error() {
    let sandbox = Sandbox::new();
    let cases = UNUSABLE.map(|(case, ..)| {
        let user = if case.starts_with("chmod 600") || case.starts_with("chmod 700") {
            "setpriv --reuid=54321 --clear-groups"
        } else {
            ""
        };
        format!(
            "rm -rf /etc/leasehold; mkdir /etc/leasehold; echo file: > $F
            {case}; {user} $L ls 2>&1 || echo $?"
        )
    });
    let script = format!("F=/etc/leasehold/store\n{}", cases.join("\n"));
    let done = on_machine(&sandbox, &script);

    let lines: Vec<_> = done.out.lines().collect();
    assert_eq!(lines.len(), 2 * UNUSABLE.len(), "{done:?}");
    for (shown, (case, code, message)) in lines.chunks(2).zip(UNUSABLE) {
        assert!(shown[0].contains(message), "{case}: {shown:?}");
        assert!(!shown[0].contains("secret"), "{case}: {shown:?}");
        assert_eq!(shown[1], code.to_string(), "{case}: {shown:?}");
    }
    assert!(!sandbox.path("state").exists());
}

/// Shows G-35.
#[test]
fn every_subcommand_with_a_store_refuses_an_unsafe_file() {
    const SUBCOMMANDS: [&str; 14] = [
        "run a -- echo ran",
        "elect a --address b -- echo ran",
        "hold a",
        "acquire a --detach",
        "check a --token 1",
        "release a --token 1",
        "wait a",
        "ls",
        "show a",
        "watch a",
        "break a --token 1",
        "doctor",
        "serve",
        "gc",
    ];

    let sandbox = Sandbox::new();
    let runs = SUBCOMMANDS.map(|words| format!("$L {words} || echo $?"));
    let script = format!(
        "echo file: > /etc/leasehold/store; chmod 666 /etc/leasehold/store\n{}",
        runs.join("\n")
    );
    let done = on_machine(&sandbox, &script);
    assert_eq!(done.out, "77\n".repeat(SUBCOMMANDS.len()), "{}", done.err);
}

#[test]
fn refusals_and_answers_name_the_store_and_its_origin() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &[]);
    let url = sandbox.url();
    let variable = format!("store {url} (from LEASEHOLD_STORE)\n");
    let option = format!("store {url} (from --store)\n");

    let with_option = ["--store", &url];
    for refused in [
        &["run", "-n", "a", "--", "true"][..],
        &["run", "-w", "0.1", "a", "--", "true"],
        &["hold", "-n", "a", "--while-pid", "1"],
        &["acquire", "-n", "a", "--detach"],
        &["wait", "-n", "a"],
    ] {
        let done = sandbox.done(refused);
        assert!(
            done.code() == 75 && done.err.ends_with(&format!("; {variable}")),
            "{done:?}"
        );
        let done = sandbox.done(&[&with_option[..], refused].concat());
        assert!(
            done.code() == 75 && done.err.ends_with(&format!("; {option}")),
            "{done:?}"
        );
    }
    sandbox
        .done(&["run", "-nq", "a", "--", "true"])
        .assert(75, "", "");

    assert!(
        sandbox
            .done(&["show", "a"])
            .out
            .ends_with(&format!("\n  {variable}"))
    );
    assert_eq!(sandbox.done(&["ls"]).err, format!("leasehold: {variable}"));
    assert!(
        sandbox
            .done(&["doctor"])
            .out
            .starts_with(&variable.replacen(' ', "    ", 1))
    );
    assert_eq!(holder.end().code(), 0);
}

/// A URL does not show its password, and `file:` does not show its folder.
///
/// Shows G-35.
#[test]
fn store_is_named_without_secrets_and_with_its_folder() {
    let sandbox = Sandbox::on_redis();
    let secret = sandbox.url().replace("redis://", "redis://me:secret@");
    sandbox
        .server()
        .command(&["ACL", "SETUSER", "me", "on", ">secret", "~*", "&*", "+@all"]);
    for words in [&["show", "a"][..], &["ls", "-v"], &["doctor"]] {
        let mut command = sandbox.leasehold(words);
        let done: Finished = command
            .env("LEASEHOLD_STORE", &secret)
            .output()
            .unwrap()
            .into();
        let shown = format!("{}{}", done.out, done.err);
        assert!(shown.contains("(from LEASEHOLD_STORE)"), "{done:?}");
        assert!(!shown.contains("secret"), "{done:?}");
    }

    let mut command = sandbox.leasehold(&["doctor"]);
    command
        .env_remove("LEASEHOLD_STORE")
        .env("XDG_STATE_HOME", sandbox.path("state"));
    let done: Finished = command.output().unwrap().into();
    let folder = sandbox.path("state/leasehold");
    let store = format!("store    file:{} (by default)\n", folder.display());
    assert!(done.out.starts_with(&store), "{done:?}");
}

#[test]
fn verbose_command_logs_its_store() {
    let sandbox = Sandbox::new();
    let done = sandbox.done(&["-v", "--log-format", "json", "show", "a", "--json"]);
    let event: serde_json::Value = serde_json::from_str(&done.err).unwrap();
    assert_eq!(event["message"], "store opened");
    assert_eq!(event["store"], sandbox.url());
    assert_eq!(event["origin"], "from LEASEHOLD_STORE");
}
