//! The stores on Redis: the real ones, against a model of the server that executes their scripts.
//!
//! Their connections are slow, and break before a request is executed, before its reply is sent, or
//! within the reply. Servers restart and fail over, and the slot of the lock moves.

mod servers;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lab_redis_model::Wire;
use tokio::io::{DuplexStream, duplex};
use tokio::time::{sleep, timeout};

use crate::event::What;
use crate::plan::BackendPlan;
use crate::process::Outage;
use crate::server::nanos;
use crate::world::World;

pub(crate) use servers::Servers;

use servers::ServerFault;

/// A store on Redis, and what happens to its servers.
#[derive(Clone, Debug)]
pub struct RedisPlan {
    pub(crate) store: RedisStore,
    /// The URL of the store.
    pub(crate) url: String,
    /// How long no client can connect, after a break, and how long a server is down.
    pub(crate) outage: Duration,
    /// Whether servers restart and fail over, and the slot of the lock moves.
    pub(crate) has_server_faults: bool,
}

/// A store, and what a history must know of it.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the properties are independent"
)]
pub(crate) struct RedisStore {
    /// LONGEST stands for the longest lease of the plan.
    url: &'static str,
    servers: ServerGroup,
    /// For how long a hold is valid at most after its last renewal.
    pub(crate) grace: Option<Duration>,
    pub(crate) has_readers: bool,
    /// Whether its records survive what happens to the servers.
    pub(crate) keeps_records: bool,
    /// Whether its tokens rise whatever happens to the servers.
    pub(crate) has_rising_tokens: bool,
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

const QUEUE: RedisStore = RedisStore {
    url: "",
    servers: ServerGroup::Masters(&["a"]),
    grace: Some(Duration::from_secs(10)),
    has_readers: true,
    keeps_records: true,
    has_rising_tokens: true,
    forgets: false,
};
/// A plain lock can be lost with its key only.
const DIALECT: RedisStore = RedisStore {
    grace: None,
    has_readers: false,
    keeps_records: false,
    has_rising_tokens: false,
    ..QUEUE
};
const REDLOCK: RedisStore = RedisStore {
    servers: ServerGroup::Masters(&["a", "b", "c"]),
    grace: None,
    has_readers: false,
    keeps_records: false,
    ..QUEUE
};

pub(crate) const STORES: &[RedisStore] = &[
    RedisStore {
        grace: Some(Duration::from_secs(2)),
        ..QUEUE.at("redis://a?crash-grace=2s")
    },
    RedisStore {
        grace: None,
        ..QUEUE.at("redis://a?crash-grace=off")
    },
    RedisStore {
        grace: Some(Duration::from_millis(500)),
        ..QUEUE.at("redis://a?crash-grace=500ms")
    },
    DIALECT.at("redis://a?dialect=plain"),
    DIALECT.at("redis://a?dialect=redisson"),
    RedisStore {
        has_readers: true,
        ..DIALECT.at("redis://a?dialect=redisson&lock=rw")
    },
    REDLOCK.at("redlock://a,b,c?quarantine=off"),
    RedisStore {
        forgets: true,
        ..REDLOCK.at("redlock://a,b,c?LONGEST")
    },
    RedisStore {
        servers: ServerGroup::Sentinels,
        keeps_records: false,
        ..QUEUE.at("redis+sentinel://s1,s2,s3/main?after-failover=wait&LONGEST")
    },
    RedisStore {
        servers: ServerGroup::Cluster,
        ..QUEUE.at("redis+cluster://a,b,c")
    },
];

impl RedisStore {
    const fn at(self, url: &'static str) -> Self {
        Self { url, ..self }
    }

    /// Returns the URL for leases up to `longest`.
    pub(crate) fn url(&self, longest: Duration) -> String {
        let longest = format!("longest-lease={}ms", longest.as_millis());
        self.url.replace("LONGEST", &longest)
    }
}

impl World {
    /// Opens a connection of a client.
    pub(crate) fn connect_to(&self, host: &str, client: usize) -> io::Result<DuplexStream> {
        let now = self.time();
        let mut state = self.state();
        let link = &state.clients[client].link;
        let epoch = link.epoch;
        let is_refused = link.outage == Some(Outage::Refused);
        let servers = state.backend.redis_mut().filter(|_| !is_refused);
        let reached = servers.and_then(|servers| servers.reachable(host, now));
        drop(state);
        let server = reached.ok_or(io::ErrorKind::ConnectionRefused)?;

        let (ours, theirs) = duplex(64 * 1024);
        let wire = BreakingWire {
            world: self.shared(),
            client,
            epoch,
        };
        tokio::spawn(async move { server.serve(theirs, wire).await });
        Ok(ours)
    }

