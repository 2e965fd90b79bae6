//! Every store of this crate × every suite.

// xtask: busy
// Suites wait for nearly all of their time, so more of them run at a time.
// xtask: threads 24

#![cfg(all(
    feature = "file",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
#![allow(missing_docs, clippy::wildcard_imports)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use async_trait::async_trait;
use lab_servers::{Cluster, Postgres, Redis, Release, Sentinels, ZooKeeper};
use leasehold::store::{Claim, OnContention, Standing, Store};
use leasehold::store::{Intercept, Intercepted};
use leasehold::{Guarantees, Result, SemaphoreSupport, Token, stores};
use leasehold_conformance::support::{claim, fresh_name};
use leasehold_conformance::{
    LockKind, SUITES_BY_KIND, SUITES_RUN_ONCE, Service, broken_hold_is_reported_lost,
};

/// Makes the tests of each store, and the list of the stores from the same names.
///
/// A store names the guarantees that it lacks. Its suites then check the refusal, or the weaker
/// behaviour, so a guarantee that is lost by mistake must not pass for one that is lacking.
macro_rules! stores {
    (
        of all kinds { $($store:ident: $service:expr, lacks $lacks:expr;)* }
        of mutex and blocking { $($other:ident: $others:expr, lacks $lack:expr;)* }
    ) => {
        $(mod $store {
            use super::*;
            leasehold_conformance::conformance_tests!($service);
            stores!($store: $service, lacks $lacks);
        })*
        $(mod $other {
            use super::*;
            leasehold_conformance::conformance_tests!(of mutex and blocking, $others);
            stores!($other: $others, lacks $lack);
        })*

        const STORES: &[(&str, &[&str])] = &[
            $((stringify!($store), &["mutex", "slot", "writer", "blocking"]),)*
            $((stringify!($other), &["mutex", "blocking"]),)*
        ];
    };
    ($store:ident: $service:expr, lacks $lacks:expr) => {
        #[tokio::test]
        async fn lacking_guarantees_are_the_named_ones() {
            let store = $service.connect().await.expect("the service is connected");
            let lacks: &[&str] = &$lacks;
            let guarantees = lacks.iter().copied().filter(|lack| *lack != NAMED_HOLDER);
            assert_eq!(lacking(&store.guarantees()), guarantees.collect::<Vec<_>>());
        }

        /// Of a store whose reply does not say who refused a claim, the engine inspects the lock.
        #[tokio::test]
        async fn reply_to_a_refused_claim_names_the_holder() {
            let service = $service;
            let store = service.connect().await.expect("the service is connected");
            let lacks: &[&str] = &$lacks;
            assert_eq!(names_holder(&*store).await, !lacks.contains(&NAMED_HOLDER));
        }
    };
}

// The stores on Redis pass the suites of all kinds in virtual time: lab/simulation/tests/suites.
stores! {
    of all kinds {
        memory: Memory(stores::Memory::new()), lacks [];
        file: Folder::new(), lacks ["lease_expiry"];
        postgres: Database, lacks [NAMED_HOLDER];
        zookeeper: Tree("/curator"), lacks ["lease_expiry", "cohorts", NAMED_HOLDER];
        zookeeper_kazoo: Tree("/kazoo?dialect=kazoo"),
            lacks ["lease_expiry", "cohorts", NAMED_HOLDER];
    }
    of mutex and blocking {
        redis: Server::start(Release::Installed), lacks [];
        redis_6_2: Server::start(Release::Redis62), lacks [];
        valkey: Server::start(Release::Valkey9), lacks [];
        redis_resp2: Server::resp2(), lacks [];
        redis_without_crash_detection: Server::without_crash_detection(), lacks [];
        redis_sentinel: Watched::by(&SENTINELS, ""), lacks [];
        valkey_sentinel_wait: Watched::by(
            &SENTINELS_OF_VALKEY,
            "&after-failover=wait&longest-lease=60m"
        ), lacks [];
        redis_cluster: Clustered(&CLUSTER), lacks [];
        valkey_cluster: Clustered(&CLUSTER_OF_VALKEY), lacks [];
        plain: Plain::with("", "\"\""), lacks ["fifo", "tokens", "rwlock", "semaphore", "cohorts"];
        plain_counted: Plain::with("&tokens=on&protocol=2", "Kgx"),
            lacks ["fifo", "rwlock", "semaphore", "cohorts"];
        redisson: Java::with(""), lacks ["fifo", "tokens", "rwlock", "semaphore", "cohorts"];
        redisson_fenced: Java::with("&lock=fenced&prefix=app:&protocol=2"),
            lacks ["fifo", "rwlock", "semaphore", "cohorts"];
        redisson_rw: Java::with("&lock=rw"), lacks ["fifo", "tokens", "semaphore", "cohorts"];
        redisson_semaphore: Java::with("&lock=semaphore&prefix=app:"),
            lacks ["fifo", "tokens", "rwlock", "cohorts"];
        // The lab has the tests of masters that lose their data.
        redlock: Masters::start("quarantine=off&longest-lease=120s"),
            lacks ["fifo", "rwlock", "semaphore", "cohorts"];
        redlock_classic: Masters::start("dialect=classic&longest-lease=120s"),
            lacks ["fifo", "tokens", "rwlock", "semaphore", "cohorts"];
    }
}

