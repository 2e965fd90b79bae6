//! The server of the simulated store: queues with leases, in the server's own time.
//!
//! It keeps no more of the contract of `leasehold::store::Store` than the contract says. It ends a
//! lease at the first moment at which it may, and it sends no notification then.

mod entry;

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::store::{ClaimId, OnContention, Standing, admitted};
use leasehold::{CrashDetection, Token};

pub(crate) use entry::{Cause, Claimed, Ended, Nanos, Push, Queue, QueueEntry, nanos};

/// The queues of all names.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) queues: BTreeMap<u8, Queue>,
    lease: Duration,
    lease_expiry: bool,
    crash: CrashDetection,
    /// How the claims ended that were once in a queue.
    pub(crate) ended: BTreeMap<ClaimId, Ended>,
    entries: u64,
}

impl Server {
    pub(crate) fn new(profile: &crate::plan::Profile) -> Self {
        Self {
            queues: BTreeMap::new(),
            lease: profile.lease,
            lease_expiry: profile.lease_expiry,
            crash: profile.crash,
            ended: BTreeMap::new(),
            entries: 0,
        }
    }

    pub(crate) fn enter(
        &mut self,
        now: Nanos,
        claimed: Claimed,
        on_contention: OnContention,
    ) -> (Standing, Vec<Push>) {
        let mut pushes = self.update(now, claimed.name);
        let expires_at = self.expiry(now, self.lease);
        let held_until = self.expiry(now, self.held_lease());
        let queue = self.queues.entry(claimed.name).or_default();

        if let Some(entry) = queue
            .entries
            .iter_mut()
            .find(|entry| entry.id == claimed.id)
        {
            entry.share = claimed.share;
            let until = if entry.token.is_some() {
                held_until
            } else {
                expires_at
            };
            entry.expires_at = entry.expires_at.max(until);
        } else {
            let shares = queue.entries.iter().map(|entry| entry.share);
            let fits = admitted(shares.chain([claimed.share])) > queue.entries.len();
            self.entries += 1;
            if fits || on_contention == OnContention::Queue {
                queue.entries.push(QueueEntry {
                    id: claimed.id,
                    client: claimed.client,
                    share: claimed.share,
                    token: None,
                    reserved: claimed.reserved,
                    expires_at,
                    number: self.entries,
                });
            }
        }

        pushes.extend(self.update(now, claimed.name));
        pushes.retain(|push| push.id != claimed.id);
        (self.standing(claimed.name, claimed.id), pushes)
    }

    /// Renews a claim; returns its lease.
    pub(crate) fn renew(&mut self, now: Nanos, claimed: Claimed) -> (Option<Duration>, Vec<Push>) {
        let pushes = self.update(now, claimed.name);
        let held_lease = self.held_lease();
        let lease = self.lease;
        let lease_expiry = self.lease_expiry;
        let queue = self.queues.entry(claimed.name).or_default();

        let entry = queue
            .entries
            .iter_mut()
            .find(|entry| entry.id == claimed.id);
        let renewed = entry.map(|entry| {
            let lease = if entry.token.is_some() {
                held_lease
            } else {
                lease
            };
            let expires_at = if lease_expiry {
                now + nanos(lease)
            } else {
                Nanos::MAX
            };
            entry.expires_at = entry.expires_at.max(expires_at);
            lease
        });
        (renewed.map(|lease| self.reported(lease)), pushes)
    }

    pub(crate) fn leave(&mut self, now: Nanos, claimed: Claimed) -> (bool, Vec<Push>) {
        let mut pushes = self.update(now, claimed.name);
        let was_there = self.remove(now, claimed.name, claimed.id, Cause::Left);

        pushes.extend(self.update(now, claimed.name));
        (was_there, pushes)
    }

    pub(crate) fn find(&mut self, now: Nanos, claimed: Claimed) -> (Standing, Nanos, Vec<Push>) {
        let pushes = self.update(now, claimed.name);
        let standing = self.standing(claimed.name, claimed.id);
        let entries = self
            .queues
            .get(&claimed.name)
            .into_iter()
            .flat_map(|queue| &queue.entries);
        let next_expiry = entries.map(|entry| entry.expires_at).min();

        (standing, next_expiry.unwrap_or(Nanos::MAX), pushes)
    }

