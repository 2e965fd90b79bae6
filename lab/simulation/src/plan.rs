//! What a history consists of, drawn from a seed: the store's contract, clients and faults.

mod draw;
mod redis;

use std::time::Duration;

use leasehold::CrashRelease;

pub use redis::RedisPlan;

pub(crate) use redis::ServerGroup;

/// A history before it runs. Its parts can be removed one by one, to find out which ones a
/// violation needs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of every choice that is made while the history runs.
    pub seed: u64,
    /// What the store guarantees, and how its network behaves.
    pub profile: Profile,
    /// The clients. One client is one process.
    pub clients: Vec<ClientPlan>,
    /// The faults.
    pub faults: Vec<Fault>,
}

impl Plan {
    /// Draws the plan of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        draw::plan(seed)
    }

    /// Draws the plan of a seed in which each operation runs one of [`PERIODS`] jobs once.
    #[must_use]
    pub fn draw_jobs(seed: u64) -> Self {
        draw::jobs(seed)
    }

    /// Draws the plan of a seed with a store on Redis.
    #[must_use]
    pub fn draw_scripts(seed: u64) -> Self {
        draw::scripts(seed)
    }

    /// Draws a plan as [`draw_scripts`](Self::draw_scripts), with jobs and a store that keeps them.
    #[must_use]
    pub fn draw_script_jobs(seed: u64) -> Self {
        draw::script_jobs(seed)
    }

    /// Returns whether its operations run jobs.
    pub(crate) fn has_jobs(&self) -> bool {
        let mut operations = self
            .clients
            .iter()
            .flat_map(|client| client.tasks.iter().flatten());
        operations.any(|operation| operation.job.is_some())
    }

    /// Returns the number of operations of all clients.
    #[must_use]
    pub fn operations(&self) -> usize {
        let tasks = self.clients.iter().flat_map(|client| &client.tasks);
        tasks.map(Vec::len).sum()
    }
}

/// How many jobs a history with jobs has.
pub const PERIODS: u32 = 6;

/// What the store guarantees, and how its network behaves.
#[derive(Clone, Debug)]
pub struct Profile {
    /// What executes the requests of the clients.
    pub backend: BackendPlan,
    /// The longest lease of a claim.
    pub lease: Duration,
    /// Whether the store ends a claim whose lease passes.
    pub lease_expiry: bool,
    /// When the store frees the lock of a crashed holder.
    pub crash: CrashRelease,
    /// The kind of all locks.
    pub kind: LockKind,
    /// The number of names.
    pub names: u8,
    /// Messages.
    pub network: Network,
    /// How often a task that could run lets others run first, in percent.
    pub deferred: u8,
    /// How long a request of the store waits for its reply.
    pub request_timeout: Duration,
}

impl Profile {
    /// Returns for how long a hold with the longest lease is valid after a renewal.
    #[must_use]
    pub fn hold_length(&self) -> Duration {
        self.hold_length_of(self.lease)
    }

    /// Returns for how long a hold with this lease is valid after a renewal.
    pub(crate) fn hold_length_of(&self, lease: Duration) -> Duration {
        match self.crash {
            CrashRelease::Within { grace, .. } => lease.min(grace),
            _ => lease,
        }
    }

    pub(crate) fn has_rising_tokens(&self) -> bool {
        match &self.backend {
            BackendPlan::Contract => true,
            BackendPlan::Redis(plan) => plan.store.has_rising_tokens,
        }
    }

    /// Returns whether requests may fail for a while after the faults: new masters do not vote.
    pub(crate) fn refuses_after_faults(&self) -> bool {
        matches!(self.backend, BackendPlan::Redis(_))
    }

    /// Returns within which time after the faults a lock can be acquired.
    ///
    /// On Redis, the departures of dropped acquires end with their leases, at the latest, and new
    /// masters grant nothing for a lease.
    pub(crate) fn free_within(&self) -> Duration {
        match self.backend {
            BackendPlan::Contract => self.lease * 3 + Duration::from_secs(60),
            BackendPlan::Redis(_) => self.lease * 6,
        }
    }

    /// Returns whether messages are fast, none is lost, and the servers run and vote.
    ///
    /// On Redis, a new connection needs some messages, and some clients have a tenth of the lease.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        let slowest_share = match &self.backend {
            BackendPlan::Contract => 50,
            BackendPlan::Redis(plan) if plan.has_server_faults || plan.store.forgets => {
                return false;
            }
            BackendPlan::Redis(_) => 500,
        };
        let slowest = self.network.slowest;
        self.network.lost == 0
            && slowest <= self.hold_length() / slowest_share
            && slowest <= self.request_timeout / 4
    }
}

