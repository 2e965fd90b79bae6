//! The completions of shells, generated from the arguments in commands.rs. In bash, zsh and fish
//! they also complete COMMAND and the names of locks, which `clap_complete` does not.

use std::io::{self, Write};

use anyhow::Result;
use clap_complete::Shell;

use crate::commands;
use crate::exit::Exit;

/// Prints the completion script of a shell.
pub(crate) fn print(shell: Shell) -> Result<Exit> {
    let mut text = Vec::new();
    let mut definition = commands::definition();
    clap_complete::generate(shell, &mut definition, "leasehold", &mut text);

    let generated = String::from_utf8(text)?;
    let script = match shell {
        Shell::Bash => generated + include_str!("completions/names.bash"),
        Shell::Zsh => with_names_in_zsh(&generated),
        Shell::Fish => generated + include_str!("completions/names.fish"),
        _ => generated,
    };
    io::stdout().write_all(script.as_bytes())?;
    Ok(Exit::DONE)
}

/// Lets the arguments that are names call the function for them, which comes before the last lines:
/// they run the script.
fn with_names_in_zsh(generated: &str) -> String {
    let is_name = |line: &str| {
        ["':name ", "'*::names ", "'::prefix "]
            .iter()
            .any(|start| line.starts_with(start))
    };
    let mut script = String::new();
    for line in generated.lines() {
        if line.starts_with("if [ \"$funcstack") {
            script.push_str(include_str!("completions/names.zsh"));
            script.push('\n');
        }
        if is_name(line) {
            script.push_str(&line.replace(":_default'", ":_leasehold_names'"));
        } else {
            script.push_str(line);
        }
        script.push('\n');
        if line == "_leasehold() {" {
            script.push_str(include_str!("completions/command.zsh"));
        }
    }
    script
}
