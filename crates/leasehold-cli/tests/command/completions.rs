//! What the completions of a shell offer, in the shell itself.

use std::time::{Duration, Instant};

use crate::sandbox::{Finished, Sandbox};
use crate::terminal::Terminal;

/// A folder with `leasehold`, and a sandbox in which names of two locks begin alike.
struct Completed {
    sandbox: Sandbox,
    path: String,
}

impl Completed {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_leasehold"));
        let folder = program.parent().unwrap().display();
        let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
        Self { sandbox, path }
    }

    /// Runs a script that has loaded the completions.
    fn run(&self, shell: &str, script: &str) -> Finished {
        let mut command = self.sandbox.script(shell, script);
        command.env("PATH", &self.path).output().unwrap().into()
    }
}

const HELD: &str = "nightly$(touch broken) 1";

#[test]
fn bash_completes_commands_and_names() {
    let completed = Completed::new();
    let sandbox = &completed.sandbox;
    let holders = [HELD, "orders:42", "other"].map(|name| sandbox.holder(name, &[]));

    let script = r#"
        eval "$(leasehold completions bash)"
        complete_line() {
            COMP_LINE=$1 COMP_POINT=${#1}
            eval "COMP_WORDS=( $2 )"
            COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )) COMPREPLY=()
            _leasehold_with_names leasehold "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            printf '<%s>' "${COMPREPLY[@]}"; echo
        }
        complete_line 'leasehold show ni' 'leasehold show ni'
        complete_line 'leasehold break orders:4' 'leasehold break orders : 4'
        complete_line 'leasehold run -n ' 'leasehold run -n ""'
        complete_line 'leasehold run x -- leasehol' 'leasehold run x -- leasehol'
        complete_line "leasehold show --store file:$PWD/x ni" "leasehold show --store file : $PWD/x ni"
        complete_line 'leasehold ls --log-format ' 'leasehold ls --log-format ""'
    "#;
    let done = completed.run("bash", script);
    let quoted = r"nightly\$\(touch\ broken\)\ 1";
    let expected =
        format!("<{quoted}>\n<42>\n<{quoted}><orders:42><other>\n<leasehold>\n<>\n<text><json>\n");
    assert_eq!(done.out, expected, "{done:?}");
    assert!(!sandbox.path("broken").exists());
    for holder in holders {
        holder.end().assert(0, "", "");
    }
}

#[test]
fn fish_completes_commands_and_names() {
    let completed = Completed::new();
    let holder = completed.sandbox.holder(HELD, &[]);

    let script = "
        leasehold completions fish | source
        complete -C 'leasehold show ni'
        complete -C 'leasehold run x -- leasehold sho'
        complete -C \"leasehold show --store=file:$PWD/x ni\"
    ";
    let done = completed.run("fish", script);
    let lines: Vec<_> = done.out.lines().collect();
    assert_eq!(lines.len(), 2, "{done:?}");
    assert!(lines[0].contains("nightly") && lines[1].starts_with("show\t"));
    holder.end().assert(0, "", "");
}

/// The line editor of zsh completes only on a terminal.
#[test]
fn zsh_completes_commands_and_names() {
    let completed = Completed::new();
    let sandbox = &completed.sandbox;
    let holder = sandbox.holder(HELD, &[]);
    std::fs::write(
        sandbox.path("start"),
        format!(
            "PATH={:?}; PS1='rea''dy> '; autoload -U compinit; compinit -u -D\n\
             eval \"$(leasehold completions zsh)\"\n",
            completed.path
        ),
    )
    .unwrap();

    let mut terminal = Terminal::with(sandbox, "zsh -f -i");
    terminal.types(". ./start\n");
    terminal.until_shows("ready> ");
    terminal.types("leasehold show ni\t");
    terminal.until_shows(r"nightly\$\(touch\ broken\)\ 1");
    let url = sandbox.url();
    terminal.types(&format!(
        "\x15unset LEASEHOLD_STORE\nleasehold show --store {url} ni\t"
    ));
    terminal.until_shows(r"nightly\$\(touch\ broken\)\ 1");
    terminal.types("\x15leasehold run x -- leasehold comple\t");
    terminal.until_shows("leasehold completions ");
    terminal.types("\x15exit\n");
    assert_eq!(terminal.code_of_end(), Some(0));
    holder.end().assert(0, "", "");
}

/// The shell must not stop because a server does not reply.
#[test]
fn names_of_a_silent_server_are_not_waited_for() {
    let sandbox = Sandbox::on_redis();
    sandbox.server().pause();
    let begun = Instant::now();
    sandbox.done(&["ls", "--names", "x"]).assert(0, "", "");
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "other commands wait five seconds for a reply"
    );
}
