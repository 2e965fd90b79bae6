//! Distributed locks with leases: mutexes, reader-writer locks, semaphores and reentrant mutexes
//! across tasks, threads, processes and machines.
//!
//! A *store* keeps the locks: a folder, a PostgreSQL database, a Redis server, a ZooKeeper
//! ensemble. A URL selects it, and the rest of your program stays the same.
//!
//! ```
//! # async fn charge(order: u32, token: leasehold::Token) -> leasehold::Result<()> { Ok(()) }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! let locks = leasehold::open("memory:").await?;
//!
//! let guard = locks.mutex("orders/42").acquire().await?;
//! guard.while_held(charge(42, guard.token())).await??; // stops if the lock is lost
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! | to | read |
//! |---|---|
//! | hold a lock | [Acquire](#acquire), [Loss](#loss), [Cancellation](#cancellation) |
//! | choose a store | [Choose a store](#choose-a-store), [URLs](#urls), [`Guarantees`] |
//! | exclude late writers | [Fencing](#fencing), the module [`fence`] |
//! | run a job once, or elect a leader | [`Locks::once`], [`Locks::election`] |
//! | use threads without a runtime | the module [`blocking`] |
//! | test your service | [Tests](#tests) |
//! | build with less | [Features](#features) |
//!
//! In the repository, `docs/guide.md` is the guide with whole programs, `docs/services.md` shows
//! leasehold in a service, and `docs/stores` has a page for each store.
//!
//! # Choose a store
//!
//! | the clients run on | store | after a crash the lock is free |
//! |---|---|---|
//! | one machine | `file:` | at once |
//! | many machines, with PostgreSQL | `postgres://` | for a waiter, after the crash grace (10 s) |
//! | many machines, with Redis, Sentinel or Cluster | `redis://` and others | for a waiter, after the crash grace (10 s) |
//! | many machines, with several Redis servers | `redlock://` | when the lease ends (30 s) |
//! | many machines, with a ZooKeeper ensemble | `zookeeper://` | when the session expires (10 s) |
//! | one process, in tests and examples | `memory:` | (the store ends too) |
//!
//! The *crash grace* is how long a holder's connection may be missing before a waiter is granted
//! the lock. [`Guarantees`] states what the open store guarantees, and `GUARANTEES.md` in the
//! repository names the conditions of each guarantee. [URLs](#urls) has all forms.
//!
//! # Acquire
//!
//! [`open`] returns [`Locks`], which creates the locks:
//!
//! | lock | who holds it |
//! |---|---|
//! | [`mutex`](Locks::mutex) | one claim at a time |
//! | [`rwlock`](Locks::rwlock) | many readers or one writer |
//! | [`semaphore`](Locks::semaphore) | claims that take no more slots than it has |
//! | [`reentrant`](Locks::reentrant) | one [`Owner`], which may acquire it again |
//! | [`multi_lock`](Locks::multi_lock) | one claim on each of several locks, or on none |
//! | [`election`](Locks::election) | one leader, whose address others can read |
//! | [`once`](Locks::once) | one claim, until the job is recorded as done |
//!
//! A [`Lock`] has options, such as its [lease](Lock::lease) and its [label](Lock::label), and these
//! ways to acquire it:
//!
//! | method | if another claim holds the lock |
//! |---|---|
//! | [`acquire`](Lock::acquire) | waits in the queue, in order of arrival |
//! | [`try_acquire`](Lock::try_acquire) | returns [`Refused`], which says who holds it |
//! | [`try_acquire_for`](Lock::try_acquire_for) | waits for a limited time, and then returns [`Refused`] |
//! | [`run`](Lock::run) | waits, runs your closure while the lock is held, and releases it |
//!
//! Their futures own what they need, so that you can spawn them.
//!
//! ```
//! use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! # let locks = leasehold::open("memory:").await?;
//! let slot = locks.semaphore("gpu", 4).lease(Duration::from_secs(10)).label("training");
//! match slot.try_acquire_for(Duration::from_secs(5)).await? {
//!     Ok(guard) => guard.release().await?,
//!     Err(refused) => println!("try again later: {refused}"),
//! }
//! # Ok(()) }
//! ```
//!
//! [`Locks::inspect`] reads who holds a lock and who waits, and [`Locks::observe`] reports the
//! changes.
//!
//! # Loss
//!
//! A background thread renews the lease while the [`Guard`] exists, so you never extend it
//! yourself. If the store cannot be reached for too long, the guard is lost before the store can
//! grant the lock to the next waiter. [`Guard::while_held`] then drops the work, [`Guard::lost`]
//! resolves, and [`Guard::check`] fails. [`LossReason`] states why.
//!
//! # Fencing
//!
//! No lock can stop a client that sleeps past its lease and then writes. The resource can: every
//! grant has a larger [`Token`] than the one before, and the resource rejects tokens that are
//! smaller than the largest one it has received. [`fence`] has such resources, and explains how to
//! build one. A lock in PostgreSQL can also be checked in the transaction that it protects:
//! [`Guard::check_binds`].
//!
//! # Errors
//!
//! The one [`Error`] type names the operation, the store and the lock, and never contains a
//! password. Methods such as [`is_unavailable`](Error::is_unavailable) classify it. A lock that
//! another claim holds is not an error, because a try returns [`Refused`] in its `Ok`.
//!
//! # Cancellation
//!
//! Every future may be dropped at any await. A dropped acquire leaves no entry in the queue, and a
//! dropped [`Guard`] releases its lock in the background. When `main` returns or panics, its thread
//! waits for up to a second until the releases have reached the store, so that no lock stays
//! behind. [`drain()`] waits for the releases at any time.
//!
//! A dropped waiter loses its position, so create the future of the acquire outside the loop if you
//! use `select!` in one.
//!
//! # Tests
//!
//! A test opens [`stores::Memory`], which needs no server. Two [`Locks`] on its clones behave like
//! two processes. [`revoke`](stores::Memory::revoke) takes a lock away, and
//! [`fail`](stores::Memory::fail) takes the store down. `docs/testing-your-service.md` in the
//! repository has examples, also with paused time.
//!
//! # Forks
//!
//! A process that forks keeps its holds. Its child has no background thread, so each call there
//! fails at once, as [invalid](Error::is_invalid), and each guard is [lost](LossReason::Forked). In
//! the child, dropping a guard has no effect, but don't drop an acquire or an observer for which
//! the parent waits. Fork before you open a store, or execute a program in the child, as
//! [`std::process::Command`] does.
//!
//! # URLs
//!
//! | URL | store |
//! |---|---|
//! | `memory:` | this process (`stores::Memory`), for tests; each `open` creates a store |
//! | `file:/var/lib/app/locks` | a folder (`stores::File`) of this machine, created if absent |
//! | `file:/mnt/x?local=yes` | a folder on a file system that you declare to be local |
//! | `file:/srv/x?mode=0660` | a folder whose files the members of its group may use |
//! | `file:` | a folder of the user: `$XDG_STATE_HOME/leasehold` or `~/.local/state/leasehold` |
//! | `system:` | `/var/lib/leasehold`, for the users of the group `leasehold` |
//! | `redis://host:6379` | a Redis server (`stores::Redis`) |
//! | `rediss://host:6379` | a Redis server with TLS |
//! | `redis+unix:///path` | a Redis server by its socket |
//! | `redis+sentinel://s1,s2,s3/mymaster` | the Redis master that sentinels name |
//! | `rediss+sentinel://s1,s2,s3/mymaster` | the same with TLS |
//! | `redis+cluster://host1,host2,host3` | the masters of a Redis Cluster |
//! | `rediss+cluster://host1,host2,host3` | the same with TLS |
//! | `redis://host:6379?dialect=plain` | the format of redis-py (`stores::RedisPlain`) |
//! | `redis://host:6379?dialect=redisson` | the locks of Redisson (`stores::Redisson`) |
//! | `redis+sentinel://s1,s2/mymaster?dialect=redisson` | the same on the master of sentinels |
//! | `redlock://a,b,c` | Redis servers (`stores::Redlock`) of which a minority may fail |
//! | `redlocks://a,b,c` | the same with TLS |
//! | `postgres://user@host/database` | a PostgreSQL database (`stores::Postgres`), with TLS unless the host is this machine |
//! | `postgres:///database` | the same by the server's socket |
//! | `zookeeper://host1,host2,host3/folder` | ZooKeeper (`stores::ZooKeeper`) |
//! | `zookeeper+tls://host1,host2,host3/folder` | ZooKeeper with TLS |
//!
//! White space and control characters in a URL are refused, because `file:/locks` and
//! `file:/locks\n` are two folders. Write `%20` for a space; only the path of `file:`, which has no
//! such encoding, may contain one. Trim a URL that you read from a file.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `file` (default) | the store in a folder, on Linux |
//! | `postgres` | the store on PostgreSQL |
//! | `redis` | the stores on Redis servers |
//! | `zookeeper` | the store on ZooKeeper |
//! | `tls` | TLS for the stores on a network |
//! | `aws-lc-rs` (default) | the cryptography of `tls` for programs that install no provider |
//! | `test-util` | a store in memory for tests with paused time, `Memory::on_tokio_clock` |
//! | `metrics` | the metrics of the module `metrics`, by the crate of that name |
//! | `unstable-store` | the module `store`, with the trait that a store of your own implements; it promises nothing |
//!
//! A feature never changes a result.
//!
//! # Stability
//!
//! Within 0.1, names, signatures and results stay. Enums and structs may grow, so a `match` needs a
//! wildcard. What `unstable-store` adds, hidden items, and the crates `leasehold-*` promise
//! nothing. `docs/stability.md` in the repository states what 0.2 may change, on the wire too, and
//! names the public dependencies.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod blocking;
mod open;
mod schemes;
mod shown_url;
mod unknown_url;

