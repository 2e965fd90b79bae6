//! Two of etcd's mutexes in one session both own the lock, as its key is that of the session.

use lab_servers::{Redis, ZooKeeper};

use super::open;

#[tokio::test]
async fn etcd_two_mutexes_of_one_client_exclude_each_other() {
    let (redis, zookeeper) = (Redis::start(), ZooKeeper::start());
    let plain = format!("{}?dialect=plain", redis.url());
    for url in ["memory:", &redis.url(), &plain, &zookeeper.url()] {
        let locks = open(url).await;
        let held = locks.mutex("two").acquire().await.expect("granted");
        assert!(
            locks
                .mutex("two")
                .try_acquire()
                .await
                .expect("asked")
                .is_none(),
            "{url}: both hold"
        );
        held.release().await.expect("released");
        let next = locks
            .mutex("two")
            .try_acquire()
            .await
            .expect("asked")
            .expect("it is free");
        next.release().await.expect("released");
    }
}
