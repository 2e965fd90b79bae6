//! The store inside one process.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Moment;
use crate::{
    Claim, Crash, Entered, Entry, Line, Name, Note, Patience, Promises, Result, Standing, Store, Token, admitted,
};

/// Locks inside this process: for tests, examples, and code that is to run with or without a service.
///
/// Clones are the same store; [`Memory::new`] makes another. Leases end here as on a server.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let store = leasehold::stores::Memory::new();
/// let one = leasehold::over(store.clone(), "memory:")?;
/// let two = leasehold::over(store, "memory:")?;
/// let _guard = one.mutex("a").acquire().await?;
/// assert!(two.mutex("a").try_acquire().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Memory {
    lanes: Arc<Mutex<HashMap<Name, Lane>>>,
    stirred: Arc<Notify>,
}

/// One name's line. It is kept when empty, for its counter.
#[derive(Debug, Default)]
struct Lane {
    entries: Vec<(Entry, Moment)>,
    last: u64,
}

impl Memory {
    /// A new, empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Works on a lane as it is now: expired claims gone, everybody who fits granted, and those who sleep told.
    fn at<T>(&self, name: &Name, work: impl FnOnce(&mut Lane) -> T) -> T {
        let mut lanes = self.lanes.lock();
        let lane = lanes.entry(name.clone()).or_default();
        let mut stirred = lane.settle();
        let answer = work(lane);
        stirred |= lane.settle();
        if stirred {
            self.stirred.notify_waiters();
        }
        answer
    }
}

impl Lane {
    /// Ends what has expired and grants what fits; says whether anything changed.
    fn settle(&mut self) -> bool {
        let (now, before) = (Moment::now(), self.entries.len());
        self.entries.retain(|(_, expires)| *expires > now);
        let mut changed = self.entries.len() != before;
        let granted = admitted(self.entries.iter().map(|(entry, _)| entry.share));
        for (entry, _) in &mut self.entries[..granted] {
            if entry.token().is_none() {
                self.last += 1;
                let token = Token::new(self.last).expect("it was just raised above zero");
                entry.standing = Standing::Held { token };
                changed = true;
            }
        }
        changed
    }

    fn standing(&self, claim: &Claim) -> Standing {
        self.position(claim).map_or(Standing::Gone, |at| self.standing_at(at))
    }

    fn standing_at(&self, at: usize) -> Standing {
        match self.entries[at].0.standing {
            Standing::Queued { .. } => Standing::Queued { ahead: u32::try_from(at).unwrap_or(u32::MAX) },
            other => other,
        }
    }

    fn position(&self, claim: &Claim) -> Option<usize> {
        self.entries.iter().position(|(entry, _)| entry.id == claim.id)
    }

    fn enter(&mut self, claim: &Claim, patience: Patience) -> Result<()> {
        let expires = Moment::now().after(claim.lease);
        if let Some(at) = self.position(claim) {
            let (entry, known) = &mut self.entries[at];
            claim.share.is_part_of(entry.share)?;
            (entry.share, *known) = (claim.share, expires);
            return Ok(());
        }
        if let Some((present, _)) = self.entries.first() {
            claim.share.fits_kind(present.share)?;
        }
        let shares = self.entries.iter().map(|(entry, _)| entry.share).chain([claim.share]);
        if patience == Patience::Queue || admitted(shares) > self.entries.len() {
            let (id, share, note) = (claim.id, claim.share, Note::clone(&claim.note));
            self.entries.push((Entry { id, share, standing: Standing::Queued { ahead: 0 }, note }, expires));
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Memory {
    fn promises(&self) -> Promises {
        Promises { fifo: true, tokens: true, shares: true, expiry: true, crash: Crash::AtOnce }
    }

    async fn enter(&self, claim: &Claim, patience: Patience) -> Result<Entered> {
        self.at(&claim.name, |lane| lane.enter(claim, patience))?;
        Ok(Entered { standing: self.at(&claim.name, |lane| lane.standing(claim)), lease: claim.lease })
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        loop {
            let stirred = self.stirred.notified();
            let (standing, next) = self
                .at(&claim.name, |lane| (lane.standing(claim), lane.entries.iter().map(|(_, expires)| *expires).min()));
            if standing != seen {
                return Ok(standing);
            }
            // Nobody else need look when a lease ends, so whoever waits does.
            let next = next.unwrap_or(Moment::NEVER).since(Moment::now()).min(Duration::from_secs(1));
            tokio::select! {
                () = stirred => {}
                () = tokio::time::sleep(next) => {}
            }
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        let renew = |claim: &Claim| {
            self.at(&claim.name, |lane| {
                let at = lane.position(claim)?;
                lane.entries[at].1 = Moment::now().after(claim.lease);
                Some(claim.lease)
            })
        };
        Ok(claims.iter().map(renew).collect())
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let was_there = self.at(&claim.name, |lane| lane.position(claim).map(|at| lane.entries.remove(at)).is_some());
        if was_there {
            self.stirred.notify_waiters();
        }
        Ok(was_there)
    }

    fn anchors(&self, _claim: &Claim) -> Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }

    async fn look(&self, name: &Name) -> Result<Line> {
        if !self.lanes.lock().contains_key(name) {
            return Ok(Line {
                name: name.clone(),
                entries: Vec::new(),
                last: None,
                strangers: Vec::new(),
                views: Vec::new(),
            });
        }
        Ok(self.at(name, |lane| {
            let entries = lane.entries.iter().enumerate();
            let entries = entries.map(|(at, (entry, _))| Entry { standing: lane.standing_at(at), ..entry.clone() });
            Line {
                name: name.clone(),
                entries: entries.collect(),
                last: Token::new(lane.last),
                strangers: Vec::new(),
                views: Vec::new(),
            }
        }))
    }

    async fn names(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let lanes = self.lanes.lock();
        let in_use = lanes.iter().filter(|(name, lane)| name.as_str().starts_with(prefix) && !lane.entries.is_empty());
        let mut names: Vec<Name> = in_use.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names.truncate(count_max);
        Ok(names)
    }
}
