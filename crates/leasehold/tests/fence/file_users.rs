//! Files that several users can reach: who could open the old file, and who can open the new one.
//!
//! The tests act as several users, so they must be run as root.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leasehold::fence::File;
use leasehold::{FencingToken, Token};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, getxattr, mknodat, setxattr};

use super::CLAIM;

/// Users and a group that no system has.
const BOB: u32 = 54_302;
const CAROL: u32 = 54_303;
const TEAM: u32 = 54_310;

/// The start of a program as bob, who is in no other group than his own.
const AS_BOB: [&str; 4] = [
    "setpriv",
    "--clear-groups",
    "--regid=54302",
    "--reuid=54302",
];

/// The variable with the folder for a test that calls itself in another process.
const FOLDER: &str = "FENCE_TEST_FOLDER";

const ACCESS_ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";

fn token(number: u64) -> FencingToken {
    let number = Token::new(number).expect("above zero");
    FencingToken::new(number, CLAIM.parse().expect("a claim id"))
}

/// A folder with the file `a`, which has an owner, a group and a mode.
fn folder_with(owner: u32, group: u32, mode: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    set(folder.path(), 0, 0, 0o1777);
    fs::write(folder.path().join("a"), "old").expect("written");
    set(&folder.path().join("a"), owner, group, mode);
    folder
}

fn set(path: &Path, owner: u32, group: u32, mode: u32) {
    chown(path, Some(owner), Some(group)).expect("this test must be run as root");
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
}

/// A test of this module in another process, which `start` starts.
fn in_another_process(test: &str, start: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(start[0]);
    command.args(&start[1..]);
    command.arg(std::env::current_exe().expect("known"));
    command.args(["--exact", "--nocapture", &format!("file_users::{test}")]);
    command.env(FOLDER, folder);
    command
}

/// Owner, group and mode.
fn users_of(path: &Path) -> (u32, u32, u32) {
    let status = fs::metadata(path).expect("there");
    (status.uid(), status.gid(), status.mode() & 0o7777)
}

/// As the kernel encodes `u::rw,u:BOB:rw,g::GROUP,m::rw,o::-`.
fn acl_for_bob(of_group: u16) -> Vec<u8> {
    const UNUSED: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 6, UNUSED),
        (0x02, 6, BOB),
        (0x04, of_group, UNUSED),
        (0x10, 6, UNUSED),
        (0x20, 0, UNUSED),
    ];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        acl.extend(tag.to_le_bytes());
        acl.extend(rights.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

fn acl_of(path: &Path) -> Option<Vec<u8>> {
    let mut acl = vec![0; 1024];
    let length = getxattr(path, ACCESS_ACL, &mut acl[..]).ok()?;
    acl.truncate(length);
    Some(acl)
}

/// Shows G-19.
#[test]
fn file_new_contents_are_private_until_they_are_complete() {
    let folder = folder_with(0, 0, 0o644);
    let file = File::open(folder.path(), "a").expect("opened");
    let new = folder.path().join("a.fence/new");
    let contents = vec![b'x'; 16 << 20];
    let is_seen = AtomicBool::new(false);

    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_seen.load(Ordering::Relaxed) {
                let Ok(status) = fs::metadata(&new) else {
                    continue;
                };
                if (1..contents.len() as u64).contains(&status.len()) {
                    let is_private = status.mode() & 0o777 == 0o600;
                    // A shorter file may be the next mark.
                    is_seen.store(status.len() > 1024 || !is_private, Ordering::Relaxed);
                    assert!(is_private, "{status:?}");
                }
            }
        });
        for number in (1..).take_while(|_| !is_seen.load(Ordering::Relaxed)) {
            file.write(token(number), &contents).expect("written");
        }
    });
    assert_eq!(users_of(&folder.path().join("a")), (0, 0, 0o644));
    assert_eq!(users_of(&folder.path().join("a.fence")), (0, 0, 0o700));
    assert_eq!(users_of(&folder.path().join("a.fence/mark")), (0, 0, 0o600));
}

/// Shows G-19.
#[test]
fn file_written_by_root_stays_its_owners_without_set_id_bits() {
    for (mode, kept) in [(0o6777, 0o777), (0o4755, 0o755), (0o1640, 0o640)] {
        let folder = folder_with(BOB, TEAM, mode);
        set(folder.path(), 0, 0, 0o755);
        let file = File::open(folder.path(), "a").expect("opened");
        file.write(token(1), b"new").expect("written");

        let path = folder.path().join("a");
        assert_eq!(fs::read(&path).expect("there"), b"new");
        assert_eq!(users_of(&path), (BOB, TEAM, kept), "{mode:o}");
    }
}

