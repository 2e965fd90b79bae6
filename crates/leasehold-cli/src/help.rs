//! The examples and the tables of `--help` and the man pages. Their texts are in `help/`.

use std::fmt::Write;

use clap::Command;

/// A section for each subcommand, and one for leasehold itself.
const EXAMPLES: &str = include_str!("help/examples.txt");

/// A row of a code and its meaning. If the meaning begins with subcommands, it is theirs alone.
const EXIT_CODES: &str = include_str!("help/exit_codes.txt");

const ENVIRONMENT: &str = include_str!("help/environment.txt");

/// A table of the help: what the rows begin with, and what they mean.
pub(crate) struct Table {
    pub(crate) heading: &'static str,
    pub(crate) rows: Vec<(String, String)>,
}

/// Adds the examples and the tables of a subcommand to its help.
///
/// The help of a subcommand begins with its first example, and `--help` ends with all of them.
pub(crate) fn with_examples(command: Command) -> Command {
    let examples = examples_of(command.get_name());
    let mut help = format!("Examples:\n{examples}");
    for table in tables_of(&command) {
        help.push_str(&table.text());
    }
    let command = command.after_long_help(help);
    let first = examples.lines().nth(1).expect("a comment is before it");
    if command.has_subcommands() {
        return command;
    }
    command.before_help(format!("Example:{first}"))
}

/// Returns the examples of leasehold itself or of a subcommand: for each one a comment that says
/// what it does, then what to type.
pub(crate) fn examples_of(subcommand: &str) -> &'static str {
    EXAMPLES
        .split("\n[")
        .find_map(|section| section.strip_prefix(subcommand)?.strip_prefix("]\n"))
        .expect("every subcommand has examples")
}

/// Returns the exit codes of leasehold itself or of a subcommand that uses a store, and the
/// environment variables of leasehold itself and of those that run a command.
pub(crate) fn tables_of(command: &Command) -> Vec<Table> {
    let has = |id| {
        command
            .get_arguments()
            .any(|argument| argument.get_id() == id)
    };
    let is_leasehold = command.has_subcommands();
    let mut tables = Vec::new();

    if is_leasehold || has("url") {
        let rows = rows(EXIT_CODES).into_iter();
        tables.push(Table {
            heading: "Exit status",
            rows: if is_leasehold {
                rows.collect()
            } else {
                rows.filter_map(|row| row_of(command.get_name(), row))
                    .collect()
            },
        });
    }
    if is_leasehold || has("command") {
        tables.push(Table {
            heading: "Environment",
            rows: rows(ENVIRONMENT),
        });
    }
    tables
}

/// Returns the URLs of all stores, for `leasehold help stores`.
pub(crate) fn stores() -> Table {
    let urls = leasehold::kinds().flat_map(|kind| kind.help);
    Table {
        heading: "Stores",
        rows: urls
            .map(|(url, store)| ((*url).to_owned(), (*store).to_owned()))
            .collect(),
    }
}

/// Parses lines of a term and its meaning. A line that begins with a space continues a meaning.
fn rows(text: &str) -> Vec<(String, String)> {
    let mut rows: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match (line.split_once("  "), rows.last_mut()) {
            (Some((term, meaning)), _) if !term.is_empty() => {
                rows.push((term.to_owned(), meaning.trim_start().to_owned()));
            }
            (_, Some((_, meaning))) => {
                meaning.push('\n');
                meaning.push_str(line.trim_start());
            }
            (_, None) => {}
        }
    }
    rows
}

/// Returns the row without its subcommands; `None` if they are others.
fn row_of(subcommand: &str, (code, meaning): (String, String)) -> Option<(String, String)> {
    let is_subcommand = |name: &str| EXAMPLES.contains(&format!("[{name}]\n"));
    let owners = meaning.split_once(": ");
    match owners.filter(|(owners, _)| owners.split(", ").all(is_subcommand)) {
        None => Some((code, meaning)),
        Some((owners, own)) => {
            let is_owner = owners.split(", ").any(|owner| owner == subcommand);
            is_owner.then(|| (code, own.to_owned()))
        }
    }
}

impl Table {
    /// Formats the rows for a terminal. A term that the row before has is not repeated.
    pub(crate) fn text(&self) -> String {
        let width = self.rows.iter().map(|(term, _)| term.chars().count()).max();
        let width = width.unwrap_or_default();
        let mut text = format!("\n{}:\n", self.heading);
        let mut before = "";

        for (term, meaning) in &self.rows {
            let mut shown = if term == before { "" } else { term };
            before = term;
            for line in meaning.lines() {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "  {shown:<width$}  {line}");
                shown = "";
            }
        }
        text
    }
}
