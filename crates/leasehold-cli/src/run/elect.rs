//! `leasehold elect`: runs a command whenever this candidate leads.

use std::time::Duration;

use anyhow::Result;
use leasehold::store::LABEL_MAX;
use leasehold::{Error, Locks, MultiGuard};
use tokio::time::sleep;

use super::child::reap_as_init;
use super::retry::Retry;
use super::signals::Signals;
use super::stopping::Stopping;
use super::waiting::{self, NotGranted};
use super::{hold, nested};
use crate::commands::{Elect, Run};
use crate::exit::{Exit, print_error};
use crate::format::Escaped;
use crate::locking::{Request, SlotNumbers};

/// The pause between two terms of one candidate: a command that ends at once must not keep the
/// store busy.
const TERM_PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn elect(args: Elect) -> Result<Exit> {
    nested::check_one_store()?;
    check_address(&args.address)?;
    let args = args.into_run();

    let mut signals = Signals::new()?;
    let mut retry = Retry::within(None, &args.store);
    let opened = retry.until_available(|| args.store.open());
    let locks = signals.during(opened).await??;
    check_tokens(&locks)?;
    let stopping = Stopping::new(args.stop_options(), [&locks])?;

    let name = args.names().remove(0);
    signals
        .during(nested::check_not_enclosed(&locks, &name))
        .await??;
    signals.install()?;

    let mut candidate = Candidate {
        locks: &locks,
        args: &args,
        name,
        stopping,
        signals,
    };
    loop {
        if let Some(exit) = candidate.term().await? {
            return Ok(exit);
        }
    }
}

struct Candidate<'a> {
    locks: &'a Locks,
    args: &'a Run,
    name: String,
    stopping: Stopping,
    signals: Signals,
}

impl Candidate<'_> {
    /// Campaigns, runs the command while it leads, and resigns.
    ///
    /// Returns the exit code once a signal has ended the candidature, or if the command cannot be
    /// started.
    async fn term(&mut self) -> Result<Option<Exit>> {
        let mut retry = Retry::within(None, &self.args.store);
        let names = std::slice::from_ref(&self.name);
        let request = Request {
            names,
            options: &self.args.lock,
            label: "",
            slot_numbers: SlotNumbers::Unneeded,
            store: self.locks,
            origin: self.args.store.origin,
            also: None,
        };
        let acquired = waiting::acquire(request, &mut retry, &mut self.signals).await;
        let guards = match acquired? {
            Ok(guards) => guards,
            Err(NotGranted::TimedOut) => return Ok(None),
            Err(NotGranted::Interrupted(signal)) => return Ok(Some(Exit::by_signal(signal))),
        };
        self.print_elected(&guards);

        let held = hold(guards, None, self.args, &self.stopping, &mut self.signals).await?;
        if held.end_requested || held.exit.is_not_started() {
            return Ok(Some(held.exit));
        }
        self.pause().await
    }

    fn print_elected(&self, guards: &MultiGuard) {
        if self.args.lock.quiet {
            return;
        }
        let name = Escaped(&self.name);
        let token = guards.guards()[0].token();
        print_error(format_args!("elected leader of {name}, token {token}"));
    }

    /// Waits before the next campaign. Returns the exit code if a signal arrives.
    async fn pause(&mut self) -> Result<Option<Exit>> {
        tokio::select! {
            () = sleep(TERM_PAUSE) => Ok(None),
            signal = self.signals.next_end_request() => Ok(Some(Exit::by_signal(signal?))),
            never = reap_as_init() => match never? {},
        }
    }
}

fn check_address(address: &str) -> leasehold::Result<()> {
    let max = LABEL_MAX;
    if (1..=max).contains(&address.len()) {
        return Ok(());
    }
    let len = address.len();
    Err(Error::invalid(format!(
        "--address has 1 to {max} bytes, and this one has {len}"
    )))
}

fn check_tokens(locks: &Locks) -> leasehold::Result<()> {
    if locks.guarantees().tokens {
        return Ok(());
    }
    let error = Error::unsupported("an election needs tokens, and this store has none");
    Err(error.help("use another store, or a dialect with tokens"))
}
