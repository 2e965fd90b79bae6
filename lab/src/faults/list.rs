//! The faults, and the pairs of a store and a fault that the matrix leaves out.

use super::Guarantee::{Exclusion as E, Refuses as R, TokensOnly as T};
use super::{
    Fault, Guarantee, Requirement, clients, clocks, failovers, files, mixed, names, network,
    persistence, processes, redis_state, servers, zookeeper,
};
use crate::backends::Capability::{
    Failover, Folder, Leader, Majority, Masters, Network, RedisCommands, Replica, Sentinels,
    ServerClock, ServerProcess, Sessions, SingleRedis, Slots, SmallDisk,
};

/// The values that most faults share.
const FAULT: Fault = Fault {
    name: "",
    description: "",
    evidence: "",
    needs: &[],
    requires: Requirement::None,
    min_effects: 2,
    guarantee: E,
    recovery_seconds: 0,
    losses: &[],
    opens: &[],
    exceptions: &[],
    inject: |_, _| Ok(None),
};

/// The values that most faults share that last for half a lease, one lease and two leases. The
/// [plan](crate::fault_run::Plan) of a run has each length once in three injections.
const OUTAGE: Fault = Fault {
    min_effects: 3,
    ..FAULT
};

/// The stores with a wire in front of each server.
const REMOTE: &[&str] = &[
    "redis",
    "redis-cohort",
    "replica",
    "plain",
    "redlock",
    "zookeeper",
    "ensemble",
];
/// The stores of which one server is all.
const SINGLE_SERVER: &[&str] = &["redis", "redis-cohort", "plain", "zookeeper"];
/// The stores on one server whose holds end with their leases.
const LEASES_ON_ONE_SERVER: &[&str] = &[
    "redis",
    "redis-cohort",
    "plain",
    "redisson",
    "redisson-rw",
    "redisson-semaphore",
];
/// What the stores without a queue guarantee while a server refuses requests: they need longer to
/// recover. With several servers, a majority goes on.
const REFUSALS: &[(&str, Guarantee, u64)] = &[
    ("plain", R, 12),
    ("redisson", R, 12),
    ("redisson-rw", R, 12),
    ("redisson-semaphore", R, 12),
    ("redlock", E, 12),
];
/// The stores that work with a majority of their servers.
const SEVERAL_SERVERS: &[&str] = &["redlock"];

/// The pairs that are possible and that the matrix leaves out, as another cell covers them.
pub(super) const NOT_RUN: &[(&str, &[&str])] = &[
    (
        "replica",
        &[
            "waiter-killed",
            "killed-at-step",
            "holder-paused",
            "waiter-paused",
            "paused-at-step",
            "hold-broken",
            "partition",
            "half-open",
            "partition-one-way",
            "replies-lost",
            "replies-delayed",
            "latency",
            "tiny-segments",
            "network-chaos",
            "mixed",
            "clock-jump-forward",
            "clock-jump-back",
            "hostile-names",
        ],
    ),
    ("plain", &["clock-forward-days", "clock-back-days"]),
    // The tokens of Redisson's locks are the server's time.
    (
        "redisson",
        &["clock-forward-days", "clock-back-days", "clock-jump-back"],
    ),
    (
        "redisson-rw",
        &["clock-forward-days", "clock-back-days", "clock-jump-back"],
    ),
    (
        "redisson-semaphore",
        &[
            "clock-forward-days",
            "clock-back-days",
            "clock-jump-back",
            // The key of a semaphore does not expire, and it is the count of its free permits.
            "keys-persisted",
            "keys-renamed",
        ],
    ),
    (
        "sentinel",
        &[
            "waiter-killed",
            "killed-at-step",
            "waiter-paused",
            "paused-at-step",
            "mixed",
            "client-wall-clock",
        ],
    ),
    (
        "cluster",
        &[
            "waiter-killed",
            "killed-at-step",
            "waiter-paused",
            "paused-at-step",
            "mixed",
            "client-wall-clock",
        ],
    ),
    (
        "sentinel-replicas",
        &[
            "holder-killed",
            "waiter-killed",
            "killed-at-step",
            "holder-paused",
            "waiter-paused",
            "paused-at-step",
            "hold-broken",
            "mixed",
            "client-wall-clock",
            "hostile-names",
            "master-lagging",
        ],
    ),
    (
        "sentinel-wait",
        &[
            "holder-killed",
            "waiter-killed",
            "killed-at-step",
            "holder-paused",
            "waiter-paused",
            "paused-at-step",
            "hold-broken",
            "mixed",
            "client-wall-clock",
            "hostile-names",
        ],
    ),
    (
        "ensemble",
        &["tiny-segments", "majority-partition", "hostile-names"],
    ),
];

