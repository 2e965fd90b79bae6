//! What only the inside can show: torn writes, other boots, outside hands.

mod hands;

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;

use proptest::prelude::*;

use super::fence::{FENCE_LEN, RESERVE};
use super::ticket::TICKET_LEN;
use super::*;
use crate::{Locks, Note, Share};

const BLOCK: u64 = FENCE_LEN as u64 / 2;
const THIS: Boot = [1; 16];
const NEXT: Boot = [2; 16];

struct Lab {
    folder: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    fn boot(&self, boot: Boot) -> Locks {
        let store = File::of_boot(self.folder.path(), boot).expect("the folder opens");
        Locks::over(Arc::new(store), "file:").expect("the background thread runs")
    }

    fn line(&self) -> PathBuf {
        self.folder.path().join("a.line")
    }

    fn overwrite(&self, at: u64, bytes: &[u8]) {
        let file = fs::OpenOptions::new().write(true).open(self.line()).expect("there is a line file");
        file.write_all_at(bytes, at).expect("it can be written");
    }
}

async fn grant(locks: &Locks) -> u64 {
    let guard = locks.mutex("a").try_acquire().await.expect("asked").expect("it is free");
    let token = guard.token().get();
    guard.release().await.expect("released");
    token
}

#[tokio::test]
async fn tokens_rise_over_a_torn_write_and_a_changed_boot() {
    for block in [0, BLOCK] {
        for grants in [1, 2, 3, RESERVE - 1, RESERVE, RESERVE + 1, 3 * RESERVE] {
            for boot in [THIS, NEXT] {
                let lab = Lab::new();
                let locks = lab.boot(THIS);
                let mut last = 0;
                for _ in 0..grants {
                    last = grant(&locks).await;
                }
                drop(locks);
                lab.overwrite(block + 20, &[0xAB; 7]);
                let locks = lab.boot(boot);
                let next = grant(&locks).await;
                assert!(next > last, "{next} after {last}: block at {block}, {grants} grants");
                assert!(grant(&locks).await > next);
            }
        }
    }
}

#[tokio::test]
async fn tokens_rise_over_every_boot_and_over_a_deleted_folder() {
    let lab = Lab::new();
    let mut last = 0;
    for boot in 0..5 {
        let next = grant(&lab.boot([boot; 16])).await;
        assert!(next > last);
        last = next;
    }
    fs::remove_dir_all(lab.folder.path()).expect("it can be deleted");
    assert!(grant(&lab.boot(THIS)).await > last, "a new counter begins at the clock");
}

#[tokio::test]
async fn tickets_of_another_boot_are_their_members() {
    let lab = Lab::new();
    let (before, claim) = (File::of_boot(lab.folder.path(), THIS).expect("opens"), claim());
    before.enter(&claim, Patience::Queue).await.expect("entered").standing.token().expect("it was free");
    let after = lab.boot(NEXT);
    assert!(
        after.mutex("a").try_acquire().await.expect("asked").is_none(),
        "some containers have a boot id of their own"
    );
    drop(before);
    assert!(after.look("a").await.expect("looked").entries.is_empty());
    grant(&after).await;
    let line = after.look("a").await.expect("looked");
    assert!(line.entries.is_empty() && line.last.is_some());
}

/// The loss of power tears tickets, and takes their owners with it.
#[tokio::test]
async fn a_torn_ticket_of_another_boot_is_cleared() {
    let lab = Lab::new();
    grant(&lab.boot(THIS)).await;
    let (torn, cut) = ([1; TICKET_LEN], [1; 100]);
    lab.overwrite(FENCE_LEN as u64, &torn);
    lab.overwrite((FENCE_LEN + TICKET_LEN) as u64, &cut);
    assert!(lab.boot(THIS).mutex("a").try_acquire().await.expect_err("whose it is, is not known").is_damaged());
    for _ in 0..3 {
        grant(&lab.boot(NEXT)).await;
    }
}

