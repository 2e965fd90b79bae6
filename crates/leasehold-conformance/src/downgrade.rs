//! Writers that become readers.

use std::time::Duration;

use tokio::runtime;

use super::Service;
use super::shares::clients_with_readers;
use super::support::{
    acquire, client, fresh_name, granted, release, spawn_acquire, try_acquire, waiters,
};
use leasehold_core::Locks;

/// A writer that downgrades lets waiting readers in and keeps other writers out. It keeps its
/// token.
///
/// Shows G-07, G-55.
pub async fn downgrade_lets_readers_in(service: &dyn Service) {
    let Some((ours, theirs)) = clients_with_readers(service).await else {
        return;
    };
    let name = fresh_name("downgrade");

    let held = acquire(&ours.rwlock(&name).exclusive()).await;
    let token = held.token();
    let reading = spawn_acquire(&theirs.rwlock(&name).shared());
    // In a store without a queue, a waiter is known to its own client alone.
    let observer = if ours.guarantees().fifo {
        &ours
    } else {
        &theirs
    };
    waiters(observer, &name, 1).await;

    held.downgrade().await.expect("downgraded");
    let again = held.downgrade().await;
    again.expect("a second downgrade changes nothing");
    let other = granted(reading).await;

    assert_eq!(held.token(), token);
    held.check().expect("still held");
    let writer = try_acquire(&theirs.rwlock(&name).exclusive()).await;
    assert!(writer.is_none(), "a writer was granted while a reader held");
    release(held).await;
    release(other).await;

    let name = fresh_name("no-readers");
    let mutex = acquire(&ours.mutex(&name)).await;
    let refused = mutex.downgrade().await;
    let error = refused.expect_err("a mutex has no readers");
    assert!(error.is_unsupported(), "{error}");
    let names_lock = error.to_string().contains(&format!("{name:?}"));
    assert!(names_lock, "{error}");
}

/// The number of rounds on each of the two runtimes. When a pending request wrongly counted as a
/// loss, half of all rounds failed on ZooKeeper.
const DOWNGRADES: u32 = 25;

/// A holder that downgrades keeps the lock, and no call that awaits its loss returns: on a runtime
/// of one thread and on one of two. A store without readers refuses the downgrade, and the hold
/// continues.
///
/// Shows G-07.
pub async fn downgrade_is_not_reported_as_loss(service: &dyn Service) {
    std::thread::scope(|scope| {
        let ended = scope
            .spawn(|| {
                let runtime = runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("a runtime starts");
                runtime.block_on(downgrade_while_loss_is_awaited(service));
            })
            .join();
        ended.expect("no round fails on a runtime of one thread");
    });

    downgrade_while_loss_is_awaited(service).await;
}

async fn downgrade_while_loss_is_awaited(service: &dyn Service) {
    let Some((ours, theirs)) = clients_with_readers(service).await else {
        return downgrade_is_refused(&client(service).await).await;
    };

    for round in 0..DOWNGRADES {
        let name = fresh_name("downgrade-awaited");
        let writer = acquire(&ours.rwlock(&name).exclusive()).await;
        let pause = Duration::from_millis(u64::from(round % 5));

        let done = writer.while_held(async {
            tokio::time::sleep(pause).await;
            writer.downgrade().await
        });
        done.await
            .unwrap_or_else(|error| panic!("round {round}: {error}"))
            .expect("downgraded");
        writer.check().expect("still held");

        let other = try_acquire(&theirs.rwlock(&name).shared())
            .await
            .expect("readers share");
        let lost = tokio::time::timeout(Duration::from_millis(5), writer.lost()).await;
        assert!(lost.is_err(), "round {round}: {lost:?}");

        release(writer).await;
        release(other).await;
    }
}

async fn downgrade_is_refused(locks: &Locks) {
    let writer = acquire(&locks.rwlock(fresh_name("downgrade-refused")).exclusive()).await;

    let done = writer.while_held(writer.downgrade()).await;
    let refused = done.expect("still held");
    let error = refused.expect_err("refused, and not granted with a weaker guarantee");
    assert!(error.is_unsupported(), "{error}");

    writer.check().expect("still held");
    release(writer).await;
}
