//! Torn writes, other boots, and interference by other programs, which only unit tests can make.

mod threads;

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use proptest::prelude::*;

use super::counter::{COUNTER_LEN, RESERVE};
use super::entry::ENTRY_LEN;
use super::*;
use crate::{ClaimantInfo, Locks, Share, Token};

const BLOCK: u64 = COUNTER_LEN as u64 / 2;
const THIS: Boot = [1; 16];
const NEXT: Boot = [2; 16];

struct TestFolder {
    folder: tempfile::TempDir,
}

impl TestFolder {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    fn boot(&self, boot: Boot) -> Locks {
        let store = File::of_boot(self.folder.path(), boot).expect("the folder opens");
        Locks::from_arc(Arc::new(store), "file:").expect("the background thread runs")
    }

    fn store(&self) -> File {
        File::of_boot(self.folder.path(), THIS).expect("the folder opens")
    }

    fn queue(&self) -> PathBuf {
        self.folder.path().join("a.queue")
    }

    fn overwrite(&self, at: u64, bytes: &[u8]) {
        let file = fs::OpenOptions::new()
            .write(true)
            .open(self.queue())
            .expect("there is a queue file");
        file.write_all_at(bytes, at).expect("it can be written");
    }
}

fn wall_clock_micros() -> u64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the wall clock is set");
    u64::try_from(since_epoch.as_micros()).expect("it fits for 500,000 years")
}

async fn grant(locks: &Locks) -> u64 {
    let guard = locks
        .mutex("a")
        .try_acquire()
        .await
        .expect("the store replies")
        .expect("the lock is free");
    let token = guard.token().get();
    guard.release().await.expect("released");
    token
}

#[tokio::test]
async fn tokens_increase_over_torn_write_and_reboot() {
    for block in [0, BLOCK] {
        for grants in [1, 2, 3, RESERVE - 1, RESERVE, RESERVE + 1, 3 * RESERVE] {
            for boot in [THIS, NEXT] {
                let test_folder = TestFolder::new();
                let locks = test_folder.boot(THIS);
                let mut last = 0;
                for _ in 0..grants {
                    last = grant(&locks).await;
                }
                drop(locks);
                test_folder.overwrite(block + 20, &[0xAB; 7]);
                let locks = test_folder.boot(boot);
                let next = grant(&locks).await;
                assert!(
                    next > last,
                    "{next} after {last}: block at {block}, {grants} grants"
                );
                assert!(grant(&locks).await > next);
            }
        }
    }
}

#[tokio::test]
async fn tokens_increase_over_reboots_and_a_deleted_folder() {
    let test_folder = TestFolder::new();
    let mut last = 0;
    for boot in 0..5 {
        let next = grant(&test_folder.boot([boot; 16])).await;
        assert!(next > last);
        last = next;
    }
    fs::remove_dir_all(test_folder.folder.path()).expect("it can be deleted");

    // Each boot skips the reserved tokens, so the last token may be some milliseconds ahead of the
    // clock.
    while wall_clock_micros() <= last {
        tokio::task::yield_now().await;
    }
    assert!(
        grant(&test_folder.boot(THIS)).await > last,
        "a new counter begins at the clock"
    );
}

#[tokio::test]
async fn entries_of_another_boot_belong_to_their_process() {
    let test_folder = TestFolder::new();
    let before = test_folder.store();
    let claim = claim();
    before
        .enter(&claim, OnContention::Queue)
        .await
        .expect("entered")
        .standing
        .token()
        .expect("the lock was free");
    let after = test_folder.boot(NEXT);
    assert!(
        after
            .mutex("a")
            .try_acquire()
            .await
            .expect("the store replies")
            .is_none(),
        "some containers have a boot id of their own"
    );
    drop(before);
    assert!(
        after
            .inspect("a")
            .await
            .expect("inspected")
            .entries
            .is_empty()
    );
    grant(&after).await;
    let queue = after.inspect("a").await.expect("inspected");
    assert!(queue.entries.is_empty() && queue.last_token.is_some());
}

/// Power loss tears entries, and their processes end with it.
#[tokio::test]
async fn torn_entry_of_another_boot_is_cleared() {
    let test_folder = TestFolder::new();
    grant(&test_folder.boot(THIS)).await;
    test_folder.overwrite(COUNTER_LEN as u64, &[1; ENTRY_LEN]);
    test_folder.overwrite((COUNTER_LEN + ENTRY_LEN) as u64, &[1; 100]);

    assert!(
        test_folder
            .boot(THIS)
            .mutex("a")
            .try_acquire()
            .await
            .expect_err("the owner of the entry is unknown")
            .is_damaged()
    );
    for _ in 0..3 {
        grant(&test_folder.boot(NEXT)).await;
    }
}

