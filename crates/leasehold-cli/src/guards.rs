//! What the command does with the guards of all locks that it holds at once.

use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::time::Duration;

use leasehold::stores::FileGuardExt;
use leasehold::{Guard, MultiGuard, Result};
use tokio::time::timeout;

use crate::exit::print_error;
use crate::format::{Escaped, whole_unit};

/// How long to wait for the reply to a release. The calling script must not wait for a store that
/// no longer replies.
pub(crate) const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the guards of the names in the store of `--store`, in the order of the arguments.
pub(crate) fn of_main_store(guards: &MultiGuard) -> &[Guard] {
    let all = guards.guards();
    let main = all[0].store_url();
    let also = all.iter().position(|guard| guard.store_url() != main);
    &all[..also.unwrap_or(all.len())]
}

/// Returns the descriptors that keep all locks held while any process has them open.
pub(crate) fn inheritable_fds(guards: &MultiGuard) -> Result<Vec<OwnedFd>> {
    let guards = guards.guards().iter();
    let fds: Result<Vec<_>> = guards.map(FileGuardExt::inheritable_fds).collect();
    Ok(fds?.into_iter().flatten().collect())
}

/// Releases all locks and prints an error of the release. Fails only if a lock was lost before.
///
/// If the store does not reply, leasehold waits at most [`RELEASE_TIMEOUT`].
pub(crate) async fn release_and_report(guards: MultiGuard, loss: LossReport) -> Result<()> {
    let name = guards.weakest().name().to_owned();
    let print = |text: &dyn Display| {
        if loss == LossReport::Due {
            print_error(text);
        }
    };

    match timeout(RELEASE_TIMEOUT, guards.release()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            print(&error);
            if error.is_lost() { Err(error) } else { Ok(()) }
        }
        Err(_elapsed) => {
            print(&no_reply_to_release(&name));
            Ok(())
        }
    }
}

/// What is printed after a release of `name` without a reply within [`RELEASE_TIMEOUT`].
pub(crate) fn no_reply_to_release(name: &str) -> String {
    format!(
        "cannot release {}: the store sent no reply within {}; it frees the lock when it detects \
         the end of leasehold, or when the lease ends",
        Escaped(name),
        whole_unit(RELEASE_TIMEOUT)
    )
}

/// Whether a loss still has to be printed. This includes the outage that leads to the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossReport {
    Due,
    Printed,
}
