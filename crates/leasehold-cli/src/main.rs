//! `leasehold`: holds a lock while a command runs, and shows the holders and waiters of locks.
#![forbid(unsafe_code)]

mod break_;
mod commands;
mod completions;
mod doctor;
mod exit;
mod format;
mod gc;
mod guards;
mod help;
mod hold;
mod list;
mod locking;
mod log;
mod machine_store;
mod man;
mod once;
mod own_program;
mod process_state;
mod release;
mod run;
mod scan;
#[cfg(feature = "console")]
mod serve;
mod setup;
mod show;
mod usage;
mod user_folder;
mod wait;
mod watch;

use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use anyhow::Context;
use commands::{Action, Command};
use exit::Exit;
use tokio::runtime::{Builder, Runtime};

fn main() -> ExitCode {
    // Every COMMAND starts through this shim, so it runs first, before clap and the log.
    if let Some(exit) = run::exec_shim::run_if_shim() {
        return exit.into();
    }
    run::signals::notice_ends_of_children();
    run::signals::survive_file_size_limit();
    run::signals::end_first_process();
    if let Some(exit) = run::watchdog_process::run_if_watchdog() {
        return exit.into();
    }

    // After a crash the work goes on: in COMMAND until the watchdog has ended it, or in a script.
    leasehold::keep_no_process_file();
    let background = hold::background::detach_if_background();
    let started_as = if background.is_some() {
        Start::Background
    } else {
        Start::Command
    };
    let arguments = background.unwrap_or_else(|| std::env::args_os().collect());

    let exit = match commands::parse(arguments, started_as) {
        Ok(command) => {
            log::start(&command.log);
            execute(command, started_as).unwrap_or_else(|error| exit::report(&error))
        }
        Err(exit) => exit,
    };
    exit.end()
}

/// How this process was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Command,
    /// By `leasehold acquire`, to hold the lock.
    Background,
}

/// Runs the subcommand on the main thread alone.
///
/// The kernel kills COMMAND when the thread that started it ends. Only the main thread lives as
/// long as the process.
fn execute(command: Command, start: Start) -> anyhow::Result<Exit> {
    let runtime = build_runtime().context("cannot start the async runtime")?;

    runtime.block_on(async {
        match command.action {
            Action::Run(args) => run::run(*args).await,
            Action::Elect(args) => run::elect::elect(*args).await,
            Action::Hold(args) => hold::hold(*args).await,
            Action::Acquire(args) => match start {
                Start::Command => hold::background::acquire(&args),
                Start::Background => hold::background::hold(&args).await,
            },
            Action::Check(args) => release::check(&args).await,
            Action::Release(args) => release::release(&args).await,
            Action::Wait(args) => wait::wait(&args).await,
            Action::Ls(args) if args.names => list::list_names(&args).await,
            Action::Ls(args) => list::list(&args).await,
            Action::Show(args) => show::show(&args).await,
            Action::Watch(args) => watch::watch(&args).await,
            Action::Break { name, token, store } => break_::break_hold(&store, &name, token).await,
            Action::Doctor { store, json } => doctor::examine(&store, json).await,
            #[cfg(feature = "console")]
            Action::Serve(args) => serve::serve(&args).await,
            Action::Gc { store } => gc::collect(&store).await,
            Action::SetupSystem { group } => setup::set_up(&group).await,
            Action::SetupPostgres {
                store,
                roles,
                print,
            } => setup::set_up_postgres(&store, &roles, print).await,
            Action::Man {
                all: Some(folder), ..
            } => man::write_all(&folder),
            Action::Man { subcommand, .. } => man::man(subcommand.as_deref()),
            Action::Completions { shell } => completions::print(shell),
        }
    })
}

fn build_runtime() -> io::Result<Runtime> {
    // Tokio panics if it finds no descriptors for the two sockets of its signals. It needs six.
    (0..3)
        .map(|_| UnixStream::pair())
        .collect::<io::Result<Vec<_>>>()?;
    Builder::new_current_thread().enable_all().build()
}
