//! The records of jobs in a folder: power loss, and the removal of old ones.

use super::*;
use crate::store::Housekeeping;

async fn complete(locks: &Locks, id: &str) {
    let acquired = locks.once("a").id(id).acquire().await;
    let guard = acquired.expect("granted").expect("it is not done");
    guard.complete().await.expect("it is recorded");
}

async fn is_done(locks: &Locks, id: &str) -> bool {
    let acquired = locks.once("a").id(id).acquire().await;
    acquired.expect("granted").is_err()
}

/// Power loss tears the block that was being written, or takes it back.
#[tokio::test]
async fn torn_block_leaves_the_record_before() {
    let test_folder = TestFolder::new();
    let locks = test_folder.boot(THIS);
    let path = test_folder.folder.path().join("a.record");
    complete(&locks, "1").await;
    complete(&locks, "2").await;
    let whole = fs::read(&path).expect("it is read");
    complete(&locks, "3").await;
    let third = fs::read(&path).expect("it is read");
    let file = fs::File::options()
        .write(true)
        .open(&path)
        .expect("it opens");

    // The third completion is in the second block, as the first one was.
    for torn in [BLOCK, BLOCK + 20, BLOCK + 40] {
        file.write_all_at(b"\xff", torn).expect("written");
        assert!(
            is_done(&locks, "2").await && is_done(&locks, "1").await,
            "{torn}"
        );
        assert!(!is_done(&locks, "3").await, "{torn}");
        file.write_all_at(&third, 0).expect("written");
    }
    assert!(is_done(&locks, "3").await);
    file.write_all_at(&whole, 0).expect("written");
    complete(&locks, "3").await;
    assert!(is_done(&locks, "3").await);

    // The first block of a new file is torn: nothing was completed.
    file.set_len(0).expect("emptied");
    file.write_all_at(&whole[..20], 0).expect("written");
    assert!(!is_done(&locks, "1").await);
    file.write_all_at(b"a file of another program", 0)
        .expect("written");
    let error = locks.record("a").await.expect_err("it is foreign");
    assert!(error.is_damaged(), "{error}");
}

/// A block of a later version is no torn block: the other block lacks what it may have completed.
///
/// Shows G-58.
#[tokio::test]
async fn block_of_a_later_version_is_refused() {
    let test_folder = TestFolder::new();
    let locks = test_folder.boot(THIS);
    let path = test_folder.folder.path().join("a.record");
    for (id, block) in [("1", BLOCK), ("2", 0)] {
        complete(&locks, id).await;
        let before = fs::read(&path).expect("it is read");
        let file = fs::File::options()
            .write(true)
            .open(&path)
            .expect("it opens");
        // The version follows the eight bytes that mark a block.
        file.write_all_at(&[2], block + 8).expect("written");
        let tried = locks.once("a").id(id).try_acquire().await;
        for error in [
            locks.record("a").await.expect_err("it is not read"),
            tried.expect_err("it is not read"),
        ] {
            assert!(error.is_unsupported(), "{error}");
            assert!(error.to_string().contains("\"v2\""), "{error}");
        }
        file.write_all_at(&before, 0).expect("written");
        assert!(is_done(&locks, id).await);
    }
}

/// A record is removed after its time, and not while it is used.
#[tokio::test]
async fn old_records_are_removed() {
    let test_folder = TestFolder::new();
    let store = Arc::new(test_folder.store());
    let locks = Locks::from_arc(Arc::clone(&store) as Arc<dyn Store>, "file:").expect("it runs");
    let path = test_folder.folder.path().join("a.record");
    complete(&locks, "1").await;
    store.remove_unused().await.expect("removed");
    assert!(path.exists(), "it is new");

    let file = fs::File::options()
        .write(true)
        .open(&path)
        .expect("it opens");
    let old = SystemTime::now() - Duration::from_secs(48 * 3600);
    let times = fs::FileTimes::new().set_accessed(old).set_modified(old);
    file.set_times(times).expect("set");
    assert!(is_done(&locks, "1").await, "this is a use");
    store.remove_unused().await.expect("removed");
    assert!(path.exists(), "it was used");

    file.set_times(times).expect("set");
    let guard = locks.mutex("a").acquire().await.expect("granted");
    store.remove_unused().await.expect("removed");
    assert!(path.exists(), "a claim may add to it");
    guard.release().await.expect("released");
    store.remove_unused().await.expect("removed");
    assert!(!path.exists());
    assert!(!is_done(&locks, "1").await);
}

const BLOCK: u64 = 32 * 1024;
