//! A lock object of distributed-lock-rs has one id for all its holds, so a stale guard releases a
//! later hold.

use std::time::Duration;

use lab_servers::Redis;
use leasehold::LossReason;

use super::{open, within_timeout};

/// Shows G-03.
#[tokio::test]
async fn distributed_lock_rs_stale_guard_does_not_free_a_later_hold() {
    let masters: Vec<Redis> = (0..3).map(|_| Redis::start()).collect();
    let hosts: Vec<String> = masters.iter().map(Redis::address).collect();
    let redlock = format!("redlock://{}?quarantine=off", hosts.join(","));
    let plain = format!("{}?dialect=plain", masters[0].url());
    for url in [&masters[0].url(), &plain, &redlock] {
        let locks = open(url).await;
        let lock = locks
            .mutex("stale")
            .lease(Duration::from_millis(400))
            .no_renewal();
        let stale = lock.acquire().await.expect("granted");
        let lost = within_timeout("the lease expires", stale.lost()).await;
        assert_eq!(lost, LossReason::LeaseExpired);

        let held = within_timeout("it is free", locks.mutex("stale").acquire())
            .await
            .expect("granted");
        assert!(stale.release().await.expect_err("expired").is_lost());
        leasehold::drain().await;
        let tried = open(url).await.mutex("stale").try_acquire().await;
        let is_held = tried.expect("tried").is_err();
        assert!(is_held, "{url}: released by the stale guard");
        held.check().expect("it holds");
    }
}
