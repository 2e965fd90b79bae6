//! The command on a terminal, which script(1) provides.

use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::sandbox::{Sandbox, until};

/// A terminal on which a program runs.
pub(crate) struct Terminal {
    script: Child,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    pub(crate) fn with(sandbox: &Sandbox, line: &str) -> Self {
        let mut script = Command::new("script");
        script
            .args([
                "--quiet",
                "--return",
                "--flush",
                "--command",
                line,
                "/dev/null",
            ])
            .current_dir(sandbox.path(""));
        script
            .env("LEASEHOLD_STORE", sandbox.url())
            .env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold"));
        script
            .env("TERM", "dumb")
            .env("HISTFILE", "")
            .env_remove("LEASEHOLD_HELD");
        let mut script = script
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut screen = script.stdout.take().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&shown);
        thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut some) {
                seen.lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&some[..count]));
            }
        });
        Self { script, shown }
    }

    /// Starts a shell with job control.
    pub(crate) fn shell(sandbox: &Sandbox) -> Self {
        let mut terminal = Self::with(sandbox, "bash --norc --noprofile -i");
        terminal.types("PS1='rea''dy> '\n");
        terminal.until_shows("ready> ");
        terminal.types("set -b\n");
        terminal
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.script
            .stdin
            .as_mut()
            .unwrap()
            .write_all(keys.as_bytes())
            .unwrap();
    }

    /// Waits for a text, and takes all output up to its end. Returns what came before the text.
    #[track_caller]
    pub(crate) fn until_shows(&mut self, text: &str) -> String {
        let mut before = None;
        let found = catch_unwind(AssertUnwindSafe(|| {
            until(&format!("the terminal shows {text:?}"), || {
                let mut shown = self.shown.lock().unwrap();
                let found = shown.split_once(text);
                let found = found.map(|(before, rest)| (before.to_owned(), rest.to_owned()));
                before = found.map(|(before, rest)| {
                    *shown = rest;
                    before
                });
                before.is_some()
            });
        }));
        if found.is_err() {
            let shown = self.shown.lock().unwrap();
            panic!("it shows {shown:?}; its processes:\n{}", self.processes());
        }
        before.unwrap()
    }

    /// Returns the lines of `ps` of all descendants.
    fn processes(&self) -> String {
        let columns = "pid=,ppid=,pgid=,tpgid=,stat=,args=";
        let listed = Command::new("ps").args(["-eo", columns]).output().unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let mut family = vec![self.script.id().to_string()];
        let mut lines = String::new();
        // A child has a line behind its parent's, unless process ids have begun again.
        for line in listed.lines() {
            let mut ids = line.split_whitespace();
            let (pid, parent) = (ids.next().unwrap(), ids.next().unwrap());
            if family.iter().any(|known| known == parent || known == pid) {
                family.push(pid.to_owned());
                lines.extend([line, "\n"]);
            }
        }
        lines
    }

    pub(crate) fn code_of_end(mut self) -> Option<i32> {
        self.script.wait().unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.script.kill().ok();
        self.script.wait().ok();
    }
}

#[test]
fn command_can_read_from_the_terminal() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::with(
        &sandbox,
        r#"$LEASEHOLD run a -- sh -c 'echo ask; read x; echo "got <$x>"; exit 4'"#,
    );
    terminal.until_shows("ask");
    terminal.types("hello\n");
    terminal.until_shows("got <hello>");
    assert_eq!(terminal.code_of_end(), Some(4));
}

#[test]
fn command_in_a_pipeline_can_read_from_the_terminal() {
    let sandbox = Sandbox::new();
    let line = r#"$LEASEHOLD run a -- \
        sh -c 'echo ask >&2; read x < /dev/tty; echo "got <$x>"' < /dev/null | cat"#;
    let mut terminal = Terminal::with(&sandbox, line);
    terminal.until_shows("ask");
    terminal.types("hello\n");
    terminal.until_shows("got <hello>");
}

#[test]
fn terminal_returns_to_the_shell_afterwards() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::shell(&sandbox);
    terminal.types("$LEASEHOLD run a -- sh -c 'echo do\"\"ne'\n");
    terminal.until_shows("done");
    terminal.types("echo al\"\"ive\n");
    terminal.until_shows("alive");
}

#[test]
fn keyboard_interrupt_reaches_the_command() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::shell(&sandbox);
    // A shell runs a trap only between commands. So this loops over short sleeps.
    let command =
        r#"trap "echo caught >> log; exit 7" INT; echo sta""rted; while :; do sleep 0.01; done"#;
    terminal.types(&format!("$LEASEHOLD run a -- sh -c '{command}'\n"));
    terminal.until_shows("started");
    terminal.types("\x03");
    terminal.until_shows("ready> ");
    terminal.types("echo code=$?\n");
    terminal.until_shows("code=7");
    assert_eq!(sandbox.read("log"), "caught\n", "the trap runs once");
}

