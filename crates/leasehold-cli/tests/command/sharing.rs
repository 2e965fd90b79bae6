//! Folders that several users share, with processes of real users.
//!
//! The users are numbers that no account of the machine needs to have.

mod impostors;

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

use crate::sandbox::{Finished, Sandbox, Started, until};
use crate::serve::site::Site;

/// The group that both users are in.
const TEAM: u32 = 54_300;

const ALICE: User = User {
    id: 54_301,
    groups: &[TEAM],
};
const BOB: User = User {
    id: 54_302,
    groups: &[TEAM],
};
const OUTSIDER: User = User {
    id: 54_303,
    groups: &[],
};
const ROOT: User = User { id: 0, groups: &[] };

/// What the Debian package runs when it is installed or upgraded.
const POSTINST: &str = include_str!("../../../../packaging/debian/postinst");

/// The modes with which a folder is shared, and the group that needs to be in common.
const SHARED: [u32; 6] = [0o2770, 0o3770, 0o770, 0o2775, 0o1777, 0o777];

#[derive(Clone, Copy, Debug)]
struct User {
    id: u32,
    groups: &'static [u32],
}

impl User {
    /// A start of a program as this user, whose umask is the strictest.
    fn command(self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        let id = self.id;
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        command.args([format!("--reuid={id}"), format!("--regid={id}")]);
        match groups.as_slice() {
            [] => command.arg("--clear-groups"),
            groups => command.arg(format!("--groups={}", groups.join(","))),
        };
        command.args(["sh", "-c", "umask 077; exec \"$0\" \"$@\"", program]);
        command
            .env_remove("LEASEHOLD_HELD")
            .env_remove("LEASEHOLD_LOG")
            .stdin(Stdio::null());
        command
    }

    fn leasehold(self, sandbox: &Sandbox, arguments: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_leasehold"));
        command
            .args(arguments)
            .env("LEASEHOLD_STORE", sandbox.url());
        command
    }

    fn done(self, sandbox: &Sandbox, arguments: &[&str]) -> Finished {
        self.leasehold(sandbox, arguments).output().unwrap().into()
    }

    /// Tries a lock once.
    fn tries(self, sandbox: &Sandbox, name: &str) -> Finished {
        self.done(sandbox, &["run", name, "--wait", "0", "--", "true"])
    }

    /// Starts a run that holds until its standard input ends, and waits for its grant.
    fn holder(self, sandbox: &Sandbox, name: &str) -> Started {
        let mut command =
            self.leasehold(sandbox, &["run", name, "--", "sh", "-c", "echo; exec cat"]);
        let mut holder = Started::of(&mut command);
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(holder.out()), &mut line).unwrap();
        assert_eq!(line, "\n", "the run holds the lock");
        holder
    }
}

/// A sandbox that every user may enter, with a store of root and the group.
fn shared_store(mode: u32) -> Sandbox {
    let root = nix::unistd::geteuid().is_root();
    assert!(
        root,
        "this test acts as several users, so it must be run as root"
    );
    let sandbox = Sandbox::new();
    fs::set_permissions(sandbox.path(""), Permissions::from_mode(0o755)).unwrap();
    make_folder(&sandbox.path("store"), 0, TEAM, mode);
    sandbox
}

