//! Files that stay open between two uses of a name.

use rustix::fs::{FlockOperation, flock};

use super::super::kept_files::FILES_MAX;
use super::*;
use crate::store::InheritableFds;
use leasehold_conformance::support::within_timeout;

/// Deletes the files of the name `a`, as another process does when it frees the name.
fn delete_files(test_folder: &TestFolder) {
    for file in ["a.queue", "a.lock"] {
        fs::remove_file(test_folder.folder.path().join(file)).expect("deleted");
    }
}

/// The open files of this process whose names end like this, in the folder of the test.
fn open_files(test_folder: &TestFolder, ending: &str) -> usize {
    let is_file = |target: &Path| {
        target.starts_with(test_folder.folder.path()) && target.to_string_lossy().ends_with(ending)
    };
    fs::read_dir("/proc/self/fd")
        .expect("listed")
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| is_file(target))
        .count()
}

/// Shows G-01, G-21.
#[tokio::test]
async fn kept_files_that_were_replaced_are_not_used() {
    let test_folder = TestFolder::new();
    let first = test_folder.boot(THIS);
    let second = test_folder.boot(THIS);
    let before = grant(&first).await;
    delete_files(&test_folder);

    let held = second.mutex("a").acquire().await.expect("granted");
    let refused = first.mutex("a").try_acquire().await.expect("read");
    assert!(refused.is_err(), "two holds at once");
    assert!(held.token().get() > before);

    held.release().await.expect("released");
    assert!(grant(&first).await > before);

    delete_files(&test_folder);
    let lock_file = test_folder.folder.path().join("a.lock");
    let outsider = fs::File::create(lock_file).expect("created");
    outsider.lock().expect("the lock is free");
    let refused = first.mutex("a").try_acquire().await.expect("read");
    assert!(refused.is_err(), "a hold beside flock(1)");
}

/// A renamed file keeps a name, so only its path shows that it is not the file of the lock any more.
#[tokio::test]
async fn renamed_file_is_noticed() {
    let test_folder = TestFolder::new();
    let locks = test_folder.boot(THIS);
    grant(&locks).await;
    let at = |file: &str| test_folder.folder.path().join(file);
    for file in ["a.queue", "a.lock"] {
        fs::rename(at(file), at("renamed").with_extension(file)).expect("renamed");
    }

    let noticed = async {
        while !at("a.queue").exists() || !at("a.lock").exists() {
            let guard = locks.mutex("a").acquire().await.expect("granted");
            // A release that notices the rename finds no entry.
            if let Err(error) = guard.release().await {
                assert!(error.is_lost(), "{error}");
            }
        }
    };
    within_timeout("new files are made", noticed).await;
}

/// An open file has one flock(2), which all processes that inherited the file share.
#[tokio::test]
async fn later_hold_does_not_use_a_lock_file_that_a_process_inherited() {
    let test_folder = TestFolder::new();
    let store = test_folder.store();
    let claim = claim();
    store
        .enter(&claim, OnContention::Queue)
        .await
        .expect("granted");
    let inherited = store.inheritable_fds(&claim).expect("duplicated");
    assert!(store.leave(&claim).await.expect("released"));

    let later = super::claim();
    store
        .enter(&later, OnContention::Queue)
        .await
        .expect("granted");
    for file in &inherited {
        // One of them is the inbox of the process, which no process locks.
        flock(file, FlockOperation::Unlock).expect("unlocked");
    }

    let outsider = fs::File::open(test_folder.folder.path().join("a.lock")).expect("opened");
    assert!(
        outsider.try_lock().is_err(),
        "the later hold has lost its flock(2)"
    );
}

#[tokio::test]
async fn files_of_the_names_used_last_stay_open() {
    let test_folder = TestFolder::new();
    let locks = test_folder.boot(THIS);
    for number in 0..2 * FILES_MAX {
        let name = format!("name-{number}");
        let guard = locks.mutex(name.as_str()).acquire().await.expect("granted");
        guard.release().await.expect("released");
    }

    assert_eq!(open_files(&test_folder, ".queue"), FILES_MAX);
    assert_eq!(open_files(&test_folder, ".lock"), FILES_MAX);
    assert_eq!(open_files(&test_folder, "/name-0.queue"), 0);
}

#[tokio::test]
async fn inspection_leaves_the_kept_file_open() {
    let test_folder = TestFolder::new();
    let locks = test_folder.boot(THIS);
    grant(&locks).await;

    locks.inspect("a").await.expect("inspected");
    assert_eq!(open_files(&test_folder, "/a.queue"), 1);
}

#[tokio::test]
async fn claims_at_the_same_time_keep_one_file_of_their_name() {
    let test_folder = TestFolder::new();
    let locks = test_folder.boot(THIS);
    let lock = locks.rwlock("a");
    let mut readers = Vec::new();
    for _ in 0..FILES_MAX / 2 {
        readers.push(lock.shared().acquire().await.expect("granted"));
    }
    assert!(open_files(&test_folder, "/a.lock") > 1);

    for reader in readers {
        reader.release().await.expect("released");
    }
    assert_eq!(open_files(&test_folder, "/a.lock"), 1);
    assert_eq!(open_files(&test_folder, "/a.queue"), 1);
}