#[test]
fn keyboard_stop_and_continue_keep_the_lock() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::shell(&sandbox);
    terminal.types("$LEASEHOLD run a -- sh -c 'echo sta\"\"rted; read x; echo \"got <$x>\"'\n");
    terminal.until_shows("started");
    terminal.types("\x1a");
    terminal.until_shows("Stopped");
    assert_eq!(
        sandbox.holders("a").len(),
        1,
        "a stopped command keeps the lock"
    );
    terminal.types("fg\n");
    terminal.until_shows("LEASEHOLD run a");
    terminal.types("hello\n");
    terminal.until_shows("got <hello>");
    terminal.types("echo co\"\"de=$?\n");
    terminal.until_shows("code=0");
}

/// They begin without the terminal, and get it when they read from it.
#[test]
fn once_and_elect_are_stopped_and_continued_by_the_keyboard_and_can_read() {
    for start in ["run --once 1 a", "elect a --address one:1"] {
        let sandbox = Sandbox::new();
        let mut terminal = Terminal::shell(&sandbox);
        let line = "echo sta\"\"rted; until [ -e end ]; do sleep 0.01; done; \
                    read x; echo \"got <$x>\"";
        terminal.types(&format!("$LEASEHOLD {start} -- sh -c '{line}'\n"));
        terminal.until_shows("started");
        terminal.types("\x1a");
        terminal.until_shows("Stopped");
        terminal.types("bg\nfg\n");
        terminal.until_shows("LEASEHOLD");
        terminal.until_shows("LEASEHOLD");
        sandbox.touch("end");
        terminal.types("hello\n");
        terminal.until_shows("got <hello>");
    }
}

/// tmux starts programs that ignore TTIN, and a script passes that on.
#[test]
fn command_can_read_where_the_stop_for_the_terminal_is_ignored() {
    let line = "sh -c 'echo ask; read x; echo \"got <$x>\"'";
    for run in [
        format!("run --once 1 a -- {line}"),
        format!("elect a --address one:1 -- {line}"),
        format!("run a -- {line} | cat"),
    ] {
        let sandbox = Sandbox::new();
        let mut terminal = Terminal::with(&sandbox, &format!("trap '' TTIN; $LEASEHOLD {run}"));
        terminal.until_shows("ask");
        terminal.types("hello\n");
        terminal.until_shows("got <hello>");
    }
}

/// The first process group of a session cannot be stopped by the keyboard.
#[test]
fn command_keeps_the_terminal_where_the_keyboard_cannot_stop_it() {
    let sandbox = Sandbox::new();
    let line = "sh -c 'trap \"\" TTIN; echo ask; read x; echo \"got <$x>\"'";
    let mut terminal = Terminal::with(&sandbox, &format!("exec $LEASEHOLD run a -- {line}"));
    terminal.until_shows("ask");
    terminal.types("\x1a");
    terminal.until_shows("^Z");
    terminal.types("hello\n");
    terminal.until_shows("got <hello>");
}

#[test]
fn background_run_waits_for_the_terminal() {
    let run = "$LEASEHOLD run a -- sh -c 'read x </dev/tty; echo \"got <$x>\"'";
    for job in [run.to_owned(), format!("(trap '' TTIN; exec {run})")] {
        let sandbox = Sandbox::new();
        let mut terminal = Terminal::shell(&sandbox);
        terminal.types(&format!("{job} &\n"));
        terminal.until_shows("Stopped");
        terminal.types("fg\n");
        terminal.until_shows("LEASEHOLD run a");
        terminal.types("hello\n");
        terminal.until_shows("got <hello>");
    }
}

#[test]
fn spinner_shows_the_queue_position() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &["--label", "nightly"]);
    let mut terminal = Terminal::with(&sandbox, "env TERM=xterm $LEASEHOLD run a -- echo ran");
    terminal.until_shows("s, 1st in the queue, held by leasehold[");
    holder.end();
    terminal.until_shows("ran");
}

/// A terminal that cannot replace a line gets whole lines, which begin as all messages do.
#[test]
fn dumb_terminal_gets_the_queue_position_as_a_line() {
    let sandbox = Sandbox::new();
    for unset in ["", "unset TERM; "] {
        let holder = sandbox.holder("a", &[]);
        let line = format!("{unset}$LEASEHOLD run a -- echo ran");
        let mut terminal = Terminal::with(&sandbox, &line);

        terminal.until_shows("leasehold: waiting for a: ");
        terminal.until_shows("s, 1st in the queue, held by leasehold[");
        holder.end();
        terminal.until_shows("leasehold: a granted after ");
        terminal.until_shows("ran");
    }
}