#[tokio::test]
async fn a_torn_counter_is_refused_and_kept() {
    let lab = Lab::new();
    grant(&lab.boot(THIS)).await;
    lab.overwrite(20, &[0xAB; 7]);
    lab.overwrite(BLOCK + 20, &[0xAB; 7]);
    let torn = fs::read(lab.line()).expect("read");
    for boot in [THIS, NEXT] {
        let error = lab.boot(boot).mutex("a").acquire().await.expect_err("refused");
        assert!(error.is_damaged() && error.to_string().contains("remove"), "{error}");
    }
    assert_eq!(fs::read(lab.line()).expect("read"), torn);
}

#[tokio::test]
async fn a_foreign_file_is_refused_and_kept() {
    let lab = Lab::new();
    for foreign in ["#!/bin/sh\n".to_owned(), "x".repeat(5000), " ".to_owned()] {
        fs::write(lab.line(), &foreign).expect("written");
        let error = lab.boot(THIS).mutex("a").acquire().await.expect_err("refused");
        assert!(error.is_damaged() && error.to_string().contains("not a line file"), "{error}");
        assert_eq!(fs::read_to_string(lab.line()).expect("read"), foreign);
    }
}

#[tokio::test]
async fn a_later_version_is_refused() {
    let lab = Lab::new();
    grant(&lab.boot(THIS)).await;
    let mut bytes = fs::read(lab.line()).expect("read")[..64].to_vec();
    bytes[8] = 9;
    let crc = crc32fast::hash(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    lab.overwrite(0, &bytes);
    let error = lab.boot(THIS).mutex("a").acquire().await.expect_err("refused");
    assert!(error.is_unsupported() && error.to_string().contains("version 9"), "{error}");
}

#[tokio::test]
async fn a_torn_ticket_is_refused() {
    let lab = Lab::new();
    let locks = lab.boot(THIS);
    let _guard = locks.mutex("a").acquire().await.expect("granted");
    lab.overwrite(FENCE_LEN as u64 + 100, &[0xAB; 7]);
    let error = locks.mutex("a").try_acquire().await.expect_err("refused");
    assert!(error.is_damaged(), "{error}");
}

/// A file that ends anywhere, as a full disk or a lost page may leave it.
#[tokio::test]
async fn a_file_cut_short_is_read_or_refused() {
    let whole = {
        let lab = Lab::new();
        grant(&lab.boot(THIS)).await;
        fs::read(lab.line()).expect("read")
    };
    for len in (0..whole.len()).step_by(37).chain([FENCE_LEN, FENCE_LEN + TICKET_LEN]) {
        let lab = Lab::new();
        fs::write(lab.line(), &whole[..len.min(whole.len())]).expect("written");
        match lab.boot(NEXT).mutex("a").acquire().await {
            Ok(guard) => assert!(guard.token().get() > RESERVE),
            Err(error) => assert!(error.is_damaged(), "{len}: {error}"),
        }
    }
}

#[tokio::test]
async fn what_is_not_a_file_is_refused() {
    for ending in ["lock", "line"] {
        let lab = Lab::new();
        let path = lab.folder.path().join(format!("a.{ending}"));
        symlink("/dev/null", &path).expect("linked");
        assert!(lab.boot(THIS).mutex("a").acquire().await.expect_err("a link").is_damaged());
        fs::remove_file(&path).expect("removed");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .expect("made");
        assert!(lab.boot(THIS).mutex("a").acquire().await.expect_err("a FIFO").is_damaged());
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("made");
        lab.boot(THIS).mutex("a").acquire().await.expect_err("a folder");
    }
}

#[tokio::test]
async fn a_folder_must_be_a_local_one() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    assert!(File::at(file.path()).expect_err("not a folder").is_invalid());
    assert!(File::at_url_path("//elsewhere/locks").expect_err("another machine").is_invalid());
    let proc = File::at(Path::new("/proc/leasehold")).expect_err("nothing can be made there");
    assert!(proc.to_string().contains("/proc/leasehold"), "{proc}");
}

