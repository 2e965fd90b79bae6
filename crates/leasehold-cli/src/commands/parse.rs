//! From the arguments to the subcommand, with its store.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::FromArgMatches;
use clap::error::ErrorKind;
use clap::parser::ValueSource;

use super::store::source;
use super::{Action, Command, Origin, definition, front_options, mistakes};
use crate::exit::{self, Exit, print_error};
use crate::{Start, help};

/// Parses the arguments. Prints help, the version or a usage error, and then returns an exit code.
pub(crate) fn parse(arguments: Vec<OsString>, start: Start) -> Result<Command, Exit> {
    if arguments
        .get(1..)
        .is_some_and(|asked| asked == ["help", "stores"])
    {
        return Err(print_stores());
    }
    let definition = definition();
    let reordered = front_options::behind_subcommand(arguments, &definition);
    let arguments = front_options::names_at_end(reordered, &definition);

    let parsed = definition
        .try_get_matches_from(&arguments)
        .and_then(|mut matches| {
            let mistake = mistakes::find(&matches, &arguments);
            let origin = Origin::of(&matches);
            let also_source = source(&matches, "also_store");
            let mut command = Command::from_arg_matches_mut(&mut matches)?;
            if let Some(store) = command.action.store_mut() {
                store.origin = origin;
            }
            if let Action::Run(run) = &mut command.action
                && also_source == Some(ValueSource::EnvVariable)
            {
                run.also_store = run.also_store.take().map(|url| url.trim().to_owned());
            }
            Ok((command, mistake))
        });
    let parsed = match parsed {
        Ok((_, Some(mistake))) => Err(mistake),
        Ok((command, None)) => mistakes::check(command, &arguments),
        Err(error) if is_output(&error) => return Err(print_output(&error)),
        Err(error) => Err(mistakes::describe(error, &arguments)),
    };

    let mut command = parsed.map(normalize).map_err(|message| {
        print_error(message);
        Exit::USAGE
    })?;
    if let Some(store) = command.action.store_mut() {
        store
            .resolve()
            .map_err(|error| exit::report(&error.into()))?;
    }
    if start == Start::Command {
        mistakes::warn_of_flock_file(&mut command.action);
    }
    Ok(command)
}

/// Prints the URLs of all stores.
fn print_stores() -> Exit {
    match write!(io::stdout(), "{}", help::stores().text().trim_start()) {
        Ok(()) => Exit::DONE,
        Err(error) => exit::report(&error.into()),
    }
}

/// Prints help, the version or a usage error.
fn print_output(output: &clap::Error) -> Exit {
    let printed = output.print().and_then(|()| io::stdout().flush());
    match printed {
        // Where the message cannot be printed, the exit code still reports the mistake.
        _ if output.use_stderr() => Exit::USAGE,
        Ok(()) => Exit::DONE,
        Err(error) => exit::report(&error.into()),
    }
}

/// Whether the parser ended because it prints what was requested, or help for an empty command.
fn is_output(error: &clap::Error) -> bool {
    !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// Replaces the options that only stand for others.
fn normalize(mut command: Command) -> Command {
    match &mut command.action {
        Action::Run(run) => run.normalize(),
        Action::Hold(hold) => hold.lock.options.normalize(),
        Action::Acquire(acquire) => acquire.lock.options.normalize(),
        Action::Wait(wait) => wait.normalize(),
        _ => {}
    }
    command
}
