//! Files that were deleted or replaced while somebody waited for them, and children that inherit.

use std::process::{Command, Stdio};

use super::*;

/// So long is waited for what must not happen.
const WHILE: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(20);

/// A stranger's lock file is replaced by another, which somebody else has locked: to lock the first is worth nothing.
#[tokio::test]
async fn replaced_lock_file_is_locked_again() {
    let folder = TestFolder::new();
    let (locks, path) = (folder.boot(THIS), folder.folder.path().join("a.lock"));
    let locked = || {
        let outsider = fs::File::create(&path).expect("made");
        outsider.lock().expect("it is free");
        outsider
    };
    let first = locked();
    let lock = locks.mutex("a");
    let mut acquiring = Box::pin(lock.acquire());
    tokio::time::timeout(WHILE, &mut acquiring)
        .await
        .expect_err("the first stranger has it");
    fs::remove_file(&path).expect("removed");
    let second = locked();
    first.unlock().expect("it was locked");
    tokio::time::timeout(WHILE, &mut acquiring)
        .await
        .expect_err("the second stranger has it");
    second.unlock().expect("it was locked");
    let held = tokio::time::timeout(PATIENCE, acquiring)
        .await
        .expect("it is free")
        .expect("granted");
    held.release().await.expect("released");
}

/// A line file that was deleted while its lock was waited for is nobody's line any more.
#[tokio::test]
async fn replaced_queue_file_is_not_edited() {
    let folder = TestFolder::new();
    let locks = folder.boot(THIS);
    grant(&locks).await;
    let editor = fs::File::open(folder.queue()).expect("there is a line file");
    editor.lock().expect("it is free");
    let lock = locks.mutex("a");
    let mut acquiring = Box::pin(lock.acquire());
    tokio::time::timeout(WHILE, &mut acquiring)
        .await
        .expect_err("it is being edited");
    fs::remove_file(folder.queue()).expect("removed");
    editor.unlock().expect("it was locked");
    let held = tokio::time::timeout(PATIENCE, acquiring)
        .await
        .expect("it goes on")
        .expect("granted");
    assert_eq!(
        folder
            .boot(THIS)
            .inspect("a")
            .await
            .expect("looked")
            .holders()
            .count(),
        1
    );
    held.release().await.expect("released");
}

/// A child that outlives its parent would keep the lock.
#[tokio::test]
async fn child_process_does_not_inherit_the_lock() {
    let folder = TestFolder::new();
    let locks = folder.boot(THIS);
    let held = locks.mutex("a").acquire().await.expect("granted");
    let mut child = Command::new("sleep")
        .arg("60")
        .stdin(Stdio::null())
        .spawn()
        .expect("it runs");
    let open = fs::read_dir(format!("/proc/{}/fd", child.id())).expect("it lives");
    let open = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let inherited: Vec<PathBuf> = open
        .filter(|path| path.starts_with(folder.folder.path()))
        .collect();
    child.kill().expect("it lived");
    child.wait().expect("it has ended");
    assert!(inherited.is_empty(), "{inherited:?}");
    held.release().await.expect("released");
}

/// Another process owns the parent folder. It puts a link to a folder of ours where the store is about to be made, at
/// every moment of the making.
#[test]
fn link_put_in_place_of_missing_folder_changes_no_mode() {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    const ATTEMPTS: usize = 3000;
    let folder = TestFolder::new();
    let (target, path) = (
        folder.folder.path().join("target"),
        folder.folder.path().join("locks"),
    );
    fs::create_dir(&target).expect("made");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o755)).expect("ours");

    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                symlink(&target, &path).ok();
                fs::remove_file(&path).ok();
            }
        });
        for _ in 0..ATTEMPTS {
            // It finds the link, makes a folder, or refuses what it finds.
            Folder::open(&path, Locality::Known).ok();
            fs::remove_dir(path.join(".members")).ok();
            fs::remove_dir(&path).ok();
        }
        done.store(true, Ordering::Relaxed);
    });
    let mode = fs::metadata(&target)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o755, "the mode of the link's target");
}

/// A folder is moved away while a process waits in it, and another is made in its place.
#[tokio::test]
async fn waiter_of_moved_folder_is_not_granted_beside_holder_of_new_one() {
    let folder = TestFolder::new();
    let path = folder.folder.path().join("locks");
    let open = || {
        let store = File::of_boot(&path, THIS).expect("the folder opens");
        Locks::from_arc(Arc::new(store), "file:").expect("the background thread runs")
    };
    let (first, second) = (open(), open());
    let held = first.mutex("a").acquire().await.expect("granted");
    let lock = second.mutex("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    while second.inspect("a").await.expect("looked").waiters().count() == 0 {
        tokio::task::yield_now().await;
    }

    fs::rename(&path, folder.folder.path().join("moved")).expect("moved");
    let third = open();
    let held_anew = third
        .mutex("a")
        .acquire()
        .await
        .expect("a new folder knows of no holder");
    held.release().await.expect("released");
    while third.inspect("a").await.expect("looked").waiters().count() == 0 {
        assert!(!waiting.is_finished(), "granted in the moved folder");
        tokio::task::yield_now().await;
    }
    held_anew.check().expect("held");
    held_anew.release().await.expect("released");
    let granted = tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("it is its turn")
        .expect("it runs");
    granted.expect("granted").release().await.expect("released");
}