fn make_folder(path: &Path, user: u32, group: u32, mode: u32) {
    fs::create_dir(path).unwrap();
    chown(path, Some(user), Some(group)).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Shows G-01.
#[test]
fn users_of_a_shared_folder_exclude_each_other() {
    for mode in SHARED {
        let sandbox = shared_store(mode);
        for (holder, others) in [
            (ALICE, [BOB, ROOT]),
            (ROOT, [ALICE, BOB]),
            (BOB, [ROOT, ALICE]),
        ] {
            let held = holder.holder(&sandbox, "a");
            for other in others {
                let tried = other.tries(&sandbox, "a");
                assert_eq!(tried.code(), 75, "{mode:o}: {tried:?}");
            }

            held.end();
            for other in others {
                let tried = other.tries(&sandbox, "a");
                assert_eq!(tried.code(), 0, "{mode:o}: {tried:?}");
            }
        }
    }
}

/// `leasehold serve` reads one lock to see whether the store replies, and any user may forbid it.
///
/// Shows G-57.
#[test]
fn store_with_one_forbidden_lock_is_healthy() {
    let sandbox = shared_store(0o2770);
    let _forbidden = BOB.holder(&sandbox, "leasehold/serve");
    let queue = sandbox.path("store/leasehold%2Fserve.queue");
    fs::set_permissions(queue, Permissions::from_mode(0o600)).unwrap();
    let _other = BOB.holder(&sandbox, "other");

    let serve = ["serve", "--listen", "127.0.0.1:0"];
    let site = Site::of(Started::of(&mut ALICE.leasehold(&sandbox, &serve)));
    assert_eq!(site.get("/healthz"), "ok\n");
    assert!(site.get("/metrics").contains("leasehold_up 1\n"));
    assert_eq!(site.locks(""), ["other"]);
}

/// Shows G-01, G-29.
#[test]
fn holder_whose_fifo_is_forbidden_counts_as_alive() {
    let sandbox = shared_store(0o2770);
    let _holder = ALICE.holder(&sandbox, "a");
    for fifo in fs::read_dir(sandbox.path("store/.members")).unwrap() {
        fs::set_permissions(fifo.unwrap().path(), Permissions::from_mode(0o600)).unwrap();
    }

    assert_eq!(BOB.tries(&sandbox, "a").code(), 75);
    let shown = BOB.done(&sandbox, &["show", "a", "--exit-code"]);
    assert_eq!(shown.code(), 1, "{shown:?}");
}

/// Shows G-01.
#[test]
fn root_shares_the_folder_of_another_user() {
    for mode in [0o2770, 0o1777] {
        let sandbox = shared_store(mode);
        chown(sandbox.path("store"), Some(ALICE.id), Some(ALICE.id)).unwrap();
        fs::set_permissions(sandbox.path("store"), Permissions::from_mode(mode)).unwrap();

        let held = ALICE.holder(&sandbox, "a");
        assert_eq!(ROOT.tries(&sandbox, "a").code(), 75);
        held.end();
        let held = ROOT.holder(&sandbox, "a");
        assert_eq!(ALICE.tries(&sandbox, "a").code(), 75);
        held.end();
        assert_eq!(ALICE.tries(&sandbox, "a").code(), 0);
    }
}

/// Shows G-22.
#[test]
fn files_have_the_mode_and_group_of_the_folder_for_any_umask() {
    for (folder, file, inner, group) in [
        (0o2770, 0o660, 0o2770, TEAM),
        (0o3770, 0o660, 0o3770, TEAM),
        (0o770, 0o660, 0o2770, TEAM),
        (0o1777, 0o666, 0o1777, ALICE.id),
    ] {
        let sandbox = shared_store(folder);
        let long = "n".repeat(300);
        let held = [ALICE.holder(&sandbox, "a"), ALICE.holder(&sandbox, &long)];

        let mut seen = Vec::new();
        files_below(&sandbox.path("store"), &mut seen);
        // Two names, a folder for the long one, two FIFOs, the counter and the folder of FIFOs.
        assert_eq!(seen.len(), 9, "{seen:?}");
        for path in seen {
            let status = fs::symlink_metadata(&path).unwrap();
            let wanted = if status.is_dir() { inner } else { file };
            assert_eq!(
                (status.mode() & 0o7777, status.gid()),
                (wanted, group),
                "{} in {folder:o}",
                path.display()
            );
        }
        for holder in held {
            assert_eq!(holder.end().code(), 0);
        }
    }
}

fn files_below(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, found);
        }
        found.push(path);
    }
}

/// The waiter watches the FIFO of another user's process.
///
/// Shows G-01.
#[test]
fn crash_of_another_users_holder_frees_the_lock_for_a_waiter() {
    for mode in [0o3770, 0o1777] {
        let sandbox = shared_store(mode);
        let held = ALICE.holder(&sandbox, "a");
        let mut waiting = BOB.leasehold(&sandbox, &["run", "a", "--", "true"]);
        let waiter = Started::of(&mut waiting);
        until("the waiter is queued", || sandbox.waiters("a").len() == 1);

        held.signal(Signal::SIGKILL);
        assert_eq!(waiter.wait().code(), 0);
    }
}

/// Shows G-22.
#[test]
fn user_outside_the_group_is_refused() {
    let sandbox = shared_store(0o2770);
    for arguments in [&["ls"][..], &["run", "a", "--", "true"]] {
        let done = OUTSIDER.done(&sandbox, arguments);
        assert_eq!(done.code(), 77, "{done:?}");
    }
    assert_eq!(fs::read_dir(sandbox.path("store")).unwrap().count(), 0);
}

/// The owner of the folder is not in its group, and no setgid bit gives new files that group. Mode
/// 0660 with the user's own group would let in another group.
///
/// Shows G-22.
#[test]
fn owner_outside_the_group_is_refused_with_help() {
    let sandbox = shared_store(0o770);
    chown(sandbox.path("store"), Some(OUTSIDER.id), Some(TEAM)).unwrap();
    let done = OUTSIDER.tries(&sandbox, "a");
    assert_eq!(done.code(), 77, "{done:?}");
    assert!(
        done.err
            .contains("this user is not a member; add this user"),
        "{done:?}"
    );
}

