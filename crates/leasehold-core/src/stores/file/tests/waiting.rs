//! Waiting: for an external flock, for the disk, for another transaction, and a full inbox.

use super::*;
use crate::store::draw_claim_id;

/// A waiter blocked only by an external flock sleeps until it is released and does not wake itself.
#[tokio::test]
async fn waiter_behind_external_flock_sleeps() {
    let test_folder = TestFolder::new();
    let store = test_folder.store();
    let claim = claim();

    let outsider = fs::File::create(test_folder.folder.path().join("a.lock")).expect("created");
    outsider.lock().expect("the lock is free");
    let entered = store.enter(&claim, OnContention::Queue).await;
    let standing = entered.expect("entered").standing;
    assert_eq!(standing, Standing::Queued { ahead: 0 });
    let (sender, polled) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut changed = background::on_background(store.queued(&claim, 0));
        let polled = std::pin::Pin::new(&mut changed)
            .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        sender.send(polled.is_pending()).expect("the test receives");
    });
    assert_eq!(
        polled.recv_timeout(Duration::from_secs(20)),
        Ok(true),
        "the waiter polls again and again"
    );
}

/// Reports that a future is to be polled again.
struct Notifier(std::sync::mpsc::Sender<()>);

impl std::task::Wake for Notifier {
    fn wake(self: Arc<Self>) {
        // The test that receives this may have ended.
        let _ = self.0.send(());
    }
}

/// The holder leaves when a thread has read the queue for a waiter, and the task of the waiter has
/// not received the reply of that thread.
#[tokio::test]
async fn wakeup_between_reading_the_queue_and_waiting_is_not_lost() {
    const PATIENCE: Duration = Duration::from_secs(20);
    let test_folder = TestFolder::new();
    let store = test_folder.store();
    let holder = claim();
    let waiter = claim();
    let held = store.enter(&holder, OnContention::Queue).await;
    held.expect("granted");
    let queued = store.enter(&waiter, OnContention::Queue).await;
    assert_eq!(
        queued.expect("entered").standing,
        Standing::Queued { ahead: 1 }
    );

    // While another process edits the queue, the waiter starts a thread.
    let editor = fs::File::open(test_folder.queue()).expect("there is a queue file");
    editor.lock().expect("the lock is free");
    let mut changed = store.queued(&waiter, 1);
    let (sender, replied) = std::sync::mpsc::channel();
    let waker = std::task::Waker::from(Arc::new(Notifier(sender)));
    let polled = changed
        .as_mut()
        .poll(&mut std::task::Context::from_waker(&waker));
    assert!(polled.is_pending());
    editor.unlock().expect("it was locked");
    replied
        .recv_timeout(PATIENCE)
        .expect("the thread has read the queue");

    assert!(store.leave(&holder).await.expect("left"));
    let granted = tokio::time::timeout(PATIENCE, changed)
        .await
        .expect("the waiter is woken")
        .expect("the store replies");
    assert!(granted.token().is_some());
}

/// The first grant of a name waits for the disk. This wait does not count as queueing.
#[tokio::test]
async fn zero_timeout_still_asks_the_store_once() {
    let test_folder = TestFolder::new();
    test_folder
        .boot(THIS)
        .mutex("a")
        .try_acquire_for(Duration::ZERO)
        .await
        .expect("the store replies")
        .expect("the lock is free")
        .check()
        .expect("held");
}

/// An owner that outlives its last hold in a store does not keep the store open.
#[tokio::test]
async fn owner_does_not_keep_store_open() {
    let test_folder = TestFolder::new();
    let owner = crate::Owner::new();
    let locks = test_folder.boot(THIS);
    locks
        .reentrant("a")
        .acquire(&owner)
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");

    crate::drain().await;
    drop(locks);
    let left = || {
        fs::read_dir(test_folder.folder.path().join(".members"))
            .expect("listed")
            .count()
    };

    let closed = async {
        while left() > 0 {
            tokio::task::yield_now().await;
        }
    };

    tokio::time::timeout(Duration::from_secs(9), closed)
        .await
        .expect("the store is closed");

    drop(owner);
}

