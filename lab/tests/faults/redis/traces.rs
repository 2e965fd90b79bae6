//! Killed clients do not clean up. The keys that they leave expire without a client.
//!
//! Shows G-27.

use anyhow::{Result, ensure};
use lab::backends::redis;
use lab::{HoldWork, LockKind, Testbed, WorkerConfig, until};
use lab_servers::Redis;

use crate::WORKER;

const LATER_DAYS: i64 = 3;

/// For each name: the kind of lock, for the client that holds and for the client that waits.
const LINES: [(&str, LockKind, LockKind); 3] = [
    ("mutex", LockKind::Mutex, LockKind::Mutex),
    ("readers", LockKind::Reader, LockKind::Writer),
    (
        "slots",
        LockKind::Slots {
            permits: 2,
            slots: 3,
        },
        LockKind::Slots {
            permits: 3,
            slots: 3,
        },
    ),
];

#[test]
fn every_key_of_killed_clients_expires() -> Result<()> {
    let testbed = redis::start(WORKER, Redis::setup().own_clock(), "crash-grace=1s")?;
    for (name, held, waited) in LINES {
        let config = WorkerConfig {
            names: vec![name.to_owned()],
            work: HoldWork::CheckedSleep(u64::MAX),
            ..WorkerConfig::default()
        };
        let mut holder = testbed.start(WorkerConfig {
            kind: held,
            ..config.clone()
        })?;
        holder.wait_for_grant()?;
        let waiter = testbed.start(WorkerConfig {
            kind: waited,
            ..config
        })?;
        testbed.wait_until_waiting(name, waiter.first_thread())?;
        holder.kill()?;
        waiter.kill()?;
    }

    ensure!(
        keys(&testbed) >= LINES.len(),
        "the killed clients left no keys"
    );

    testbed.servers_of::<Redis>()[0].set_clock(LATER_DAYS * 24 * 60 * 60);
    until("all keys to have expired", || {
        Ok((keys(&testbed) == 0).then_some(()))
    })
}

fn keys(testbed: &Testbed) -> usize {
    testbed.servers_of::<Redis>()[0]
        .command(&["DBSIZE"])
        .int()
        .try_into()
        .expect("a count")
}