/// All faults. The seconds are what the store promises plus what a busy machine adds.
pub const FAULTS: &[Fault] = &[
    Fault {
        // Shows G-02.
        name: "holder-killed",
        description: "a worker that holds is killed",
        evidence: "the worker was stopped, and its last event was a grant",
        inject: processes::holder_killed,
        ..FAULT
    },
    Fault {
        // Shows G-05.
        name: "waiter-killed",
        description: "a worker that waits is killed",
        evidence: "the worker was stopped, and its last event was a request",
        inject: processes::waiter_killed,
        ..FAULT
    },
    Fault {
        // Shows G-02.
        name: "killed-at-step",
        description: "a worker kills itself before or after enter, wait, renew or leave; each in \
            turn",
        evidence: "the worker reached the step and was killed there",
        min_effects: 4,
        inject: processes::killed_at_step,
        ..FAULT
    },
    Fault {
        // Shows G-01, G-53.
        name: "holder-paused",
        description: "a worker that holds is stopped for ½, 1 or 2 leases",
        evidence: "the worker was stopped, and its last event was a grant",
        losses: REMOTE,
        inject: processes::holder_paused,
        ..OUTAGE
    },
    Fault {
        // Shows G-05.
        name: "waiter-paused",
        description: "a worker that waits is stopped for ½, 1 or 2 leases",
        evidence: "the worker was stopped, and its last event was a request",
        inject: processes::waiter_paused,
        ..OUTAGE
    },
    Fault {
        // Shows G-01.
        name: "paused-at-step",
        description: "a worker stops itself for ½, 1 or 2 leases before or after a step; \
            each in turn",
        evidence: "the worker reached the step and was stopped there",
        inject: processes::paused_at_step,
        ..OUTAGE
    },
    Fault {
        // Shows G-12.
        name: "hold-broken",
        description: "an operator breaks a hold",
        evidence: "the store had the hold and removed it",
        guarantee: T,
        inject: processes::hold_broken,
        ..FAULT
    },
    Fault {
        // Shows G-25.
        name: "connections-reset",
        description: "all connections are reset",
        evidence: "open connections",
        needs: &[Network],
        inject: network::reset,
        ..FAULT
    },
    Fault {
        // Shows G-25, G-32, G-53.
        name: "partition",
        description: "servers are unreachable for ½, 1 or 2 leases, and connections are refused",
        evidence: "refused connections",
        needs: &[Network],
        losses: REMOTE,
        opens: SEVERAL_SERVERS,
        inject: network::partition,
        ..OUTAGE
    },
    Fault {
        // Shows G-12.
        name: "half-open",
        description: "all bytes in both directions are kept for ½, 1 or 2 leases without an error; \
            then they are delivered",
        evidence: "bytes kept in transit",
        needs: &[Network],
        recovery_seconds: 12,
        losses: REMOTE,
        opens: SEVERAL_SERVERS,
        inject: network::half_open,
        ..OUTAGE
    },
    Fault {
        // Shows G-12, G-32.
        name: "partition-one-way",
        description: "requests arrive and replies are lost for ½, 1 or 2 leases",
        evidence: "lost bytes of replies",
        needs: &[Network],
        recovery_seconds: 12,
        losses: REMOTE,
        opens: SEVERAL_SERVERS,
        inject: network::partition_one_way,
        ..OUTAGE
    },
    Fault {
        // Shows G-25, G-53.
        name: "replies-lost",
        description: "three connections lose all replies from one on",
        evidence: "lost bytes of replies",
        needs: &[Network],
        recovery_seconds: 12,
        exceptions: &[
            ("plain", E, 15),
            ("redisson", E, 15),
            ("redisson-rw", E, 15),
            ("redisson-semaphore", E, 15),
        ],
        inject: network::replies_lost,
        ..OUTAGE
    },
    Fault {
        // Shows G-25.
        name: "replies-delayed",
        description: "replies are held for ½, 1 or 2 leases",
        evidence: "bytes kept in transit",
        needs: &[Network],
        recovery_seconds: 12,
        losses: REMOTE,
        opens: SEVERAL_SERVERS,
        inject: network::replies_delayed,
        ..OUTAGE
    },
    Fault {
        // Shows G-25.
        name: "latency",
        description: "every byte takes up to 60 ms more in each direction, for ½, 1 or 2 leases",
        evidence: "delayed bytes",
        needs: &[Network],
        recovery_seconds: 12,
        inject: network::slow,
        ..OUTAGE
    },
    Fault {
        // Shows G-01.
        name: "jitter",
        description: "each piece is up to 80 ms late in each direction by a random delay, in \
            order on each connection, for ½, 1 or 2 leases",
        evidence: "delayed bytes",
        needs: &[Network],
        recovery_seconds: 12,
        inject: network::jitter,
        ..OUTAGE
    },
    Fault {
        // Shows G-01.
        name: "packet-loss",
        description: "30 % of packets are lost as TCP shows it: a piece arrives 200 ms late, \
            600 ms if lost again, up to 3 s, and the pieces behind it on its connection wait; \
            connecting is not affected; for ½, 1 or 2 leases",
        evidence: "pieces sent again",
        needs: &[Network],
        recovery_seconds: 15,
        exceptions: &[("ensemble", E, 25)],
        inject: network::packet_loss,
        ..OUTAGE
    },
    Fault {
        // Shows G-01.
        name: "tiny-segments",
        description: "three bytes pass at a time in each direction, for ½, 1 or 2 leases",
        evidence: "bytes that passed this way",
        needs: &[Network],
        recovery_seconds: 12,
        inject: network::tiny_segments,
        ..OUTAGE
    },
    Fault {
        // Shows G-01.
        name: "network-chaos",
        description: "five faults in a row, without recovery between them: connections reset or \
            silent, replies lost, late or held, all bytes frozen",
        evidence: "bytes kept or lost, or open connections",
        needs: &[Network],
        recovery_seconds: 15,
        exceptions: &[("ensemble", E, 25)],
        inject: network::network_chaos,
        ..FAULT
    },
    Fault {
        // Shows G-01.
        name: "mixed",
        description: "three faults in a row, drawn from those under which the store keeps \
            exclusion",
        evidence: "the evidence of these faults",
        recovery_seconds: 15,
        exceptions: &[("file", E, 10), ("zookeeper", E, 20), ("ensemble", E, 25)],
        inject: mixed,
        ..FAULT
    },
    Fault {
        // Shows G-01, G-32, G-53, L8.
        name: "server-killed",
        description: "servers are killed, and restarted with their data ½, 1 or 2 leases later",
        evidence: "their processes ended",
        needs: &[ServerProcess],
        requires: Requirement::PersistentData,
        recovery_seconds: 12,
        exceptions: &[("zookeeper", E, 20), ("ensemble", E, 30)],
        losses: SINGLE_SERVER,
        opens: SEVERAL_SERVERS,
        inject: servers::killed,
        ..OUTAGE
    },
    Fault {
        // Shows G-01, G-04, G-34.
        name: "restarted-empty",
        description: "servers are restarted without their data",
        evidence: "their processes ended",
        needs: &[RedisCommands],
        guarantee: T,
        exceptions: &[("redlock", E, 12)],
        inject: servers::restarted_empty,
        ..FAULT
    },
    Fault {
        // Shows G-01.
        name: "minority-changes",
        description: "two masters are stopped until their votes expire; then the long holder is \
            cut off, the two continue, and a third is restarted without its data",
        evidence: "the long holder held its lock when it was cut off",
        needs: &[Masters, ServerProcess],
        losses: &["redlock"],
        recovery_seconds: 12,
        inject: servers::minority_changes,
        ..FAULT
    },
    Fault {
        // Shows G-04.
        name: "restarted-stale",
        description: "the server is killed, and restarted with the data of a snapshot up to 0.4 \
            s old",
        evidence: "locks granted since the snapshot",
        needs: &[SingleRedis],
        guarantee: T,
        inject: servers::restarted_stale,
        ..FAULT
    },
    Fault {
        // Shows G-01, G-32.
        name: "server-paused",
        description: "servers are stopped for ½, 1 or 2 leases",
        evidence: "their processes were stopped",
        needs: &[ServerProcess],
        recovery_seconds: 12,
        losses: SINGLE_SERVER,
        opens: SEVERAL_SERVERS,
        inject: servers::paused,
        ..OUTAGE
    },
    Fault {
        // Shows G-01, G-04.
        name: "clock-jump-forward",
        description: "server clocks jump forward by 20 s, more than a lease; on a minority where \
            there are several",
        evidence: "the servers report another time",
        needs: &[ServerClock],
        requires: Requirement::ServerClock,
        exceptions: &[
            ("redis", T, 10),
            ("redis-cohort", T, 10),
            ("plain", T, 10),
            ("redisson", T, 10),
            ("redisson-rw", T, 10),
            ("redisson-semaphore", T, 10),
            ("redlock", T, 12),
        ],
        inject: clocks::jump_forward,
        ..FAULT
    },
    Fault {
        // Shows G-01, L9.
        name: "clock-jump-back",
        description: "server clocks jump back by 20 s; on a minority where there are several",
        evidence: "the servers report another time",
        needs: &[ServerClock],
        requires: Requirement::ServerClock,
        exceptions: &[("redlock", E, 12)],
        inject: clocks::jump_back,
        ..FAULT
    },
    Fault {
        // Shows G-04.
        name: "all-clocks-forward",
        description: "all connections break, and the clocks of all masters jump forward by two \
            days before clients connect again and read the clocks",
        evidence: "the masters report another time",
        needs: &[Masters, ServerClock],
        requires: Requirement::ServerClock,
        guarantee: T,
        recovery_seconds: 15,
        inject: clocks::all_forward,
        ..FAULT
    },
    Fault {
        // Shows G-04.
        name: "all-clocks-back",
        description: "the clocks of all masters jump back by two days, and all connections \
            close, so that clients read the clocks again",
        evidence: "the masters report another time",
        needs: &[Masters, ServerClock],
        requires: Requirement::ServerClock,
        recovery_seconds: 15,
        inject: clocks::all_back,
        ..FAULT
    },
    Fault {
        // Shows G-04.
        name: "clock-forward-days",
        description: "server clocks jump forward by two days, longer than the server remembers a \
            name",
        evidence: "the servers report another time",
        needs: &[SingleRedis, ServerClock],
        requires: Requirement::ServerClock,
        guarantee: T,
        inject: clocks::forward_days,
        ..FAULT
    },
    Fault {
        // Shows G-01.
        name: "clock-back-days",
        description: "server clocks jump back by two days",
        evidence: "the servers report another time",
        needs: &[SingleRedis, ServerClock],
        requires: Requirement::ServerClock,
        inject: clocks::back_days,
        ..FAULT
    },
    Fault {
        // Shows G-01, G-04.
        name: "clock-fast",
        description: "server clocks run four times or twice as fast for a lease and up to a \
            second; on a minority where there are several",
        evidence: "the time that they gain on the machine's clock",
        needs: &[ServerClock],
        requires: Requirement::ServerClock,
        guarantee: T,
        exceptions: &[("redlock", T, 12)],
        inject: clocks::fast,
        ..FAULT
    },
    Fault {
        // Shows G-01.
        name: "clock-slow",
        description: "server clocks run half as fast for a lease and up to a second; on a \
            minority where there are several",
        evidence: "the time that they lose on the machine's clock",
        needs: &[ServerClock],
        requires: Requirement::ServerClock,
        exceptions: &[("redlock", E, 12)],
        inject: clocks::slow,
        ..FAULT
    },
    Fault {
        // Shows G-01.
        name: "client-wall-clock",
        description: "each worker's wall clock is set forward or back by 20 s or an hour",
        evidence: "the workers have read the clock since",
        requires: Requirement::WorkerClocks,
        inject: clocks::client_wall,
        ..FAULT
    },
    Fault {
        // Shows G-25.
        name: "connections-killed",
        description: "CLIENT KILL closes all subscribed connections, or all others",
        evidence: "open connections",
        needs: &[RedisCommands],
        exceptions: &[("redlock", E, 12)],
        inject: redis_state::connections_killed,
        ..FAULT
    },
    Fault {
        // Shows G-25.
        name: "scripts-flushed",
        description: "SCRIPT FLUSH",
        evidence: "requested scripts that were missing",
        needs: &[RedisCommands],
        exceptions: &[("redlock", E, 12)],
        inject: redis_state::scripts_flushed,
        ..FAULT
    },
    Fault {
        // Shows G-01, G-04, G-34.
        name: "flushall",
        description: "FLUSHALL",
        evidence: "keys that existed",
        needs: &[RedisCommands],
        guarantee: T,
        exceptions: &[("redlock", E, 12)],
        inject: redis_state::flushall,
        ..FAULT
    },
    Fault {
        // Shows G-04.
        name: "keys-deleted",
        description: "the keys of one lock are deleted",
        evidence: "keys that existed",
        needs: &[RedisCommands],
        guarantee: T,
        exceptions: &[("redlock", T, 12)],
        inject: redis_state::keys_deleted,
        ..FAULT
    },
    Fault {
        // Shows G-02.
        name: "keys-persisted",
        description: "the keys of one lock lose their expiry",
        evidence: "keys that had an expiry",
        needs: &[RedisCommands],
        exceptions: &[("redlock", E, 12)],
        inject: redis_state::keys_persisted,
        ..FAULT
    },
    Fault {
        // Shows G-23, S12.
        name: "wrong-type",
        description: "another application's list replaces a lock and is removed again",
        evidence: "refused requests, and the unchanged list",
        needs: &[SingleRedis],
        guarantee: T,
        inject: redis_state::wrong_type,
        ..FAULT
    },
    Fault {
        // Shows G-28, G-32, S12.
        name: "out-of-memory",
        description: "the server has no memory left, for ½, 1 or 2 leases",
        evidence: "requests refused with OOM",
        needs: &[RedisCommands],
        guarantee: R,
        exceptions: REFUSALS,
        inject: redis_state::out_of_memory,
        ..OUTAGE
    },
    Fault {
        // Shows G-28, S12.
        name: "writes-refused",
        description: "the server lacks a replica and refuses writes, for ½, 1 or 2 leases",
        evidence: "requests refused with NOREPLICAS",
        needs: &[RedisCommands],
        guarantee: R,
        exceptions: REFUSALS,
        losses: LEASES_ON_ONE_SERVER,
        inject: redis_state::writes_refused,
        ..OUTAGE
    },
    Fault {
        // Shows G-28, G-32, S12.
        name: "read-only",
        description: "the server becomes a replica of an unreachable master and refuses writes, \
            for ½, 1 or 2 leases",
        evidence: "requests refused with READONLY",
        needs: &[RedisCommands],
        guarantee: R,
        exceptions: REFUSALS,
        losses: LEASES_ON_ONE_SERVER,
        inject: redis_state::read_only,
        ..OUTAGE
    },
    Fault {
        // Shows G-04.
        name: "evicted",
        description: "the server evicts keys to free memory, for up to 0.3 s",
        evidence: "evicted keys",
        needs: &[SingleRedis],
        guarantee: T,
        exceptions: &[
            ("plain", T, 12),
            ("redisson", T, 12),
            ("redisson-rw", T, 12),
            ("redisson-semaphore", T, 12),
        ],
        inject: redis_state::evicted,
        ..FAULT
    },
    Fault {
        // Shows G-28, G-32.
        name: "rights-revoked",
        description: "the workers' user loses the right to run scripts, for ½, 1 or 2 leases",
        evidence: "requests refused with NOPERM",
        needs: &[RedisCommands],
        requires: Requirement::DedicatedUser,
        guarantee: R,
        exceptions: REFUSALS,
        losses: LEASES_ON_ONE_SERVER,
        inject: redis_state::rights_revoked,
        ..OUTAGE
    },
    Fault {
        // Shows G-28, G-32.
        name: "busy-script",
        description: "another client's script runs until SCRIPT KILL, ½, 1 or 2 leases later; on a \
            minority where there are several",
        evidence: "requests refused with BUSY",
        needs: &[RedisCommands],
        guarantee: R,
        exceptions: REFUSALS,
        losses: LEASES_ON_ONE_SERVER,
        inject: clients::busy_script,
        ..OUTAGE
    },
    Fault {
        // Shows G-25.
        name: "output-buffer-overflow",
        description: "another client publishes more than the server buffers for a subscriber, so \
            that the server closes all subscribed connections",
        evidence: "connections closed for this reason",
        needs: &[RedisCommands],
        exceptions: &[("redlock", E, 12)],
        inject: clients::output_buffer_overflow,
        ..FAULT
    },
    Fault {
        // Shows G-25.
        name: "clients-evicted",
        description: "the server has no memory left for clients and closes all connections, for \
            ½, 1 or 2 leases",
        evidence: "connections closed for this reason",
        needs: &[RedisCommands],
        recovery_seconds: 12,
        exceptions: &[("redis", E, 10), ("redis-cohort", E, 10)],
        losses: &["redis", "redis-cohort", "plain"],
        inject: clients::evicted,
        ..OUTAGE
    },
    Fault {
        // Shows G-04.
        name: "keys-renamed",
        description: "the keys of one lock are renamed, on a minority where there are several; \
            then they are deleted, or renamed back up to 0.4 s later",
        evidence: "keys that existed",
        needs: &[RedisCommands],
        guarantee: T,
        exceptions: &[("redlock", T, 12)],
        inject: redis_state::keys_renamed,
        ..FAULT
    },
    Fault {
        // Shows G-04, G-34.
        name: "aof-truncated",
        description: "servers are killed, and restarted with an append-only file up to 0.4 s old \
            and a torn last record",
        evidence: "bytes cut off, and locks granted since",
        needs: &[RedisCommands],
        requires: Requirement::PersistentData,
        guarantee: T,
        recovery_seconds: 12,
        exceptions: &[("redlock", E, 15)],
        inject: persistence::aof_truncated,
        ..FAULT
    },
    Fault {
        // Shows G-01, G-28, G-32.
        name: "loading",
        description: "servers are killed, and restarted with so much data that they reply \
            LOADING for a while",
        evidence: "requests refused with LOADING",
        needs: &[RedisCommands],
        requires: Requirement::SlowStart,
        recovery_seconds: 15,
        inject: persistence::loading,
        ..FAULT
    },
    Fault {
        // Shows G-04.
        name: "failover",
        description: "the master is killed, and its replica takes its place",
        evidence: "the master's process ended",
        needs: &[Replica],
        guarantee: T,
        recovery_seconds: 12,
        inject: servers::failover,
        ..FAULT
    },
    Fault {
        // Shows G-04.
        name: "failover-lagging",
        description: "the master is killed, and a replica without the last grants takes its place",
        evidence: "grants missing on the replica",
        needs: &[Replica],
        guarantee: T,
        recovery_seconds: 12,
        inject: servers::failover_lagging,
        ..FAULT
    },
    Fault {
        // Shows G-01, G-04.
        name: "failover-skewed",
        description: "the master is killed, and a replica takes its place whose clock is 20 s \
            ahead, more than a lease",
        evidence: "the replica reports another time",
        needs: &[Replica, ServerClock],
        requires: Requirement::ServerClock,
        guarantee: T,
        recovery_seconds: 12,
        inject: servers::failover_skewed,
        ..FAULT
    },
    Fault {
        // Shows G-04.
        name: "failover-at-step",
        description: "the master is killed and its replica takes its place while a worker is \
            stopped before or after a step; each in turn",
        evidence: "the worker reached the step and was stopped there",
        needs: &[Replica],
        min_effects: 4,
        guarantee: T,
        recovery_seconds: 12,
        inject: processes::failover_at_step,
        ..FAULT
    },
    Fault {
        // Shows G-01, G-04.
        name: "master-killed",
        description: "the master is killed, and a replica is promoted",
        evidence: "another server is the master",
        needs: &[Failover],
        guarantee: T,
        exceptions: &[("sentinel-replicas", E, 20), ("sentinel-wait", E, 20)],
        inject: failovers::master_killed,
        ..FAULT
    },
    Fault {
        // Shows G-04.
        name: "master-paused",
        description: "the master is stopped until a replica has been promoted",
        evidence: "another server is the master",
        needs: &[Failover],
        guarantee: T,
        exceptions: &[("sentinel-replicas", E, 20)],
        inject: failovers::master_paused,
        ..FAULT
    },
    Fault {
        // Shows G-04.
        name: "master-partition",
        description: "the master is cut off from sentinels and replicas until a replica is \
            promoted; its clients still reach it",
        evidence: "another server is the master",
        needs: &[Sentinels],
        guarantee: T,
        inject: failovers::master_partition,
        ..FAULT
    },
    Fault {
        // Shows G-01, G-04.
        name: "master-lagging",
        description: "the master is killed, and the sentinels promote a replica without the last \
            grants",
        evidence: "grants missing on the replica",
        needs: &[Sentinels],
        guarantee: T,
        exceptions: &[("sentinel-wait", E, 20)],
        inject: failovers::master_lagging,
        ..FAULT
    },
    Fault {
        // Shows G-04.
        name: "slot-moved",
        description: "the slot of a lock moves to another master of the cluster",
        evidence: "the other master has the slot",
        needs: &[Slots],
        inject: failovers::slot_moved,
        ..FAULT
    },
    Fault {
        // Shows G-33.
        name: "majority-killed",
        description: "a majority of the servers is killed, for a lease and a second",
        evidence: "their processes ended",
        needs: &[Majority, ServerProcess],
        guarantee: R,
        recovery_seconds: 15,
        exceptions: &[("ensemble", R, 40)],
        losses: &["redlock", "ensemble"],
        inject: servers::majority_killed,
        ..FAULT
    },
    Fault {
        // Shows G-33.
        name: "majority-paused",
        description: "a majority of the servers is stopped, for a lease and a second",
        evidence: "their processes were stopped",
        needs: &[Majority, ServerProcess],
        guarantee: R,
        recovery_seconds: 15,
        exceptions: &[("ensemble", R, 40)],
        losses: &["redlock", "ensemble"],
        inject: servers::majority_paused,
        ..FAULT
    },
    Fault {
        // Shows G-33.
        name: "majority-partition",
        description: "a majority of the servers is unreachable, for a lease and a second",
        evidence: "refused connections",
        needs: &[Majority, Network],
        guarantee: R,
        recovery_seconds: 15,
        losses: &["redlock"],
        inject: network::majority_partition,
        ..FAULT
    },
    Fault {
        // Shows G-33.
        name: "partition-all",
        description: "no server reaches another and clients reach all, for a session and a second",
        evidence: "none of the servers serves",
        needs: &[Leader],
        guarantee: R,
        recovery_seconds: 40,
        losses: &["ensemble"],
        inject: servers::partition_all,
        ..FAULT
    },
    Fault {
        // Shows G-01, G-04.
        name: "session-closed",
        description: "a client's session is closed on the server",
        evidence: "the server knew the session",
        needs: &[Sessions],
        guarantee: T,
        inject: zookeeper::session_closed,
        ..FAULT
    },
    Fault {
        // Shows G-01.
        name: "leader-killed",
        description: "the leader is killed, for up to 0.9 s",
        evidence: "its process ended",
        needs: &[Leader],
        recovery_seconds: 30,
        inject: servers::leader_killed,
        ..FAULT
    },
    Fault {
        // Shows G-01.
        name: "leader-paused",
        description: "the leader is stopped for longer than the followers wait for it",
        evidence: "its process was stopped",
        needs: &[Leader],
        recovery_seconds: 30,
        inject: servers::leader_paused,
        ..FAULT
    },
    Fault {
        // Shows G-01.
        name: "leader-partition",
        description: "the leader is cut off from the followers until another server leads; its \
            clients still reach it",
        evidence: "another server leads",
        needs: &[Leader],
        recovery_seconds: 30,
        inject: servers::leader_partition,
        ..FAULT
    },
    Fault {
        // Shows G-04.
        name: "files-unlinked",
        description: "the files of a lock are deleted",
        evidence: "files that existed",
        needs: &[Folder],
        guarantee: T,
        recovery_seconds: 10,
        inject: files::files_unlinked,
        ..FAULT
    },
    Fault {
        // Shows G-23.
        name: "file-replaced",
        description: "another file replaces the one that flock(1) locks",
        evidence: "the replacing file exists",
        needs: &[Folder],
        recovery_seconds: 10,
        inject: files::replaced,
        ..FAULT
    },
    Fault {
        // Shows G-22, G-28.
        name: "disk-full",
        description: "the disk is full for ½, 1 or 2 leases",
        evidence: "a new name is refused for this reason; requests refused with MISCONF",
        needs: &[SmallDisk],
        requires: Requirement::SmallDisk,
        guarantee: R,
        recovery_seconds: 12,
        exceptions: &[("file", E, 10)],
        losses: &["redis", "redis-cohort", "plain"],
        inject: files::disk_full,
        ..OUTAGE
    },
    Fault {
        // Shows G-17.
        name: "hostile-names",
        description: "the names of locks have a meaning in a file system, a protocol or a \
            pattern, or the greatest length; connections are reset, or a holder is killed",
        evidence: "the evidence of the second fault; invalid names are rejected",
        requires: Requirement::HostileNames,
        exceptions: &[("redlock", E, 12)],
        inject: names::hostile_names,
        ..FAULT
    },
];