#[doc(hidden)]
pub use leasehold_core::StartedJob;
#[doc(alias = "close")]
pub use leasehold_core::drain;
#[doc(hidden)]
pub use leasehold_core::internal::{
    BootInstant, Dialect, StoreKind, keep_no_process_file, stray_character,
};
#[cfg(feature = "metrics")]
pub use leasehold_core::metrics;
#[cfg(feature = "unstable-simulation")]
#[doc(hidden)]
pub use leasehold_core::simulation;
#[cfg(feature = "unstable-store")]
#[doc(inline)]
pub use leasehold_core::store;
pub use leasehold_core::{
    CheckBinds, ClaimId, ClaimProcess, ClaimantInfo, Cleanup, Completion, CrashRelease, Done,
    Election, EndReason, EndedHold, Entry, Error, ErrorKind, Examination, ExaminedServer,
    ExternalHolder, FencingToken, Finding, Guarantees, Guard, Leader, LeaderObserver, Leadership,
    Lock, LockState, Locks, LossReason, MultiGuard, MultiLock, Name, Need, NotGranted, Observer,
    Once, OnceGuard, Outcome, Owner, Pin, PinnedBy, Record, Reentrant, ReentrantGuard, Refused,
    RenewalStatus, Result, RoundTrip, RunError, RwLock, SemaphoreSupport, ServerStatus, ServerVote,
    Severity, Share, Standing, Token, Watch, fence, multi_lock,
};
#[doc(hidden)]
pub use open::open_entering;
pub use open::{examine, open, open_lazy};
#[doc(hidden)]
pub use schemes::{folder_of, kind_of, kinds};
#[doc(hidden)]
pub use shown_url::redacted as shown_url;

