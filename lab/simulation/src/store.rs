//! The store of one client: an adversary within the contract of `leasehold::store::Store`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::store::{
    Claim, Entered, Extensions, OnContention, RecordReader, Records, Standing, Store,
    draw_claim_id, replies,
};
use leasehold::{Completion, Guarantees, LockState, Name, Record, Result, SemaphoreSupport, Token};
use tokio::time::timeout;

use crate::event::What;
use crate::network::{Label, request};
use crate::process::rank;
use crate::server::{Claimed, Nanos, Push, Server};
use crate::world::World;

/// The store of one client.
pub(crate) struct SimulatedStore {
    world: Arc<World>,
    client: usize,
}

impl SimulatedStore {
    pub(crate) fn new(world: Arc<World>, client: usize) -> Self {
        Self { world, client }
    }

    fn label(&self, what: &'static str, claim: &Claim) -> Label {
        Label {
            client: self.client,
            what,
            id: claim.id,
            expires: what == "enter",
        }
    }

    fn claimed(&self, claim: &Claim) -> Claimed {
        Claimed {
            client: self.client,
            name: number_of(&claim.name),
            id: claim.id,
            share: claim.share,
            reserved: claim.reserved,
        }
    }

    /// Reads the standing of a claim, and when the next lease of its queue ends.
    async fn find(&self, claim: &Claim) -> Result<(Standing, Nanos)> {
        let claimed = self.claimed(claim);
        let label = self.label("find", claim);
        let execute = move |world: &World| {
            world.execute(label, |server, now| {
                let (standing, next_expiry, pushes) = server.find(now, claimed);
                ((standing, next_expiry), pushes)
            })
        };
        request(&self.world, label, execute).await
    }

    /// Waits until the standing of a claim differs from `seen`, and returns it.
    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        loop {
            let (standing, next_expiry) = self.find(claim).await?;
            let is_stale = rank(standing) < rank(seen);
            if standing != seen && !is_stale {
                self.world.noticed(self.client, claim.id, standing);
                return Ok(standing);
            }

            let now = self.world.time();
            let until_expiry = Duration::from_nanos(next_expiry.saturating_sub(now));
            let limit = until_expiry.clamp(POLL_MIN, POLL_MAX);
            if let Some(standing) = self.notified(claim, seen, limit).await {
                self.world.noticed(self.client, claim.id, standing);
                return Ok(standing);
            }
        }
    }

    /// Waits for a notification about the claim; returns whether one arrived in time.
    async fn notified(&self, claim: &Claim, seen: Standing, limit: Duration) -> Option<Standing> {
        let arrived = Arc::clone(&self.world.state().clients[self.client].inbox.arrived);
        let waiting = async {
            loop {
                let next = arrived.notified();
                let standing = self.world.state().clients[self.client].inbox.get(claim.id);
                if let Some(standing) = standing
                    && standing != seen
                    && rank(standing) >= rank(seen)
                {
                    return standing;
                }
                next.await;
            }
        };
        timeout(limit, waiting).await.ok()
    }
}

#[async_trait]
impl Store for SimulatedStore {
    fn guarantees(&self) -> Guarantees {
        let profile = &self.world.profile;
        let mut guarantees = replies::guarantees(profile.crash.clone());
        guarantees.fifo = true;
        guarantees.tokens = true;
        guarantees.rwlock = true;
        guarantees.semaphore = SemaphoreSupport::WhileInUse;
        guarantees.cohorts = true;
        guarantees.lease_expiry = profile.lease_expiry;
        guarantees
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        let claimed = self.claimed(claim);
        let label = self.label("enter", claim);
        let execute = move |world: &World| {
            world.execute(label, |server, now| {
                let (standing, pushes) = server.enter(now, claimed, on_contention);
                let lease = server.entered_lease(standing);
                let entry = server.entry(claimed.id).map_or(0, |entry| entry.number);
                ((Entered::new(standing, lease), entry), pushes)
            })
        };

        let (entered, entry) = request(&self.world, label, execute).await?;
        self.world.state().clients[self.client]
            .inbox
            .entered(claim.id, entry);
        Ok(entered)
    }

    async fn queued(&self, claim: &Claim, ahead: u32) -> Result<Standing> {
        self.changed(claim, Standing::Queued { ahead }).await
    }

