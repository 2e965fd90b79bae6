//! Scripts, loops and `make` on a terminal: a key ends or stops all of them.
//!
//! A leasehold that exits with 130, or that keeps the signal from the script, lets `next` run.

use std::fs::write;

use nix::sys::signal::{Signal, kill};

use crate::sandbox::{Sandbox, is_alive, until};
use crate::terminal::Terminal;

const INTERRUPT: &str = "\x03";
const QUIT: &str = "\x1c";
const STOP: &str = "\x1a";

/// A command that writes its process id and then sleeps.
const SLEEP: &str = "sh -c 'echo $$ > pid; exec sleep 1000'";

/// Runs lines as a script in a shell with job control.
fn script(sandbox: &Sandbox, shell: &str, lines: &str) -> Terminal {
    write(sandbox.path("script"), lines).unwrap();
    let mut terminal = Terminal::shell(sandbox);
    terminal.types(&format!("{shell} ./script\n"));
    terminal
}

/// Waits until the shell shows how its last job has ended.
///
/// A shell discards the rest of a line whose first command was interrupted. So this is a new line.
#[track_caller]
fn assert_code(terminal: &mut Terminal, code: i32) {
    terminal.types("echo co\"\"de=$?\n");
    terminal.until_shows(&format!("code={code}"));
}

/// Shows G-37.
#[test]
fn keyboard_interrupt_ends_a_script() {
    // bash ignores QUIT, also beneath flock(1).
    for (shell, key, code) in [
        ("sh", INTERRUPT, 130),
        ("bash", INTERRUPT, 130),
        ("sh", QUIT, 131),
    ] {
        let sandbox = Sandbox::new();
        let lines = format!("$LEASEHOLD run a -- {SLEEP}\necho > next\n");
        let mut terminal = script(&sandbox, shell, &lines);
        let command = sandbox.pid("pid");
        terminal.types(key);
        assert_code(&mut terminal, code);
        assert!(!sandbox.path("next").exists() && !is_alive(command));
    }
}

/// Shows G-37.
#[test]
fn keyboard_interrupt_ends_a_script_that_waits_for_the_lock() {
    for shell in ["sh", "bash"] {
        let sandbox = Sandbox::new();
        let holder = sandbox.holder("a", &[]);
        let lines = "$LEASEHOLD run a -- true\necho > next\n";
        let mut terminal = script(&sandbox, shell, lines);
        until("the run is queued", || !sandbox.waiters("a").is_empty());
        terminal.types(INTERRUPT);
        assert_code(&mut terminal, 130);
        assert!(!sandbox.path("next").exists());
        holder.end().assert(0, "", "");
    }
}

/// The command has ended with 0, and leasehold alone is left to end by the key.
///
/// Shows G-37.
#[test]
fn keyboard_interrupt_ends_a_script_during_hold_at_least() {
    let sandbox = Sandbox::new();
    let lines = "$LEASEHOLD run a --hold-at-least 1h -- sh -c 'echo $$ > pid'\necho > next\n";
    let mut terminal = script(&sandbox, "bash", lines);
    let command = sandbox.pid("pid");
    until("the command was reaped", || {
        !std::path::Path::new(&format!("/proc/{command}")).exists()
    });
    terminal.types(INTERRUPT);
    assert_code(&mut terminal, 130);
    assert!(!sandbox.path("next").exists() && sandbox.is_free("a"));
}

/// Shows G-37.
#[test]
fn keyboard_interrupt_ends_a_loop() {
    let line = format!("for i in 1 2 3; do echo >> rounds; $LEASEHOLD run a -- {SLEEP}; done");
    for shell in ["sh", "bash"] {
        let sandbox = Sandbox::new();
        let mut terminal = script(&sandbox, shell, &line);
        sandbox.pid("pid");
        terminal.types(INTERRUPT);
        assert_code(&mut terminal, 130);
        assert_eq!(sandbox.read("rounds"), "\n");
    }

    let sandbox = Sandbox::new();
    let mut terminal = Terminal::shell(&sandbox);
    terminal.types(&format!("{line}\n"));
    sandbox.pid("pid");
    terminal.types(INTERRUPT);
    terminal.types("echo ro\"\"unds=$(wc -l < rounds)\n");
    terminal.until_shows("rounds=1");
}

/// Shows G-37.
#[test]
fn keyboard_interrupt_ends_all_jobs_of_make() {
    for options in ["-j2", "-j1"] {
        let sandbox = Sandbox::new();
        let recipe = "$$LEASEHOLD run $@ -- sh -c 'echo $$$$ > pid-$@; exec sleep 1000'";
        let makefile = format!(".PHONY: one two\nall: one two\none two:\n\t{recipe}\n");
        write(sandbox.path("Makefile"), makefile).unwrap();

        let mut terminal = Terminal::shell(&sandbox);
        terminal.types(&format!("make {options}\n"));
        let jobs = if options == "-j2" {
            &["one", "two"][..]
        } else {
            &["one"]
        };
        let commands: Vec<_> = jobs
            .iter()
            .map(|job| sandbox.pid(&format!("pid-{job}")))
            .collect();
        terminal.types(INTERRUPT);
        terminal.types("echo co\"\"de=$?\n");
        let make = terminal.until_shows("code=");
        // GNU make waits for its jobs in the handler of the signal, and may then miss them
        // elsewhere.
        let has_lost_jobs = make.contains("wait: No child processes");
        let code = if has_lost_jobs { "2" } else { "130" };
        assert_eq!(terminal.until_shows("\r\n"), code);
        assert!(!commands.into_iter().any(is_alive));
        assert!(!sandbox.path("pid-two").exists() || options == "-j2");
    }
}

