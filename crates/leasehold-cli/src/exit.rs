//! How the command ends: the one table of exit codes.

use std::io;
use std::process::ExitCode;

use nix::sys::signal::Signal;

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(u8);

impl Exit {
    pub(crate) const DONE: Self = Self(0);
    pub(crate) const NO_SUCH_HOLD: Self = Self(1);
    pub(crate) const USAGE: Self = Self(64);
    pub(crate) const UNAVAILABLE: Self = Self(69);
    pub(crate) const INTERNAL: Self = Self(70);
    pub(crate) const NOT_IN_TIME: Self = Self(75);
    pub(crate) const LOST: Self = Self(76);
    pub(crate) const DENIED: Self = Self(77);
    pub(crate) const CANNOT_EXECUTE: Self = Self(126);
    pub(crate) const NO_SUCH_COMMAND: Self = Self(127);
}

const TABLE: &[(&str, &str)] = &[
    ("0", "done; run: COMMAND ended with 0"),
    ("1", "break: nobody holds NAME with this token"),
    (
        "64",
        "wrong usage, name or terms; NAME is in use as another kind of lock; the store",
    ),
    (
        "",
        "cannot give what was asked; a run inside a run of the same NAME",
    ),
    (
        "69",
        "the store cannot be reached, does not answer or has no room: try later",
    ),
    (
        "70",
        "the store holds something damaged or foreign, or leasehold itself failed",
    ),
    ("75", "run: the lock was not granted within --wait"),
    (
        "76",
        "run: the lock was lost; COMMAND was dealt with as --on-lost says",
    ),
    (
        "77",
        "the store refused: missing permission or wrong credentials",
    ),
    ("126", "run: COMMAND was found but cannot be executed"),
    ("127", "run: COMMAND was not found"),
    (
        "128+n",
        "COMMAND was ended by signal n, or leasehold was while it waited or watched",
    ),
    ("other", "run: what COMMAND ended with"),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    ("LEASEHOLD_STORE", "the store, unless --store names it"),
    (
        "LEASEHOLD_LOG",
        "what to log on standard error, such as debug or leasehold=trace",
    ),
    (
        "LEASEHOLD_NAME, LEASEHOLD_TOKEN, LEASEHOLD_CLAIM, LEASEHOLD_STORE",
        "",
    ),
    ("", "set by run for COMMAND"),
    (
        "LEASEHOLD_HELD",
        "set by run too: by it a run inside a run is recognised",
    ),
];

/// Both tables as `--help` and the man pages show them.
pub(crate) fn tables() -> String {
    format!(
        "Exit codes:\n{}\nEnvironment:\n{}",
        rows(TABLE, 6),
        rows(ENVIRONMENT, 16)
    )
}

fn rows(table: &[(&str, &str)], width: usize) -> String {
    let row = |(what, meaning): &(&str, &str)| {
        format!("  {what:<width$} {meaning}").trim_end().to_owned() + "\n"
    };
    table.iter().map(row).collect()
}

impl Exit {
    /// As a shell says it: 128 and the signal's number.
    pub(crate) fn by_signal(signal: Signal) -> Self {
        Self(u8::try_from(128 + signal as i32).expect("signals are numbered up to 64"))
    }

    /// What a process that ended by itself said; the kernel keeps 8 bits of it.
    pub(crate) fn by_code(code: i32) -> Self {
        Self(code.to_le_bytes()[0])
    }

    fn by_error(error: &anyhow::Error) -> Self {
        match error.downcast_ref::<leasehold::Error>() {
            Some(error) if error.is_invalid() || error.is_mismatch() || error.is_unsupported() => {
                Self::USAGE
            }
            Some(error) if error.is_unavailable() => Self::UNAVAILABLE,
            Some(error) if error.is_lost() => Self::LOST,
            Some(error) if error.is_denied() => Self::DENIED,
            _ => Self::INTERNAL,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.0.into()
    }
}

/// Says what went wrong on one line, and ends accordingly.
pub(crate) fn report(error: &anyhow::Error) -> Exit {
    if is_closed_pipe(error) {
        // As `head` expects of everybody who writes to it.
        return Exit::by_signal(Signal::SIGPIPE);
    }
    match error.downcast_ref::<leasehold::Error>() {
        // It has its causes in its own words.
        Some(error) => print_error(error),
        None => print_error(format_args!("{error:#}")),
    }
    Exit::by_error(error)
}

/// One line on standard error.
pub(crate) fn print_error(line: impl std::fmt::Display) {
    use std::io::Write as _;
    // Nobody is left to tell when standard error is closed, and a lock is not lost over it.
    let _ = writeln!(io::stderr(), "leasehold: {line}");
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold::Error;

    #[test]
    fn every_error_kind_has_an_exit_code() {
        let cases = [
            (Error::invalid(""), Exit::USAGE),
            (Error::mismatch(""), Exit::USAGE),
            (Error::unsupported(""), Exit::USAGE),
            (Error::unavailable(""), Exit::UNAVAILABLE),
            (Error::damaged(""), Exit::INTERNAL),
            (Error::lost(""), Exit::LOST),
            (Error::denied(""), Exit::DENIED),
        ];
        for (error, exit) in cases {
            assert_eq!(Exit::by_error(&error.clone().into()), exit, "{error:?}");
        }
        assert_eq!(
            Exit::by_error(&anyhow::anyhow!("anything else")),
            Exit::INTERNAL
        );
        assert_eq!(Exit::by_signal(Signal::SIGTERM), Exit(143));
    }
}
