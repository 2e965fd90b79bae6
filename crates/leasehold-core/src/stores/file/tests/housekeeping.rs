//! The removal of the files of free names, beside arrivals and flock(1).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::store::Housekeeping;

/// How long a test waits for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store that removes the files of free names, as every store outside these tests does.
fn tidy_store(test_folder: &TestFolder, boot: Boot) -> Arc<File> {
    let folder = Folder::open(test_folder.folder.path(), Locality::Known, None).expect("it opens");
    Arc::new(File::open(folder, boot, Duration::from_secs(60)).expect("the folder opens"))
}

fn locks_of(store: Arc<File>) -> Locks {
    Locks::from_arc(store, "file:").expect("the background thread runs")
}

fn files(test_folder: &TestFolder) -> Vec<String> {
    let entries = fs::read_dir(test_folder.folder.path()).expect("listed");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("listed")
                .file_name()
                .into_string()
                .expect("ASCII")
        })
        .collect();
    names.sort_unstable();
    names
}

async fn use_once(locks: &Locks, name: &str) -> u64 {
    let guard = locks.mutex(name).acquire().await.expect("granted");
    let token = guard.token().get();
    guard.release().await.expect("released");
    token
}

/// Shows G-22.
#[tokio::test]
async fn ten_thousand_names_leave_no_file() {
    let test_folder = TestFolder::new();
    let locks = locks_of(tidy_store(&test_folder, THIS));
    for number in 0..10_000 {
        use_once(&locks, &format!("orders/{number}")).await;
    }

    drop(locks);
    assert_eq!(files(&test_folder), [".counter", ".members"]);
}

/// The store stays open. A background task removes the files.
#[tokio::test]
async fn files_of_idle_names_are_removed_while_the_store_is_open() {
    let test_folder = TestFolder::new();
    let locks = locks_of(tidy_store(&test_folder, THIS));
    let long = "n".repeat(Name::LEN_MAX);
    let held = locks.mutex("held").acquire().await.expect("granted");
    use_once(&locks, "a").await;
    use_once(&locks, &long).await;

    let removed = async {
        while files(&test_folder) != [".counter", ".members", "held.lock", "held.queue"] {
            tokio::task::yield_now().await;
        }
    };
    let left = tokio::time::timeout(PATIENCE, removed).await;
    left.unwrap_or_else(|_| panic!("{:?} are left", files(&test_folder)));
    held.check().expect("held");
}

/// Raises the folder's counter to an hour ahead of the clock, as many reboots or a clock that was
/// set back would do. A counter that began at the clock again would then repeat tokens.
fn raise_above_clock(test_folder: &TestFolder) {
    const HOUR: u64 = 3_600_000_000;
    folder_counter::raise(&test_folder.opened(), THIS, wall_clock_micros() + HOUR).expect("raised");
}

/// Shows G-04.
#[tokio::test]
async fn tokens_increase_over_removed_files_and_reboots() {
    let test_folder = TestFolder::new();
    raise_above_clock(&test_folder);

    let mut last = wall_clock_micros();
    for boot in [THIS, THIS, NEXT, NEXT, THIS] {
        let locks = locks_of(tidy_store(&test_folder, boot));
        for _ in 0..3 {
            let next = use_once(&locks, "a").await;
            assert!(next > last, "{next} after {last}");
            last = next;
        }

        drop(locks);
        assert_eq!(files(&test_folder), [".counter", ".members"]);
    }
}

/// The counter of the folder was deleted while a name kept its own counter.
///
/// Shows G-04.
#[tokio::test]
async fn deleted_folder_counter_is_raised_before_removal() {
    let test_folder = TestFolder::new();
    raise_above_clock(&test_folder);
    let last = grant(&test_folder.boot(THIS)).await;
    fs::remove_file(test_folder.folder.path().join(".counter")).expect("removed");

    let locks = locks_of(tidy_store(&test_folder, THIS));
    let next = use_once(&locks, "a").await;
    drop(locks);
    assert_eq!(files(&test_folder), [".counter", ".members"]);

    let locks = locks_of(tidy_store(&test_folder, THIS));
    assert!(next > last && use_once(&locks, "a").await > next);
}

#[tokio::test]
async fn files_of_crashed_processes_are_removed_on_request() {
    let test_folder = TestFolder::new();
    let crashed = test_folder.store();
    crashed
        .enter(&claim(), OnContention::Queue)
        .await
        .expect("entered");
    drop(crashed);
    fs::write(test_folder.folder.path().join("b.lock"), lock_file::CONTENT).expect("written");

    let store = tidy_store(&test_folder, THIS);
    let locks = locks_of(Arc::clone(&store));
    let held = locks.mutex("held").acquire().await.expect("granted");
    fs::write(test_folder.folder.path().join("damaged.queue"), "text").expect("written");
    let cleanup = store.remove_unused().await.expect("the store replies");

    assert_eq!((cleanup.removed, cleanup.in_use), (2, 1));
    assert_eq!(cleanup.skipped.len(), 1, "{:?}", cleanup.skipped);
    assert_eq!(
        files(&test_folder),
        [
            ".counter",
            ".members",
            "damaged.queue",
            "held.lock",
            "held.queue"
        ]
    );
    held.check().expect("held");
}

