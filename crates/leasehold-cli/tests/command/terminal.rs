//! At a terminal, which script(1) makes for us.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::place::{Place, until};

/// A terminal with a program at it.
struct Terminal {
    script: Child,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    fn with(place: &Place, line: &str) -> Self {
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--flush", "--command", line, "/dev/null"]).current_dir(place.path(""));
        script.env("LEASEHOLD_STORE", place.url()).env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold"));
        script.env("TERM", "dumb").env("HISTFILE", "").env_remove("LEASEHOLD_HELD");
        let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut screen = script.stdout.take().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&shown);
        thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut some) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&some[..count]));
            }
        });
        Self { script, shown }
    }

    /// A shell with job control.
    fn shell(place: &Place) -> Self {
        let mut terminal = Self::with(place, "bash --norc --noprofile -i");
        terminal.types("PS1='rea''dy> '\n");
        terminal.until_shows("ready> ");
        terminal.types("set -b\n");
        terminal
    }

    fn types(&mut self, keys: &str) {
        self.script.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a text, and forgets all that was shown up to its end.
    #[track_caller]
    fn until_shows(&mut self, text: &str) {
        until(&format!("the terminal shows {text:?}"), || {
            let mut shown = self.shown.lock().unwrap();
            let found = shown.find(text).map(|at| shown.split_off(at + text.len()));
            found.map(|rest| *shown = rest).is_some()
        });
    }

    fn code_of_end(mut self) -> Option<i32> {
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
fn the_command_may_read_from_it() {
    let place = Place::new();
    let mut terminal =
        Terminal::with(&place, r#"$LEASEHOLD run a -- sh -c 'echo ask; read x; echo "got <$x>"; exit 4'"#);
    terminal.until_shows("ask");
    terminal.types("hello\n");
    terminal.until_shows("got <hello>");
    assert_eq!(terminal.code_of_end(), Some(4));
}

#[test]
fn the_command_may_read_from_it_behind_a_pipe() {
    let place = Place::new();
    let line = r#"$LEASEHOLD run a -- sh -c 'echo ask >&2; read x < /dev/tty; echo "got <$x>"' < /dev/null | cat"#;
    let mut terminal = Terminal::with(&place, line);
    terminal.until_shows("ask");
    terminal.types("hello\n");
    terminal.until_shows("got <hello>");
}

#[test]
fn the_shell_has_it_back_afterwards() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    terminal.types("$LEASEHOLD run a -- sh -c 'echo do\"\"ne'\n");
    terminal.until_shows("done");
    terminal.types("echo al\"\"ive\n");
    terminal.until_shows("alive");
}

#[test]
fn interrupted_from_the_keyboard() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    // A loop, as a shell that just starts a long sleep may hear of its trap only after that.
    let command = r#"trap "echo heard >> said; exit 7" INT; echo sta""rted; while :; do sleep 0.01; done"#;
    terminal.types(&format!("$LEASEHOLD run a -- sh -c '{command}'\n"));
    terminal.until_shows("started");
    terminal.types("\x03");
    terminal.until_shows("ready> ");
    terminal.types("echo code=$?\n");
    terminal.until_shows("code=7");
    assert_eq!(place.read("said"), "heard\n", "once, not twice");
}

#[test]
fn stopped_and_continued_from_the_keyboard() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    terminal.types("$LEASEHOLD run a -- sh -c 'echo sta\"\"rted; read x; echo \"got <$x>\"'\n");
    terminal.until_shows("started");
    terminal.types("\x1a");
    terminal.until_shows("Stopped");
    assert_eq!(place.holders("a").len(), 1, "a stopped command holds on");
    terminal.types("fg\n");
    terminal.until_shows("LEASEHOLD run a");
    terminal.types("hello\n");
    terminal.until_shows("got <hello>");
    terminal.types("echo co\"\"de=$?\n");
    terminal.until_shows("code=0");
}

#[test]
fn in_the_background_it_waits_for_the_terminal() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    terminal.types("$LEASEHOLD run a -- sh -c 'read x; echo \"got <$x>\"' &\n");
    terminal.until_shows("Stopped");
    terminal.types("fg\n");
    terminal.until_shows("LEASEHOLD run a");
    terminal.types("hello\n");
    terminal.until_shows("got <hello>");
}

#[test]
fn a_spinner_shows_the_place_in_line() {
    let place = Place::new();
    let holder = place.holder("a", &["--label", "nightly"]);
    let mut terminal = Terminal::with(&place, "env TERM=xterm $LEASEHOLD run a -- echo ran");
    terminal.until_shows("waiting for a: 1st in line, held by leasehold[");
    holder.end();
    terminal.until_shows("ran");
}