#[tokio::test]
async fn torn_counter_is_refused_and_kept() {
    let test_folder = TestFolder::new();
    grant(&test_folder.boot(THIS)).await;
    test_folder.overwrite(20, &[0xAB; 7]);
    test_folder.overwrite(BLOCK + 20, &[0xAB; 7]);
    let torn = fs::read(test_folder.queue()).expect("read");
    for boot in [THIS, NEXT] {
        let error = test_folder
            .boot(boot)
            .mutex("a")
            .acquire()
            .await
            .expect_err("refused");
        assert!(
            error.is_damaged() && error.to_string().contains("remove"),
            "{error}"
        );
    }
    assert_eq!(fs::read(test_folder.queue()).expect("read"), torn);
}

#[tokio::test]
async fn foreign_file_is_refused_and_kept() {
    let test_folder = TestFolder::new();
    for foreign in ["#!/bin/sh\n".to_owned(), "x".repeat(5000), " ".to_owned()] {
        fs::write(test_folder.queue(), &foreign).expect("written");
        let error = test_folder
            .boot(THIS)
            .mutex("a")
            .acquire()
            .await
            .expect_err("refused");
        assert!(
            error.is_damaged() && error.to_string().contains("not a queue file"),
            "{error}"
        );
        assert_eq!(
            fs::read_to_string(test_folder.queue()).expect("read"),
            foreign
        );
    }
}

#[tokio::test]
async fn newer_format_version_is_refused() {
    let test_folder = TestFolder::new();
    grant(&test_folder.boot(THIS)).await;
    let mut bytes = fs::read(test_folder.queue()).expect("read")[..64].to_vec();
    bytes[8] = 9;
    let crc = crc32fast::hash(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    test_folder.overwrite(0, &bytes);
    let error = test_folder
        .boot(THIS)
        .mutex("a")
        .acquire()
        .await
        .expect_err("refused");
    assert!(
        error.is_unsupported() && error.to_string().contains("version 9"),
        "{error}"
    );
}

#[tokio::test]
async fn torn_entry_is_refused() {
    let test_folder = TestFolder::new();
    let locks = test_folder.boot(THIS);
    let _guard = locks.mutex("a").acquire().await.expect("granted");
    test_folder.overwrite(COUNTER_LEN as u64 + 100, &[0xAB; 7]);
    let error = locks.mutex("a").try_acquire().await.expect_err("refused");
    assert!(error.is_damaged(), "{error}");
}

/// A full disk or a lost page may leave a file of any length.
#[tokio::test]
async fn truncated_file_is_read_or_refused() {
    let whole = {
        let test_folder = TestFolder::new();
        grant(&test_folder.boot(THIS)).await;
        fs::read(test_folder.queue()).expect("read")
    };
    for len in (0..whole.len())
        .step_by(37)
        .chain([COUNTER_LEN, COUNTER_LEN + ENTRY_LEN])
    {
        let test_folder = TestFolder::new();
        fs::write(test_folder.queue(), &whole[..len.min(whole.len())]).expect("written");
        match test_folder.boot(NEXT).mutex("a").acquire().await {
            Ok(guard) => assert!(guard.token().get() > RESERVE),
            Err(error) => assert!(error.is_damaged(), "{len}: {error}"),
        }
    }
}

#[tokio::test]
async fn links_and_devices_are_refused() {
    for ending in ["lock", "queue"] {
        let test_folder = TestFolder::new();
        let path = test_folder.folder.path().join(format!("a.{ending}"));
        symlink("/dev/null", &path).expect("linked");
        assert!(
            test_folder
                .boot(THIS)
                .mutex("a")
                .acquire()
                .await
                .expect_err("a link")
                .is_damaged()
        );
        fs::remove_file(&path).expect("removed");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .expect("created");
        assert!(
            test_folder
                .boot(THIS)
                .mutex("a")
                .acquire()
                .await
                .expect_err("a FIFO")
                .is_damaged()
        );
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("created");
        test_folder
            .boot(THIS)
            .mutex("a")
            .acquire()
            .await
            .expect_err("a folder");
    }
}

#[tokio::test]
async fn folder_that_is_not_local_is_refused() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    assert!(
        File::at(file.path())
            .expect_err("not a folder")
            .is_invalid()
    );
    assert!(
        File::at_url_path("//elsewhere/locks")
            .expect_err("another machine")
            .is_invalid()
    );
    let proc = File::at(Path::new("/proc/leasehold")).expect_err("nothing can be made there");
    assert!(proc.to_string().contains("/proc/leasehold"), "{proc}");
}

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

