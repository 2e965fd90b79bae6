//! Why a lock was not granted.

use std::fmt::{self, Display, Formatter};

use crate::{ClaimId, Entry, ExternalHolder, LockState, Name};

/// Who held a lock when an acquire was refused.
///
/// `try_acquire` and its siblings return it if other claims hold the lock, or wait ahead. It is an
/// error for `?`, with a text for people:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::open("memory:").await?;
/// let _guard = locks.mutex("orders/42").label("billing").acquire().await?;
///
/// let refused = locks.mutex("orders/42").try_acquire().await?.unwrap_err();
/// assert_eq!(refused.holders[0].info.label, "billing");
/// assert!(refused.to_string().starts_with("\"orders/42\" is held by "));
/// # Ok(()) }
/// ```
///
/// The lock may have been released since.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// The name of the lock, or of the number of a slot: `gpu/slot/3`.
    pub name: Name,
    /// Claims that held the lock: the first ones, if there were many.
    ///
    /// It is empty if the format of the store names nobody, as that of other Redis libraries, if a
    /// read got no reply, and if the lock became free just then.
    pub holders: Vec<Entry>,
    /// Processes that held the lock by flock(1) on the file store.
    pub external_holders: Vec<ExternalHolder>,
    /// The number of claims ahead of the refused one, including holders, if it is known.
    pub ahead: Option<u32>,
}

impl Refused {
    /// Creates the refusal by a lock of which nothing else is known.
    pub(crate) fn new(name: Name) -> Self {
        Self {
            name,
            holders: Vec::new(),
            external_holders: Vec::new(),
            ahead: None,
        }
    }
}

/// The text is one line, without control characters.
impl Display for Refused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is held", self.name.as_str())?;

        let claims = self.holders.iter().map(|entry| entry.info.to_string());
        let processes = self.external_holders.iter().map(ToString::to_string);
        let holders: Vec<String> = claims.chain(processes).collect();
        if let Some(first) = holders.first() {
            write!(f, " by {first}")?;
        }
        match holders.len() {
            0 | 1 => Ok(()),
            2 => write!(f, " and 1 other"),
            count => write!(f, " and {} others", count - 1),
        }
    }
}

impl std::error::Error for Refused {}

/// Creates the refusal of a claim by a lock in this state.
#[must_use]
pub fn refused(state: LockState, claim: Option<ClaimId>) -> Refused {
    Refused {
        ahead: ahead(&state, claim).and_then(|ahead| u32::try_from(ahead).ok()),
        holders: state.holders().take(HOLDERS_MAX).cloned().collect(),
        external_holders: state.external_holders,
        name: state.name,
    }
}

/// Returns the number of claims ahead of a claim that was refused.
fn ahead(state: &LockState, claim: Option<ClaimId>) -> Option<usize> {
    let own_at = state
        .entries
        .iter()
        .position(|entry| Some(entry.id) == claim);
    let ahead = match own_at {
        Some(own_at) => own_at,
        None if claim.is_none() => state.entries.len(),
        // The claim has left the queue already, and other waiters may have been behind it.
        None if state.waiters().next().is_some() => return None,
        None => state.entries.len(),
    };
    // A process that holds by flock(1) has no entry in the queue.
    (ahead > 0).then_some(ahead)
}

/// How many holders a refusal names. A semaphore may have a thousand.
const HOLDERS_MAX: usize = 8;
