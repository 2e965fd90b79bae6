//! The messages for wrong usage. Each names the mistake and the text to type.

use std::ffi::OsString;
use std::path::Path;

use clap::ArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use leasehold::{StoreKind, kind_of, stray_character};

use super::store::source;
use super::{Acquire, Action, Command, Run, Store};
use crate::exit::print_error;
use crate::format::{Escaped, NameArgument};

/// Rejects a subcommand without an argument that it needs, and names the line to type.
pub(super) fn check(command: Command, arguments: &[OsString]) -> Result<Command, String> {
    let mistake = match &command.action {
        Action::Run(run) => missing_of_run(run).or_else(|| stray_in_id(run)),
        Action::Acquire(acquire) => missing_owner(acquire),
        _ => None,
    };
    match mistake.or_else(|| stray_in_name(&command.action)) {
        Some(message) => Err(with_help_hint(&message, arguments)),
        None => Ok(command),
    }
}

/// Returns the message for a run without a name or without a command.
///
/// The parser alone would say that COMMAND is missing where `--` is.
fn missing_of_run(run: &Run) -> Option<String> {
    let names = run.names();
    if names.is_empty() {
        return Some("NAME is missing: write `leasehold run NAME -- COMMAND…`".to_owned());
    }
    if run.has_command() {
        return None;
    }

    // The line is not repeated: it may contain a password.
    let has_line = names.iter().skip(1).any(|name| is_shell_line(name));
    let message = if has_line {
        "COMMAND is missing: to run a line in a shell, write -c before it"
    } else {
        "COMMAND is missing: write `leasehold run NAME -- COMMAND…`, with `--` before COMMAND"
    };
    Some(message.to_owned())
}

/// Returns the message for an `acquire` whose owner is not named.
///
/// The parent process cannot be the owner. It is a subshell, or a wrapper such as sudo, in most
/// scripts, and the lock would be free when it ends, which is at once.
fn missing_owner(acquire: &Acquire) -> Option<String> {
    if acquire.while_pid.is_some() || acquire.detach {
        return None;
    }

    let name = NameArgument(&acquire.lock.name);
    Some(format!(
        "the owner of the lock, whose end releases it, is not named: in a script, write \
         `t=$(leasehold acquire --while-pid $$ {name}) || exit`; with --detach, the lock is held \
         until a release"
    ))
}

/// Returns the message for a name with a character that nobody sees.
///
/// It is another lock than the name without that character. Subcommands that look at locks, or end a
/// hold, take any name, because programs may use such names.
fn stray_in_name(action: &Action) -> Option<String> {
    let (names, _) = action.acquired();
    names.iter().find_map(|name| {
        let stray = stray_character(name)?;
        Some(format!(
            "the name {:?} has {stray}: it is another lock than the name without it",
            without_user(name)
        ))
    })
}

/// Returns the message for an id of a job with such a character, of a script with CRLF for example.
fn stray_in_id(run: &Run) -> Option<String> {
    let id = run.once.id.as_ref()?;
    let stray = stray_character(id)?;
    Some(format!(
        "the id {id:?} has {stray}: the job would run again for the id without it"
    ))
}

/// Prints a line if a name on a store in a folder is the path of a file, as flock(1) takes it.
///
/// The name is valid, and no mistake if programs use it. But while the scripts of a machine move from
/// flock(1), some of them may still lock the file.
pub(super) fn warn_of_flock_file(action: &mut Action) {
    let is_local = |store: &mut Store| kind_of(&store.url).is_some_and(StoreKind::is_local);
    let is_on_folder = action.store_mut().is_some_and(is_local);
    let (names, is_quiet) = action.acquired();

    let is_file = |name: &&&String| name.starts_with('/') && Path::new(name).exists();
    for name in names
        .iter()
        .filter(|name| is_on_folder && !is_quiet && is_file(name))
    {
        print_error(format_args!(
            "{0} is the name of a lock here, and flock(1) on the file {0} is another lock; \
             docs/from-flock.md says how to take the same lock, and -q leaves out this line",
            Escaped(name)
        ));
    }
}

/// Returns the message for a mistake that only the parser's matches show.
pub(super) fn find(matches: &ArgMatches, arguments: &[OsString]) -> Option<String> {
    if has_names_around_line(matches) {
        let message = "-c takes one argument: quote the whole LINE, and write all names before -c";
        return Some(with_help_hint(message, arguments));
    }

    let (_, options) = matches.subcommand()?;
    let is_empty = |url: &String| url.trim().is_empty();
    let empty = EMPTY_VARIABLES.iter().find(|(id, _)| {
        source(matches, id) == Some(ValueSource::EnvVariable)
            && options.get_one(id).is_some_and(is_empty)
    });
    empty.map(|(_, message)| (*message).to_owned())
}

