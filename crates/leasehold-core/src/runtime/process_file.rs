//! How a client learns that another process of its machine has ended, and tells the store.
//!
//! A crashed holder's connection is missing, which proves nothing for as long as the crash grace.
//! But another client of the same machine may know that the process has ended. It tells the store,
//! which revokes the hold if the connection is missing too.
//!
//! ```text
//! read the hold ──► look at the process ──► tell the store what was read
//! ```
//! The order matters: a hold that is read after the look may be of another process.

#[cfg(target_os = "linux")]
#[path = "process_file/linux.rs"]
mod system;
#[cfg(not(target_os = "linux"))]
#[path = "process_file/other.rs"]
mod system;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use tokio::time::sleep;

use super::simulation;
use crate::{Claim, ClaimId, Name, Result, Token};

static KEEPS_NONE: AtomicBool = AtomicBool::new(false);

/// Lets the clients of this process keep no files.
///
/// For a process whose work goes on in others after a crash: the processes of a command, or a
/// script.
pub fn keep_no_process_file() {
    KEEPS_NONE.store(true, Ordering::Relaxed);
}

/// The file of one client of this process, which shows others whether the process has ended. It is
/// removed when this value is dropped.
#[derive(Debug)]
pub struct ProcessFile {
    _file: system::LockedFile,
}

impl ProcessFile {
    /// Makes the file of a client; `None` where that is impossible.
    #[must_use]
    pub fn create(client: &str) -> Option<Self> {
        if KEEPS_NONE.load(Ordering::Relaxed) || simulation::is_active() {
            return None;
        }
        match system::LockedFile::create(client) {
            Ok(file) => Some(Self { _file: file }),
            Err(error) => {
                tracing::debug!(%error, "no process of this machine can see a crash of this one");
                None
            }
        }
    }
}

/// A hold as a store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenHold {
    /// The claim.
    pub claim: ClaimId,
    /// The token of its grant.
    pub token: Token,
    /// The client of the claim, which has one process.
    pub client: String,
    /// The connection of that client, as the store has it: the client, its epoch, and the like.
    pub link: String,
}

/// A store that can be told that the process of a client has ended.
#[async_trait]
pub trait RevokeEnded: Send + Sync {
    /// Returns the holds of a name that are bound to the connections of their clients.
    async fn bound_holds(&self, name: &Name) -> Result<Vec<SeenHold>>;

    /// Revokes a hold whose process has ended, as the client of `seen_by` knows; returns whether it
    /// did.
    ///
    /// It does so only if, in the same step, the store has the hold as it was seen, with its token
    /// and its link, and finds that the connection is missing.
    async fn revoke_ended(&self, seen: &SeenHold, seen_by: &Claim) -> Result<bool>;
}

/// The pauses before a store is asked again to revoke a hold, because it still has the connection.
///
/// The kernel closes the connections of a process when it ends. A server reads that some moments
/// later, and a proxy passes it on later still.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(20),
    Duration::from_millis(100),
];

/// Revokes the holds ahead of a claim whose processes are known to have ended on this machine;
/// returns whether there were any.
///
/// An error is logged: without this step, the hold ends with its crash grace.
///
/// # Cancel safety
/// A dropped call may have revoked some of them. It can be repeated.
pub async fn revoke_ended(store: &impl RevokeEnded, claim: &Claim) -> bool {
    let revoked = revoke_all(store, claim, has_ended).await;
    revoked.unwrap_or_else(|error| {
        tracing::debug!(name = %claim.name, %error, "cannot revoke the holds of ended processes");
        false
    })
}

async fn revoke_all(
    store: &impl RevokeEnded,
    by: &Claim,
    has_ended: impl Fn(&str) -> bool + Send,
) -> Result<bool> {
    let mut any = false;
    for seen in store.bound_holds(&by.name).await? {
        if has_ended(&seen.client) && revoke(store, &seen, by).await? {
            let token = seen.token;
            tracing::debug!(name = %by.name, claim = %seen.claim, %token, "its process has ended");
            any = true;
        }
    }
    Ok(any)
}

async fn revoke(store: &impl RevokeEnded, seen: &SeenHold, by: &Claim) -> Result<bool> {
    for pause in PAUSES {
        if store.revoke_ended(seen, by).await? {
            return Ok(true);
        }
        sleep(pause).await;
    }
    store.revoke_ended(seen, by).await
}

/// Whether the process of a client is known to have ended. `false` proves nothing.
#[must_use]
pub fn has_ended(client: &str) -> bool {
    // A server has written the name.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_name = !client.is_empty() && client.bytes().all(is_plain);
    is_name && !simulation::is_active() && system::has_ended(client).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::*;
    use crate::store::{claimant_here, draw_claim_id};
    use crate::{ClaimantInfo, Error, Share};

    /// A server that has the connection of a process for some time after its end.
    struct Server {
        since: Instant,
        connected_for: Duration,
        /// When it was asked, in milliseconds.
        asked: Mutex<Vec<u128>>,
    }

    #[async_trait]
    impl RevokeEnded for Server {
        async fn bound_holds(&self, _: &Name) -> Result<Vec<SeenHold>> {
            let hold = |client: &str| SeenHold {
                claim: draw_claim_id(),
                token: Token::new(1).expect("above zero"),
                client: client.to_owned(),
                link: String::new(),
            };
            Ok(vec![hold("runs"), hold("ended")])
        }

        async fn revoke_ended(&self, seen: &SeenHold, _: &Claim) -> Result<bool> {
            assert_eq!(seen.client, "ended");
            self.asked.lock().push(self.since.elapsed().as_millis());
            Ok(self.since.elapsed() >= self.connected_for)
        }
    }

    async fn asked(connected_for: u64) -> Result<(bool, Vec<u128>), Error> {
        let server = Server {
            since: Instant::now(),
            connected_for: Duration::from_millis(connected_for),
            asked: Mutex::default(),
        };
        let info: Arc<ClaimantInfo> = Arc::new(claimant_here("")?);
        let claim = Claim::new(Name::parse("a")?, Share::MUTEX, info);
        let revoked = revoke_all(&server, &claim, |client| client == "ended").await?;
        Ok((revoked, server.asked.into_inner()))
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_still_has_the_connection_is_asked_again() -> Result<()> {
        assert_eq!(asked(0).await?, (true, vec![0]));
        assert_eq!(asked(3).await?, (true, vec![0, 1, 6]));
        assert_eq!(asked(60).await?, (true, vec![0, 1, 6, 26, 126]));
        assert_eq!(asked(1_000).await?, (false, vec![0, 1, 6, 26, 126]));
        Ok(())
    }
}