/// What a store lacks whose reply to a claim that is refused does not name the holder.
const NAMED_HOLDER: &str = "named_holder";

/// Whether the reply to a claim that is refused names the holder.
async fn names_holder(store: &dyn Store) -> bool {
    let name = fresh_name("refusing");
    let holder = claim(&name);
    let refused = claim(&name);
    let held = store.enter(&holder, OnContention::Fail).await;
    assert!(held.expect("it replies").standing.token().is_some());

    let reply = store.enter(&refused, OnContention::Fail).await;
    let reply = reply.expect("it replies");
    assert_eq!(reply.standing, Standing::Gone);
    store.leave(&holder).await.expect("it replies");

    let Some(refused) = reply.refused else {
        return false;
    };
    let holders: Vec<_> = refused.holders.iter().map(|entry| entry.id).collect();
    assert_eq!(holders, [holder.id]);
    assert_eq!(refused.ahead, Some(1));
    true
}

/// The names of the guarantees that a store does not give.
fn lacking(guarantees: &Guarantees) -> Vec<&'static str> {
    let given = [
        ("fifo", guarantees.fifo),
        ("tokens", guarantees.tokens),
        ("rwlock", guarantees.rwlock),
        (
            "semaphore",
            guarantees.semaphore != SemaphoreSupport::Unsupported,
        ),
        ("lease_expiry", guarantees.lease_expiry),
        ("cohorts", guarantees.cohorts),
    ];

    let lacking = given.into_iter().filter(|(_, is_given)| !is_given);
    lacking.map(|(name, _)| name).collect()
}

/// Fails if a pair of store and suite does not have a test.
#[test]
fn every_store_runs_every_suite() {
    let this_program = std::env::current_exe().expect("a running program has a file");
    let output = std::process::Command::new(this_program)
        .args(["--list", "--format", "terse"])
        .output()
        .expect("the tests are listed");
    let names = String::from_utf8(output.stdout).expect("test names are text");
    let tests: BTreeSet<&str> = names
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .collect();

    for kind in leasehold::kinds().filter(|kind| !kind.is_local()) {
        let scheme = kind.schemes().next().expect("a kind has a scheme");
        let has_suites = STORES.iter().any(|(store, _)| *store == scheme);
        assert!(has_suites, "{scheme}: is not in the list of stores");
    }
    for (store, kinds) in STORES {
        for suite in SUITES_RUN_ONCE {
            let test = format!("{store}::{suite}");
            assert!(tests.contains(&*test), "{test} is missing");
        }
        for suite in SUITES_BY_KIND {
            for kind in *kinds {
                let test = format!("{store}::{suite}::{kind}");
                assert!(tests.contains(&*test), "{test} is missing");
            }
        }
    }
}