/// The options that are read from a variable, and the message if it is empty.
///
/// A CI system sets a variable to an empty text if its secret is missing. If that counted as unset,
/// the lock of many machines would become the lock of one user without a message.
const EMPTY_VARIABLES: [(&str, &str); 2] = [
    (
        "url",
        "LEASEHOLD_STORE is empty (a missing secret?); set a URL, or file: for the locks of this \
         user",
    ),
    (
        "also_store",
        "LEASEHOLD_ALSO_STORE is empty (a missing secret?); set a URL, or unset it to hold in one \
         store",
    ),
];

/// Whether names stand before and behind `-c LINE`: the latter were meant as arguments of LINE.
fn has_names_around_line(matches: &ArgMatches) -> bool {
    let Some(run) = matches.subcommand_matches("run") else {
        return false;
    };
    let (Some(line), Some(names)) = (run.index_of("shell_line"), run.indices_of("names")) else {
        return false;
    };

    let (before, behind): (Vec<_>, Vec<_>) = names.partition(|&name| name < line);
    !before.is_empty() && !behind.is_empty()
}

/// Whether a text was meant for a shell: no program and hardly a lock has such a name.
pub(crate) fn is_shell_line(text: &str) -> bool {
    text.contains(|c: char| c.is_whitespace() || ";|&<>$`".contains(c))
}

/// Formats an error of the parser as one line.
pub(super) fn describe(mut error: clap::Error, arguments: &[OsString]) -> String {
    hide_users(&mut error);
    let invalid = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument.as_str(),
        _ => "",
    };
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    if let Some((_, advice)) = OTHER_OPTIONS
        .iter()
        .find(|(options, _)| is_unknown && options.contains(&invalid))
    {
        return (*advice).to_owned();
    }

    if let Some(message) = misspelt_subcommand(&error)
        .or_else(|| missing_run(&error, arguments))
        .or_else(|| negative_value(invalid, arguments))
        .or_else(|| missing_token(&error, arguments))
        .or_else(|| {
            (is_unknown && is_second_name(invalid, arguments)).then(|| SECOND_NAME.to_owned())
        })
    {
        return with_help_hint(&message, arguments);
    }

    let message = match (error.kind(), not_utf8(arguments)) {
        (ErrorKind::InvalidUtf8, Some(argument)) => format!(
            "the argument {:?} is not valid UTF-8; only COMMAND may have other bytes",
            without_user(&argument)
        ),
        (ErrorKind::InvalidUtf8, None) => {
            "LEASEHOLD_STORE or LEASEHOLD_ALSO_STORE is not valid UTF-8".to_owned()
        }
        _ => joined(&error.render().to_string()),
    };
    with_help_hint(&message, arguments)
}

/// Returns the message for a subcommand of another tool, or one with its letters in another order:
/// the parser does not know what these words mean.
fn misspelt_subcommand(error: &clap::Error) -> Option<String> {
    let ContextValue::String(given) = error.get(ContextKind::InvalidSubcommand)? else {
        return None;
    };
    let meant = match given.as_str() {
        "status" => "show",
        "unlock" => "release",
        _ => super::SUBCOMMANDS
            .iter()
            .find(|known| letters(known) == letters(given))?,
    };
    Some(format!(
        "unrecognized subcommand '{given}'; tip: a similar subcommand exists: '{meant}'"
    ))
}

fn letters(word: &str) -> Vec<u8> {
    let mut letters = word.as_bytes().to_vec();
    letters.sort_unstable();
    letters
}

/// Returns the message for a lock's name in the place of `run`. A command follows it.
fn missing_run(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let is_misspelt = error.get(ContextKind::SuggestedSubcommand).is_some();
    let has_command = arguments.iter().any(|argument| argument == "--");

    // The command is not repeated: it may contain a password.
    (has_command && !is_misspelt).then(|| {
        let name = NameArgument(name);
        format!("the subcommand is missing: write `leasehold run {name} -- COMMAND…`")
    })
}