    /// Removes a claim against the will of its client.
    pub(crate) fn evict(&mut self, now: Nanos, name: u8, id: ClaimId, cause: Cause) -> Vec<Push> {
        let entry = self.entry(id).map(|entry| (entry.client, entry.number));
        self.remove(now, name, id, cause);

        let mut pushes = self.update(now, name);
        pushes.extend(entry.map(|(client, entry)| Push {
            client,
            id,
            entry,
            standing: Standing::Gone,
        }));
        pushes
    }

    /// Lets all leases begin again, as a server does that takes over.
    pub(crate) fn restart_leases(&mut self, now: Nanos) {
        let lease = nanos(self.lease);
        for entry in self
            .queues
            .values_mut()
            .flat_map(|queue| &mut queue.entries)
        {
            entry.expires_at = entry.expires_at.max(now + lease);
        }
    }

    pub(crate) fn entry(&self, id: ClaimId) -> Option<&QueueEntry> {
        let mut entries = self.queues.values().flat_map(|queue| &queue.entries);
        entries.find(|entry| entry.id == id)
    }

    /// Returns the claims of a client, with their names.
    pub(crate) fn entries_of(&self, client: usize) -> Vec<(u8, ClaimId, Nanos)> {
        let entries = self.queues.iter().flat_map(|(name, queue)| {
            let of_client = queue.entries.iter().filter(|entry| entry.client == client);
            of_client.map(|entry| (*name, entry.id, entry.expires_at))
        });
        entries.collect()
    }

    /// Returns the lease that a reply contains.
    pub(crate) fn reported(&self, lease: Duration) -> Duration {
        if self.lease_expiry {
            lease
        } else {
            Duration::MAX
        }
    }

    /// Returns the lease in the reply to a request to enter.
    pub(crate) fn entered_lease(&self, standing: Standing) -> Duration {
        match standing {
            Standing::Held { .. } => self.reported(self.held_lease()),
            _ => self.reported(self.lease),
        }
    }

    /// Removes expired claims, and grants the claims that fit.
    fn update(&mut self, now: Nanos, name: u8) -> Vec<Push> {
        let held_until = self.expiry(now, self.held_lease());
        let has_grace = matches!(self.crash, CrashDetection::Within(_));
        let queue = self.queues.entry(name).or_default();

        let (expired, live) = queue
            .entries
            .drain(..)
            .partition(|entry| entry.expires_at <= now);
        queue.entries = live;
        let expired: Vec<QueueEntry> = expired;
        for entry in expired {
            let ended = Ended {
                kept_until: entry.expires_at,
                cause: Cause::Expired,
            };
            self.ended.insert(entry.id, ended);
        }

        let granted = admitted(queue.entries.iter().map(|entry| entry.share));
        let mut pushes = Vec::new();
        for entry in &mut queue.entries[..granted] {
            if entry.token.is_none() {
                queue.last_token += 1 + u64::from(entry.reserved);
                entry.token = Token::new(queue.last_token);
                if has_grace {
                    entry.expires_at = held_until;
                }
                pushes.push(Push {
                    client: entry.client,
                    id: entry.id,
                    standing: held(entry.token),
                    entry: entry.number,
                });
            }
        }
        pushes
    }

    fn standing(&self, name: u8, id: ClaimId) -> Standing {
        let entries = self
            .queues
            .get(&name)
            .map_or(&[][..], |queue| &queue.entries);
        let Some(at) = entries.iter().position(|entry| entry.id == id) else {
            return Standing::Gone;
        };
        match entries[at].token {
            Some(_) => held(entries[at].token),
            None => Standing::Queued {
                ahead: u32::try_from(at).expect("a short queue"),
            },
        }
    }

    fn remove(&mut self, now: Nanos, name: u8, id: ClaimId, cause: Cause) -> bool {
        let queue = self.queues.entry(name).or_default();
        let Some(place) = queue.entries.iter().position(|entry| entry.id == id) else {
            return false;
        };

        let entry = queue.entries.remove(place);
        let kept_until = match cause {
            Cause::Evicted => entry.expires_at,
            _ => now,
        };
        self.ended.insert(id, Ended { kept_until, cause });
        true
    }

    fn held_lease(&self) -> Duration {
        match self.crash {
            CrashDetection::Within(grace) => self.lease.min(grace),
            _ => self.lease,
        }
    }

    fn expiry(&self, now: Nanos, lease: Duration) -> Nanos {
        if self.lease_expiry {
            now + nanos(lease)
        } else {
            Nanos::MAX
        }
    }
}

fn held(token: Option<Token>) -> Standing {
    let token = token.expect("a granted claim has a token");
    Standing::Held { token }
}
