//! The stores on Redis that histories have.

use std::time::Duration;

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
    pub(crate) servers: ServerGroup,
    /// For how long a hold is valid at most after its last renewal.
    pub(crate) grace: Option<Duration>,
    pub(crate) has_readers: bool,
    /// Whether its records survive what happens to the servers.
    pub(crate) keeps_records: bool,
    /// Whether its tokens rise whatever happens to the servers.
    pub(crate) has_rising_tokens: bool,
    /// Whether a server restarts without its data, for which a quarantine makes up.
    pub(crate) forgets: bool,
}

/// How the servers of a store know each other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ServerGroup {
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