/// A cleaner of old files deleted this process's FIFO: the others take it for dead. The holder hears that it lost the
/// lock, and a waiter gets in line again.
#[tokio::test]
async fn a_deleted_fifo_is_noticed() {
    let lab = Lab::new();
    let (ours, theirs) = (lab.boot(THIS), lab.boot(THIS));
    let short = Duration::from_millis(150);
    let held = ours.mutex("a").lease(short).acquire().await.expect("granted");
    let lock = theirs.mutex("a").lease(short);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    while theirs.look("a").await.expect("looked").waiters().count() == 0 {
        tokio::task::yield_now().await;
    }
    for fifo in fs::read_dir(lab.folder.path().join(".members")).expect("listed") {
        fs::remove_file(fifo.expect("listed").path()).expect("removed");
    }
    let patience = Duration::from_secs(20);
    assert_eq!(tokio::time::timeout(patience, held.lost()).await.expect("it hears"), crate::Loss::Gone);
    drop(held);
    let next = tokio::time::timeout(patience, waiting).await.expect("it gets in again").expect("it runs");
    next.expect("granted").check().expect("held");
}

/// Whoever may be granted, but for a stranger's flock, sleeps until that is gone; he does not ring himself awake.
#[tokio::test]
async fn waiting_for_a_stranger_is_sleeping() {
    let lab = Lab::new();
    let (store, claim) = (File::of_boot(lab.folder.path(), THIS).expect("opens"), claim());
    let stranger = fs::File::create(lab.folder.path().join("a.lock")).expect("made");
    stranger.lock().expect("it is free");
    let seen = store.enter(&claim, Patience::Queue).await.expect("entered").standing;
    let (sender, polled) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut changed = background::within(store.changed(&claim, seen));
        let polled =
            std::pin::Pin::new(&mut changed).poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        sender.send(polled.is_pending()).expect("somebody listens");
    });
    assert_eq!(polled.recv_timeout(Duration::from_secs(20)), Ok(true), "it looks again and again");
}

/// A cleaner deleted the whole folder: whoever holds hears of it, and the same process can go on in a new one.
#[tokio::test]
async fn a_deleted_folder_is_noticed() {
    let lab = Lab::new();
    let locks = lab.boot(THIS);
    let held = locks.mutex("a").lease(Duration::from_millis(600)).acquire().await.expect("granted");
    fs::remove_dir_all(lab.folder.path()).expect("it can be deleted");
    let patience = Duration::from_secs(20);
    assert_eq!(tokio::time::timeout(patience, held.lost()).await.expect("it hears"), crate::Loss::Gone);
    drop(held);
    grant(&locks).await;
}

/// Many notice at once that their process's FIFO is gone: they all enter as one new member.
#[tokio::test]
async fn a_deleted_fifo_is_replaced_once() {
    const THREADS: usize = 4;
    let lab = Lab::new();
    let store = File::of_boot(lab.folder.path(), THIS).expect("opens");
    for _ in 0..100 {
        fs::remove_dir_all(lab.folder.path().join(".members")).expect("removed");
        let go = std::sync::Barrier::new(THREADS);
        let enter = || {
            let claim = Claim { share: Share::READER, ..claim() };
            go.wait();
            let entered = background::within(store.enter(&claim, Patience::Queue));
            pollster::block_on(entered).expect("entered");
            claim
        };
        let claims = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(enter)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        let kept = store.renew(&claims).await.expect("asked");
        assert!(kept.iter().all(Option::is_some), "{kept:?}");
        for claim in &claims {
            assert!(store.leave(claim).await.expect("left"));
        }
    }
}

#[tokio::test]
async fn what_is_not_ours_is_not_listed() {
    let lab = Lab::new();
    let locks = lab.boot(THIS);
    let _guard = locks.mutex("a").acquire().await.expect("granted");
    fs::write(lab.folder.path().join("notes+"), "x").expect("written");
    symlink(".", lab.folder.path().join("here+")).expect("linked");
    let names = locks.names("", 9).await.expect("listed");
    assert_eq!(names.iter().map(Name::as_str).collect::<Vec<_>>(), ["a"]);
}

