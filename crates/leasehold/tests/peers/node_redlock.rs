//! node-redlock computes the end of a lock's validity, and returns a lock whose validity has ended.

use std::time::Duration;

use lab_servers::{Redis, Wire};

use super::open;

fn delay(wires: &[Wire], delay: Duration) {
    for wire in wires {
        wire.delay(delay);
    }
}

#[tokio::test]
async fn node_redlock_expired_lock_is_not_returned() {
    let masters: Vec<Redis> = (0..3).map(|_| Redis::start()).collect();
    let wires: Vec<Wire> = masters
        .iter()
        .map(|master| Wire::to(master.address()))
        .collect();
    let hosts: Vec<String> = wires.iter().map(Wire::address).collect();
    for url in [
        format!("redlock://{}?quarantine=off", hosts.join(",")),
        wires[0].url_of("redis"),
    ] {
        let locks = open(&url).await;
        delay(&wires, Duration::from_millis(150));
        let lease = Duration::from_millis(200);
        // A refused or timed-out try passes too.
        let lock = locks.mutex("a").lease(lease).no_renewal();
        let requested = tokio::time::timeout(Duration::from_secs(2), lock.try_acquire());
        if let Ok(Ok(Ok(guard))) = requested.await {
            guard.check().expect("it is valid when it is returned");
        }
        delay(&wires, Duration::ZERO);
    }
}
