//! kill -9: the server sees the connection end, and the next waiter holds when the grace is over at
//! the latest. It runs on the same machine, and may see the end of the process sooner.
//!
//! Shows G-02.

use std::time::Duration;

use anyhow::{Result, ensure};
use lab::{HoldWork, WorkerConfig, check};

use super::testbed;

const GRACE: Duration = Duration::from_secs(1);
/// How long after the grace the waiter may be granted the lock, and what a busy machine adds.
const DETECTED: Duration = Duration::from_millis(600 + 700);

/// A client that subscribes to all channels is not mistaken for a holder.
#[test]
fn subscriber_to_all_channels_is_not_a_holder() -> Result<()> {
    let testbed = testbed("crash-grace=1s")?;
    let mut monitor = testbed.servers_of::<lab_servers::Redis>()[0].connection();
    monitor.request(&["PSUBSCRIBE", "*"])?;
    let mut holder = testbed.start(WorkerConfig {
        work: HoldWork::CheckedSleep(u64::MAX),
        ..WorkerConfig::default()
    })?;
    holder.wait_for_grant()?;
    let mut next = testbed.start(WorkerConfig::default())?;
    testbed.wait_until_waiting("a", next.first_thread())?;

    let killed = holder.kill_now()?;
    let took = Duration::from_nanos(next.wait_for_grant()?.at - killed);
    ensure!(took <= GRACE + DETECTED, "granted {took:?} after the kill");
    check::all(&[holder.end()?, next.finish()?].concat())?;
    Ok(())
}
