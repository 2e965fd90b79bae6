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

use async_trait::async_trait;

use super::simulation;
use crate::{ClaimId, Name, Result, Token};

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
    /// Returns the holds of a name whose clients' connections are missing.
    async fn unconnected(&self, name: &Name) -> Result<Vec<SeenHold>>;

    /// Revokes a hold whose process has ended; returns whether it did.
    ///
    /// It does so only if, in the same step, the store has the hold as it was seen, with its token
    /// and its link, and finds that the connection is missing.
    async fn revoke_ended(&self, name: &Name, seen: &SeenHold) -> Result<bool>;
}

/// Revokes the holds of a name whose processes are known to have ended on this machine; returns
/// whether there were any.
///
/// An error is logged: without this step, the hold ends with its crash grace.
///
/// # Cancel safety
/// A dropped call may have revoked some of them. It can be repeated.
pub async fn revoke_ended(store: &impl RevokeEnded, name: &Name) -> bool {
    let revoked = revoke_all(store, name).await;
    revoked.unwrap_or_else(|error| {
        tracing::debug!(%name, %error, "cannot revoke the holds of ended processes");
        false
    })
}

async fn revoke_all(store: &impl RevokeEnded, name: &Name) -> Result<bool> {
    let mut any = false;
    for seen in store.unconnected(name).await? {
        if has_ended(&seen.client) && store.revoke_ended(name, &seen).await? {
            let claim = seen.claim;
            let token = seen.token;
            tracing::debug!(%name, %claim, %token, "the process of the holder has ended");
            any = true;
        }
    }
    Ok(any)
}

/// Whether the process of a client is known to have ended. `false` proves nothing.
fn has_ended(client: &str) -> bool {
    // A server has written the name.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_name = !client.is_empty() && client.bytes().all(is_plain);
    is_name && !simulation::is_active() && system::has_ended(client).unwrap_or(false)
}
