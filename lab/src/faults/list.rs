//! The faults. Which stores they meet, and what a store guarantees under them, follows from the
//! capabilities of each store.

use super::Guarantee::{Exclusion as E, Refuses as R, TokensOnly as T};
use super::{
    Disturbed, Fault, Requirement, clocks, failovers, files, mixed, names, network, postgres_state,
    processes, redis, servers,
};
use crate::backends::Capability::{
    DurableGrants, ExpiringKeys, Failover, FifoQueue, Folder, IndependentServers, LaggingReplicas,
    LastingConnections, Leader, Majority, Network, PlainKeys, RedisServer, Replica,
    ReplicatedGrants, ServerClock, ServerProcess, Sessions, Shards, SingleServer, SmallDisk,
    StateCommands, SteadyTokens, WaitsAfterFailover, Watched, WritableServers,
};

/// The values that most faults share.
const FAULT: Fault = Fault {
    name: "",
    description: "",
    evidence: "",
    needs: &[],
    left_out: &[],
    requires: Requirement::None,
    disturbs: Disturbed::Store,
    min_effects: 2,
    meets_jobs: false,
    guarantee: E,
    exclusion_with: &[],
    recovery_seconds: 0,
    slower: &[],
    losses: &[],
    opens: &[],
    inject: |_, _| Ok(None),
    on_postgres: None,
};

/// A fault of a client that holds. Sentinels and clusters have other connections than one server.
const HOLDER: Fault = Fault {
    left_out: &[Replica, ReplicatedGrants, WaitsAfterFailover],
    disturbs: Disturbed::OneWorker,
    ..FAULT
};

/// A fault of any client. Its queue on a master is that of one server.
const CLIENT: Fault = Fault {
    left_out: &[Replica, Failover],
    disturbs: Disturbed::OneWorker,
    ..FAULT
};

/// A fault that lasts for half a lease, one lease and two leases. The
/// [plan](crate::fault_run::Plan) of a run has each length once in three injections.
const OUTAGE: Fault = Fault {
    min_effects: 3,
    ..FAULT
};

/// A fault of the network.
const NETWORK: Fault = Fault {
    needs: &[Network],
    disturbs: Disturbed::Wires,
    recovery_seconds: 12,
    ..OUTAGE
};

/// A fault of the network that cuts clients off.
const CUT_OFF: Fault = Fault {
    losses: &[Network],
    opens: &[IndependentServers],
    ..NETWORK
};

/// A fault of the only server, or of a minority of several.
const SERVER: Fault = Fault {
    needs: &[ServerProcess],
    recovery_seconds: 12,
    losses: &[SingleServer],
    opens: &[IndependentServers],
    ..OUTAGE
};

/// A fault of the loss of a majority.
const MAJORITY: Fault = Fault {
    needs: &[Majority, ServerProcess],
    guarantee: R,
    recovery_seconds: 15,
    slower: &[(Leader, 40)],
    losses: &[Majority],
    ..FAULT
};

/// A fault of the leader of several servers.
const LEADER: Fault = Fault {
    needs: &[Leader],
    recovery_seconds: 30,
    ..FAULT
};

/// A fault of a master with a replica that takes its place.
const FAILOVER: Fault = Fault {
    needs: &[Replica],
    guarantee: T,
    recovery_seconds: 12,
    ..FAULT
};

/// A fault of the clocks of servers.
const CLOCK: Fault = Fault {
    needs: &[ServerClock],
    requires: Requirement::ServerClock,
    slower: &[(IndependentServers, 12)],
    ..FAULT
};

/// A fault of a server's data or of its clients.
const STATE: Fault = Fault {
    needs: &[StateCommands],
    slower: &[(IndependentServers, 12)],
    ..FAULT
};

/// A fault that only a Redis server has.
const REDIS: Fault = Fault {
    needs: &[RedisServer],
    ..STATE
};

/// A server that refuses requests. With several masters, a majority goes on.
const REFUSAL: Fault = Fault {
    needs: &[StateCommands],
    guarantee: R,
    exclusion_with: &[IndependentServers],
    slower: &[(PlainKeys, 12), (IndependentServers, 12)],
    losses: &[SingleServer],
    ..OUTAGE
};

/// A fault of the files of a folder.
const FILES: Fault = Fault {
    needs: &[Folder],
    recovery_seconds: 10,
    ..FAULT
};