/// The test calls itself as a user outside the group of the old file.
///
/// Shows G-19.
#[test]
fn file_written_from_outside_its_group_gives_no_right_to_another_group() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let file = File::open(folder, "a").expect("opened");
        let written = file.write(token(1), b"new");
        return assert!(written.is_ok(), "{written:?}");
    }

    let bobs_acl = acl_for_bob(0);
    for (mode, acl, kept) in [
        (0o664, None, Some(0o604)),
        (0o604, None, Some(0o600)),
        (0o660, Some(&bobs_acl), Some(0o600)),
        // The writer cannot read the old file.
        (0o660, None, None),
    ] {
        let folder = folder_with(CAROL, TEAM, mode);
        set(folder.path(), BOB, 0, 0o755);
        let path = folder.path().join("a");
        if let Some(acl) = acl {
            setxattr(&path, ACCESS_ACL, acl, XattrFlags::empty()).expect("ACLs are supported");
        }

        let test = "file_written_from_outside_its_group_gives_no_right_to_another_group";
        let mut writer = in_another_process(test, &AS_BOB, folder.path());
        let done = writer.output().expect("started");

        assert_eq!(done.status.success(), kept.is_some(), "{done:?}");
        let (written, users) = match kept {
            Some(kept) => ("new", (BOB, BOB, kept)),
            None => ("old", (CAROL, TEAM, mode)),
        };
        assert_eq!(fs::read_to_string(&path).expect("there"), written);
        assert_eq!(users_of(&path), users, "{mode:o}");
        assert_eq!(acl_of(&path), None);
    }
}

/// Shows G-19.
#[test]
fn file_keeps_its_acl_and_gets_no_other() {
    let folder = folder_with(0, TEAM, 0o600);
    let path = folder.path().join("a");
    let acl = acl_for_bob(0);
    setxattr(&path, ACCESS_ACL, &acl, XattrFlags::empty()).expect("ACLs are supported");
    let file = File::open(folder.path(), "a").expect("opened");
    file.write(token(1), b"new").expect("written");
    assert_eq!(users_of(&path), (0, TEAM, 0o660));
    assert_eq!(acl_of(&path), Some(acl));

    let folder = folder_with(0, TEAM, 0o640);
    let path = folder.path().join("a");
    let inherited = acl_for_bob(4);
    setxattr(folder.path(), DEFAULT_ACL, &inherited, XattrFlags::empty()).expect("set");
    let file = File::open(folder.path(), "a").expect("opened");
    file.write(token(1), b"new").expect("written");
    assert_eq!((users_of(&path), acl_of(&path)), ((0, TEAM, 0o640), None));

    // A file that is missing gets what any program's file gets.
    let other = File::open(folder.path(), "b").expect("opened");
    other.write(token(1), b"new").expect("written");
    let path = folder.path().join("b");
    assert_eq!(
        (users_of(&path), acl_of(&path)),
        ((0, 0, 0o660), Some(inherited))
    );
}

/// Shows G-19.
#[test]
fn file_folder_or_mark_of_another_user_is_refused() {
    let folder = folder_with(0, 0, 0o644);
    let beside = folder.path().join("a.fence");
    fs::create_dir(&beside).expect("made");
    for mode in [0o700, 0o777] {
        set(&beside, BOB, 0, mode);
        let refused = File::open(folder.path(), "a").expect_err("bob's");
        assert!(
            refused.is_denied() && refused.to_string().contains("user 54302"),
            "{refused}"
        );
        assert_eq!(users_of(&beside), (BOB, 0, mode));
    }

    // The folder of an earlier version, in which another user could write.
    set(&beside, 0, 0, 0o777);
    let mark = beside.join("mark");
    fs::write(&mark, "1\n").expect("written");
    set(&mark, BOB, 0, 0o644);
    let file = File::open(folder.path(), "a").expect("opened");
    assert_eq!(users_of(&beside), (0, 0, 0o700));
    for refused in [file.seal(token(2)).map(drop), file.write(token(2), b"new")] {
        let refused = refused.expect_err("bob's mark");
        assert!(refused.is_denied(), "{refused}");
    }
    assert_eq!(fs::read(folder.path().join("a")).expect("there"), b"old");
}

