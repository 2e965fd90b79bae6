//! One PostgreSQL server.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use lab_servers::{Postgres as Server, Wire};

use super::Capability::{
    DurableGrants, FifoQueue, ImmediateRemoval, Network, ServerClock, ServerProcess, SingleServer,
    SmallDisk, StateCommands, SteadyTokens, UnsyncedReleases, WritableServers,
};
use super::redis::USER;
use super::{Backend, CANARY, Disk, disk, wait_for_empty_queues};
use crate::faults::Requirement;
use crate::testbed::Server as TestedServer;
use crate::{Testbed, WorkerConfig, until};

const LEASE: Duration = Duration::from_millis(1_500);
const SETTINGS: &str = "crash-grace=500ms";
/// The connections of the inspecting client.
const OBSERVERS: &str = "2";

/// The rights of [`USER`].
pub(crate) const GRANT: &str = "GRANT USAGE ON SCHEMA leasehold TO app; \
     GRANT EXECUTE ON ALL ROUTINES IN SCHEMA leasehold TO app";

/// `postgres:`, one server.
pub(super) const SINGLE: Backend = Backend {
    name: "postgres",
    lease: LEASE,
    requested_lease: LEASE,
    cohort: None,
    recovery_seconds: 10,
    token_slack: 0,
    load_min: 5.0,
    has: &[&[
        Network,
        ServerProcess,
        ServerClock,
        StateCommands,
        SingleServer,
        SteadyTokens,
        FifoQueue,
        ImmediateRemoval,
        UnsyncedReleases,
        SmallDisk,
        DurableGrants,
        WritableServers,
    ]],
    start: |worker, requires| {
        let (disk, server) = if requires == Requirement::SmallDisk {
            let disk = Disk::mount(disk::POSTGRES_SIZE)?;
            let server = Server::on_disk(disk.path(), &["max_wal_size=32MB", "min_wal_size=32MB"]);
            (Some(disk), server)
        } else if requires == Requirement::ServerClock {
            (None, Server::with_own_clock())
        } else {
            (None, Server::start())
        };
        let url = |user, address: &str| format!("postgres://{user}@{address}/postgres?{SETTINGS}");
        let address = server.address();
        let own = url("postgres", &address);
        let mut testbed = Testbed::with_servers(worker, own, Vec::new(), vec![server])?;
        let wire = Wire::to(&address);
        let user = if requires == Requirement::DedicatedUser {
            // The testbed has made the schema.
            self::server(&testbed).run(&format!("CREATE ROLE {USER} LOGIN; {GRANT}"));
            USER
        } else {
            "postgres"
        };
        testbed.worker_url = url(user, &wire.address());
        testbed.wires.push(wire);
        testbed.disk = disk;
        Ok(testbed)
    },
    wait_until_ready: |_| Ok(()),
    plant: |testbed| {
        let statement = format!("CREATE TABLE leasehold_other AS SELECT '{CANARY}'::text AS said");
        server(testbed).run(&statement);
        Ok(())
    },
    verify_and_remove: |testbed| {
        let said = server(testbed).run("SELECT said FROM leasehold_other");
        if said.iter().any(|line| line.contains("does not exist")) {
            return Ok(1);
        }
        ensure!(said == [CANARY], "the canary was changed: {said:?}");
        server(testbed).run("DROP TABLE leasehold_other");
        Ok(0)
    },
    count_entries: |testbed| {
        let rows = server(testbed).run(
            "SELECT (SELECT count(*) FROM leasehold_private.lock) + \
             (SELECT count(*) FROM leasehold_private.claim)",
        );
        Ok(rows.concat().parse()?)
    },
    check_clean,
};

/// Checks that the queues are empty, that no row counts more than it has, and that only the
/// inspecting client has connections.
fn check_clean(backend: &Backend, testbed: &Testbed, last: &WorkerConfig) -> Result<()> {
    wait_for_empty_queues(backend, testbed, last)?;
    testbed.hold_each_once(last)?;
    let left = server(testbed).run(
        "SELECT name FROM leasehold_private.lock WHERE taken <> 0 OR waiting <> 0 UNION ALL \
         SELECT name FROM leasehold_private.claim",
    );
    ensure!(left.is_empty(), "rows of ended claims remain: {left:?}");
    until("the connections of ended workers to close", || {
        let connections =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'";
        let count = server(testbed).run(connections);
        Ok((count == [OBSERVERS]).then_some(()))
    })
}

pub(crate) fn server(testbed: &Testbed) -> &Server {
    testbed.servers_of::<Server>()[0]
}

impl TestedServer for Server {
    fn kill(&mut self) {
        self.stop();
    }

    fn restart(&mut self) {
        Self::restart(self);
    }

    fn pause(&self) {
        Self::pause(self);
    }

    fn resume(&self) {
        Self::resume(self);
    }

    fn folder(&self) -> &Path {
        self.host()
    }
}
