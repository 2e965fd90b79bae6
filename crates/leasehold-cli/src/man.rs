//! Man pages and shell completions, from the table in commands.rs.

use std::io::{self, Write};

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use leasehold::Error;

use crate::commands::Command;
use crate::exit::Exit;

/// The page of leasehold, or of one of its commands.
pub(crate) fn man(of: Option<&str>) -> Result<Exit> {
    let mut table = Command::command();
    // Gives the commands their full names, `leasehold-run`.
    table.build();
    let page = match of {
        None => table,
        Some(name) => table
            .find_subcommand(name)
            .ok_or_else(|| no_such_command(name))?
            .clone(),
    };
    let mut text = Vec::new();
    Man::new(page).render(&mut text)?;
    io::stdout().write_all(&text)?;
    Ok(Exit::DONE)
}

pub(crate) fn completions_exist_for_every_shell(shell: Shell) -> Result<Exit> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Command::command(), "leasehold", &mut text);
    io::stdout().write_all(&text)?;
    Ok(Exit::DONE)
}

fn no_such_command(name: &str) -> Error {
    Error::invalid(format!("there is no command {name:?}")).help("see leasehold --help")
}
