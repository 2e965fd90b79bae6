//! The store inside one process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::runtime::clock::BootInstant;
use crate::store::Extensions;
use crate::{
    Claim, ClaimantInfo, CrashDetection, Entered, Entry, Guarantees, LockState, Name, OnContention,
    Result, Standing, Store, Token, admitted,
};

/// Locks inside this process: for tests, examples, and code that is to run with or without a service.
///
/// Clones are the same store; [`Memory::new`] makes another. Leases end here as on a server.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let store = leasehold::stores::Memory::new();
/// let one = leasehold::Locks::from_store(store.clone(), "memory:")?;
/// let two = leasehold::Locks::from_store(store, "memory:")?;
/// let _guard = one.mutex("a").acquire().await?;
/// assert!(two.mutex("a").try_acquire().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Memory {
    queues: Arc<Mutex<HashMap<Name, LockQueue>>>,
    changes: Arc<Notify>,
}

/// One name's line. It is kept when empty, for its counter.
#[derive(Debug, Default)]
struct LockQueue {
    entries: Vec<(Entry, BootInstant)>,
    last_token: u64,
}

impl Memory {
    /// A new, empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Works on a lane as it is now: expired claims gone, everybody who fits granted, and those who sleep told.
    fn queue<T>(&self, name: &Name, work: impl FnOnce(&mut LockQueue) -> T) -> T {
        let mut queues = self.queues.lock();
        let queue = queues.entry(name.clone()).or_default();
        let mut changed = queue.settle();
        let reply = work(queue);
        changed |= queue.settle();
        if changed {
            self.changes.notify_waiters();
        }
        reply
    }
}

impl LockQueue {
    /// Ends what has expired and grants what fits; says whether anything changed.
    fn settle(&mut self) -> bool {
        let (now, before) = (BootInstant::now(), self.entries.len());
        self.entries.retain(|(_, expires)| *expires > now);
        let mut changed = self.entries.len() != before;
        let granted = admitted(self.entries.iter().map(|(entry, _)| entry.share));
        for (entry, _) in &mut self.entries[..granted] {
            if entry.token().is_none() {
                self.last_token += 1;
                let token = Token::new(self.last_token).expect("it was just raised above zero");
                entry.standing = Standing::Held { token };
                changed = true;
            }
        }
        changed
    }

    fn standing(&self, claim: &Claim) -> Standing {
        self.position(claim)
            .map_or(Standing::Gone, |at| self.standing_at(at))
    }

    fn standing_at(&self, at: usize) -> Standing {
        match self.entries[at].0.standing {
            Standing::Queued { .. } => Standing::Queued {
                ahead: u32::try_from(at).unwrap_or(u32::MAX),
            },
            other => other,
        }
    }

    fn position(&self, claim: &Claim) -> Option<usize> {
        self.entries
            .iter()
            .position(|(entry, _)| entry.id == claim.id)
    }

    fn enter(&mut self, claim: &Claim, timeout: OnContention) -> Result<()> {
        let expires = BootInstant::now().saturating_add(claim.lease);
        if let Some(at) = self.position(claim) {
            let (entry, known) = &mut self.entries[at];
            claim.share.check_shrinks_from(entry.share)?;
            (entry.share, *known) = (claim.share, expires);
            return Ok(());
        }
        if let Some((present, _)) = self.entries.first() {
            claim.share.check_same_kind(present.share)?;
        }
        let shares = self
            .entries
            .iter()
            .map(|(entry, _)| entry.share)
            .chain([claim.share]);
        if timeout == OnContention::Queue || admitted(shares) > self.entries.len() {
            let (id, share, info) = (claim.id, claim.share, ClaimantInfo::clone(&claim.info));
            self.entries.push((
                Entry {
                    id,
                    share,
                    standing: Standing::Queued { ahead: 0 },
                    info,
                },
                expires,
            ));
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Memory {
    fn guarantees(&self) -> Guarantees {
        Guarantees {
            fifo: true,
            tokens: true,
            shares: true,
            lease_expiry: true,
            crash: CrashDetection::Immediate,
        }
    }

    async fn enter(&self, claim: &Claim, timeout: OnContention) -> Result<Entered> {
        self.queue(&claim.name, |queue| queue.enter(claim, timeout))?;
        Ok(Entered {
            standing: self.queue(&claim.name, |queue| queue.standing(claim)),
            lease: claim.lease,
        })
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        loop {
            let changed = self.changes.notified();
            let (standing, next) = self.queue(&claim.name, |queue| {
                (
                    queue.standing(claim),
                    queue.entries.iter().map(|(_, expires)| *expires).min(),
                )
            });
            if standing != seen {
                return Ok(standing);
            }
            // Nobody else need look when a lease ends, so whoever waits does.
            let next = next
                .unwrap_or(BootInstant::FAR_FUTURE)
                .duration_since(BootInstant::now())
                .min(Duration::from_secs(1));
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(next) => {}
            }
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        let renew = |claim: &Claim| {
            self.queue(&claim.name, |queue| {
                let at = queue.position(claim)?;
                queue.entries[at].1 = BootInstant::now().saturating_add(claim.lease);
                Some(claim.lease)
            })
        };
        Ok(claims.iter().map(renew).collect())
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let was_there = self.queue(&claim.name, |queue| {
            queue
                .position(claim)
                .map(|at| queue.entries.remove(at))
                .is_some()
        });
        if was_there {
            self.changes.notify_waiters();
        }
        Ok(was_there)
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions::default()
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        if !self.queues.lock().contains_key(name) {
            return Ok(LockState {
                name: name.clone(),
                entries: Vec::new(),
                last_token: None,
                external_holders: Vec::new(),
                servers: Vec::new(),
            });
        }
        Ok(self.queue(name, |queue| {
            let entries = queue.entries.iter().enumerate();
            let entries = entries.map(|(at, (entry, _))| Entry {
                standing: queue.standing_at(at),
                ..entry.clone()
            });
            LockState {
                name: name.clone(),
                entries: entries.collect(),
                last_token: Token::new(queue.last_token),
                external_holders: Vec::new(),
                servers: Vec::new(),
            }
        }))
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let queues = self.queues.lock();
        let in_use = queues
            .iter()
            .filter(|(name, queue)| name.as_str().starts_with(prefix) && !queue.entries.is_empty());
        let mut names: Vec<Name> = in_use.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names.truncate(count_max);
        Ok(names)
    }
}