/// Whoever made the file would keep it, with the next contents.
///
/// Shows G-19.
#[test]
fn file_of_another_user_in_a_sticky_shared_folder_is_refused() {
    for (owner, mode, is_used) in [
        (0, 0o1777, false),
        (0, 0o1770, false),
        (0, 0o1757, false),
        (0, 0o1755, true),
        // Here bob could put his file in the place of any other.
        (0, 0o777, true),
        // As the owner of the folder, bob can do so as well.
        (BOB, 0o1777, true),
    ] {
        let folder = folder_with(BOB, BOB, 0o600);
        set(folder.path(), owner, TEAM, mode);
        let file = File::open(folder.path(), "a").expect("opened");

        for done in [file.seal(token(1)).map(drop), file.write(token(1), b"new")] {
            let named = format!("{:?}", done.as_ref().err());
            assert_eq!(done.is_ok(), is_used, "{owner} {mode:o}: {named}");
            assert!(is_used || named.contains("user 54302"), "{named}");
        }
        let path = folder.path().join("a");
        let contents = if is_used { "new" } else { "old" };
        assert_eq!(fs::read_to_string(&path).expect("there"), contents);
        assert_eq!(users_of(&path), (BOB, BOB, 0o600));
    }

    let folder = folder_with(0, TEAM, 0o640);
    let file = File::open(folder.path(), "a").expect("opened");
    file.write(token(1), b"new").expect("written");
    assert_eq!(users_of(&folder.path().join("a")), (0, TEAM, 0o640));
}

/// Bob is not in the group of the folder. The kernel takes the set-group-ID bit from a folder whose
/// mode he sets.
///
/// Shows G-19.
#[test]
fn file_that_was_missing_gets_the_group_of_its_set_group_id_folder() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        for number in 1..=2 {
            let file = File::open(&folder, "b").expect("opened");
            file.write(token(number), b"new").expect("written");
        }
        return;
    }

    let folder = folder_with(0, 0, 0o644);
    set(folder.path(), 0, TEAM, 0o2777);
    let test = "file_that_was_missing_gets_the_group_of_its_set_group_id_folder";
    let mut writer = in_another_process(test, &AS_BOB, folder.path());
    let done = writer.output().expect("started");
    assert!(done.status.success(), "{done:?}");

    let (owner, group, _) = users_of(&folder.path().join("b"));
    assert_eq!((owner, group), (BOB, TEAM));
    let beside = folder.path().join("b.fence");
    assert_eq!(users_of(&beside), (BOB, TEAM, 0o2700));
}

#[test]
fn file_on_a_read_only_mount_is_opened_and_read() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let file = File::open(folder, "a").expect("opened");
        let highest = file.highest_token().expect("read");
        assert_eq!(highest, Some(token(1).token()));
        let contents = file.seal(token(1)).expect("this token has sealed it");
        assert_eq!(contents.as_deref(), Some(&b"new"[..]));
        let refused = file.write(token(1), b"newer").expect_err("read-only");
        return assert!(refused.is_denied(), "{refused}");
    }

    let folder = folder_with(0, 0, 0o644);
    let file = File::open(folder.path(), "a").expect("opened");
    file.write(token(1), b"new").expect("written");

    let mount = "mount --bind \"$FENCE_TEST_FOLDER\" \"$FENCE_TEST_FOLDER\"
                 mount -o remount,bind,ro \"$FENCE_TEST_FOLDER\"
                 exec \"$@\"";
    let start = ["unshare", "--mount", "sh", "-ec", mount, "sh"];
    let test = "file_on_a_read_only_mount_is_opened_and_read";
    let mut reader = in_another_process(test, &start, folder.path());
    let done = reader.output().expect("started");
    assert!(done.status.success(), "{done:?}");
}

