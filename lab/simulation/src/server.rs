//! The server of the simulated store: queues with leases, in the server's own time.
//!
//! It keeps no more of the contract of `leasehold::store::Store` than the contract says. It ends a
//! lease at the first moment at which it may, and it sends no notification then.

mod entry;
mod records;

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::store::{ClaimId, OnContention, Standing, admitted};
use leasehold::{Completion, CrashRelease, Token};

use records::Records;

pub(crate) use entry::{Cause, Claimed, Ended, Leases, Nanos, Push, Queue, QueueEntry, nanos};

/// The queues of all names.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) queues: BTreeMap<u8, Queue>,
    leases: Leases,
    /// How the claims ended that were once in a queue.
    pub(crate) ended: BTreeMap<ClaimId, Ended>,
    pub(crate) records: Records,
    entries: u64,
}

impl Server {
    pub(crate) fn new(profile: &crate::plan::Profile) -> Self {
        Self {
            queues: BTreeMap::new(),
            leases: Leases {
                lease: profile.lease,
                expire: profile.lease_expiry,
                crash: profile.crash.clone(),
            },
            ended: BTreeMap::new(),
            records: Records::default(),
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
        let leases = self.leases.clone();
        let queue = self.queues.entry(claimed.name).or_default();

        if let Some(entry) = queue.entry_mut(claimed.id) {
            entry.claimed.share = claimed.share;
            entry.renew(now, &leases);
        } else {
            let shares = queue.entries.iter().map(|entry| entry.claimed.share);
            let fits = admitted(shares.chain([claimed.share])) > queue.entries.len();
            self.entries += 1;
            if fits || on_contention == OnContention::Queue {
                queue.entries.push(QueueEntry {
                    claimed,
                    token: None,
                    expires_at: leases.end(now, leases.of(false)),
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
        let leases = self.leases.clone();
        let queue = self.queues.entry(claimed.name).or_default();

        let renewed = queue
            .entry_mut(claimed.id)
            .map(|entry| entry.renew(now, &leases));
        (renewed.map(|lease| leases.reported(lease)), pushes)
    }

    pub(crate) fn leave(&mut self, now: Nanos, claimed: Claimed) -> (bool, Vec<Push>) {
        let mut pushes = self.update(now, claimed.name);
        let was_there = self.remove(now, claimed.name, claimed.id, Cause::Left);

        pushes.extend(self.update(now, claimed.name));
        (was_there, pushes)
    }

    /// Adds a completion and removes the claim, if it holds; returns whether it is recorded.
    pub(crate) fn complete(
        &mut self,
        now: Nanos,
        claimed: Claimed,
        completion: &Completion,
    ) -> (bool, Vec<Push>) {
        let mut pushes = self.update(now, claimed.name);
        let holds = self
            .entry(claimed.id)
            .is_some_and(|entry| entry.token.is_some());
        if holds {
            self.records.add(claimed.name, now, completion);
            self.remove(now, claimed.name, claimed.id, Cause::Left);
            pushes.extend(self.update(now, claimed.name));
        }
        let record = self.records.read(claimed.name, now);
        (record.is_of(claimed.id), pushes)
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
        let entry = self
            .entry(id)
            .map(|entry| (entry.claimed.client, entry.number));
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
        let lease = nanos(self.leases.lease);
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
        entries.find(|entry| entry.claimed.id == id)
    }

    /// Returns the claims of a client, with their names.
    pub(crate) fn entries_of(&self, client: usize) -> Vec<(u8, ClaimId, Nanos)> {
        let entries = self.queues.iter().flat_map(|(name, queue)| {
            let entries = queue.entries.iter();
            let of_client = entries.filter(|entry| entry.claimed.client == client);
            of_client.map(|entry| (*name, entry.claimed.id, entry.expires_at))
        });
        entries.collect()
    }

    /// Returns the lease in the reply to a request to enter.
    pub(crate) fn entered_lease(&self, standing: Standing) -> Duration {
        let holds = matches!(standing, Standing::Held { .. });
        self.leases.reported(self.leases.of(holds))
    }

    /// Removes expired claims, and grants the claims that fit.
    fn update(&mut self, now: Nanos, name: u8) -> Vec<Push> {
        let leases = self.leases.clone();
        let has_grace = matches!(leases.crash, CrashRelease::Within { .. });
        let queue = self.queues.entry(name).or_default();

        for entry in queue
            .entries
            .extract_if(.., |entry| entry.expires_at <= now)
        {
            let ended = Ended {
                kept_until: entry.expires_at,
                cause: Cause::Expired,
            };
            self.ended.insert(entry.claimed.id, ended);
        }

        let granted = admitted(queue.entries.iter().map(|entry| entry.claimed.share));
        let mut pushes = Vec::new();
        for entry in &mut queue.entries[..granted] {
            if entry.token.is_none() {
                queue.last_token += 1 + u64::from(entry.claimed.reserved);
                entry.token = Token::new(queue.last_token);
                if has_grace {
                    entry.expires_at = leases.end(now, leases.of(true));
                }
                pushes.push(Push {
                    client: entry.claimed.client,
                    id: entry.claimed.id,
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
        let Some(at) = entries.iter().position(|entry| entry.claimed.id == id) else {
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
        let Some(place) = queue
            .entries
            .iter()
            .position(|entry| entry.claimed.id == id)
        else {
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
}

fn held(token: Option<Token>) -> Standing {
    let token = token.expect("a granted claim has a token");
    Standing::Held { token }
}
