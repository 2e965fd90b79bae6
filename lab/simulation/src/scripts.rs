//! Histories of the stores on Redis, against a model of the server that executes their scripts.
//!
//! Several clients acquire one lock in virtual time, with leases of their own: a mutex, or a
//! reader-writer lock with downgrades. Their connections are slow, and break before a request is
//! executed, before its reply is sent, or within the reply. Servers restart and fail over, and the
//! slot of the lock moves. After each step of a client, the valid
//! guards are one guard or readers. Jobs that run once are completed once, by a claim that held. In
//! the end every client has released, and the lock is free.

mod client;
mod servers;
mod world;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold::simulation;
use tokio::runtime::Builder;
use tokio::time::timeout;

use world::ScriptWorld;

/// What a history did.
#[derive(Debug, Default)]
pub struct ScriptReport {
    /// What went wrong first.
    pub violation: Option<String>,
    /// The number of grants.
    pub grants: u32,
    /// The number of connections that broke while a client held.
    pub breaks_with_hold: u32,
    /// The number of grants to a reader beside another valid guard.
    pub shared_grants: u32,
    /// The number of those whose lease is unlike the lease of the other guard.
    pub unlike_leases: u32,
    /// The number of downgrades that succeeded.
    pub downgrades: u32,
    /// The number of jobs that were completed, and how often a client found one done.
    pub jobs: [u32; 2],
    /// How often a server has restarted or failed over, or the slot of the lock has moved.
    pub server_faults: u32,
    /// How often a client that held was paused or killed.
    pub client_faults: u32,
    /// The grants and losses, in order.
    pub events: Vec<String>,
}

/// The choices of one history.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the choices are independent")]
pub struct ScriptPlan {
    /// The seed of every choice.
    pub seed: u64,
    /// The store.
    pub store: &'static ScriptStore,
    /// The URL of the store.
    pub url: String,
    /// The lease of the first client.
    pub lease: Duration,
    /// Whether the other clients have shorter leases.
    pub has_unlike_leases: bool,
    /// Whether the clients read and write, if the store has readers.
    pub has_readers: bool,
    /// Whether the clients run jobs once, on a store that keeps its data.
    pub has_jobs: bool,
    /// The longest time of a message.
    pub slowest: Duration,
    /// How many of a thousand messages break their connection.
    pub broken: u16,
    /// How many clients there are.
    pub clients: usize,
    /// How long no client can connect, after a break, and how long a server is down.
    pub outage: Duration,
    /// Whether servers restart and fail over, and the slot of the lock moves.
    pub has_server_faults: bool,
    /// Whether clients are paused, and one is killed.
    pub has_client_faults: bool,
    /// By how many millionths the clock of each client is fast.
    pub drifts: Vec<i64>,
}

impl ScriptPlan {
    /// Draws a plan.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let lease = Duration::from_millis([1_500, 4_000, 30_000][rng.usize(..3)]);
        let store = rng.choice(STORES).expect("a store");
        let longest = format!("longest-lease={}ms", lease.as_millis());
        let slowest = [lease / 1_000, lease / 100, lease / 12][rng.usize(..3)];
        let mut plan = Self {
            seed,
            store,
            url: store.url.replace("LONGEST", &longest),
            lease,
            has_unlike_leases: !seed.is_multiple_of(2),
            has_readers: !seed.is_multiple_of(3),
            has_jobs: seed % 4 == 1 && store.keeps_records,
            slowest,
            broken: [0, 2, 10, 40][rng.usize(..4)],
            clients: rng.usize(3..=4),
            outage: lease.mul_f64([0.0, 0.3, 1.2][rng.usize(..3)]),
            has_server_faults: rng.bool(),
            has_client_faults: rng.bool(),
            drifts: Vec::new(),
        };
        plan.drifts = (0..plan.clients).map(|_| rng.i64(-490..=0)).collect();
        plan
    }

    /// Lets the clients run jobs once, on a store that keeps the records.
    #[must_use]
    pub fn with_jobs(mut self) -> Self {
        let stores: Vec<_> = STORES.iter().filter(|store| store.keeps_records).collect();
        let mut rng = Rng::with_seed(self.seed);
        self.store = rng.choice(stores).expect("a store");
        self.store.url.clone_into(&mut self.url);
        self.has_jobs = true;
        self
    }

    /// Returns the lease of a client.
    fn lease_of(&self, client: usize) -> Duration {
        if !self.has_unlike_leases {
            return self.lease;
        }
        let client = u32::try_from(client).expect("a plan has a few clients");
        self.lease / (1 + 3 * client)
    }
}

