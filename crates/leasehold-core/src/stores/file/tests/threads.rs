//! Files that were deleted or replaced during a wait, child processes that inherit descriptors, and
//! a process that cannot start a thread.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;
use leasehold_conformance::support::within_timeout;

/// Tells a test that runs again in a process of its own where its files are.
const FOLDER: &str = "LEASEHOLD_TEST_FOLDER";

/// How long a test watches for an event that must not happen.
const WATCHED: Duration = Duration::from_millis(300);

/// How long a test waits for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// The lock file that an external process has locked is replaced by another locked file. A lock on
/// the first file excludes no other process.
#[tokio::test]
async fn replaced_lock_file_is_locked_again() {
    let folder = TestFolder::new();
    let locks = folder.boot(THIS);
    let path = folder.folder.path().join("a.lock");
    let locked = || {
        let outsider = fs::File::create(&path).expect("created");
        outsider.lock().expect("the lock is free");
        outsider
    };
    let first = locked();
    let lock = locks.mutex("a");
    let mut acquiring = Box::pin(lock.acquire());
    tokio::time::timeout(WATCHED, &mut acquiring)
        .await
        .expect_err("the first external process has it");
    fs::remove_file(&path).expect("removed");
    let second = locked();
    first.unlock().expect("it was locked");
    tokio::time::timeout(WATCHED, &mut acquiring)
        .await
        .expect_err("the second external process has it");
    second.unlock().expect("it was locked");
    let held = tokio::time::timeout(PATIENCE, acquiring)
        .await
        .expect("the lock is free")
        .expect("granted");
    held.release().await.expect("released");
}

/// A queue file that was deleted while a client waited for its lock is not edited.
#[tokio::test]
async fn replaced_queue_file_is_not_edited() {
    let folder = TestFolder::new();
    let locks = folder.boot(THIS);
    grant(&locks).await;
    let editor = fs::File::open(folder.queue()).expect("there is a queue file");
    editor.lock().expect("the lock is free");
    let lock = locks.mutex("a");
    let mut acquiring = Box::pin(lock.acquire());
    tokio::time::timeout(WATCHED, &mut acquiring)
        .await
        .expect_err("another process edits it");
    fs::remove_file(folder.queue()).expect("removed");
    editor.unlock().expect("it was locked");
    let held = tokio::time::timeout(PATIENCE, acquiring)
        .await
        .expect("the new file is edited")
        .expect("granted");
    assert_eq!(
        folder
            .boot(THIS)
            .inspect("a")
            .await
            .expect("inspected")
            .holders()
            .count(),
        1
    );
    held.release().await.expect("released");
}

/// If a child process inherited the lock file, it would keep the lock after the end of its parent.
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

/// Another process may change the parent folder. While the store is being made, that process
/// repeatedly puts a link to a folder of this user at the path of the store.
///
/// Shows G-22.
#[test]
fn link_put_in_place_of_missing_folder_changes_no_mode() {
    use std::sync::atomic::{AtomicBool, Ordering};

    const ATTEMPTS: usize = 3000;
    let folder = TestFolder::new();
    let target = folder.folder.path().join("target");
    let path = folder.folder.path().join("locks");
    fs::create_dir(&target).expect("created");
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
            // This finds the link, makes a folder, or refuses the entry that it finds.
            Folder::open(&path, Locality::Known, None).ok();
            fs::remove_dir(path.join(".members")).ok();
            fs::remove_dir(&path).ok();
        }
        done.store(true, Ordering::Relaxed);
    });
    let mode = fs::metadata(&target)
        .expect("the folder exists")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o755, "the mode of the link's target");
}