/// A store that does not notify a holder of the loss fails the suite, although the renewal of the
/// holder would find the loss later.
#[tokio::test]
#[should_panic(expected = "the store notifies the holder")]
async fn store_without_notification_of_loss_fails_the_suite() {
    let service = SilentService(stores::Memory::new());
    broken_hold_is_reported_lost(&service, LockKind::Mutex).await;
}

/// A memory store whose holders receive no notification.
struct SilentService(stores::Memory);

#[async_trait]
impl Service for SilentService {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Intercepted(SilentForHolders(self.0.clone()))))
    }
}

#[derive(Debug)]
struct SilentForHolders(stores::Memory);

#[async_trait]
impl Intercept for SilentForHolders {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    async fn lost(&self, _claim: &Claim, _token: Token) -> Result<()> {
        std::future::pending().await
    }
}

struct Memory(stores::Memory);

#[async_trait]
impl Service for Memory {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(self.0.clone()))
    }
}

/// One folder. Every client opens it again, as other processes would.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder").keep())
    }
}

#[async_trait]
impl Service for Folder {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(stores::File::at(&self.0)?))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed stays in the temporary folder and does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One database for all tests. Each test uses fresh names.
struct Database;

static POSTGRES: LazyLock<Postgres> = LazyLock::new(Postgres::start);

#[async_trait]
impl Service for Database {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        let builder = stores::Postgres::builder(&POSTGRES.url())?;
        Ok(Arc::new(builder.connect().await?))
    }
}

/// The server of a store, for all its tests. Each test uses fresh names.
fn server_of(store: &str, start: impl FnOnce() -> Redis) -> &'static Redis {
    static SERVERS: Mutex<BTreeMap<String, &Redis>> = Mutex::new(BTreeMap::new());

    let mut servers = SERVERS.lock().expect("the servers before have started");
    servers
        .entry(store.to_owned())
        .or_insert_with(|| Box::leak(Box::new(start())))
}

/// One server for all tests, and a connection for each client.
struct Server {
    redis: &'static Redis,
    url: String,
}

impl Server {
    fn start(release: Release) -> Self {
        let start = || Redis::setup().release(release).start();
        let redis = server_of(&format!("{release:?}"), start);
        Self {
            url: redis.url(),
            redis,
        }
    }

    /// Connects through a Unix socket, with RESP2 alone.
    fn resp2() -> Self {
        let redis = server_of("resp2", Redis::start);
        Self {
            url: format!("redis+unix://{}?protocol=2", redis.socket_path().display()),
            redis,
        }
    }

    /// A crash frees a lock at the end of its lease.
    fn without_crash_detection() -> Self {
        let redis = server_of("crash-grace=off", Redis::start);
        Self {
            url: format!("{}?crash-grace=off", redis.url()),
            redis,
        }
    }
}

#[async_trait]
impl Service for Server {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(
            stores::Redis::builder(&self.url)?.connect().await?,
        ))
    }
}

/// Keys that a test leaves behind expire: every key has a time to live.
impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            check_expiry(self.redis);
        }
    }
}

fn is_master(node: &Redis) -> bool {
    node.info("replication").contains("role:master")
}

fn check_expiry(redis: &Redis) {
    for key in redis.command(&["KEYS", "*"]).texts() {
        assert_ne!(
            redis.command(&["PTTL", key]).int(),
            -1,
            "{key} never expires"
        );
    }
}

/// One group of sentinels and servers for all tests. Each test uses fresh names.
struct Watched {
    group: &'static Sentinels,
    url: String,
}

static SENTINELS: LazyLock<Sentinels> = LazyLock::new(|| sentinels_of(Release::Installed));
static SENTINELS_OF_VALKEY: LazyLock<Sentinels> = LazyLock::new(|| sentinels_of(Release::Valkey9));

fn sentinels_of(release: Release) -> Sentinels {
    let setup = Redis::setup().release(release);
    let group = Sentinels::of(&setup, &setup);
    let master = group.server(group.master());
    // The wait after a failover is over: a client has seen this master in 1970.
    let info = master.info("replication");
    let id = info
        .lines()
        .find_map(|line| line.strip_prefix("master_replid:"));
    let seen = format!("{:.10}0000000000000000", id.expect("a server has an id"));
    master.command(&["SET", "leasehold:{history}:since", &seen, "PX", "1000000"]);
    group
}

