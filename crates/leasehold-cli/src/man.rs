//! Man pages, generated from the arguments in commands.rs.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use clap::builder::Resettable;
use clap_mangen::Man;

use crate::commands;
use crate::exit::Exit;
use crate::help::{self, Table};

/// Prints the man page of leasehold, or of one of its subcommands.
pub(crate) fn man(subcommand: Option<&str>) -> Result<Exit> {
    let leasehold = built();
    let page = subcommand
        .and_then(|name| leasehold.find_subcommand(name))
        .unwrap_or(&leasehold);

    io::stdout().write_all(&render(page)?)?;
    Ok(Exit::DONE)
}

/// Writes all man pages into a folder, and makes the folder if it is missing.
pub(crate) fn write_all(folder: &Path) -> Result<Exit> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;

    let leasehold = built();
    let subcommands = leasehold
        .get_subcommands()
        .filter(|page| page.get_name() != "help");
    for page in subcommands.chain([&leasehold]) {
        let file = folder.join(format!("{}.1", title(page)));
        fs::write(&file, render(page)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(Exit::DONE)
}

/// Returns the definition in which the subcommands have their full names, as `leasehold-run`.
fn built() -> clap::Command {
    let mut command = commands::definition();
    command.build();
    command
}

fn title(page: &clap::Command) -> &str {
    page.get_display_name().unwrap_or_else(|| page.get_name())
}

/// The date of the last change of the pages' contents.
const DATE: &str = "2026-11-28";

/// Renders the tables as sections. `clap_mangen` alone would join their rows into one paragraph.
fn render(page: &clap::Command) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let without_tables = page
        .clone()
        .after_help(Resettable::Reset)
        .after_long_help(Resettable::Reset);
    Man::new(without_tables)
        .title(title(page).to_uppercase())
        .date(DATE)
        .source(concat!("leasehold ", env!("CARGO_PKG_VERSION")))
        .manual("leasehold manual")
        .render(&mut text)?;

    let mut text = with_literal_tables(&String::from_utf8(text)?);
    let mut tables = help::tables_of(page);
    if page.has_subcommands() {
        tables.push(help::stores());
    }
    for table in &tables {
        text.push_str(&with_plain_hyphens(&table_section(table)));
    }
    text.push_str(&with_plain_hyphens(&examples_section(page.get_name())));
    Ok(text.into_bytes())
}

/// Keeps the lines of indented tables as they are. man(1) would fill them otherwise.
fn with_literal_tables(page: &str) -> String {
    let mut text = String::new();
    let mut in_table = false;

    for line in page.lines() {
        let is_row = line.starts_with("  ");
        if is_row != in_table {
            text.push_str(if is_row { ".nf\n" } else { ".fi\n" });
            in_table = is_row;
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Renders a table as roff: a section heading, and a tagged paragraph for each row.
fn table_section(table: &Table) -> String {
    let rows = table.rows.iter();
    let rows = rows.map(|(term, meaning)| format!(".TP\n\\fB{term}\\fR\n{meaning}\n"));
    let heading = table.heading.to_uppercase();
    format!(".SH \"{heading}\"\n{}", rows.collect::<String>())
}

/// Renders examples as roff: each purpose, then its command lines, which are not filled.
fn examples_section(subcommand: &str) -> String {
    let examples = help::examples_of(subcommand).split("  # ").skip(1);
    let rows = examples.filter_map(|example| {
        let (purpose, lines) = example.split_once('\n')?;
        let lines = lines.trim().replace('\\', "\\e").replace('\'', "\\(aq");
        Some(format!(".PP\n{purpose}:\n.RS 4\n.nf\n{lines}\n.fi\n.RE\n"))
    });
    format!(".SH EXAMPLES\n{}", rows.collect::<String>())
}

/// Escapes hyphens. man(1) would print a plain hyphen as a typographic one, which a shell rejects.
fn with_plain_hyphens(text: &str) -> String {
    text.replace('-', "\\-")
}