/// All faults. The seconds are what the store promises plus what a busy machine adds.
pub const FAULTS: &[Fault] = &[
    Fault {
        // Shows G-02.
        name: "holder-killed",
        description: "a worker that holds is killed",
        evidence: "the worker was stopped, and its last event was a grant",
        meets_jobs: true,
        inject: |run, random| processes::killed(run, random, processes::holds),
        ..HOLDER
    },
    Fault {
        // Shows G-05.
        name: "waiter-killed",
        description: "a worker that waits is killed",
        evidence: "the worker was stopped, and its last event was a request",
        inject: |run, random| processes::killed(run, random, processes::waits),
        ..CLIENT
    },
    Fault {
        // Shows G-02.
        name: "killed-at-step",
        description: "a worker kills itself before or after enter, wait, renew or leave; each in \
            turn",
        evidence: "the worker reached the step and was killed there",
        min_effects: 4,
        inject: processes::killed_at_step,
        ..CLIENT
    },
    Fault {
        // Shows G-01, G-53.
        name: "holder-paused",
        description: "a worker that holds is stopped for ½, 1 or 2 leases",
        evidence: "the worker was stopped, and its last event was a grant",
        min_effects: 3,
        losses: &[Network, Failover],
        inject: |run, random| processes::paused(run, random, processes::holds),
        ..HOLDER
    },
    Fault {
        // Shows G-05.
        name: "waiter-paused",
        description: "a worker that waits is stopped for ½, 1 or 2 leases",
        evidence: "the worker was stopped, and its last event was a request",
        min_effects: 3,
        inject: |run, random| processes::paused(run, random, processes::waits),
        ..CLIENT
    },
    Fault {
        // Shows G-01.
        name: "paused-at-step",
        description: "a worker stops itself for ½, 1 or 2 leases before or after a step; \
            each in turn",
        evidence: "the worker reached the step and was stopped there",
        min_effects: 3,
        inject: processes::paused_at_step,
        ..CLIENT
    },
    Fault {
        // Shows G-12.
        name: "hold-broken",
        description: "an operator breaks a hold",
        evidence: "the store had the hold and removed it",
        guarantee: T,
        inject: processes::hold_broken,
        ..HOLDER
    },
    Fault {
        // Shows G-25.
        name: "connections-reset",
        description: "all connections are reset",
        evidence: "open connections",
        needs: &[Network],
        disturbs: Disturbed::Wires,
        inject: network::reset,
        ..FAULT
    },
    Fault {
        // Shows G-25, G-32, G-53.
        name: "partition",
        description: "servers are unreachable for ½, 1 or 2 leases, and connections are refused",
        evidence: "refused connections",
        recovery_seconds: 0,
        inject: network::partition,
        ..CUT_OFF
    },
    Fault {
        // Shows G-12.
        name: "half-open",
        description: "all bytes in both directions are kept for ½, 1 or 2 leases without an error; \
            then they are delivered",
        evidence: "bytes kept in transit",
        meets_jobs: true,
        inject: network::half_open,
        ..CUT_OFF
    },
    Fault {
        // Shows G-12, G-32.
        name: "partition-one-way",
        description: "requests arrive and replies are lost for ½, 1 or 2 leases",
        evidence: "lost bytes of replies",
        inject: network::partition_one_way,
        ..CUT_OFF
    },
    Fault {
        // Shows G-25, G-53.
        name: "replies-lost",
        description: "three connections lose all replies from one on",
        evidence: "lost bytes of replies",
        slower: &[(PlainKeys, 15)],
        meets_jobs: true,
        inject: network::replies_lost,
        ..NETWORK
    },
    Fault {
        // Shows G-25.
        name: "replies-delayed",
        description: "replies are held for ½, 1 or 2 leases",
        evidence: "bytes kept in transit",
        inject: network::replies_delayed,
        ..CUT_OFF
    },
    Fault {
        // Shows G-25.
        name: "latency",
        description: "every byte takes up to 60 ms more in each direction, for ½, 1 or 2 leases",
        evidence: "delayed bytes",
        inject: network::slow,
        ..NETWORK
    },
    Fault {
        // Shows G-01.
        name: "jitter",
        description: "each piece is up to 80 ms late in each direction by a random delay, in \
            order on each connection, for ½, 1 or 2 leases",
        evidence: "delayed bytes",
        inject: network::jitter,
        ..NETWORK
    },
    Fault {
        // Shows G-01.
        name: "packet-loss",
        description: "30 % of packets are lost as TCP shows it: a piece arrives 200 ms late, \
            600 ms if lost again, up to 3 s, and the pieces behind it on its connection wait; \
            connecting is not affected; for ½, 1 or 2 leases",
        evidence: "pieces sent again",
        recovery_seconds: 15,
        slower: &[(Leader, 25)],
        inject: network::packet_loss,
        ..NETWORK
    },
    Fault {
        // Shows G-01.
        name: "tiny-segments",
        description: "three bytes pass at a time in each direction, for ½, 1 or 2 leases",
        evidence: "bytes that passed this way",
        inject: network::tiny_segments,
        ..NETWORK
    },
    Fault {
        // Shows G-01.
        name: "network-chaos",
        description: "five faults in a row, without recovery between them: connections reset or \
            silent, replies lost, late or held, all bytes frozen",
        evidence: "bytes kept or lost, or open connections",
        needs: &[Network],
        recovery_seconds: 15,
        slower: &[(Leader, 25)],
        disturbs: Disturbed::Wires,
        inject: network::network_chaos,
        ..FAULT
    },
    Fault {
        // Shows G-01.
        name: "mixed",
        description: "three faults in a row, drawn from those under which the store keeps \
            exclusion",
        evidence: "the evidence of these faults",
        // Failovers keep exclusion only where a replica has each grant.
        left_out: &[Replica, LaggingReplicas],
        slower: &[(Folder, 10), (Network, 15), (Sessions, 20), (Leader, 25)],
        disturbs: Disturbed::Wires,
        inject: mixed,
        ..FAULT
    },
    Fault {
        // Shows G-01, G-32, G-53, L8.
        name: "server-killed",
        description: "servers are killed, and restarted with their data ½, 1 or 2 leases later",
        evidence: "their processes ended",
        requires: Requirement::PersistentData,
        slower: &[(Sessions, 20), (Leader, 30)],
        meets_jobs: true,
        inject: servers::killed,
        ..SERVER
    },
    Fault {
        // Shows G-01, G-04, G-34.
        name: "restarted-empty",
        description: "servers are restarted without their data",
        evidence: "their processes ended",
        guarantee: T,
        exclusion_with: &[IndependentServers],
        inject: servers::restarted_empty,
        on_postgres: Some(postgres_state::restarted_empty),
        ..STATE
    },
    Fault {
        // Shows G-01.
        name: "minority-changes",
        description: "two masters are stopped until their votes expire; then the long holder is \
            cut off, the two continue, and a third is restarted without its data",
        evidence: "the long holder held its lock when it was cut off",
        needs: &[IndependentServers, ServerProcess],
        recovery_seconds: 12,
        losses: &[IndependentServers],
        inject: servers::minority_changes,
        ..FAULT
    },
    Fault {
        // Shows G-04.
        name: "restarted-stale",
        description: "the server is killed, and restarted with the data of a snapshot up to 0.4 \
            s old",
        evidence: "locks granted since the snapshot",
        needs: &[StateCommands, SingleServer],
        guarantee: T,
        meets_jobs: true,
        inject: servers::restarted_stale,
        on_postgres: Some(postgres_state::restarted_stale),
        ..STATE
    },
    Fault {
        // Shows G-01, G-32.
        name: "server-paused",
        description: "servers are stopped for ½, 1 or 2 leases",
        evidence: "their processes were stopped",
        inject: servers::paused,
        ..SERVER
    },
    Fault {
        // Shows G-01, G-04.
        name: "clock-jump-forward",
        description: "server clocks jump forward by 20 s, more than a lease; on a minority where \
            there are several",
        evidence: "the servers report another time",
        guarantee: T,
        inject: |run, random| clocks::stepped(run, random, clocks::STEP),
        ..CLOCK
    },
    Fault {
        // Shows G-01, L9.
        name: "clock-jump-back",
        description: "server clocks jump back by 20 s; on a minority where there are several",
        evidence: "the servers report another time",
        needs: &[ServerClock, SteadyTokens],
        inject: |run, random| clocks::stepped(run, random, -clocks::STEP),
        ..CLOCK
    },
    Fault {
        // Shows G-04.
        name: "all-clocks-forward",
        description: "all connections break, and the clocks of all masters jump forward by two \
            days before clients connect again and read the clocks",
        evidence: "the masters report another time",
        needs: &[ServerClock, IndependentServers],
        guarantee: T,
        recovery_seconds: 15,
        inject: clocks::all_forward,
        ..CLOCK
    },
    Fault {
        // Shows G-04.
        name: "all-clocks-back",
        description: "the clocks of all masters jump back by two days, and all connections \
            close, so that clients read the clocks again",
        evidence: "the masters report another time",
        needs: &[ServerClock, IndependentServers],
        recovery_seconds: 15,
        inject: clocks::all_back,
        ..CLOCK
    },
    Fault {
        // Shows G-04.
        name: "clock-forward-days",
        description: "server clocks jump forward by two days, longer than the server remembers a \
            name",
        evidence: "the servers report another time",
        needs: &[ServerClock, SingleServer, FifoQueue],
        guarantee: T,
        inject: |run, random| clocks::stepped(run, random, clocks::TWO_DAYS),
        ..CLOCK
    },
    Fault {
        // Shows G-01.
        name: "clock-back-days",
        description: "server clocks jump back by two days",
        evidence: "the servers report another time",
        needs: &[ServerClock, SingleServer, FifoQueue],
        inject: |run, random| clocks::stepped(run, random, -clocks::TWO_DAYS),
        ..CLOCK
    },
    Fault {
        // Shows G-01, G-04.
        name: "clock-fast",
        description: "server clocks run four times or twice as fast for a lease and up to a \
            second; on a minority where there are several",
        evidence: "the time that they gain on the machine's clock",
        guarantee: T,
        inject: clocks::fast,
        ..CLOCK
    },
    Fault {
        // Shows G-01.
        name: "clock-slow",
        description: "server clocks run half as fast for a lease and up to a second; on a \
            minority where there are several",
        evidence: "the time that they lose on the machine's clock",
        inject: clocks::slow,
        ..CLOCK
    },
    Fault {
        // Shows G-01.
        name: "client-wall-clock",
        description: "each worker's wall clock is set forward or back by 20 s or an hour",
        evidence: "the workers have read the clock since",
        requires: Requirement::WorkerClocks,
        disturbs: Disturbed::Store,
        inject: clocks::client_wall,
        ..CLIENT
    },
    Fault {
        // Shows G-25.
        name: "connections-killed",
        description: "CLIENT KILL closes all subscribed connections, or all others; on \
            PostgreSQL pg_terminate_backend closes about half of all",
        evidence: "open connections",
        inject: redis::connections_killed,
        on_postgres: Some(postgres_state::connections_killed),
        ..STATE
    },
    Fault {
        // Shows G-25.
        name: "scripts-flushed",
        description: "SCRIPT FLUSH",
        evidence: "requested scripts that were missing",
        inject: redis::scripts_flushed,
        ..REDIS
    },
    Fault {
        // Shows G-01, G-04, G-34.
        name: "flushall",
        description: "FLUSHALL, or DROP SCHEMA",
        evidence: "keys or rows that existed",
        guarantee: T,
        exclusion_with: &[IndependentServers],
        inject: redis::flushall,
        on_postgres: Some(postgres_state::flushall),
        ..STATE
    },
    Fault {
        // Shows G-04.
        name: "keys-deleted",
        description: "the keys or rows of one lock are deleted",
        evidence: "keys or rows that existed",
        guarantee: T,
        inject: redis::keys_deleted,
        on_postgres: Some(postgres_state::keys_deleted),
        ..STATE
    },
    Fault {
        // Shows G-02.
        name: "keys-persisted",
        description: "the keys of one lock lose their expiry",
        evidence: "keys that had an expiry",
        needs: &[RedisServer, ExpiringKeys],
        inject: redis::keys_persisted,
        ..REDIS
    },
    Fault {
        // Shows G-23, S12.
        name: "wrong-type",
        description: "another application's list replaces a lock and is removed again",
        evidence: "refused requests, and the unchanged list",
        needs: &[RedisServer, SingleServer],
        guarantee: T,
        inject: redis::wrong_type,
        ..REDIS
    },
    Fault {
        // Shows G-32, S12.
        name: "out-of-memory",
        description: "the server has no memory left, for ½, 1 or 2 leases",
        evidence: "requests refused with OOM",
        needs: &[RedisServer],
        losses: &[],
        inject: redis::out_of_memory,
        ..REFUSAL
    },
    Fault {
        // Shows S12.
        name: "writes-refused",
        description: "the server lacks a replica and refuses writes, for ½, 1 or 2 leases",
        evidence: "requests refused with NOREPLICAS, or commits that wait for a replica",
        exclusion_with: &[IndependentServers, WritableServers],
        inject: redis::writes_refused,
        on_postgres: Some(postgres_state::writes_refused),
        ..REFUSAL
    },
    Fault {
        // Shows G-32, S12.
        name: "read-only",
        description: "the server becomes a replica of an unreachable master and refuses writes, \
            for ½, 1 or 2 leases",
        evidence: "requests refused for this reason",
        exclusion_with: &[IndependentServers, WritableServers],
        inject: redis::read_only,
        on_postgres: Some(postgres_state::read_only),
        ..REFUSAL
    },
    Fault {
        // Shows G-04.
        name: "evicted",
        description: "the server evicts keys to free memory, for up to 0.3 s",
        evidence: "evicted keys",
        needs: &[RedisServer, SingleServer],
        guarantee: T,
        slower: &[(PlainKeys, 12)],
        inject: redis::evicted,
        ..REDIS
    },
    Fault {
        // Shows G-32.
        name: "rights-revoked",
        description: "the workers' user loses the right to run scripts or functions, for ½, 1 or 2 \
            leases",
        evidence: "requests refused for this reason",
        requires: Requirement::DedicatedUser,
        inject: redis::rights_revoked,
        on_postgres: Some(postgres_state::rights_revoked),
        ..REFUSAL
    },
    Fault {
        // Shows G-32.
        name: "busy-script",
        description: "another client's script runs until SCRIPT KILL, ½, 1 or 2 leases later; on a \
            minority where there are several",
        evidence: "requests refused with BUSY",
        needs: &[RedisServer],
        inject: redis::busy_script,
        ..REFUSAL
    },
    Fault {
        // Shows G-25.
        name: "output-buffer-overflow",
        description: "another client publishes more than the server buffers for a subscriber, so \
            that the server closes all subscribed connections",
        evidence: "connections closed for this reason",
        inject: redis::output_buffer_overflow,
        ..REDIS
    },
    Fault {
        // Shows G-25.
        name: "clients-evicted",
        description: "the server has no memory left for clients and closes all connections, for \
            ½, 1 or 2 leases",
        evidence: "connections closed for this reason",
        needs: &[RedisServer],
        guarantee: E,
        losses: &[LastingConnections],
        inject: redis::clients_evicted,
        ..REFUSAL
    },
    Fault {
        // Shows G-04.
        name: "keys-renamed",
        description: "the keys of one lock are renamed, on a minority where there are several; \
            then they are deleted, or renamed back up to 0.4 s later",
        evidence: "keys that existed",
        needs: &[RedisServer, ExpiringKeys],
        guarantee: T,
        inject: redis::keys_renamed,
        ..REDIS
    },
    Fault {
        // Shows G-04, G-34.
        name: "aof-truncated",
        description: "servers are killed, and restarted with an append-only file up to 0.4 s old \
            and a torn last record",
        evidence: "bytes cut off, and locks granted since",
        requires: Requirement::PersistentData,
        guarantee: T,
        exclusion_with: &[IndependentServers],
        recovery_seconds: 12,
        slower: &[(IndependentServers, 15)],
        inject: redis::aof_truncated,
        ..REDIS
    },
    Fault {
        // Shows G-01, G-32.
        name: "loading",
        description: "servers are killed, and restarted with so much data that they reply \
            LOADING for a while",
        evidence: "requests refused with LOADING",
        requires: Requirement::SlowStart,
        recovery_seconds: 15,
        inject: redis::loading,
        ..REDIS
    },
    Fault {
        // Shows G-04.
        name: "failover",
        description: "the master is killed, and its replica takes its place",
        evidence: "the master's process ended",
        inject: servers::failover,
        ..FAILOVER
    },
    Fault {
        // Shows G-04.
        name: "failover-lagging",
        description: "the master is killed, and a replica without the last grants takes its place",
        evidence: "grants missing on the replica",
        inject: servers::failover_lagging,
        ..FAILOVER
    },
    Fault {
        // Shows G-04, G-25.
        name: "master-demoted",
        description: "the replica is promoted and the master becomes its replica; all connections \
            stay open, and the store's address leads to the new master ½, 1 or 2 leases later",
        evidence: "requests refused with READONLY",
        inject: servers::demoted,
        ..FAILOVER
    },
    Fault {
        // Shows G-01, G-04.
        name: "failover-skewed",
        description: "the master is killed, and a replica takes its place whose clock is 20 s \
            ahead, more than a lease",
        evidence: "the replica reports another time",
        requires: Requirement::ServerClock,
        inject: servers::failover_skewed,
        ..FAILOVER
    },
    Fault {
        // Shows G-04.
        name: "failover-at-step",
        description: "the master is killed and its replica takes its place while a worker is \
            stopped before or after a step; each in turn",
        evidence: "the worker reached the step and was stopped there",
        min_effects: 4,
        inject: processes::failover_at_step,
        ..FAILOVER
    },
    Fault {
        // Shows G-01, G-04.
        name: "master-killed",
        description: "the master is killed, and a replica is promoted",
        evidence: "another server is the master",
        needs: &[Failover],
        guarantee: T,
        exclusion_with: &[ReplicatedGrants, WaitsAfterFailover],
        meets_jobs: true,
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
        exclusion_with: &[ReplicatedGrants],
        inject: failovers::master_paused,
        ..FAULT
    },
    Fault {
        // Shows G-04.
        name: "master-partition",
        description: "the master is cut off from sentinels and replicas until a replica is \
            promoted; its clients still reach it",
        evidence: "another server is the master",
        needs: &[Watched],
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
        needs: &[Watched, LaggingReplicas],
        guarantee: T,
        exclusion_with: &[WaitsAfterFailover],
        meets_jobs: true,
        inject: failovers::master_lagging,
        ..FAULT
    },
    Fault {
        // Shows G-04.
        name: "slot-moved",
        description: "the slot of a lock moves to another master of the cluster",
        evidence: "the other master has the slot",
        needs: &[Shards],
        meets_jobs: true,
        inject: failovers::slot_moved,
        ..FAULT
    },
    Fault {
        // Shows G-33.
        name: "majority-killed",
        description: "a majority of the servers is killed, for a lease and a second",
        evidence: "their processes ended",
        inject: servers::majority_killed,
        ..MAJORITY
    },
    Fault {
        // Shows G-33.
        name: "majority-paused",
        description: "a majority of the servers is stopped, for a lease and a second",
        evidence: "their processes were stopped",
        inject: servers::majority_paused,
        ..MAJORITY
    },
    Fault {
        // Shows G-33.
        name: "majority-partition",
        description: "a majority of the servers is unreachable, for a lease and a second",
        evidence: "refused connections",
        needs: &[IndependentServers, Network],
        disturbs: Disturbed::Wires,
        inject: network::majority_partition,
        ..MAJORITY
    },
    Fault {
        // Shows G-33.
        name: "partition-all",
        description: "no server reaches another and clients reach all, for a session and a second",
        evidence: "none of the servers serves",
        needs: &[Leader],
        inject: servers::partition_all,
        ..MAJORITY
    },
    Fault {
        // Shows G-01, G-04.
        name: "session-closed",
        description: "a client's session is closed on the server",
        evidence: "the server knew the session",
        needs: &[Sessions],
        guarantee: T,
        meets_jobs: true,
        inject: servers::session_closed,
        ..FAULT
    },
    Fault {
        // Shows G-01.
        name: "leader-killed",
        description: "the leader is killed, for up to 0.9 s",
        evidence: "its process ended",
        meets_jobs: true,
        inject: servers::leader_killed,
        ..LEADER
    },
    Fault {
        // Shows G-01.
        name: "leader-paused",
        description: "the leader is stopped for longer than the followers wait for it",
        evidence: "its process was stopped",
        inject: servers::leader_paused,
        ..LEADER
    },
    Fault {
        // Shows G-01.
        name: "leader-partition",
        description: "the leader is cut off from the followers until another server leads; its \
            clients still reach it",
        evidence: "another server leads",
        inject: servers::leader_partition,
        ..LEADER
    },
    Fault {
        // Shows G-04.
        name: "files-unlinked",
        description: "the files of a lock are deleted",
        evidence: "files that existed",
        guarantee: T,
        inject: files::files_unlinked,
        ..FILES
    },
    Fault {
        // Shows G-23.
        name: "file-replaced",
        description: "another file replaces the one that flock(1) locks",
        evidence: "the replacing file exists",
        inject: files::replaced,
        ..FILES
    },
    Fault {
        // Shows G-22.
        name: "disk-full",
        description: "the disk is full for ½, 1 or 2 leases",
        evidence: "a new name is refused for this reason; requests refused with MISCONF",
        needs: &[SmallDisk],
        requires: Requirement::SmallDisk,
        guarantee: R,
        exclusion_with: &[Folder, DurableGrants],
        recovery_seconds: 10,
        slower: &[(RedisServer, 12)],
        losses: &[RedisServer],
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
        slower: &[(IndependentServers, 12)],
        disturbs: Disturbed::Store,
        inject: names::hostile_names,
        ..HOLDER
    },
];
