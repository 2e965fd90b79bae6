//! One Redis server with locks in the format of other libraries.

use super::Backend;
use super::Capability::{
    ExpiringKeys, ImmediateRemoval, LastingConnections, Network, OwnQueue, OwnRoute, PlainKeys,
    RedisCommands, ServerClock, ServerProcess, SingleServer, SmallDisk, SteadyTokens,
};
use super::redis;

/// `redis:` with `dialect=plain`.
pub(super) const PLAIN: Backend = Backend {
    name: "plain",
    token_slack: 1_000_000_000,
    load_min: 5.0,
    has: &[
        Network,
        ServerProcess,
        ServerClock,
        RedisCommands,
        SingleServer,
        PlainKeys,
        ExpiringKeys,
        SteadyTokens,
        SmallDisk,
        OwnRoute,
        OwnQueue,
        ImmediateRemoval,
        LastingConnections,
    ],
    start: |worker, requires| redis::start_behind_wire(worker, requires, "dialect=plain&tokens=on"),
    check_clean: redis::check_clean_by_lease,
    ..redis::SINGLE
};