/// A store, and what a history must know of it.
#[derive(Clone, Copy, Debug)]
pub struct ScriptStore {
    /// LONGEST stands for the longest lease of the plan.
    url: &'static str,
    servers: ServerGroup,
    /// Whether its records survive what happens to the servers.
    keeps_records: bool,
    /// Whether its tokens rise whatever happens to the servers.
    has_rising_tokens: bool,
    /// Whether a server restarts without its data, for which a quarantine makes up.
    forgets: bool,
}

/// How the servers of a store know each other.
#[derive(Clone, Copy, Debug)]
enum ServerGroup {
    /// Not at all.
    Masters(&'static [&'static str]),
    Sentinels,
    Cluster,
}

const QUEUE: ScriptStore = ScriptStore {
    url: "",
    servers: ServerGroup::Masters(&["a"]),
    keeps_records: true,
    has_rising_tokens: true,
    forgets: false,
};
/// A plain lock can be lost with its key only.
const DIALECT: ScriptStore = ScriptStore {
    keeps_records: false,
    has_rising_tokens: false,
    ..QUEUE
};
const REDLOCK: ScriptStore = ScriptStore {
    servers: ServerGroup::Masters(&["a", "b", "c"]),
    keeps_records: false,
    ..QUEUE
};

const STORES: &[ScriptStore] = &[
    QUEUE.at("redis://a?crash-grace=2s"),
    QUEUE.at("redis://a?crash-grace=off"),
    QUEUE.at("redis://a?crash-grace=500ms"),
    DIALECT.at("redis://a?dialect=plain"),
    DIALECT.at("redis://a?dialect=redisson"),
    DIALECT.at("redis://a?dialect=redisson&lock=rw"),
    REDLOCK.at("redlock://a,b,c?quarantine=off"),
    ScriptStore {
        forgets: true,
        ..REDLOCK.at("redlock://a,b,c?LONGEST")
    },
    ScriptStore {
        servers: ServerGroup::Sentinels,
        keeps_records: false,
        ..QUEUE.at("redis+sentinel://s1,s2,s3/main?after-failover=wait&LONGEST")
    },
    ScriptStore {
        servers: ServerGroup::Cluster,
        ..QUEUE.at("redis+cluster://a,b,c")
    },
];

impl ScriptStore {
    const fn at(self, url: &'static str) -> Self {
        Self { url, ..self }
    }
}

/// Runs a history to its end or to its first violation.
#[must_use]
pub fn run_scripts(plan: &ScriptPlan) -> ScriptReport {
    fastrand::seed(plan.seed);
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs no resources");

    let handle = runtime.handle().clone();
    let _context = handle.enter();
    let world = ScriptWorld::new(plan.clone());
    let _scope = simulation::enter(Arc::clone(&world) as Arc<dyn simulation::World>);

    runtime.block_on(async {
        tokio::select! {
            biased;
            () = world.violated.notified() => {}
            () = world.disturb_servers(), if plan.has_server_faults => {}
            () = world.disturb_clients(), if plan.has_client_faults => {}
            ended = timeout(LONGEST, client::run_all(&world)) => if ended.is_err() {
                world.violate("a client starves".to_owned());
            },
        }
    });
    // Tasks that end here may spawn others, so the world outlives the runtime.
    drop(runtime);
    world.report()
}

/// Every wait is bounded by leases and outages.
const LONGEST: Duration = Duration::from_secs(3_600);