/// A waiter blocked only by an external flock sleeps until it is released and does not wake itself.
#[tokio::test]
async fn waiter_behind_external_flock_sleeps() {
    let test_folder = TestFolder::new();
    let store = test_folder.store();
    let claim = claim();

    let outsider = fs::File::create(test_folder.folder.path().join("a.lock")).expect("created");
    outsider.lock().expect("the lock is free");
    let seen = store
        .enter(&claim, OnContention::Queue)
        .await
        .expect("entered")
        .standing;
    let (sender, polled) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut changed = background::on_background(store.changed(&claim, seen));
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
    fs::remove_dir_all(test_folder.folder.path()).expect("it can be deleted");
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

#[tokio::test]
async fn foreign_files_are_not_listed() {
    let test_folder = TestFolder::new();
    let locks = test_folder.boot(THIS);
    let _guard = locks.mutex("a").acquire().await.expect("granted");
    fs::write(test_folder.folder.path().join("notes+"), "x").expect("written");
    symlink(".", test_folder.folder.path().join("here+")).expect("linked");
    let names = locks.list("", 9).await.expect("listed");
    assert_eq!(names.iter().map(Name::as_str).collect::<Vec<_>>(), ["a"]);
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

/// A queue file that was truncated within an entry is not read as free.
#[tokio::test]
async fn truncated_entry_is_refused() {
    let test_folder = TestFolder::new();
    let ours = test_folder.boot(THIS);
    let theirs = test_folder.boot(THIS);
    let _guard = ours
        .semaphore("a", 2)
        .permits(2)
        .acquire()
        .await
        .expect("granted");
    let queue = fs::OpenOptions::new()
        .write(true)
        .open(test_folder.queue())
        .expect("there is a queue file");
    queue
        .set_len((COUNTER_LEN + ENTRY_LEN) as u64 - 1)
        .expect("truncated");
    let error = theirs
        .semaphore("a", 2)
        .try_acquire()
        .await
        .expect_err("refused");
    assert!(error.is_damaged(), "{error}");
}

/// A file of another program may be larger than the memory.
#[tokio::test]
async fn huge_foreign_file_is_refused() {
    let test_folder = TestFolder::new();
    fs::write(test_folder.queue(), "#!/bin/sh").expect("written");
    fs::OpenOptions::new()
        .write(true)
        .open(test_folder.queue())
        .expect("opened")
        .set_len(1 << 40)
        .expect("made longer");
    let error = test_folder
        .boot(THIS)
        .mutex("a")
        .acquire()
        .await
        .expect_err("refused");
    assert!(error.is_damaged(), "{error}");
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

/// A process is stopped in the middle of a transaction. However many requests wait for that queue,
/// requests for other names are executed, even if they need a thread to wait for the disk.
#[tokio::test]
async fn stopped_transaction_does_not_block_other_names() {
    let test_folder = TestFolder::new();
    let locks = test_folder.boot(THIS);
    grant(&locks).await;
    let stopped = fs::File::open(test_folder.queue()).expect("there is a queue file");
    stopped.lock().expect("the lock is free");
    for _ in 0..600 {
        let inspected = tokio::time::timeout(Duration::from_millis(1), locks.inspect("a")).await;
        assert!(inspected.is_err(), "the queue file is locked");
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
async fn files_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let test_folder = TestFolder::new();
    grant(&test_folder.boot(THIS)).await;
    for file in ["a.queue", "a.lock"] {
        let mode = fs::metadata(test_folder.folder.path().join(file))
            .expect("the file exists")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

#[tokio::test]
async fn only_two_files_per_name_remain() {
    let test_folder = TestFolder::new();
    let locks = test_folder.boot(THIS);
    let descriptors = || fs::read_dir("/proc/self/fd").expect("listed").count();
    grant(&locks).await;
    let before = descriptors();
    for _ in 0..100 {
        let guard = locks.mutex("a").acquire().await.expect("granted");
        assert!(
            locks
                .mutex("a")
                .try_acquire_for(Duration::from_micros(100))
                .await
                .expect("the store replies")
                .is_none()
        );
        guard.release().await.expect("released");
    }
    assert!(
        descriptors() < before + 20,
        "other tests of this process open descriptors too"
    );
    drop(locks);
    let mut left: Vec<_> = fs::read_dir(test_folder.folder.path())
        .expect("listed")
        .map(|entry| entry.expect("listed").file_name())
        .collect();
    left.sort_unstable();
    assert_eq!(left, [".members", "a.lock", "a.queue"]);
    assert_eq!(
        fs::read_dir(test_folder.folder.path().join(".members"))
            .expect("listed")
            .count(),
        0
    );
}

#[tokio::test]
async fn full_inbox_wakes_every_waiter() {
    let test_folder = TestFolder::new();
    let folder = Folder::open(test_folder.folder.path(), Locality::Known).expect("opens");
    let _entered = background::start().expect("it runs").enter();
    let (process, inbox) = Process::join(&folder.members()).expect("joined");
    let peer = Peer::open(&folder.members(), process.id())
        .expect("the store replies")
        .expect("alive");
    let ids: Vec<ClaimId> = (0..300).map(|_| ClaimId::draw()).collect();
    peer.wake(&ids);
    assert!(matches!(inbox.read_wakeups().await, Wakeups::Claims(wakeups) if wakeups == ids));
    for _ in 0..100 {
        peer.wake(&ids);
    }
    assert!(matches!(inbox.read_wakeups().await, Wakeups::Overflow));
}

fn claim() -> Claim {
    Claim {
        name: Name::parse("a").expect("a good name"),
        id: ClaimId::draw(),
        share: Share::MUTEX,
        lease: Duration::from_secs(30),
        auto_renew: true,
        info: ClaimantInfo::here("label").expect("a good label").into(),
    }
}

/// A process was killed while it reserved tokens, before the reservation was on the disk. The next
/// process does not use the reservation.
#[test]
fn unsynced_reservation_is_not_used() {
    let file = tempfile::tempfile().expect("a temporary file");
    let mut counter = counter::TokenCounter::fresh(THIS);
    counter.reserve(&file).expect("written");
    assert!(!counter.is_spent());
    let last = counter.last_token();
    counter.set_reserved(&file).expect("written");
    let mut bytes = vec![0; COUNTER_LEN];
    file.read_at(&mut bytes, 0).expect("read");
    let counter::CounterState::Intact(found) = counter::TokenCounter::read(&bytes) else {
        panic!("both blocks are sound")
    };
    assert!(found.is_spent() && found.last_token() >= last, "{found:?}");
}

proptest! {
    #[test]
    fn stored_claim_round_trips(
        slot in 0usize..9,
        sequence in 1u64..,
        host in "\\PC{0,16}",
        label in "\\PC{0,16}",
        token in 1u64..,
    ) {
        let info = ClaimantInfo { host, label, ..ClaimantInfo::clone(&claim().info) };
        let claim = Claim { info: info.clone().into(), ..claim() };
        let process = ProcessId::from_bytes([7; 16]);
        let mut stored = entry::StoredClaim::new(&claim, process, slot, sequence);
        prop_assert_eq!(stored.token(), None);
        stored.grant(Token::new(token).expect("above zero"));

        let read = entry::StoredClaim::read(&stored.to_bytes(), slot)
            .expect("the entry is sound")
            .expect("the slot is in use");
        prop_assert_eq!(read.id(), claim.id);
        prop_assert_eq!(read.process(), process);
        prop_assert_eq!(read.share(), claim.share);
        prop_assert_eq!(read.sequence(), sequence);
        prop_assert_eq!(read.token().map(Token::get), Some(token));
        prop_assert_eq!(read.info().host, info.host);
        prop_assert_eq!(read.info().label, info.label);
        prop_assert_eq!(read.info().pid, info.pid);

        let mut torn = stored.to_bytes();
        torn[100] ^= 1;
        prop_assert!(entry::StoredClaim::read(&torn, slot).is_err());
    }

    #[test]
    fn one_torn_block_never_lowers_the_counter(
        grants in 0u64..2100,
        block in 0u64..2,
        at in 0u64..64,
        bits in 1u8..,
    ) {
        let file = tempfile::tempfile().expect("a temporary file");
        let mut counter = counter::TokenCounter::fresh(THIS);
        counter.reserve(&file).expect("written");
        for _ in 0..grants {
            if counter.is_spent() {
                counter.reserve(&file).expect("written");
            }
            counter.mint(&file).expect("written");
        }
        let last = counter.last_token();

        let mut byte = [0];
        file.read_exact_at(&mut byte, block * BLOCK + at).expect("read");
        file.write_all_at(&[byte[0] ^ bits], block * BLOCK + at).expect("written");

        let mut bytes = vec![0; COUNTER_LEN];
        file.read_at(&mut bytes, 0).expect("read");
        match counter::TokenCounter::read(&bytes) {
            counter::CounterState::OneBlockLost(counter) => {
                prop_assert!(counter.restarted().last_token() >= last);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
