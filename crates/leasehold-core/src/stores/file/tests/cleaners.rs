//! Cleaners of old files that delete parts of a store in use.

use super::*;

/// A cleaner of old files deleted the FIFOs, so each process counts as dead to the other. The
/// holder is notified of the loss, and the waiter enters the queue again.
#[tokio::test]
async fn deleted_fifo_ends_holds_and_requeues_waiters() {
    let test_folder = TestFolder::new();
    let ours = test_folder.boot(THIS);
    let theirs = test_folder.boot(THIS);
    let short = Duration::from_millis(150);
    let held = ours
        .mutex("a")
        .lease(short)
        .acquire()
        .await
        .expect("granted");

    let lock = theirs.mutex("a").lease(short);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    while theirs
        .inspect("a")
        .await
        .expect("inspected")
        .waiters()
        .count()
        == 0
    {
        tokio::task::yield_now().await;
    }

    for fifo in fs::read_dir(test_folder.folder.path().join(".members")).expect("listed") {
        fs::remove_file(fifo.expect("listed").path()).expect("removed");
    }

    let limit = Duration::from_secs(20);
    assert_eq!(
        tokio::time::timeout(limit, held.lost())
            .await
            .expect("the holder is notified"),
        crate::LossReason::Revoked
    );

    drop(held);
    let next = tokio::time::timeout(limit, waiting)
        .await
        .expect("the waiter enters again")
        .expect("it runs");

    next.expect("granted").check().expect("held");
}

/// A cleaner deleted the whole folder. The holder is notified of the loss, and the same process can
/// continue in a new folder.
#[tokio::test]
async fn deleted_folder_ends_holds_and_is_recreated() {
    let test_folder = TestFolder::new();
    let locks = test_folder.boot(THIS);
    let held = locks
        .mutex("a")
        .lease(Duration::from_millis(600))
        .acquire()
        .await
        .expect("granted");

    // The store may create a file while the folder is being emptied.
    while fs::remove_dir_all(test_folder.folder.path()).is_err() {
        assert!(test_folder.folder.path().exists(), "it can be deleted");
    }
    let limit = Duration::from_secs(20);
    assert_eq!(
        tokio::time::timeout(limit, held.lost())
            .await
            .expect("the holder is notified"),
        crate::LossReason::Revoked
    );

    drop(held);
    grant(&locks).await;
}

/// Several threads notice at the same moment that the FIFO of their process is gone. All of them
/// enter under one new process id.
#[tokio::test]
async fn deleted_fifo_is_replaced_once() {
    const THREADS: usize = 4;
    let test_folder = TestFolder::new();
    let store = test_folder.store();
    for _ in 0..100 {
        fs::remove_dir_all(test_folder.folder.path().join(".members")).expect("removed");
        let go = std::sync::Barrier::new(THREADS);
        let enter = || {
            let claim = Claim {
                share: Share::READER,
                ..claim()
            };
            go.wait();
            let entered = background::on_background(store.enter(&claim, OnContention::Queue));
            pollster::block_on(entered).expect("entered");
            claim
        };
        let claims = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(enter)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect::<Vec<_>>()
        });
        let kept = store.renew(&claims).await.expect("the store replies");
        assert!(kept.iter().all(Option::is_some), "{kept:?}");
        for claim in &claims {
            assert!(store.leave(claim).await.expect("left"));
        }
    }
}

/// A request to enter or a renewal follows after a cleaner deleted the FIFO. Other processes may
/// already have removed the claims, so grants under the former process id count no more.
///
/// Shows G-01.
#[tokio::test]
async fn claims_of_a_former_process_id_are_gone() {
    let test_folder = TestFolder::new();
    let store = test_folder.store();
    let [entered, renewed] = [(); 2].map(|()| Claim {
        share: Share::READER,
        ..claim()
    });
    for claim in [&entered, &renewed] {
        let entered = store.enter(claim, OnContention::Queue).await;
        let first = entered.expect("the store replies").standing;
        assert!(matches!(first, Standing::Held { .. }), "{first:?}");
    }

    fs::remove_dir_all(test_folder.folder.path().join(".members")).expect("removed");
    let again = store.enter(&entered, OnContention::Queue).await;
    let again = again.expect("the store replies").standing;
    assert_eq!(again, Standing::Gone);
    let again = store.renew(std::slice::from_ref(&renewed)).await;
    assert_eq!(again.expect("the store replies"), [None]);
    store.leave(&renewed).await.expect("the store replies");
    grant(&test_folder.boot(THIS)).await;
}