/// The first grant of a name waits for the disk; that is no waiting in line.
#[tokio::test]
async fn no_time_to_wait_is_time_to_ask() {
    let lab = Lab::new();
    lab.boot(THIS)
        .mutex("a")
        .try_acquire_for(Duration::ZERO)
        .await
        .expect("asked")
        .expect("it is free")
        .check()
        .expect("held");
}

/// A line that was cut within a ticket is not read as free.
#[tokio::test]
async fn a_cut_ticket_is_refused() {
    let lab = Lab::new();
    let (ours, theirs) = (lab.boot(THIS), lab.boot(THIS));
    let _guard = ours.semaphore("a", 2).take(2).acquire().await.expect("granted");
    let line = fs::OpenOptions::new().write(true).open(lab.line()).expect("there is a line file");
    line.set_len((FENCE_LEN + TICKET_LEN) as u64 - 1).expect("cut");
    let error = theirs.semaphore("a", 2).try_acquire().await.expect_err("refused");
    assert!(error.is_damaged(), "{error}");
}

/// A foreign file may be larger than the memory.
#[tokio::test]
async fn a_huge_foreign_file_is_refused() {
    let lab = Lab::new();
    fs::write(lab.line(), "#!/bin/sh").expect("written");
    fs::OpenOptions::new().write(true).open(lab.line()).expect("opened").set_len(1 << 40).expect("made longer");
    let error = lab.boot(THIS).mutex("a").acquire().await.expect_err("refused");
    assert!(error.is_damaged(), "{error}");
}

/// An owner who lives on keeps no store open that he has nothing in any more.
#[tokio::test]
async fn an_owner_keeps_no_store_open() {
    let (lab, owner) = (Lab::new(), crate::Owner::new());
    let locks = lab.boot(THIS);
    locks.reentrant("a").acquire(&owner).await.expect("granted").release().await.expect("released");
    crate::drain().await;
    drop(locks);
    let left = || fs::read_dir(lab.folder.path().join(".members")).expect("listed").count();
    let closed = async {
        while left() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(9), closed).await.expect("the store is closed");
    drop(owner);
}

/// Somebody is stopped in the middle of an edit. However often that line is asked for meanwhile, other names go on, also
/// where they need a thread to wait for the disk.
#[tokio::test]
async fn a_stopped_editor_is_in_nobody_else_s_way() {
    let lab = Lab::new();
    let locks = lab.boot(THIS);
    grant(&locks).await;
    let stopped = fs::File::open(lab.line()).expect("there is a line file");
    stopped.lock().expect("it is free");
    for _ in 0..600 {
        let looked = tokio::time::timeout(Duration::from_millis(1), locks.look("a")).await;
        assert!(looked.is_err(), "the line is locked");
    }
    let other = locks.mutex("b").try_acquire().await.expect("asked").expect("it is free");
    other.release().await.expect("released");
    stopped.unlock().expect("it was locked");
    grant(&locks).await;
}

