//! Which folders and files are accepted, and what remains in a folder.

use super::*;
use crate::store::draw_claim_id;

#[tokio::test]
async fn links_and_devices_are_refused() {
    for ending in ["lock", "queue"] {
        let test_folder = TestFolder::new();
        let path = test_folder.folder.path().join(format!("a.{ending}"));
        let elsewhere = test_folder.folder.path().join("elsewhere");
        fs::write(&elsewhere, "").expect("written");

        symlink("/dev/null", &path).expect("linked");
        assert!(refusal(&test_folder).await.is_damaged(), "a link");
        assert!(inspection_fails(&test_folder).await, "a link");
        fs::remove_file(&path).expect("removed");
        fs::hard_link(&elsewhere, &path).expect("linked");
        assert!(refusal(&test_folder).await.is_damaged(), "a hard link");
        fs::remove_file(&path).expect("removed");
        make_fifo(&path);
        assert!(refusal(&test_folder).await.is_damaged(), "a FIFO");
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("created");
        assert!(refusal(&test_folder).await.is_damaged(), "a folder");
        assert!(inspection_fails(&test_folder).await, "a folder");

        assert_eq!(fs::read(&elsewhere).expect("there"), b"");
    }
}

async fn refusal(test_folder: &TestFolder) -> crate::Error {
    let acquired = test_folder.boot(THIS).mutex("a").acquire().await;
    acquired.expect_err("refused")
}

async fn inspection_fails(test_folder: &TestFolder) -> bool {
    let inspected = test_folder.boot(THIS).inspect("a").await;
    inspected.is_err_and(|error| error.is_damaged())
}

fn make_fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).expect("created");
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
async fn no_descriptor_and_no_process_remains() {
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
                .is_err()
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
    assert_eq!(left, [".counter", ".members", "a.lock", "a.queue"]);
    assert_eq!(
        fs::read_dir(test_folder.folder.path().join(".members"))
            .expect("listed")
            .count(),
        0
    );
}

/// A message must not change a file that another user linked into the folder of FIFOs.
#[test]
fn regular_file_in_place_of_an_inbox_is_not_a_process() {
    let test_folder = TestFolder::new();
    let folder = test_folder.opened();
    let id = ProcessId::from_bytes([7; 16]);
    let path = test_folder.folder.path().join(format!(".members/{id}"));
    fs::write(&path, "text").expect("written");

    let peer = Peer::open(&folder, id).expect("the store replies");
    assert!(peer.is_none());
}

/// A FIFO with a second name may be one of another program. A message to it could be a command.
///
/// Shows G-22.
#[tokio::test]
async fn linked_fifo_gets_no_message_and_its_process_counts_as_alive() {
    let test_folder = TestFolder::new();
    let locks = test_folder.boot(THIS);
    let held = locks.mutex("a").acquire().await.expect("granted");
    let fifo = own_fifo(&test_folder);
    fs::hard_link(&fifo, test_folder.folder.path().join("second")).expect("linked");

    let folder = test_folder.opened();
    let file_name = fifo
        .file_name()
        .and_then(std::ffi::OsStr::to_str)
        .expect("an id");
    let id = u128::from_str_radix(file_name, 16)
        .expect("an id")
        .to_be_bytes();
    let error = Peer::open(&folder, ProcessId::from_bytes(id)).expect_err("refused");
    assert!(error.is_damaged(), "{error}");

    let other = test_folder.boot(THIS);
    let tried = other.mutex("a").try_acquire().await;
    assert!(tried.expect("the store replies").is_err());
    let seen = other.inspect("a").await.expect("inspected");
    assert_eq!(seen.holders().count(), 1);
    held.release().await.expect("released");
}

/// Another user replaced the FIFO of a holder by one that they have open. The holder is notified of
/// the loss, and its process continues with a new FIFO. The FIFO of the other user stays.
///
/// Shows G-22.
#[tokio::test]
async fn replaced_fifo_ends_holds_and_is_not_removed() {
    let test_folder = TestFolder::new();
    let locks = test_folder.boot(THIS);
    let lock = locks.mutex("a").lease(Duration::from_millis(150));
    let held = lock.acquire().await.expect("granted");

    // Without a reader it would be that of a process that has ended.
    let fifo = own_fifo(&test_folder);
    let other = test_folder.folder.path().join("other");
    make_fifo(&other);
    let reader = fs::File::options().read(true).write(true).open(&other);
    let _reader = reader.expect("opened");
    fs::rename(&other, &fifo).expect("replaced");

    let lost = tokio::time::timeout(Duration::from_secs(20), held.lost()).await;
    assert_eq!(lost.expect("notified"), crate::LossReason::Revoked);
    drop(held);
    let _again = lock.acquire().await.expect("granted again");
    assert!(fifo.exists());
}

/// The FIFO of the only process.
fn own_fifo(test_folder: &TestFolder) -> PathBuf {
    let members = test_folder.folder.path().join(".members");
    let mut fifos = fs::read_dir(members).expect("listed");
    fifos.next().expect("one process").expect("listed").path()
}

/// On a file system that cannot rename without replacing, a process was killed between the two
/// steps that name a file.
#[tokio::test]
async fn file_that_a_killed_process_was_naming_is_usable() {
    let test_folder = TestFolder::new();
    drop(test_folder.store());
    let id = draw_claim_id();
    let pending = format!(".members/new-{id}");
    fs::write(test_folder.queue(), "").expect("written");
    fs::hard_link(
        test_folder.queue(),
        test_folder.folder.path().join(&pending),
    )
    .expect("linked");

    grant(&test_folder.boot(THIS)).await;
    assert!(!test_folder.folder.path().join(&pending).exists());
}