    /// Lets servers restart and fail over, one after another, until the clients have ended.
    pub(crate) async fn disturb_servers(&self, outage: Duration) {
        let mut rng = self.state().network_rng.fork();
        loop {
            let pause = self.profile.lease.mul_f64(1.0 + 5.0 * rng.f64());
            let ended = timeout(pause, self.workers_have_ended()).await;
            if ended.is_ok() || self.servers_have_healed() {
                return;
            }

            let fault = self.begin_server_fault(&mut rng);
            sleep(outage).await;
            self.end_server_fault(fault);
        }
    }

    /// Whether connections are fast, and break no more: a store opens then, however slow they were.
    pub(crate) fn servers_have_healed(&self) -> bool {
        let is_contract = matches!(self.profile.backend, BackendPlan::Contract);
        !is_contract && self.time() > nanos(FAULTS_MAX)
    }

    fn begin_server_fault(&self, rng: &mut Rng) -> ServerFault {
        let what = "a server stops, or the slot moves";
        self.record(0, What::Fault(what.to_owned()));
        let mut state = self.state();
        state.counts.server_faults += 1;
        let servers = state.backend.redis_mut().expect("a plan of Redis");
        servers.begin_fault(rng)
    }

    fn end_server_fault(&self, fault: ServerFault) {
        self.record(0, What::FaultEnds("fault of a server"));
        let mut state = self.state();
        let servers = state.backend.redis_mut().expect("a plan of Redis");
        servers.end_fault(fault);
    }

    /// Draws how long a message takes.
    fn delay(&self) -> Duration {
        let mut state = self.state();
        let slowest = self.network_of(&state).slowest;
        let share = state.network_rng.f64();
        slowest.mul_f64(share * share)
    }

    /// Draws whether a connection breaks now. An outage may begin then.
    fn breaks(&self) -> bool {
        let BackendPlan::Redis(plan) = &self.profile.backend else {
            return false;
        };
        let now = self.time();
        let mut state = self.state();
        let lost = self.network_of(&state).lost;
        if state.network_rng.u16(..1_000) >= lost {
            return false;
        }

        let begins_outage = state.network_rng.u8(..6) == 0;
        if let Some(servers) = state.backend.redis_mut().filter(|_| begins_outage) {
            servers.down_until = now + nanos(plan.outage);
        }
        let meets_hold = state.holds.iter().any(|hold| !hold.is_closed);
        state.counts.breaks_with_hold += u32::from(meets_hold);
        true
    }
}

/// After this time, no server fails and no connection breaks.
const FAULTS_MAX: Duration = Duration::from_secs(120);

/// The connection of a client to a server.
struct BreakingWire {
    world: Arc<World>,
    client: usize,
    /// The number of disconnections of the client before the connection.
    epoch: u64,
}

impl BreakingWire {
    /// Carries a message, unless the connection breaks.
    async fn carry(&self) -> io::Result<()> {
        sleep(self.world.delay()).await;
        self.world.silence_ends(self.client).await;

        let now = self.world.time();
        let is_down = match self.world.state().backend.redis_mut() {
            Some(servers) => servers.down_until > now,
            None => false,
        };
        let is_connected = self.world.is_connected(self.client, self.epoch);
        if is_down || !is_connected || self.world.breaks() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

impl Wire for BreakingWire {
    async fn before(&mut self) -> io::Result<()> {
        self.carry().await
    }

    async fn pass(&mut self, sent: &mut Vec<u8>) -> io::Result<()> {
        let carried = self.carry().await;
        if carried.is_err() {
            let kept = self.world.state().network_rng.usize(..=sent.len());
            sent.truncate(kept);
        }
        carried
    }
}
