//! The examples and the tables of `--help` and the man pages. Their texts are in `help/`.

use clap::Command;

/// The exit codes and the environment variables, as `--help` shows them.
pub(crate) const TABLES: &str = include_str!("help/tables.txt");

/// A section for each subcommand, and one for leasehold itself.
const EXAMPLES: &str = include_str!("help/examples.txt");

/// Adds the examples of a subcommand to its help, before the other tables.
pub(crate) fn with_examples(command: Command) -> Command {
    let examples = examples_of(command.get_name());
    let tables = command
        .get_after_long_help()
        .map_or_else(String::new, |tables| format!("\n{tables}"));
    command.after_long_help(format!("Examples:\n{examples}{tables}"))
}

/// Returns the examples of leasehold itself or of a subcommand: for each one a comment that says
/// what it does, then what to type.
pub(crate) fn examples_of(subcommand: &str) -> &'static str {
    EXAMPLES
        .split("\n[")
        .find_map(|section| section.strip_prefix(subcommand)?.strip_prefix("]\n"))
        .expect("every subcommand has examples")
}