/// The lock in transactions of a PostgreSQL database that keeps it.
///
/// [`CHECK`](postgres::CHECK) is a statement for any driver, which pins the grant until the end of
/// the transaction, or fails. [`Guard::check_binds`] returns what to bind.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use leasehold_core::CheckBinds;
    pub use leasehold_postgres::CHECK;
}

/// The stores, one type each.
pub mod stores {
    #[cfg(all(feature = "file", target_os = "linux"))]
    pub use leasehold_core::FileGuardExt;
    #[cfg(feature = "redis")]
    pub use leasehold_core::RedlockGuardExt;
    pub use leasehold_core::stores::Memory;
    #[cfg(all(feature = "file", target_os = "linux"))]
    pub use leasehold_core::stores::{File, FileBuilder};
    #[cfg(feature = "postgres")]
    pub use leasehold_postgres::{Postgres, PostgresBuilder};
    #[cfg(feature = "redis")]
    pub use leasehold_redis::{
        Redis, RedisBuilder, RedisPlain, RedisPlainBuilder, Redisson, RedissonBuilder, Redlock,
        RedlockBuilder,
    };
    #[cfg(feature = "zookeeper")]
    pub use leasehold_zookeeper::{ZooKeeper, ZooKeeperBuilder};
}

#[cfg(all(doctest, feature = "file"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
#[cfg(all(doctest, feature = "file"))]
#[doc = include_str!("../../../README.zh-CN.md")]
struct ReadmeInChinese;
#[cfg(all(doctest, feature = "file"))]
#[doc = include_str!("../../../docs/guide.md")]
struct Guide;
#[cfg(all(doctest, feature = "test-util"))]
#[doc = include_str!("../../../docs/testing-your-service.md")]
struct TestingYourService;
#[cfg(all(doctest, feature = "file"))]
#[doc = include_str!("../../../docs/extending.md")]
struct Extending;
/// Users only read these types, and draw no claim of their own.
///
/// ```compile_fail,E0599
/// let id = leasehold::ClaimId::draw();
/// ```
/// ```compile_fail,E0599
/// let parts = leasehold::Share::from_parts(1, 4);
/// ```
/// ```compile_fail,E0599
/// let info = leasehold::ClaimantInfo::here("label");
/// ```
/// ```compile_fail,E0599
/// let entry = leasehold::Entry::new;
/// ```
/// ```compile_fail,E0369
/// fn is_one(one: &leasehold::Locks, other: &leasehold::Locks) -> bool {
///     one == other
/// }
/// ```
#[cfg(doctest)]
struct NotPublic;
