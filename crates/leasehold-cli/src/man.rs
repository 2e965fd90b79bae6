//! Man pages and shell completions, generated from the arguments in commands.rs.

use std::io::{self, Write};

use anyhow::Result;
use clap::CommandFactory;
use clap::builder::Resettable;
use clap_complete::Shell;
use clap_mangen::Man;
use leasehold::Error;

use crate::commands::Command;
use crate::exit::{ENVIRONMENT, EXIT_STATUS, Exit, Table};

/// Prints the man page of leasehold, or of one of its subcommands.
pub(crate) fn man(subcommand: Option<&str>) -> Result<Exit> {
    let mut command = Command::command();
    // Gives the subcommands their full names, such as `leasehold-run`.
    command.build();

    let page = match subcommand {
        None => command,
        Some(name) => command
            .find_subcommand(name)
            .ok_or_else(|| no_such_command(name))?
            .clone(),
    };
    io::stdout().write_all(&render(page)?)?;
    Ok(Exit::DONE)
}

/// Prints the completion script of a shell.
pub(crate) fn completions(shell: Shell) -> Result<Exit> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Command::command(), "leasehold", &mut text);
    io::stdout().write_all(&text)?;
    Ok(Exit::DONE)
}

/// Renders the tables as sections of their own: clap_mangen would join their rows to one paragraph.
fn render(page: clap::Command) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(page.after_long_help(Resettable::Reset)).render(&mut text)?;

    for table in [&EXIT_STATUS, &ENVIRONMENT] {
        text.extend(section(table).into_bytes());
    }
    Ok(text)
}

/// A table as roff: a section heading, then a tagged paragraph for each row.
fn section(table: &Table) -> String {
    let heading = table.heading.to_uppercase();
    let rows = table
        .rows
        .iter()
        .map(|(term, meaning)| format!(".TP\n\\fB{term}\\fR\n{meaning}\n"));
    let text: String = [format!(".SH \"{heading}\"\n")]
        .into_iter()
        .chain(rows)
        .collect();

    // A plain hyphen would be printed as a typographic one, which cannot be copied to a shell.
    text.replace('-', "\\-")
}

fn no_such_command(name: &str) -> Error {
    Error::invalid(format!("there is no command {name:?}")).help("see leasehold --help")
}
