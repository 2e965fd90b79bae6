//! `leasehold serve`: the locks of a store as a web page, as JSON and as metrics.
//!
//! ```text
//! connection ─► access (host, token) ─► routes ─► scanner ─► store
//!                                         │          └ one scan for all requests of a moment
//!                                         └► page, locks, events, metrics, break
//! ```

mod access;
mod breaking;
mod changes;
mod connections;
mod events;
mod html;
mod metrics;
mod page;
mod replies;
mod routes;
mod scanner;
mod server;
mod snapshot;

use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use leasehold::Error;
use nix::sys::signal::Signal;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::commands::Serve;
use crate::exit::Exit;
use access::{Access, BearerToken};
use scanner::Scanner;

/// What every request needs.
struct Site {
    access: Access,
    scanner: Scanner,
    is_breaking_allowed: bool,
}

/// Serves until a signal ends it.
pub(crate) async fn serve(args: &Serve) -> Result<Exit> {
    let token = args
        .token_file
        .as_deref()
        .map(BearerToken::read)
        .transpose()?;
    check_exposure(args.listen, token.is_some())?;

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let locks = args.store.open().await?;
    if let Some(prefix) = &args.once {
        // A store without records says so here, and not at every scan.
        locks.list_records(prefix, 1).await?;
    }
    let listener = TcpListener::bind(args.listen).await.map_err(|error| {
        let message = format!("cannot listen on {}: {error}", args.listen);
        Error::invalid(message).help("write --listen with another address or port")
    })?;
    let site = Arc::new(Site {
        access: Access::new(token, &args.hosts),
        scanner: Scanner::new(locks, args.prefix.clone(), args.once.clone()),
        is_breaking_allowed: args.allow_break,
    });

    let mut out = stdout().lock();
    writeln!(out, "listening on http://{}/", listener.local_addr()?)?;
    out.flush()?;
    drop(out);

    tokio::select! {
        _ = interrupt.recv() => Ok(Exit::by_signal(Signal::SIGINT)),
        _ = terminate.recv() => Ok(Exit::by_signal(Signal::SIGTERM)),
        never = server::run(listener, site) => match never {},
    }
}

/// Refuses to show the locks to a network without a token.
fn check_exposure(listen: SocketAddr, has_token: bool) -> leasehold::Result<()> {
    if has_token || listen.ip().is_loopback() {
        return Ok(());
    }

    let message = format!("{listen} is not a loopback address, and a token is missing");
    Err(Error::invalid(message).help("write --token-file PATH, or listen on 127.0.0.1"))
}