/// Shows G-22.
#[test]
fn private_lock_of_one_user_breaks_no_listing_and_no_other_name() {
    let sandbox = shared_store(0o1777);
    // The first user of the folder makes the files that concern all names.
    let private = format!("{}?mode=0600", sandbox.url());
    let mut command = ALICE.leasehold(
        &sandbox,
        &[
            "run",
            "private",
            "--store",
            &private,
            "--",
            "sh",
            "-c",
            "echo; exec cat",
        ],
    );
    let held = Started::of(&mut command);
    until("the run holds", || sandbox.holders("private").len() == 1);
    let other = BOB.holder(&sandbox, "other");

    let listed = BOB.done(&sandbox, &["ls"]);
    assert_eq!(listed.code(), 0, "{listed:?}");
    assert!(
        listed.out.contains("other") && !listed.out.contains("private"),
        "{listed:?}"
    );
    assert!(
        listed.err.lines().count() == 2 && listed.err.contains("private.queue"),
        "{listed:?}"
    );

    let refused = BOB.tries(&sandbox, "private");
    assert_eq!(refused.code(), 77, "{refused:?}");
    assert!(
        refused
            .err
            .contains("it belongs to user 54301, with the mode 0600"),
        "{refused:?}"
    );
    assert_eq!(BOB.tries(&sandbox, "third").code(), 0);
    held.end();
    other.end();
}

/// Another user made each file of a name first, in each form.
///
/// Shows G-22.
#[test]
fn hostile_files_block_only_their_own_names() {
    let sandbox = shared_store(0o1777);
    let store = sandbox.path("store");
    assert_eq!(BOB.tries(&sandbox, "first").code(), 0);
    let held = BOB.holder(&sandbox, "held");

    let hostile = "cd \"$1\"; umask 077
        ln -s /etc/passwd link.queue; ln -s /etc/passwd link2.lock
        mkfifo fifo.queue fifo2.lock; mkdir dir.queue dir2.lock; touch private.queue private2.lock
        long=$(printf '%0200d' 0); mkdir \"$long+\"; echo x > \"$long+/private.queue\"
        mkdir -m 1777 .elsewhere; other=$(printf '%0200d' 1); ln -s .elsewhere \"$other+\"
        touch .elsewhere/rest.queue .elsewhere/rest.lock; chmod 666 .elsewhere/rest.*
        truncate -s 1T huge.queue
        ln \"$2\" hard.queue; ln \"$2\" hard2.lock
        mkfifo -m 600 .members/ffffffffffffffffffffffffffffffff
        ln -s /etc/passwd .members/eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee";
    let empty = sandbox.path("empty");
    fs::write(&empty, "").unwrap();
    chown(&empty, Some(BOB.id), Some(TEAM)).unwrap();
    fs::set_permissions(&empty, Permissions::from_mode(0o660)).unwrap();
    let mut shell = ALICE.command("sh");
    shell.args(["-ec", hostile, "sh"]).args([&store, &empty]);
    assert!(shell.status().unwrap().success());

    for name in [
        "link", "link2", "hard", "hard2", "fifo", "fifo2", "dir", "dir2", "private", "private2",
    ] {
        let done = BOB.tries(&sandbox, name);
        assert!([64, 69, 70, 77].contains(&done.code()), "{name}: {done:?}");
    }
    for digit in ["0", "1"] {
        let name = format!("{}{digit}rest", "0".repeat(199));
        let done = BOB.tries(&sandbox, &name);
        assert!([64, 70, 77].contains(&done.code()), "{name}: {done:?}");
    }
    let elsewhere = fs::read(store.join(".elsewhere/rest.queue")).unwrap();
    assert!(elsewhere.is_empty(), "a link was followed");

    for user in [BOB, ROOT] {
        let listed = user.done(&sandbox, &["ls"]);
        assert!(listed.out.contains("\nheld "), "{listed:?}");
        assert_eq!(user.tries(&sandbox, "new").code(), 0);
    }
    assert_eq!(BOB.tries(&sandbox, "held").code(), 75);
    held.end();
}

