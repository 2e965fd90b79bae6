//! How the watchdog releases the locks of a run that was killed.
//!
//! Until then the watchdog has neither a runtime nor a connection. The environment that it has
//! passed to COMMAND names the stores, with their secrets, and the holds.

use std::time::Duration;

use leasehold::Result;

use super::nested::{self, EnclosingHold};
use super::retry::{Retry, has_server};
use crate::build_runtime;
use crate::commands::{Origin, Store};
use crate::exit::print_error;

/// How long the watchdog tries at least. The hold may end while COMMAND is being killed.
const TRIES_MIN: Duration = Duration::from_secs(1);

/// Releases the locks of this run. All processes of COMMAND must have ended.
///
/// Gives up once the hold, which lasts for `left`, is over: the store then frees the locks.
pub(super) fn release(hold_count: usize, left: Duration) {
    let holds = nested::innermost_holds(hold_count);
    let within = left.max(TRIES_MIN);

    let runtime = match build_runtime() {
        Ok(runtime) => runtime,
        Err(error) => return print_failure(&error),
    };
    let urls = [nested::STORE, nested::ALSO_STORE].map(std::env::var);
    // The kernel has released the locks of a folder.
    let on_servers = urls.into_iter().flatten().filter(|url| has_server(url));
    for url in on_servers {
        let released = runtime.block_on(release_in(url, &holds, within));
        if let Err(error) = released {
            print_failure(&error);
        }
    }
}

fn print_failure(error: &dyn std::error::Error) {
    print_error(format_args!(
        "leasehold was killed, and its locks cannot be released: {error}; the store frees them as \
         after a crash"
    ));
}

/// Releases the holds that are in the store of a URL.
async fn release_in(url: String, holds: &[EnclosingHold], within: Duration) -> Result<()> {
    let origin = Origin::Variable;
    let store = Store { url, origin };
    let mut retry = Retry::within(Some(within), &store);
    let locks = retry.until_available(|| store.open()).await?;
    for hold in holds.iter().filter(|hold| hold.store == locks.url()) {
        let id = hold.claim.parse()?;
        let releasing = || locks.release_ended(&hold.name, id);
        retry.until_available(releasing).await?;
    }
    Ok(())
}
