//! Arguments that are brought into the order that the parser knows: options before the subcommand,
//! as in `leasehold --store URL ls`, and names that begin with a hyphen, as in `show --name=-x`.

use std::ffi::OsString;

use clap::Command;

/// Moves the options before the subcommand to the place directly behind it.
///
/// There they have the same meaning, and options behind them override them.
pub(super) fn behind_subcommand(arguments: Vec<OsString>, definition: &Command) -> Vec<OsString> {
    let Some(at) = subcommand_position(&arguments, definition) else {
        return arguments;
    };

    let mut moved = arguments;
    moved[1..=at].rotate_right(1);
    moved
}

/// Replaces `--name=NAME` by `-- NAME` at the end, for the subcommands that take names only.
///
/// `run` has this option itself, because `--` begins COMMAND there.
pub(super) fn names_at_end(mut arguments: Vec<OsString>, definition: &Command) -> Vec<OsString> {
    let subcommand = arguments
        .get(1)
        .and_then(|argument| definition.find_subcommand(argument));
    if !subcommand.is_some_and(takes_names_only)
        || arguments.iter().any(|argument| argument == "--")
    {
        return arguments;
    }

    let name_of = |argument: &OsString| {
        let name = argument.to_str()?.strip_prefix("--name=")?;
        Some(OsString::from(name))
    };
    let names: Vec<_> = arguments.iter().filter_map(name_of).collect();
    arguments.retain(|argument| name_of(argument).is_none());
    if !names.is_empty() {
        arguments.push("--".into());
    }
    arguments.extend(names);
    arguments
}

fn takes_names_only(subcommand: &Command) -> bool {
    let mut positionals = subcommand.get_positionals().peekable();
    let is_name = |one: &clap::Arg| ["name", "names"].contains(&one.get_id().as_str());
    positionals.peek().is_some() && positionals.all(is_name)
}

/// Returns the position of the subcommand if only options stand before it.
fn subcommand_position(arguments: &[OsString], definition: &Command) -> Option<usize> {
    let mut at = 1;
    loop {
        let argument = arguments.get(at)?.to_str()?;
        if definition.find_subcommand(argument).is_some() {
            return Some(at);
        }
        if !argument.starts_with('-') || argument.len() == 1 || ENDS.contains(&argument) {
            return None;
        }
        at += if has_value_behind(argument, definition) {
            2
        } else {
            1
        };
    }
}

/// These are not options of a subcommand that only stand at another place.
const ENDS: [&str; 5] = ["--", "-h", "--help", "-V", "--version"];

/// Whether the value of this option is the next argument.
fn has_value_behind(argument: &str, definition: &Command) -> bool {
    if let Some(long) = argument.strip_prefix("--") {
        return takes_value(definition, |option| {
            let aliases = option.get_all_aliases().unwrap_or_default();
            option.get_long() == Some(long) || aliases.contains(&long)
        });
    }

    // In `-nw5` the value of -w is in the same argument, in `-nw 5` it is the next one.
    let mut shorts = argument.chars().skip(1);
    let value_of = shorts
        .by_ref()
        .find(|short| takes_value(definition, |option| option.get_short() == Some(*short)));
    value_of.is_some() && shorts.next().is_none()
}

fn takes_value(definition: &Command, is_meant: impl Fn(&clap::Arg) -> bool) -> bool {
    definition
        .get_subcommands()
        .chain([definition])
        .flat_map(Command::get_arguments)
        .any(|option| is_meant(option) && option.get_action().takes_values())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_move_behind_the_subcommand() {
        let definition = super::super::definition();
        let moved = |line: &str| {
            let arguments = line.split(' ').map(OsString::from).collect();
            let moved = behind_subcommand(arguments, &definition);
            moved.join(std::ffi::OsStr::new(" "))
        };
        for (line, expected) in [
            ("l ls --json", "l ls --json"),
            ("l --store ls ls a", "l ls --store ls a"),
            ("l --store=x ls a", "l ls --store=x a"),
            ("l -v run a -- ls", "l run -v a -- ls"),
            ("l -nw 5 run a -- b", "l run -nw 5 a -- b"),
            ("l -nw5 run a -- b", "l run -nw5 a -- b"),
            ("l --timeout 5 run a -- b", "l run --timeout 5 a -- b"),
            ("l --help run", "l --help run"),
            ("l -- run", "l -- run"),
            ("l nonsense run", "l nonsense run"),
        ] {
            assert_eq!(moved(line), expected, "{line}");
        }
    }
}