/// What executes the requests of the clients.
#[derive(Clone, Debug)]
pub enum BackendPlan {
    /// A server that keeps no more than the contract of a store.
    Contract,
    /// The servers of a store on Redis, which execute its scripts.
    Redis(RedisPlan),
}

/// How messages travel.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// The longest time of one message. Each message draws its own, so messages are reordered.
    pub slowest: Duration,
    /// How many of a thousand messages are lost. On Redis, each breaks its connection.
    pub lost: u16,
    /// How many of a thousand requests are executed twice.
    pub repeated: u16,
}

/// A kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// One holder.
    Mutex,
    /// A semaphore with this number of slots.
    Slots(u32),
    /// Readers or a writer.
    ReadWrite,
}

/// One process.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    /// By how many millionths its clock is fast.
    pub drift: i64,
    /// What each of its tasks does, in order.
    pub tasks: Vec<Vec<Operation>>,
}

/// One acquire and what follows.
#[derive(Clone, Debug)]
pub struct Operation {
    /// How long the task sleeps before.
    pub pause: Duration,
    /// The number of the name.
    pub name: u8,
    /// The slots that it takes, or 1 for a reader and 2 for a writer.
    pub amount: u32,
    /// How long it waits.
    pub wait: Wait,
    /// The lease of the claim.
    pub lease: Duration,
    /// How often a hold is passed on inside the process; `None` without a cohort.
    pub cohort: Option<u32>,
    /// How long the task holds the lock.
    pub hold: Duration,
    /// The bound of the hold.
    pub bound: Bound,
    /// What the task does while it holds the lock.
    pub work: Work,
    /// How the hold ends.
    pub ending: Ending,
    /// The job that runs once under the lock, which is then a mutex, without an option.
    pub job: Option<u32>,
}

/// How long an acquire waits.
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// Until the grant.
    Forever,
    /// Not at all.
    Never,
    /// For at most this long.
    AtMost(Duration),
    /// Until the caller drops the future, after this time.
    DroppedAfter(Duration),
    /// Until the caller drops the future before this poll.
    DroppedAtPoll(u32),
}

/// The bound of a hold.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// Nothing.
    None,
    /// Its lease, which is not renewed.
    NoRenewal,
    /// A longest time.
    MaxHold(Duration),
    /// Its lease, which is not renewed, and a longest time.
    Both(Duration),
}

/// What a holder does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It sleeps, and waits for the loss meanwhile.
    WatchLoss,
    /// It sleeps.
    Sleep,
    /// It works under the guard, and the guard ends the work.
    WhileHeld,
    /// It acquires the lock again, through its owner.
    Nested,
    /// A writer becomes a reader.
    Downgrade,
}

/// How a hold ends.
#[derive(Clone, Copy, Debug)]
pub enum Ending {
    /// It is released.
    Release,
    /// The guard is dropped.
    Drop,
    /// It is released, and the future is dropped before this poll.
    ReleaseDroppedAtPoll(u32),
}

/// A fault.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// It begins after this number of grants,
    pub after_grants: u32,
    /// and this time.
    pub delay: Duration,
    /// Which clients it concerns.
    pub target: Target,
    /// The kind of fault.
    pub kind: FaultKind,
}

/// Which clients a fault concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The client that was granted last.
    Holder,
    /// The client of the first waiter of any name.
    Waiter,
    /// Every client.
    Everyone,
}

/// What a fault does.
#[derive(Clone, Copy, Debug)]
pub enum FaultKind {
    /// The process stops, and continues after this time.
    Pause(Duration),
    /// The process stops before its poll of this number from now, and continues after this time.
    PauseAtPoll(u32, Duration),
    /// The process is killed.
    Kill,
    /// The process is killed before its poll of this number from now.
    KillAtPoll(u32),
    /// The connection is away for this time; requests fail at once.
    Refused(Duration),
    /// The connection is away for this time; requests have no reply.
    Silent(Duration),
    /// Another server takes over after this time, with all data. Leases begin again.
    Failover(Duration),
    /// An operator removes the claim.
    Evict,
}

impl FaultKind {
    /// Returns for how long the client cannot reach the store.
    #[must_use]
    pub fn outage(self) -> Duration {
        match self {
            Self::Pause(time)
            | Self::PauseAtPoll(_, time)
            | Self::Refused(time)
            | Self::Silent(time)
            | Self::Failover(time) => time,
            Self::Kill | Self::KillAtPoll(_) | Self::Evict => Duration::ZERO,
        }
    }
}