/// A folder is moved away while a process waits in it, and another folder is made in its place.
///
/// Shows G-01.
#[tokio::test]
async fn waiter_of_moved_folder_is_not_granted_beside_holder_of_new_one() {
    let folder = TestFolder::new();
    let path = folder.folder.path().join("locks");
    let open = || {
        let store = File::of_boot(&path, THIS).expect("the folder opens");
        Locks::from_arc(Arc::new(store), "file:").expect("the background thread runs")
    };
    let first = open();
    let second = open();
    let held = first.mutex("a").acquire().await.expect("granted");
    let lock = second.mutex("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    while second
        .inspect("a")
        .await
        .expect("inspected")
        .waiters()
        .count()
        == 0
    {
        tokio::task::yield_now().await;
    }

    fs::rename(&path, folder.folder.path().join("moved")).expect("moved");
    let third = open();
    let held_again = third
        .mutex("a")
        .acquire()
        .await
        .expect("the new folder has no holder");
    held.release().await.expect("released");
    while third
        .inspect("a")
        .await
        .expect("inspected")
        .waiters()
        .count()
        == 0
    {
        assert!(!waiting.is_finished(), "granted in the moved folder");
        tokio::task::yield_now().await;
    }
    held_again.check().expect("held");
    held_again.release().await.expect("released");
    let granted = tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("the waiter is next")
        .expect("it runs");
    granted.expect("granted").release().await.expect("released");
}

/// The kernel limits the threads of all users but root, so this runs again as another user.
///
/// Shows G-10.
#[test]
fn acquire_without_a_thread_is_an_error_and_grants_nothing_later() {
    const USER: [&str; 3] = ["--reuid=54410", "--regid=54410", "--clear-groups"];
    if let Some(folder) = std::env::var_os(FOLDER) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let acquiring = acquire_without_a_thread(Path::new(&folder));
        return runtime.expect("a runtime").block_on(acquiring);
    }

    let test_folder = TestFolder::new();
    let folder = test_folder.folder.path();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).expect("ours");
    let this = std::thread::current().name().expect("a test").to_owned();
    let done = Command::new("setpriv")
        .args(USER)
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", &this, "--nocapture"])
        .env(FOLDER, folder.join("locks"))
        .output()
        .expect("it runs");
    assert!(done.status.success(), "{done:?}");
}

async fn acquire_without_a_thread(path: &Path) {
    let open = || {
        let store = File::of_boot(path, THIS).expect("the folder opens");
        Locks::from_arc(Arc::new(store), "file:").expect("the background thread runs")
    };
    let ours = open();
    let theirs = open();

    let limit = getrlimit(Resource::Nproc);
    let none = Rlimit {
        current: Some(1),
        ..limit
    };
    setrlimit(Resource::Nproc, none).expect("it can be lowered");
    let failed = ours.mutex("a").acquire().await;
    setrlimit(Resource::Nproc, limit).expect("it can be raised again");

    let error = failed.expect_err("no thread waits for the disk");
    assert!(error.is_unavailable(), "{error}");
    assert!(error.to_string().contains("ulimit -u"), "{error}");
    drop(ours.mutex("b").acquire().await.expect("granted"));
    let other = theirs.mutex("a").try_acquire().await.expect("it replies");
    drop(other.expect("nobody has the lock"));
}

/// A process may change its limit on the size of files at any time.
#[test]
fn size_limit_that_changes_is_an_error_and_tears_no_entry() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let changing = acquire_under_changing_limits(Path::new(&folder));
        return runtime.expect("a runtime").block_on(changing);
    }

    let folder = tempfile::tempdir().expect("a temporary folder");
    let this =
        "stores::file::tests::threads::size_limit_that_changes_is_an_error_and_tears_no_entry";
    let done = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", this, "--nocapture"])
        .env(FOLDER, folder.path())
        .output()
        .expect("it runs");
    assert!(done.status.success(), "{done:?}");
}

async fn acquire_under_changing_limits(path: &Path) {
    let store = File::of_boot(path, THIS).expect("the folder opens");
    let locks = Locks::from_arc(Arc::new(store), "file:").expect("the background thread runs");
    grant(&locks).await;
    let limit = getrlimit(Resource::Fsize);

    // In the middle of the only entry.
    let lower = Rlimit {
        current: Some(1_100),
        ..limit
    };
    setrlimit(Resource::Fsize, lower).expect("it can be lowered");
    let failed = locks.mutex("a").try_acquire().await;
    let error = failed.expect_err("the entry does not fit");
    assert!(error.to_string().contains("LimitFSIZE="), "{error}");

    setrlimit(Resource::Fsize, limit).expect("it can be raised again");
    let granted = async {
        while let Err(error) = locks.mutex("a").try_acquire().await {
            assert!(error.to_string().contains("LimitFSIZE="), "{error}");
        }
    };
    within_timeout("the higher limit is noticed", granted).await;
}