/// Another user has the queue file locked, and never unlocks it.
///
/// Shows G-22.
#[test]
fn locked_queue_file_does_not_block_a_listing() {
    let sandbox = shared_store(0o1777);
    let held = ALICE.holder(&sandbox, "a");
    let mut blocker = OUTSIDER.command("flock");
    blocker
        .arg(sandbox.path("store/a.queue"))
        .args(["sh", "-c", "echo; exec cat"]);
    let mut blocker = Started::of(&mut blocker);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(blocker.out()), &mut line).unwrap();

    let listed = BOB.done(&sandbox, &["ls"]);
    assert_eq!(listed.code(), 0, "{listed:?}");
    assert!(listed.out.contains("\na "), "{listed:?}");
    assert!(
        listed.err.starts_with("leasehold: store ") && listed.err.lines().count() == 1,
        "{listed:?}"
    );
    blocker.end();
    held.end();
}

/// Shows G-22.
#[test]
fn members_that_another_user_made_first_are_refused() {
    let sandbox = shared_store(0o1777);
    let members = sandbox.path("store/.members");

    make_folder(&members, ALICE.id, ALICE.id, 0o700);
    let done = BOB.tries(&sandbox, "a");
    assert_eq!(done.code(), 77, "{done:?}");
    assert!(
        done.err.contains(".members belongs to user 54301"),
        "{done:?}"
    );
    fs::remove_dir(&members).unwrap();

    symlink("/tmp", &members).unwrap();
    let done = BOB.tries(&sandbox, "a");
    assert_eq!(done.code(), 64, "{done:?}");
    fs::remove_file(&members).unwrap();

    assert_eq!(BOB.tries(&sandbox, "a").code(), 0);
    assert_eq!(mode(&members), 0o1777);
}

/// An administrator shares a folder that was private.
#[test]
fn folder_that_is_shared_later_is_repaired_by_its_owner() {
    let sandbox = shared_store(0o700);
    let store = sandbox.path("store");
    chown(&store, Some(ALICE.id), Some(TEAM)).unwrap();
    assert_eq!(ALICE.tries(&sandbox, "a").code(), 0);
    assert_eq!(mode(&store.join(".members")), 0o700);

    fs::set_permissions(&store, Permissions::from_mode(0o2770)).unwrap();
    assert_eq!(BOB.tries(&sandbox, "b").code(), 77, "not yet");
    assert_eq!(ALICE.tries(&sandbox, "a").code(), 0);
    let done = BOB.tries(&sandbox, "b");
    assert_eq!(done.code(), 0, "{done:?}");
}

#[test]
fn stated_mode_has_precedence_over_the_folder() {
    let sandbox = shared_store(0o1777);
    let new = sandbox.path("store/new/locks");
    let url = format!("file:{}?mode=0666", new.display());
    let arguments = ["run", "a", "--store", &url, "--", "true"];
    for user in [ALICE, BOB, OUTSIDER] {
        let done = user.done(&sandbox, &arguments);
        assert_eq!(done.code(), 0, "{done:?}");
    }
    assert_eq!(mode(&new), 0o1777);

    for wrong in ["0644", "rw", "777"] {
        let url = format!("file:{}?mode={wrong}", new.display());
        let done = ALICE.done(&sandbox, &["ls", "--store", &url]);
        assert_eq!(done.code(), 64, "{done:?}");
        assert!(done.err.contains("mode=0660"), "{done:?}");
    }
}

/// The kernel protects files of other users in folders with the sticky bit. It refuses to open
/// them with `O_CREAT`, which flock(1) uses and leasehold does not.
///
/// Shows G-22.
#[test]
fn protected_files_of_sticky_folders_are_used_without_o_creat() {
    let setting = |name: &str| -> u32 {
        let path = format!("/proc/sys/fs/{name}");
        fs::read_to_string(path).map_or(0, |text| text.trim().parse().unwrap())
    };
    let protected_regular = setting("protected_regular");

    for (mode, protected_from) in [(0o1777, 1), (0o3770, 2)] {
        let sandbox = shared_store(mode);
        let held = ALICE.holder(&sandbox, "a");
        assert_eq!(
            BOB.tries(&sandbox, "a").code(),
            75,
            "for any value of the settings"
        );

        let lock = sandbox.path("store/a.lock");
        let mut shell = BOB.command("sh");
        shell
            .args(["-c", "exec 9>>\"$1\"", "sh"])
            .arg(&lock)
            .stderr(Stdio::null());
        let opened = shell.status().unwrap().success();
        assert_eq!(
            opened,
            protected_regular < protected_from,
            "protected_regular={protected_regular}"
        );

        let members = fs::read_dir(sandbox.path("store/.members")).unwrap();
        let fifos = members.filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_fifo());
        assert_eq!(fifos.count(), 1);
        held.end();
    }
}