/// The files are removed between the rounds of three stores that take one lock in turn. The stores
/// arrive again at the moment of a removal.
///
/// Shows G-22.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn removal_beside_arrivals_grants_to_one_holder_with_rising_tokens() {
    const CLIENTS: usize = 3;
    const ROUNDS: usize = 60;

    let test_folder = TestFolder::new();
    let highest = Arc::new(AtomicU64::new(0));
    let is_held = Arc::new(AtomicBool::new(false));
    let is_done = Arc::new(AtomicBool::new(false));
    let removals = Arc::new(AtomicU64::new(0));

    let remover = tidy_store(&test_folder, THIS);
    let remover_thread = std::thread::spawn({
        let is_done = Arc::clone(&is_done);
        let removals = Arc::clone(&removals);
        move || {
            while !is_done.load(Ordering::SeqCst) {
                let cleanup = crate::stores::file::housekeeping::remove_unused(&remover.shared)
                    .expect("the folder is listed");
                assert!(cleanup.skipped.is_empty(), "{:?}", cleanup.skipped);
                removals.fetch_add(cleanup.removed, Ordering::SeqCst);
            }
        }
    });

    let clients = (0..CLIENTS).map(|_| {
        // These stores keep the files, so only the counted removals happen.
        let locks = locks_of(Arc::new(test_folder.store()));
        let highest = Arc::clone(&highest);
        let is_held = Arc::clone(&is_held);
        let removals = Arc::clone(&removals);
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let removals_before = removals.load(Ordering::SeqCst);
                let guard = locks.mutex("a").acquire().await.expect("granted");
                assert!(!is_held.swap(true, Ordering::SeqCst), "two holders");
                let token = guard.token().get();
                assert!(highest.swap(token, Ordering::SeqCst) < token);
                is_held.store(false, Ordering::SeqCst);
                guard.release().await.expect("released");

                while removals.load(Ordering::SeqCst) == removals_before {
                    tokio::task::yield_now().await;
                }
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("no panic");
    }

    is_done.store(true, Ordering::SeqCst);
    remover_thread.join().expect("no panic");
}

/// flock(1) waits on the file that leasehold holds. It must not get a file that is not there.
///
/// Shows G-22.
#[tokio::test]
async fn lock_file_with_external_waiter_is_kept() {
    let test_folder = TestFolder::new();
    let locks = locks_of(tidy_store(&test_folder, THIS));
    let path = test_folder.folder.path().join("a.lock");
    let held = locks.mutex("a").acquire().await.expect("granted");

    let outsider = fs::File::open(&path).expect("leasehold made it");
    let inode = std::os::unix::fs::MetadataExt::ino(&outsider.metadata().expect("inspected"));
    let waiting = std::thread::spawn(move || outsider.lock().map(|()| outsider));
    let is_waiting = || {
        let table = fs::read_to_string("/proc/locks").expect("readable");
        table
            .lines()
            .any(|line| line.contains("->") && line.contains(&format!(":{inode} ")))
    };
    while !is_waiting() {
        tokio::task::yield_now().await;
    }

    held.release().await.expect("released");
    let outsider = waiting.join().expect("no panic").expect("locked");
    drop(locks);
    let locks = locks_of(tidy_store(&test_folder, THIS));
    let refused = locks
        .mutex("a")
        .try_acquire()
        .await
        .expect("the store replies");
    assert!(refused.is_err(), "two holders");

    drop(outsider);
    use_once(&locks, "a").await;
    drop(locks);
    assert_eq!(
        files(&test_folder),
        [".counter", ".members", "a.lock"],
        "it stays"
    );
}

/// Shows G-22.
#[tokio::test]
async fn lock_file_that_another_program_made_is_kept() {
    let test_folder = TestFolder::new();
    let locks = locks_of(tidy_store(&test_folder, THIS));
    fs::write(test_folder.folder.path().join("a.lock"), "").expect("written");
    use_once(&locks, "a").await;

    drop(locks);
    assert_eq!(files(&test_folder), [".counter", ".members", "a.lock"]);
}

/// The removal takes the lock of the queue, and makes its file for that.
///
/// Shows G-22.
#[tokio::test]
async fn removal_of_a_record_leaves_no_file() {
    let test_folder = TestFolder::new();
    let store = tidy_store(&test_folder, THIS);
    let locks = locks_of(Arc::clone(&store));
    let acquired = locks.once("a").id("1").acquire().await;
    let job = acquired.expect("granted").expect("it is not done");
    job.complete().await.expect("it is recorded");
    drop((locks, store));
    assert_eq!(files(&test_folder), [".counter", ".members", "a.record"]);

    let record = fs::File::options()
        .write(true)
        .open(test_folder.folder.path().join("a.record"))
        .expect("it opens");
    let old = SystemTime::now() - Duration::from_secs(48 * 3600);
    let times = fs::FileTimes::new().set_accessed(old).set_modified(old);
    record.set_times(times).expect("set");
    let store = tidy_store(&test_folder, THIS);
    store.remove_unused().await.expect("removed");
    drop(store);
    assert_eq!(files(&test_folder), [".counter", ".members"]);
}

/// A program may exit as soon as it has closed the store, so nothing may be left for the background
/// thread. Meanwhile other locks come and go in the kernel's list.
#[tokio::test]
async fn closed_store_has_removed_the_files_of_its_last_lock() {
    let test_folder = TestFolder::new();
    let stop = Arc::new(AtomicBool::new(false));
    let churn: Vec<_> = (0..3)
        .map(|_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let file = tempfile::tempfile().expect("made");
                while !stop.load(Ordering::Relaxed) {
                    file.lock().and_then(|()| file.unlock()).expect("locked");
                }
            })
        })
        .collect();

    for round in 0..2_000 {
        let locks = locks_of(tidy_store(&test_folder, THIS));
        use_once(&locks, "a").await;
        drop(locks);

        let left = files(&test_folder);
        assert_eq!(left, [".counter", ".members"], "round {round}");
    }
    stop.store(true, Ordering::Relaxed);
    for thread in churn {
        thread.join().expect("no panic");
    }
}