#[tokio::test]
async fn files_are_for_this_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::new();
    grant(&lab.boot(THIS)).await;
    for file in ["a.line", "a.lock"] {
        let mode = fs::metadata(lab.folder.path().join(file)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

#[tokio::test]
async fn nothing_is_left_but_two_files_per_name() {
    let lab = Lab::new();
    let locks = lab.boot(THIS);
    let descriptors = || fs::read_dir("/proc/self/fd").expect("listed").count();
    grant(&locks).await;
    let before = descriptors();
    for _ in 0..100 {
        let guard = locks.mutex("a").acquire().await.expect("granted");
        assert!(locks.mutex("a").try_acquire_for(Duration::from_micros(100)).await.expect("asked").is_none());
        guard.release().await.expect("released");
    }
    assert!(descriptors() < before + 20, "other tests of this program open some too");
    drop(locks);
    let mut left: Vec<_> =
        fs::read_dir(lab.folder.path()).expect("listed").map(|entry| entry.expect("listed").file_name()).collect();
    left.sort_unstable();
    assert_eq!(left, [".members", "a.line", "a.lock"]);
    assert_eq!(fs::read_dir(lab.folder.path().join(".members")).expect("listed").count(), 0);
}

#[tokio::test]
async fn a_full_inbox_makes_everybody_look() {
    let lab = Lab::new();
    let folder = Folder::open(lab.folder.path(), Locality::Known).expect("opens");
    let _entered = background::start().expect("it runs").enter();
    let (member, inbox) = Member::join(&folder.members()).expect("joined");
    let peer = Peer::open(&folder.members(), member.id()).expect("asked").expect("alive");
    let ids: Vec<ClaimId> = (0..300).map(|_| ClaimId::draw()).collect();
    peer.ring(&ids);
    assert!(matches!(inbox.rung().await, Rung::These(rung) if rung == ids));
    for _ in 0..100 {
        peer.ring(&ids);
    }
    assert!(matches!(inbox.rung().await, Rung::Perhaps));
}

fn claim() -> Claim {
    Claim {
        name: Name::parse("a").expect("a good name"),
        id: ClaimId::draw(),
        share: Share::MUTEX,
        lease: Duration::from_secs(30),
        renewed: true,
        note: Note::here("label").expect("a good label").into(),
    }
}

/// A process was killed while it raised the ceiling, before the disk had it: the next one does not count on it.
#[test]
fn a_ceiling_that_was_not_synced_is_not_counted_on() {
    let file = tempfile::tempfile().expect("a temporary file");
    let mut fence = fence::Fence::fresh(THIS);
    fence.reserve(&file).expect("written");
    assert!(!fence.is_spent());
    let last = fence.last();
    fence.announce(&file).expect("written");
    let mut bytes = vec![0; FENCE_LEN];
    file.read_at(&mut bytes, 0).expect("read");
    let fence::Found::Whole(found) = fence::Fence::read(&bytes) else { panic!("both blocks are good") };
    assert!(found.is_spent() && found.last() >= last, "{found:?}");
}

proptest! {
    #[test]
    fn a_ticket_comes_back_as_it_was(slot in 0usize..9, place in 1u64.., host in "\\PC{0,16}", label in "\\PC{0,16}", token in 1u64..) {
        let note = Note { host, label, ..Note::clone(&claim().note) };
        let claim = Claim { note: note.clone().into(), ..claim() };
        let member = MemberId::from_bytes([7; 16]);
        let mut made = ticket::Ticket::new(&claim, member, slot, place);
        prop_assert_eq!(made.token(), None);
        made.grant(Token::new(token).expect("above zero"));
        let read = ticket::Ticket::read(&made.to_bytes(), slot).expect("sound").expect("in use");
        let fields = (read.id(), read.member(), read.share(), read.place(), read.token().map(Token::get));
        prop_assert_eq!(fields, (claim.id, member, claim.share, place, Some(token)));
        prop_assert_eq!((read.note().host, read.note().label, read.note().pid), (note.host, note.label, note.pid));
        let mut torn = made.to_bytes();
        torn[100] ^= 1;
        prop_assert!(ticket::Ticket::read(&torn, slot).is_err());
    }

    #[test]
    fn no_tear_of_one_block_lowers_the_counter(grants in 0u64..2100, block in 0u64..2, at in 0u64..64, bits in 1u8..) {
        let file = tempfile::tempfile().expect("a temporary file");
        let mut fence = fence::Fence::fresh(THIS);
        fence.reserve(&file).expect("written");
        for _ in 0..grants {
            if fence.is_spent() {
                fence.reserve(&file).expect("written");
            }
            fence.mint(&file).expect("written");
        }
        let last = fence.last();
        let mut byte = [0];
        file.read_exact_at(&mut byte, block * BLOCK + at).expect("read");
        file.write_all_at(&[byte[0] ^ bits], block * BLOCK + at).expect("written");
        let mut bytes = vec![0; FENCE_LEN];
        file.read_at(&mut bytes, 0).expect("read");
        match fence::Fence::read(&bytes) {
            fence::Found::Half(fence) => prop_assert!(fence.restarted().last() >= last),
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
