//! One Redis server with locks in the format of other libraries.

use super::Backend;
use super::Capability::{ExpiringKeys, LastingConnections, PlainKeys, SteadyTokens};
use super::redis::{self, ONE_SERVER, SET_UPS};

/// `redis:` with `dialect=plain`.
pub(super) const PLAIN: Backend = Backend {
    name: "plain",
    token_slack: 1_000_000_000,
    load_min: 5.0,
    has: &[
        ONE_SERVER,
        SET_UPS,
        &[PlainKeys, ExpiringKeys, SteadyTokens, LastingConnections],
    ],
    start: |worker, requires| redis::start_behind_wire(worker, requires, "dialect=plain&tokens=on"),
    check_clean: redis::check_clean_by_lease,
    ..redis::SINGLE
};
