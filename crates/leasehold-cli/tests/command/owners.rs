//! The owner of `leasehold acquire`, in the forms in which scripts and programs call it.
//!
//! The parent of `acquire` is a subshell, a wrapper or a shell of another program in most of these
//! forms, and ends at once. So the caller names the owner.

use std::io::{BufRead, BufReader};

use crate::sandbox::{Sandbox, Started, until};

/// How a script calls `ACQUIRE NAME`, and how the form exits if `ACQUIRE` is refused with 64.
const FORMS: [(&str, i32); 14] = [
    ("t=$(ACQUIRE NAME)", 64),
    ("t=$(ACQUIRE NAME 2> /dev/null)", 64),
    ("t=$(ACQUIRE NAME || exit 1)", 1),
    ("t=$(ACQUIRE NAME | tail -n 1)", 0),
    ("t=$(time ACQUIRE NAME)", 64),
    ("t=$(timeout 60 ACQUIRE NAME)", 64),
    ("f() { ACQUIRE \"$1\"; }; t=$(f NAME)", 64),
    ("if t=$(ACQUIRE NAME); then :; else false; fi", 1),
    ("t=$(cd / && ACQUIRE NAME)", 64),
    ("t=$(setsid -w ACQUIRE NAME)", 64),
    ("(ACQUIRE NAME > token); (read t < token)", 1),
    ("t=$(ACQUIRE NAME & wait $!)", 64),
    ("t=$(echo NAME | xargs ACQUIRE)", 123),
    // sudo resets the environment.
    (
        "t=$(sudo LEASEHOLD_STORE=\"$LEASEHOLD_STORE\" env PATH=\"$PATH\" ACQUIRE NAME)",
        64,
    ),
];

const SHELLS: [&str; 4] = ["bash", "dash", "zsh", "busybox sh"];

/// Shows G-38.
#[test]
fn acquire_holds_for_a_named_owner_only_in_bash() {
    check_forms(SHELLS[0]);
}

/// Shows G-38.
#[test]
fn acquire_holds_for_a_named_owner_only_in_dash() {
    check_forms(SHELLS[1]);
}

/// Shows G-38.
#[test]
fn acquire_holds_for_a_named_owner_only_in_zsh() {
    check_forms(SHELLS[2]);
}

/// Shows G-38.
#[test]
fn acquire_holds_for_a_named_owner_only_in_busybox() {
    check_forms(SHELLS[3]);
}

/// The names of the locks, one for each form.
const NAMES: [&str; FORMS.len()] = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n",
];

fn check_forms(shell: &str) {
    let sandbox = Sandbox::new();
    check_named_owner(&sandbox, shell);
    check_unnamed_owner(&sandbox, shell);
}

/// Each form holds until the script ends.
fn check_named_owner(sandbox: &Sandbox, shell: &str) {
    let script = forms("leasehold acquire --while-pid $$");
    let (script, codes) = until_ready(sandbox, shell, &script);
    assert_eq!(codes, FORMS.map(|_| "0"), "{shell}");
    sandbox.done(&["ls"]).assert_names(&NAMES);

    assert_eq!(script.end().code(), 0, "{shell}");
    until("the end of the script frees all locks", || {
        sandbox.done(&["ls", "--json"]).out == "[]\n"
    });
}

/// No form holds, and each says what to type.
fn check_unnamed_owner(sandbox: &Sandbox, shell: &str) {
    let (script, codes) = until_ready(sandbox, shell, &forms("leasehold acquire"));
    assert_eq!(codes, FORMS.map(|(_, code)| code.to_string()), "{shell}");
    sandbox.done(&["ls"]).assert_names(&[]);

    let done = script.end();
    for (name, (form, _)) in NAMES.iter().zip(FORMS) {
        let line = format!("t=$(leasehold acquire --while-pid $$ {name}) || exit");
        let is_shown = done.err.contains(&line);
        assert_eq!(is_shown, !form.contains("/dev/null"), "{shell}: {done:?}");
    }
}

/// make starts a shell for each line of a recipe.
///
/// Shows G-38.
#[test]
fn acquire_holds_for_a_named_owner_only_in_make() {
    let makefile = |owner: &str| {
        format!("all:\n\tleasehold acquire {owner} a > token\n\techo ready; read line || true\n")
    };
    check_program("make -f", &makefile("--while-pid $$PPID"), &makefile(""), 2);
}

/// The shell that Python starts ends with the command.
///
/// Shows G-38.
#[test]
fn acquire_holds_for_a_named_owner_only_in_python() {
    let program = |owner: &str| {
        format!(
            "import os, subprocess, sys\n\
             line = f'leasehold acquire {owner} a > token || exit 3'\n\
             subprocess.check_call(line, shell=True)\n\
             print('ready', flush=True)\n\
             sys.stdin.read()\n"
        )
    };
    let owner = "--while-pid {os.getpid()}";
    check_program("python3", &program(owner), &program(""), 1);
}

/// Checks a program that holds `a` until its standard input ends, and exits with `refused` without
/// an owner.
fn check_program(interpreter: &str, named: &str, unnamed: &str, refused: i32) {
    let sandbox = Sandbox::new();
    let line = format!("exec {interpreter} program");

    std::fs::write(sandbox.path("program"), named).unwrap();
    let (program, _) = until_ready(&sandbox, "sh", &line);
    sandbox.done(&["ls"]).assert_names(&["a"]);
    assert_eq!(program.end().code(), 0);
    until("the end of the program frees the lock", || {
        sandbox.is_free("a")
    });

    std::fs::write(sandbox.path("program"), unnamed).unwrap();
    let done = sandbox.run_script("sh", &line);
    let advice = "t=$(leasehold acquire --while-pid $$ a) || exit";
    assert!(done.err.contains(advice), "{done:?}");
    assert_eq!(done.code(), refused, "{done:?}");
    assert!(sandbox.is_free("a"));
}

#[test]
fn line_of_the_refusal_holds_the_same_name_in_every_shell() {
    let sandbox = Sandbox::new();
    for name in ["a b", "it's", "$HOME;*", "~", "ü/1", "-x"] {
        let refused = sandbox.done(&["acquire", &format!("--name={name}")]);
        assert_eq!(refused.code(), 64, "{refused:?}");
        let line = refused.err.split('`').nth(1).unwrap();

        for shell in SHELLS {
            let (script, _) = until_ready(&sandbox, shell, &format!("{line}\n{WAIT}"));
            assert_eq!(
                sandbox.done(&["show", "--exit-code", "--", name]).code(),
                1,
                "{line}"
            );
            assert_eq!(script.end().code(), 0, "{shell}");
            until("the lock is free", || sandbox.is_free(name));
        }
    }
}

/// The script of all forms. It prints the exit code of each, and then waits for the test.
fn forms(acquire: &str) -> String {
    let lines = NAMES.iter().zip(FORMS).map(|(name, (form, _))| {
        let line = form.replace("ACQUIRE", acquire).replace("NAME", name);
        format!("{line}\necho $?\n")
    });
    lines.collect::<String>() + WAIT
}

const WAIT: &str = "echo ready; read line; true\n";

/// Starts a script, and returns the lines that it prints until it waits for the test.
fn until_ready(sandbox: &Sandbox, shell: &str, text: &str) -> (Started, Vec<String>) {
    let mut script = Started::of(&mut sandbox.script(shell, text));
    let lines = BufReader::new(script.out()).lines().map(Result::unwrap);
    let printed = lines.take_while(|line| line != "ready").collect();
    (script, printed)
}