/// A process is stopped in the middle of a transaction, and many requests wait for its queue.
/// Requests for other names are still executed, even if they need a thread to wait for the disk.
#[tokio::test]
async fn stopped_transaction_does_not_block_other_names() {
    let test_folder = TestFolder::new();
    let store = Arc::new(test_folder.store());
    let locks = Locks::from_arc(Arc::clone(&store) as Arc<dyn Store>, "file:").expect("it runs");
    grant(&locks).await;
    let stopped = fs::File::open(test_folder.queue()).expect("there is a queue file");
    stopped.lock().expect("the lock is free");
    for _ in 0..600 {
        let claim = claim();
        let left = tokio::time::timeout(Duration::from_millis(1), store.leave(&claim)).await;
        assert!(left.is_err(), "the queue file is locked");
    }

    let other = locks
        .mutex("b")
        .try_acquire()
        .await
        .expect("the store replies")
        .expect("the lock is free");

    other.release().await.expect("released");
    stopped.unlock().expect("it was locked");
    grant(&locks).await;
}

#[tokio::test]
async fn full_inbox_wakes_every_waiter() {
    let test_folder = TestFolder::new();
    let folder = test_folder.opened();
    let _entered = background::start().expect("it runs").enter();
    let (process, inbox) = Process::join(&folder).expect("joined");
    let peer = Peer::open(&folder, process.id())
        .expect("the store replies")
        .expect("alive");

    let ids: Vec<ClaimId> = (0..300).map(|_| draw_claim_id()).collect();
    peer.wake(&ids);
    assert!(matches!(inbox.read_wakeups().await, Wakeups::Claims(wakeups) if wakeups == ids));
    for _ in 0..100 {
        peer.wake(&ids);
    }

    assert!(matches!(inbox.read_wakeups().await, Wakeups::Overflow));
}

/// A reader that has ended keeps its entry until another process removes it, but holds nothing.
#[tokio::test]
async fn refusal_names_the_external_holder_and_no_dead_reader() {
    let test_folder = TestFolder::new();
    let reader = || Claim {
        share: Share::READER,
        ..claim()
    };
    let ended = test_folder.store();
    let entered = ended.enter(&reader(), OnContention::Fail).await;
    assert!(entered.expect("entered").standing.token().is_some());
    drop(ended);

    let path = test_folder.folder.path().join("a.lock");
    let outsider = fs::File::open(path).expect("the reader has made it");
    outsider.lock().expect("the kernel has unlocked it");
    let store = test_folder.store();
    let refused = store.enter(&reader(), OnContention::Fail).await;
    let refused = refused.expect("the store replies").refused.expect("held");
    assert_eq!(refused.holders, []);
    assert_eq!(refused.external_holders.len(), 1, "{refused}");
}

/// Shows G-02, G-06.
#[tokio::test]
async fn claims_of_dead_processes_neither_refuse_a_claim_nor_decide_its_kind() {
    let slots = |permits| Share::slots(permits, 2).expect("at most 2 permits");
    let cases = [
        (Share::READER, Share::WRITER),
        (Share::READER, slots(1)),
        (Share::MUTEX, slots(1)),
        (slots(1), slots(2)),
        (slots(1), Share::MUTEX),
    ];
    let of = |share| Claim { share, ..claim() };

    for (dead, tried) in cases {
        let test_folder = TestFolder::new();
        let ended = [test_folder.store(), test_folder.store()];
        for store in &ended {
            let entered = store.enter(&of(dead), OnContention::Queue).await;
            entered.expect("entered");
        }
        drop(ended);

        let store = test_folder.store();
        let entered = store.enter(&of(tried), OnContention::Fail).await;
        let standing = entered.expect("the dead claims have no kind").standing;
        assert!(standing.token().is_some(), "{tried:?} after {dead:?}");
    }
}