/// With the sticky bit, a user may not remove the files of another. Root removes them.
#[test]
fn files_of_another_user_are_left_to_gc_of_root() {
    let sandbox = shared_store(0o1777);
    let held = ALICE.holder(&sandbox, "a");
    let mut waiting = BOB.leasehold(&sandbox, &["run", "a", "--", "true"]);
    let waiter = Started::of(&mut waiting);
    until("the waiter is queued", || sandbox.waiters("a").len() == 1);
    held.end();
    assert_eq!(waiter.wait().code(), 0);
    assert!(sandbox.path("store/a.queue").exists());

    let refused = BOB.done(&sandbox, &["gc"]);
    assert_eq!(refused.code(), 0, "{refused:?}");
    assert!(
        refused.err.contains("as the owner of the file, or as root"),
        "{refused:?}"
    );
    let done = ROOT.done(&sandbox, &["gc"]);
    assert_eq!(
        done.out,
        "removed the files of 1 free locks; 0 locks are in use; 0 were skipped\n"
    );
    assert!(!sandbox.path("store/a.queue").exists() && !sandbox.path("store/a.lock").exists());
}

/// Runs a script with copies of /etc and /var/lib, which `setup-system` changes.
fn in_own_system(script: &str) -> Finished {
    let sandbox = shared_store(0o755);
    let setup = "mount --make-rprivate /
        mkdir $D; mount -t tmpfs none $D; chmod 755 $D; mkdir -m 755 $D/etc $D/lib
        cp -a /etc/. $D/etc/; mount --bind $D/etc /etc; mount --bind $D/lib /var/lib";
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-ec", &format!("{setup}\n{script}")]);
    shell
        .env("L", env!("CARGO_BIN_EXE_leasehold"))
        .env("D", sandbox.path("own"))
        .env("POSTINST", POSTINST)
        .env_remove("LEASEHOLD_STORE")
        .env_remove("LEASEHOLD_HELD");
    shell.output().unwrap().into()
}

/// Shows G-01.
#[test]
fn system_store_is_made_once_and_shared_by_its_group() {
    let script = "as() { user=$1; shift; setpriv --reuid=$user --regid=$user --groups=$G \"$@\"; }
        $L ls --store system: || echo \"missing: $?\"
        setpriv --reuid=54301 --regid=54301 --clear-groups $L setup-system || echo \"user: $?\"
        PATH=/nowhere $L setup-system; $L setup-system > /dev/null
        G=$(getent group leasehold | cut -d: -f3)
        stat -c '%a %U %G' /var/lib/leasehold /var/lib/leasehold/.members
        as 54301 $L run a --store system: -- setpriv --reuid=54301 sh -c 'echo $LEASEHOLD_STORE'
        setpriv --reuid=54301 --regid=54301 --groups=$G \
            $L run a --store system: -- sleep 60 & holder=$!
        until as 54302 $L show a --store system: | grep -q held; do :; done
        as 54302 $L run a --store system: --wait 0 -- true || echo \"busy: $?\"
        $L run a --store system: --wait 0 -- true || echo \"busy: $?\"
        kill $holder; wait $holder || true
        $L run a --store system: -- echo free
        G=54303; as 54303 $L ls --store system: || echo \"out: $?\"";
    let done = in_own_system(script);

    assert_eq!(
        done.out,
        "missing: 64\nuser: 77\n\
         /var/lib/leasehold is ready: mode 3770, owner root, group leasehold\n\
         Give a user access with: usermod -aG leasehold USER\n\
         3770 root leasehold\n3770 root leasehold\nsystem:\nbusy: 75\nbusy: 75\nfree\nout: 77\n",
        "{}",
        done.err
    );
    assert!(
        done.err.contains("run `sudo leasehold setup-system` once"),
        "{}",
        done.err
    );
    assert!(
        done.err.contains("sudo usermod -aG leasehold USER"),
        "{}",
        done.err
    );
}

#[test]
fn upgrade_of_the_package_leaves_the_system_store_to_its_group() {
    let script = "configure() { PATH=${L%/*}:$PATH sh -ec \"$POSTINST\" postinst configure; }
        configure > /dev/null; stat -c '%a %U %G' /var/lib/leasehold
        groupadd --system deploy; $L setup-system --group deploy > /dev/null
        configure > /dev/null; stat -c '%a %U %G' /var/lib/leasehold
        chmod 2770 /var/lib/leasehold; configure > /dev/null; stat -c %a /var/lib/leasehold";
    in_own_system(script).assert(0, "3770 root leasehold\n3770 root deploy\n3770\n", "");
}