/// In a container, files of all users and groups without a number show the number of nobody.
///
/// Shows G-19.
#[test]
fn file_of_a_user_without_a_number_is_not_given_to_nobody() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let file = File::open(folder, "a").expect("opened");
        return file.write(token(1), b"new").expect("written");
    }

    for (owner, group, users) in [
        (BOB, TEAM, (0, 0, 0o604)),
        (BOB, 0, (0, 0, 0o664)),
        (0, TEAM, (0, 0, 0o604)),
    ] {
        let folder = folder_with(owner, group, 0o664);
        set(folder.path(), 0, 0, 0o755);
        let wait = "echo; read go; exec \"$@\"";
        let start = ["unshare", "--user", "sh", "-ec", wait, "sh"];
        let test = "file_of_a_user_without_a_number_is_not_given_to_nobody";
        let mut writer = in_another_process(test, &start, folder.path());
        writer.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut writer = writer.spawn().expect("started");

        let mut line = [0];
        let output = writer.stdout.as_mut().expect("piped");
        output.read_exact(&mut line).expect("it has a namespace");
        for map in ["uid_map", "gid_map"] {
            let path = format!("/proc/{}/{map}", writer.id());
            // Root is root there, and nobody is a user of the container.
            fs::write(path, "0 0 1\n1 100001 65535\n").expect("this test must be run as root");
        }
        let mut input = writer.stdin.take().expect("piped");
        input.write_all(b"go\n").expect("it waits");

        let done = writer.wait_with_output().expect("started");
        assert!(done.status.success(), "{done:?}");
        assert_eq!(users_of(&folder.path().join("a")), users);
    }
}

#[test]
fn file_size_limit_is_named() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let file = File::open(folder, "a").expect("opened");
        let failed = file.seal(token(1)).expect_err("the mark is longer");
        let named = format!("{failed:?}");
        return assert!(
            failed.is_unavailable() && named.contains("LimitFSIZE="),
            "{named}"
        );
    }

    let folder = folder_with(0, 0, 0o644);
    let start = ["prlimit", "--fsize=20"];
    let mut writer = in_another_process("file_size_limit_is_named", &start, folder.path());
    let done = writer.output().expect("started");
    assert!(done.status.success(), "{done:?}");
}

/// Shows G-19.
#[test]
fn file_with_a_folder_in_its_place_or_beside_it_is_named() {
    for name in ["a", "a.fence/mark", "a.fence/new"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = File::open(folder.path(), "a").expect("opened");
        let path = folder.path().join(name);
        fs::create_dir(&path).expect("made");

        for result in [file.write(token(1), b"new"), file.seal(token(2)).map(drop)] {
            let refused = result.expect_err("a folder");
            assert!(refused.is_damaged(), "{name}: {refused}");
            let shown = path.display().to_string();
            assert!(format!("{refused:?}").contains(&shown), "{refused:?}");
        }
    }

    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("a.fence"), "").expect("written");
    let refused = File::open(folder.path(), "a").expect_err("not a folder");
    assert!(refused.is_damaged(), "{refused}");
    assert!(format!("{refused:?}").contains("a.fence"), "{refused:?}");
}

/// Shows G-19.
#[test]
fn file_other_than_a_regular_one_is_refused_at_once() {
    for name in ["a", "a.fence/mark"] {
        for file_type in [FileType::Fifo, FileType::Socket] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let file = File::open(folder.path(), "a").expect("opened");
            let path = folder.path().join(name);
            mknodat(CWD, &path, file_type, Mode::RUSR | Mode::WUSR, 0).expect("made");

            let (done, is_done) = mpsc::channel();
            thread::spawn(move || {
                let results = [file.seal(token(1)).map(drop), file.write(token(1), b"new")];
                done.send(results).expect("the test waits");
            });
            let results = is_done.recv_timeout(Duration::from_mins(1));
            for result in results.expect("the file is not waited for") {
                let refused = result.expect_err("not a regular file");
                assert!(refused.is_damaged(), "{name}, {file_type:?}: {refused}");
            }
        }
    }
}

/// A file server takes a lease on a file that one of its clients caches.
#[test]
fn file_with_a_lease_is_named() {
    const LEASE: &str = "import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = open(sys.argv[1], 'r+')
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print(flush=True)
sys.stdin.read()";

    let folder = folder_with(0, 0, 0o644);
    let file = File::open(folder.path(), "a").expect("opened");
    let mut server = Command::new("python3");
    server.args(["-c", LEASE]).arg(folder.path().join("a"));
    server.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = server.spawn().expect("started");
    let output = server.stdout.as_mut().expect("piped");
    output.read_exact(&mut [0]).expect("it has the lease");

    let failed = file.seal(token(1)).expect_err("a lease");
    assert!(
        failed.is_unavailable() && failed.to_string().contains("lease"),
        "{failed}"
    );
    drop(server.stdin.take());
    assert!(server.wait().expect("ended").success());
    assert_eq!(file.seal(token(1)).expect("read"), Some(b"old".to_vec()));
}