/// Returns the message for a negative number behind an option. The parser takes it for an option.
fn negative_value(invalid: &str, arguments: &[OsString]) -> Option<String> {
    let digits = invalid.strip_prefix('-')?;
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }

    let mut pairs = arguments.iter().zip(arguments.iter().skip(1));
    let (option, value) = pairs.find_map(|(option, value)| {
        let (option, value) = (option.to_str()?, value.to_str()?);
        (option.starts_with('-') && value.starts_with(invalid)).then_some((option, value))
    })?;
    Some(format!(
        "{option} takes no negative value, and this is {value:?}"
    ))
}

const SECOND_NAME: &str = "show takes one NAME, and `leasehold watch` takes several";

fn is_second_name(invalid: &str, arguments: &[OsString]) -> bool {
    !invalid.starts_with('-') && is_of(arguments, "show")
}

/// Whether the arguments are those of a subcommand. Its options have been moved behind it.
fn is_of(arguments: &[OsString], subcommand: &str) -> bool {
    arguments
        .get(1)
        .is_some_and(|argument| argument == subcommand)
}

/// Returns the message for a missing token, and nothing else that is missing.
fn missing_token(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let source = if is_of(arguments, "break") {
        "`leasehold show NAME` prints the token of each hold"
    } else {
        "give the token that `leasehold acquire` has printed"
    };
    (missing == &["--token <TOKEN>"]).then(|| format!("--token is missing: {source}"))
}

/// Options of flock(1) and other tools that leasehold does not have, and what to do in their place.
const OTHER_OPTIONS: &[(&[&str], &str)] = &[
    (
        &["-u", "--unlock"],
        "leasehold has no -u: run releases the lock when COMMAND ends; \
         `leasehold release NAME --token T` ends a hold of `leasehold acquire`",
    ),
    (
        &["-o", "--close"],
        "leasehold has no -o, and it is not needed: the lock is free when COMMAND has ended, \
         even if processes that it started still run",
    ),
    (
        &["-F", "--no-fork"],
        "leasehold has no -F: it must run beside COMMAND to keep the lock; signals that it \
         receives reach COMMAND",
    ),
    (
        &["--fcntl"],
        "leasehold has no --fcntl: a file store uses flock(2), and other stores need no file",
    ),
    (
        &["--ttl"],
        "leasehold has no --ttl: write --lease DURATION; leasehold renews the lease while it holds",
    ),
    (
        &["--redis", "--zookeeper"],
        "leasehold has no option for each kind of store: write --store URL; `leasehold help stores` \
         lists the URLs",
    ),
];

/// Hides users and passwords in the arguments that an error repeats.
///
/// The URL of a store may be at a wrong place, as in `leasehold doctor URL`.
fn hide_users(error: &mut clap::Error) {
    let hidden: Vec<_> = error
        .context()
        .filter_map(|(kind, value)| match value {
            ContextValue::String(text) => Some((kind, without_user(text))),
            _ => None,
        })
        .collect();

    for (kind, text) in hidden {
        error.insert(kind, ContextValue::String(text));
    }
}

/// Returns a text without what may be a user and a password: everything before its last `@`, and
/// the settings of a URL.
fn without_user(text: &str) -> String {
    match text.split_once('?') {
        // Either may contain the other's character.
        Some((_, rest)) if rest.contains('@') => "…".to_owned(),
        Some((location, rest)) if rest.contains('=') => format!("{}?…", without_user(location)),
        _ => text
            .rsplit_once('@')
            .map_or_else(|| text.to_owned(), |(_, behind)| format!("…@{behind}")),
    }
}

fn not_utf8(arguments: &[OsString]) -> Option<String> {
    arguments
        .iter()
        .find(|argument| argument.to_str().is_none())
        .map(|argument| argument.to_string_lossy().into_owned())
}

/// Joins the lines of the parser's message, without its usage.
///
/// The usage names options that are given, such as --store, as if they were required.
fn joined(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        // No value of an option begins with a hyphen, so this advice is never what was meant.
        .filter(|line| !line.is_empty() && !line.contains("as a value, use '-- "));

    let mut message = String::new();
    for line in lines {
        if !message.is_empty() {
            message.push_str(if message.ends_with(':') { " " } else { "; " });
        }
        message.push_str(line);
    }
    message
}

fn with_help_hint(message: &str, arguments: &[OsString]) -> String {
    let subcommand = arguments.get(1).and_then(|argument| argument.to_str());
    match subcommand.filter(|name| super::SUBCOMMANDS.contains(name)) {
        Some(subcommand) => format!("{message}; see `leasehold {subcommand} --help`"),
        None => format!("{message}; see `leasehold --help`"),
    }
}