    async fn lost(&self, claim: &Claim, token: Token) -> Result<()> {
        self.changed(claim, Standing::Held { token }).await?;
        Ok(())
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        let claimed: Vec<Claimed> = claims.iter().map(|claim| self.claimed(claim)).collect();
        let label = self.label("renew", &claims[0]);
        let execute = move |world: &World| {
            let claimed = claimed.clone();
            world.execute(label, |server, now| {
                let mut all_pushes = Vec::new();
                let leases: Vec<_> = claimed
                    .into_iter()
                    .map(|claimed| {
                        let (lease, pushes) = server.renew(now, claimed);
                        all_pushes.extend(pushes);
                        lease
                    })
                    .collect();
                (leases, all_pushes)
            })
        };

        let leases = request(&self.world, label, execute).await?;
        for (claim, lease) in claims.iter().zip(&leases) {
            if lease.is_none() {
                self.world.noticed(self.client, claim.id, Standing::Gone);
            }
        }
        Ok(leases)
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.world.check_leaving(self.client, claim.id);
        let claimed = self.claimed(claim);
        let label = self.label("leave", claim);
        let execute =
            move |world: &World| world.execute(label, |server, now| server.leave(now, claimed));

        let was_there = request(&self.world, label, execute).await?;
        self.world.state().clients[self.client]
            .inbox
            .forget(claim.id);
        Ok(was_there)
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        Ok(replies::lock_state(name.clone()))
    }

    async fn list(&self, _prefix: &str, _count_max: usize) -> Result<Vec<Name>> {
        Ok(Vec::new())
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            records: Some(self),
            ..Extensions::default()
        }
    }
}

#[async_trait]
impl Records for SimulatedStore {
    async fn kept(&self) -> Result<Duration> {
        Ok(Duration::from_secs(40 * 24 * 60 * 60))
    }

    async fn record(&self, name: &Name, _reader: RecordReader) -> Result<Record> {
        let number = number_of(name);
        let label = Label {
            client: self.client,
            what: "record",
            // Reading a record is no request of a claim.
            id: draw_claim_id(),
            expires: false,
        };
        let execute = move |world: &World| {
            world.execute(label, |server, now| {
                (server.records.read(number, now), Vec::new())
            })
        };
        request(&self.world, label, execute).await
    }

    async fn complete(&self, claim: &Claim, completion: &Completion) -> Result<bool> {
        self.world.check_leaving(self.client, claim.id);
        let claimed = self.claimed(claim);
        let completion = completion.clone();
        let label = self.label("complete", claim);
        let execute = move |world: &World| {
            world.execute(label, |server, now| {
                server.complete(now, claimed, &completion)
            })
        };

        let is_recorded = request(&self.world, label, execute).await?;
        if is_recorded {
            self.world.state().clients[self.client]
                .inbox
                .forget(claim.id);
        }
        Ok(is_recorded)
    }

    async fn list_records(&self, _prefix: &str, _count_max: usize) -> Result<Vec<Name>> {
        Ok(Vec::new())
    }
}

impl World {
    /// Executes a request on the server, and sends the notifications that follow.
    fn execute<T: fmt::Debug>(
        &self,
        label: Label,
        work: impl FnOnce(&mut Server, Nanos) -> (T, Vec<Push>),
    ) -> T {
        let now = self.time();
        let (reply, pushes) = work(self.state().backend.contract_mut(), now);

        let text = if self.is_verbose() {
            format!("{reply:?}")
        } else {
            String::new()
        };
        self.record(label.client, What::Executed(label.what, label.id, text));
        self.push(pushes);
        reply
    }

    /// Records that the client knows that a claim is gone.
    fn noticed(&self, client: usize, id: leasehold::ClaimId, standing: Standing) {
        if standing != Standing::Gone {
            return;
        }
        let now = self.time();
        let gone_since = &mut self.state().clients[client].gone_since;
        gone_since.entry(id).or_insert(now);
    }
}

impl fmt::Debug for SimulatedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimulatedStore({})", self.client)
    }
}

/// The name of a lock, from its number.
pub(crate) fn name_of(number: u8) -> String {
    format!("lock-{number}")
}

fn number_of(name: &Name) -> u8 {
    let digits = name.as_str().rsplit('-').next();
    digits
        .and_then(|digits| digits.parse().ok())
        .expect("the name of a simulated lock")
}

/// A client polls no more often than this.
const POLL_MIN: Duration = Duration::from_millis(5);
/// A client polls at least this often.
const POLL_MAX: Duration = Duration::from_secs(1);
