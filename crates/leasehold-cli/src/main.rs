//! `leasehold`: holds a lock while a command runs, and shows the holders and waiters of locks.
#![forbid(unsafe_code)]

mod break_;
mod commands;
mod exit;
mod format;
mod gc;
mod list;
mod man;
mod run;
mod setup;
mod show;
mod watch;

use std::process::ExitCode;

use anyhow::Context;
use commands::{Action, Command};
use exit::Exit;

fn main() -> ExitCode {
    // Every command starts through this shim. So it comes first, before clap and the log.
    if let Some(exit) = run::exec_shim::run_if_shim() {
        return exit.into();
    }
    if let Some(exit) = run::watchdog::run_if_watchdog() {
        return exit.into();
    }

    start_log();
    let exit = match commands::parse() {
        Ok(command) => execute(command).unwrap_or_else(|error| exit::report(&error)),
        Err(exit) => exit,
    };
    exit.end()
}

/// Runs the subcommand on the main thread alone.
///
/// The kernel kills COMMAND when the thread that started it ends. Only the main thread lives as
/// long as the process.
fn execute(command: Command) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;

    runtime.block_on(async {
        match command.action {
            Action::Run(args) => run::run(*args).await,
            Action::Ls {
                prefix,
                store,
                json,
            } => list::list(&store, &prefix, json).await,
            Action::Show { name, store, json } => show::show(&store, &name, json).await,
            Action::Watch { name, store, json } => watch::watch(&store, &name, json).await,
            Action::Break { name, token, store } => break_::break_hold(&store, &name, token).await,
            Action::Gc { store } => gc::collect(&store).await,
            Action::SetupSystem { group } => setup::set_up(&group),
            Action::Man { subcommand } => man::man(subcommand.as_deref()),
            Action::Completions { shell } => man::completions(shell),
        }
    })
}

/// Starts the log if `LEASEHOLD_LOG` is set. Building a filter takes longer than acquiring a lock.
fn start_log() {
    if std::env::var_os("LEASEHOLD_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_env("LEASEHOLD_LOG");
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .init();
    }
}
