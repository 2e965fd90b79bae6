//! Two mutexes of etcd in one session both hold the lock, because they use the session's key.

use lab_servers::{Redis, ZooKeeper};

use super::open;

#[tokio::test]
async fn etcd_two_mutexes_of_one_client_exclude_each_other() {
    let redis = Redis::start();
    let zookeeper = ZooKeeper::start();
    let plain = format!("{}?dialect=plain", redis.url());
    for url in ["memory:", &redis.url(), &plain, &zookeeper.url()] {
        let locks = open(url).await;
        let held = locks.mutex("two").acquire().await.expect("granted");
        let second = locks.mutex("two").try_acquire().await.expect("tried");
        assert!(second.is_err(), "{url}: both hold");

        held.release().await.expect("released");
        let next = locks
            .mutex("two")
            .try_acquire()
            .await
            .expect("tried")
            .expect("it is free");
        next.release().await.expect("released");
    }
}
