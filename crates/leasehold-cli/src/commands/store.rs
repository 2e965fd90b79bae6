//! The option `--store`, and where the URL of the store comes from.
#![allow(clippy::doc_markdown, reason = "these comments are read on a terminal")]

use std::fmt;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use leasehold::{Error, Lock, Locks, Result, StoreKind, kind_of};

use super::options::heading;
use crate::format::Escaped;
use crate::machine_store;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Store {
    /// The store's URL; `leasehold help stores` lists all
    ///
    /// Without this option and without LEASEHOLD_STORE, it is the store of the machine: the first
    /// line of /etc/leasehold/store that is neither empty nor a comment (#). Only root may change
    /// that file. Without the file, the store is file:.
    ///
    /// White space at the ends of the variable and of the line in the file is removed, because such
    /// values often end with a line break. All other white space in a URL is refused, except inside
    /// the path of file:, and so are control characters.
    ///
    /// Pass a URL that contains a password in LEASEHOLD_STORE, because other users can read the
    /// arguments of a process. Or keep the password in a file, with `?password-file=/path`.
    #[arg(
        help_heading = heading::STORE,
        long = "store",
        value_name = "URL",
        env = "LEASEHOLD_STORE",
        default_value = "file:",
        hide_default_value = true,
        hide_env_values = true
    )]
    pub(crate) url: String,

    #[arg(skip)]
    pub(crate) origin: Origin,
}

/// Where the URL of a store comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    Option,
    Variable,
    /// The file in /etc.
    Machine,
    #[default]
    Default,
    /// `--also-store`, or its variable.
    AlsoStore,
}

impl Store {
    /// Takes the store of this machine, unless the command line or the variable names one.
    pub(super) fn resolve(&mut self) -> Result<()> {
        if self.origin == Origin::Variable {
            self.url = self.url.trim().to_owned();
        }
        if self.origin != Origin::Default {
            return Ok(());
        }
        if let Some(url) = machine_store::read()? {
            self.url = url;
            self.origin = Origin::Machine;
        }
        Ok(())
    }

    pub(crate) async fn open(&self) -> Result<Locks> {
        self.open_by(leasehold::open(&self.url)).await
    }

    /// Opens the store, and enters the claim of the first acquire meanwhile.
    pub(crate) async fn open_entering(
        &self,
        lock: impl FnOnce(&Locks) -> Lock,
        wait: Option<Duration>,
    ) -> Result<Locks> {
        self.open_by(leasehold::open_entering(&self.url, lock, wait))
            .await
    }

    async fn open_by(&self, opening: impl Future<Output = Result<Locks>>) -> Result<Locks> {
        self.check()?;
        let opened = opening.await;
        let locks = opened.map_err(|error| self.origin.explain(error))?;

        tracing::info!(store = locks.url(), origin = %self.origin, "store opened");
        Ok(locks)
    }

    /// Refuses the store of a single process.
    pub(crate) fn check(&self) -> Result<()> {
        if kind_of(&self.url).is_some_and(StoreKind::is_in_process) {
            let error = Error::invalid(
                "a memory: store is inside one process, so no other command would find its locks",
            )
            .help("write file: for the locks of this machine");
            return Err(self.origin.explain(error));
        }
        Ok(())
    }
}

impl Origin {
    /// Returns where the URL comes from that the parser has found for the subcommand.
    pub(super) fn of(matches: &ArgMatches) -> Self {
        match source(matches, "url") {
            Some(ValueSource::CommandLine) => Self::Option,
            Some(ValueSource::EnvVariable) => Self::Variable,
            _ => Self::Default,
        }
    }

    /// Names an opened store, and where its URL comes from.
    pub(crate) fn describe(self, url: &str) -> String {
        format!("store {} ({self})", Escaped(url))
    }

    /// Names the file in an error about its URL. The user of the command has not written the file.
    pub(crate) fn explain(self, error: Error) -> Error {
        if self != Self::Machine {
            return error;
        }
        let hint = error
            .hint()
            .map_or_else(String::new, |hint| format!("{hint}; "));
        error.help(format!("{hint}the URL is {self}"))
    }
}

/// Returns where the value of an option comes from, if the subcommand has the option.
pub(super) fn source(matches: &ArgMatches, id: &str) -> Option<ValueSource> {
    let (_, options) = matches.subcommand()?;
    options.try_contains_id(id).ok()?;
    options.value_source(id)
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option => f.write_str("from --store"),
            Self::Variable => f.write_str("from LEASEHOLD_STORE"),
            Self::Machine => write!(f, "from {}", machine_store::PATH),
            Self::Default => f.write_str("by default"),
            Self::AlsoStore => f.write_str("for --also-store"),
        }
    }
}