impl Watched {
    fn by(group: &'static Sentinels, settings: &str) -> Self {
        let url = format!("{}?{}{settings}", group.url(), group.settings());
        Self { group, url }
    }
}

#[async_trait]
impl Service for Watched {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(
            stores::Redis::builder(&self.url)?.connect().await?,
        ))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            check_expiry(self.group.server(self.group.master()));
        }
    }
}

/// One cluster for all tests. Each test uses fresh names, which are on any master.
struct Clustered(&'static Cluster);

static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);
static CLUSTER_OF_VALKEY: LazyLock<Cluster> =
    LazyLock::new(|| Cluster::of(&Redis::setup().release(Release::Valkey9)));

#[async_trait]
impl Service for Clustered {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        let url = self.0.url();
        Ok(Arc::new(stores::Redis::builder(&url)?.connect().await?))
    }
}

impl Drop for Clustered {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let nodes = (0..self.0.count()).map(|number| self.0.node(number));
            nodes.filter(|node| is_master(node)).for_each(check_expiry);
        }
    }
}

/// Five servers for all tests. Each test uses fresh names.
struct Masters {
    url: String,
}

impl Masters {
    fn start(settings: &str) -> Self {
        let hosts: Vec<String> = five().iter().map(Redis::address).collect();
        Self {
            url: format!("redlock://{}?{settings}", hosts.join(",")),
        }
    }
}

fn five() -> &'static [Redis; 5] {
    static FIVE: OnceLock<[Redis; 5]> = OnceLock::new();
    FIVE.get_or_init(|| std::array::from_fn(|_| Redis::start()))
}

#[async_trait]
impl Service for Masters {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(
            stores::Redlock::builder(&self.url)?.connect().await?,
        ))
    }
}

impl Drop for Masters {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            five().iter().for_each(check_expiry);
        }
    }
}

/// One server with the wire format of other libraries.
struct Plain {
    redis: &'static Redis,
    url: String,
}

impl Plain {
    /// The server publishes these keyspace events.
    fn with(settings: &str, events: &str) -> Self {
        let start = || Redis::configured(&[("notify-keyspace-events", events)]);
        let redis = server_of(&format!("plain{settings}"), start);
        Self {
            url: format!("{}?dialect=plain{settings}", redis.url()),
            redis,
        }
    }
}

#[async_trait]
impl Service for Plain {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(
            stores::RedisPlain::builder(&self.url)?.connect().await?,
        ))
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            check_expiry(self.redis);
        }
    }
}

/// One server with the locks of Redisson.
struct Java {
    redis: &'static Redis,
    url: String,
}

impl Java {
    fn with(settings: &str) -> Self {
        let redis = server_of(&format!("redisson{settings}"), Redis::start);
        Self {
            url: format!("{}?dialect=redisson{settings}", redis.url()),
            redis,
        }
    }
}

#[async_trait]
impl Service for Java {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(
            stores::Redisson::builder(&self.url)?.connect().await?,
        ))
    }
}

/// All keys expire but the counters of `RFencedLock`, which Redisson never removes, and the
/// permits of semaphores.
impl Drop for Java {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let is_semaphore = self.url.contains("lock=semaphore");
        for key in self.redis.command(&["KEYS", "*"]).texts() {
            let expires = self.redis.command(&["PTTL", key]).int() != -1;
            let is_counter = key.starts_with("redisson_lock_token:");
            let is_permits = is_semaphore && !key.starts_with("leasehold:");
            assert!(expires || is_counter || is_permits, "{key} never expires");
        }
    }
}

/// One server for all tests, as it starts slowly, and a session for each client.
struct Tree(&'static str);

static TREE: LazyLock<ZooKeeper> = LazyLock::new(|| ZooKeeper::setup().tick(1_000).start());

#[async_trait]
impl Service for Tree {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        let url = format!("{}{}", TREE.url(), self.0);
        Ok(Arc::new(stores::ZooKeeper::builder(&url)?.connect().await?))
    }
}
