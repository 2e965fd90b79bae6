//! A lock object of distributed-lock-rs has one id for all its holds, so a stale guard frees a later one.

use std::time::Duration;

use lab_servers::Redis;
use leasehold::LossReason;

use super::{open, within_timeout};

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
        assert_eq!(
            within_timeout("its lease is over", stale.lost()).await,
            LossReason::LeaseExpired
        );
        let held = within_timeout("it is free", locks.mutex("stale").acquire())
            .await
            .expect("granted");
        assert!(stale.release().await.expect_err("over").is_lost());
        leasehold::drain().await;
        assert!(
            open(url)
                .await
                .mutex("stale")
                .try_acquire()
                .await
                .expect("asked")
                .is_none(),
            "{url}: freed by another"
        );
        held.check().expect("it holds");
    }
}