/// Shows G-37.
#[test]
fn keyboard_interrupt_ends_a_pipeline_and_a_script_with_a_background_process() {
    for line in [
        format!("$LEASEHOLD run a -- {SLEEP} | cat"),
        format!("sleep 1000 | $LEASEHOLD run a -- {SLEEP}"),
        format!("sleep 1000 &\necho $! > other; $LEASEHOLD run a -- {SLEEP}"),
    ] {
        let sandbox = Sandbox::new();
        let mut terminal = script(&sandbox, "bash", &format!("{line}\necho > next\n"));
        let command = sandbox.pid("pid");
        terminal.types(INTERRUPT);
        assert_code(&mut terminal, 130);
        assert!(
            !sandbox.path("next").exists() && !is_alive(command),
            "{line}"
        );
        if sandbox.path("other").exists() {
            kill(sandbox.pid("other"), Signal::SIGKILL).unwrap();
        }
    }
}

/// A program that handles the key itself, as an editor does, must not end its script.
///
/// Shows G-37.
#[test]
fn script_goes_on_after_a_command_that_handles_the_interrupt() {
    let sandbox = Sandbox::new();
    let command = r#"sh -c 'trap "exit 0" INT; echo $$ > pid; while :; do sleep 0.01; done'"#;
    let lines = format!("$LEASEHOLD run a -- {command}\necho > next\n");
    let mut terminal = script(&sandbox, "sh", &lines);
    sandbox.pid("pid");
    terminal.types(INTERRUPT);
    assert_code(&mut terminal, 0);
    assert!(sandbox.path("next").exists());
}

/// A program that handles the key ends one term of a leader. The candidature must not go on.
///
/// Shows G-48.
#[test]
fn keyboard_interrupt_ends_a_candidature_whose_command_handles_it() {
    for code in [0, 130] {
        let sandbox = Sandbox::new();
        let line = format!("trap \"exit {code}\" INT; echo $$ > pid; while :; do sleep 0.01; done");
        let mut terminal = Terminal::shell(&sandbox);
        terminal.types(&format!(
            "$LEASEHOLD elect a --address one:1 -- sh -c '{line}'\n"
        ));
        sandbox.pid("pid");
        terminal.types(INTERRUPT);
        assert_code(&mut terminal, code);
        assert!(sandbox.is_free("a"));
    }
}

/// A signal that was sent to leasehold alone does not reach its job.
///
/// Shows G-37.
#[test]
fn script_goes_on_after_a_signal_to_leasehold_alone() {
    let sandbox = Sandbox::new();
    let lines = format!(
        "$LEASEHOLD run a -- {SLEEP} & \n\
         until [ -s pid ]; do sleep 0.01; done; kill -INT $!; wait $!; echo $? > next\n"
    );
    let mut terminal = script(&sandbox, "bash -m", &lines);
    assert_code(&mut terminal, 0);
    assert_eq!(sandbox.read("next"), "130\n");
}

/// A shell shows 128 plus the number of the signal that has stopped a job, which is TSTP.
///
/// Shows G-37.
#[test]
fn stopped_job_has_the_status_of_the_keyboard_stop() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("b", &[]);
    for line in ["run a -- sleep 1000", "run b -- true"] {
        let mut terminal = Terminal::shell(&sandbox);
        terminal.types(&format!("$LEASEHOLD {line}\n"));
        until("the run holds or waits", || {
            !sandbox.holders("a").is_empty() || !sandbox.waiters("b").is_empty()
        });
        terminal.types(STOP);
        terminal.until_shows("Stopped");
        assert_code(&mut terminal, 148);
        terminal.types("kill -KILL %1; wait\n");
        until("the run has ended", || {
            sandbox.is_free("a") && sandbox.waiters("b").is_empty()
        });
    }
    holder.end().assert(0, "", "");
}

/// On a network store the watchdog reports the stop of the command, and leasehold reads the report
/// only after the shell has continued both.
#[test]
fn continued_pipeline_is_not_stopped_again() {
    let sandbox = Sandbox::on_redis();
    let mut terminal = Terminal::shell(&sandbox);
    let command = "echo > started; while [ ! -e done ]; do sleep 0.1; done";
    terminal.types(&format!("$LEASEHOLD run a -- sh -c '{command}' | cat\n"));
    until("the command runs", || sandbox.read("started") == "\n");

    terminal.types(STOP);
    terminal.until_shows("Stopped");
    terminal.types("fg\n");
    sandbox.touch("done");
    assert_code(&mut terminal, 0);
}

/// Two jobs that read from one terminal would stop each other. So one waits for the other.
#[test]
fn command_waits_for_the_terminal_while_another_process_of_the_job_reads_it() {
    let sandbox = Sandbox::new();
    let lines = "sleep 1000 < /dev/tty &\necho $! > other\n\
                 $LEASEHOLD run a -- sh -c 'read x; echo \"got <$x>\"'\n";
    let mut terminal = script(&sandbox, "sh", lines);
    terminal.until_shows("the command is stopped: it needs the terminal");
    kill(sandbox.pid("other"), Signal::SIGKILL).unwrap();
    terminal.types("hello\n");
    terminal.until_shows("got <hello>");
    assert_code(&mut terminal, 0);
}

/// A background process of a script does not read from the terminal.
#[test]
fn command_can_read_beside_a_background_process() {
    let sandbox = Sandbox::new();
    let lines = "sleep 1000 &\necho $! > other\n\
                 $LEASEHOLD run a -- sh -c 'read x; echo \"got <$x>\"'\n";
    let mut terminal = script(&sandbox, "sh", lines);
    terminal.types("hello\n");
    terminal.until_shows("got <hello>");
    assert_code(&mut terminal, 0);
    kill(sandbox.pid("other"), Signal::SIGKILL).unwrap();
}
