//! Folders that cannot be used, each made so for real.

use std::fs::{
    File, FileTimes, OpenOptions, Permissions, create_dir, metadata, read_dir, set_permissions,
};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use nix::sys::signal::{Signal, kill};

use crate::sandbox::{Finished, Sandbox, until};

/// Users that every Linux has, by their numbers: `daemon` and `nobody`.
const DAEMON: u32 = 1;
const NOBODY: u32 = 65534;

/// A shell in a mount namespace of its own, as root there. `$L` is the program, `$D` a folder to
/// mount on.
fn shell(sandbox: &Sandbox, script: &str) -> Finished {
    let folder = sandbox.path("mounted");
    create_dir(&folder).ok();
    let mut shell = Command::new("unshare");
    shell.args(["--map-root-user", "--mount", "sh", "-ec", script]);
    shell
        .env("L", env!("CARGO_BIN_EXE_leasehold"))
        .env("D", folder)
        .env_remove("LEASEHOLD_STORE");
    shell
        .output()
        .expect("unshare is part of util-linux")
        .into()
}

/// Shows G-22.
#[test]
fn full_disk_is_reported_and_loses_no_lock() {
    let sandbox = Sandbox::new();
    let inner = "dd if=/dev/zero of=$D/fill bs=4k 2> /dev/null
        $L run --store $S --wait 0 used -- true || echo $?
        $L run --store $S new -- true || echo $?";
    let script = format!(
        "mount -t tmpfs -o size=64k none $D; export S=file:$D/store
        $L run --store $S used -- env -u LEASEHOLD_HELD sh -c '{inner}'
        rm $D/fill
        $L run --store $S used -- echo 'room again'"
    );
    let done = shell(&sandbox, &script);
    assert_eq!(done.out, "75\n69\nroom again\n", "{}", done.err);
    assert!(
        done.err.contains("the disk is full; free some space"),
        "{}",
        done.err
    );
}

/// Shows G-22.
#[test]
fn read_only_folder_is_reported() {
    let sandbox = Sandbox::new();
    let script =
        "mount -t tmpfs none $D; $L run --store file:$D/store a -- true; mount -o remount,ro $D
        $L run --store file:$D/store a -- true || echo $?
        $L run --store file:$D/other a -- true || echo $?";
    let done = shell(&sandbox, script);
    assert_eq!(done.out, "77\n77\n");
    assert_eq!(
        done.err
            .matches("the file system is read-only; choose a")
            .count(),
        2,
        "{}",
        done.err
    );
}

/// FUSE is a real file system whose place leasehold cannot know.
///
/// Shows G-22.
#[test]
fn folder_on_unknown_file_system_is_refused_unless_stated_local() {
    let sandbox = Sandbox::new();
    create_dir(sandbox.path("behind")).unwrap();
    let script = "bindfs $D/../behind $D
        $L run --store file:$D a -- true || echo $?
        $L run --store file:$D/new a -- true || echo $?
        test ! -e $D/new
        $L run --store \"file:$D?local=yes\" a -- sh -c '$L run b -- echo inside'
        umount $D";
    let done = shell(&sandbox, script);
    assert_eq!(done.out, "64\n64\ninside\n", "{}", done.err);
    let unknown = "is on an unknown file system, fuse";
    assert_eq!(done.err.matches(unknown).count(), 2, "{}", done.err);
    assert_eq!(
        done.err
            .matches("if it is local to this machine, add ?local=yes")
            .count(),
        2,
        "{}",
        done.err
    );
}

#[test]
fn unknown_setting_of_file_url_is_refused() {
    let sandbox = Sandbox::new();
    for settings in ["locla=yes", "local=no", "local", ""] {
        let store = format!("{}?{settings}", sandbox.url());
        let done = sandbox.done(&["run", "a", "--store", &store, "--", "true"]);
        assert_eq!(done.code(), 64, "{settings}: {}", done.err);
        assert!(done.err.contains("local=yes"), "{settings}: {}", done.err);
    }
}

/// Neither cron nor systemd expands it, and no shell does in the middle of a word.
#[test]
fn tilde_in_file_url_is_refused() {
    let sandbox = Sandbox::new();
    for store in ["file:~/locks", "file:~", "file:~nobody/locks"] {
        let done = sandbox.done(&["run", "a", "--store", store, "--", "true"]);
        done.assert(64, "", "only a shell expands ~");
    }
    assert_eq!(
        read_dir(sandbox.path("")).unwrap().count(),
        0,
        "nothing is made"
    );
}

/// Shows G-22.
#[test]
fn folder_of_another_user_is_refused_with_owner_name() {
    let sandbox = shared_place();
    let store = sandbox.path("store");

    folder(&store, NOBODY, NOBODY, 0o755);
    refused(&run_as(0, 0, &sandbox), &store, "nobody");
    assert_eq!(
        read_dir(&store).unwrap().count(),
        0,
        "nothing is made in it"
    );

    folder(&store, DAEMON, DAEMON, 0o700);
    refused(&run_as(NOBODY, NOBODY, &sandbox), &store, "daemon");
}

/// Shows G-22.
#[test]
fn members_folder_of_another_user_is_refused_with_owner_name() {
    let sandbox = shared_place();
    let store = sandbox.path("store");
    let members = sandbox.path("store/.members");

    folder(&store, 0, 0, 0o755);
    folder(&members, NOBODY, NOBODY, 0o755);
    refused(&run_as(0, 0, &sandbox), &members, "nobody");

    folder(&store, 0, 0, 0o1777);
    folder(&members, DAEMON, DAEMON, 0o700);
    refused(&run_as(NOBODY, NOBODY, &sandbox), &members, "daemon");
}

#[test]
fn folder_of_caller_is_used() {
    let sandbox = shared_place();
    folder(&sandbox.path("store"), NOBODY, NOBODY, 0o700);
    run_as(NOBODY, NOBODY, &sandbox).assert(0, "", "");
}

#[test]
fn folder_that_others_may_write_is_used() {
    let sandbox = shared_place();
    folder(&sandbox.path("store"), DAEMON, DAEMON, 0o1777);
    run_as(NOBODY, NOBODY, &sandbox).assert(0, "", "");
}

#[test]
fn folder_that_group_of_caller_may_write_is_used() {
    let sandbox = shared_place();
    let store = sandbox.path("store");

    folder(&store, DAEMON, NOBODY, 0o2770);
    run_as(NOBODY, NOBODY, &sandbox).assert(0, "", "");

    let sandbox = shared_place();
    let store = sandbox.path("store");
    folder(&store, DAEMON, DAEMON, 0o2770);
    refused(&run_as(NOBODY, NOBODY, &sandbox), &store, "daemon");
}

#[test]
fn link_of_the_store_path_leads_to_existing_folder() {
    let sandbox = Sandbox::new();
    create_dir(sandbox.path("elsewhere")).unwrap();
    set_permissions(sandbox.path("elsewhere"), Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("elsewhere", sandbox.path("store")).unwrap();
    sandbox.done(&["run", "a", "--", "true"]).assert(0, "", "");
    assert_eq!(mode(&sandbox.path("elsewhere")), 0o755);
    assert!(sandbox.path("elsewhere/.counter").exists());
}

#[test]
fn link_to_missing_folder_is_refused_and_nothing_is_made() {
    let sandbox = Sandbox::new();
    std::os::unix::fs::symlink("elsewhere", sandbox.path("store")).unwrap();
    let done = sandbox.done(&["run", "a", "--", "true"]);
    done.assert(64, "", "the path exists and is not a folder");
    assert!(!sandbox.path("elsewhere").exists());
}

#[test]
fn modes_do_not_depend_on_umask() {
    for umask in ["0200", "0600", "0777", "0000"] {
        let sandbox = shared_place();
        chown(sandbox.path(""), Some(NOBODY), Some(NOBODY)).unwrap();

        // Root may do everything; modes bind other users. The second run looks while it holds.
        let script = "umask $0; S=$PWD/parent/store
            $1 run --store file:$S a -- true
            $1 run --store file:$S $2 -- find $PWD/parent -printf '%m %y\\n'";
        let long = "n".repeat(300);
        let mut command = as_user(NOBODY, NOBODY, "sh");
        command.args(["-c", script, umask, env!("CARGO_BIN_EXE_leasehold"), &long]);
        let done: Finished = command
            .current_dir(sandbox.path(""))
            .output()
            .unwrap()
            .into();

        let mut lines: Vec<&str> = done.out.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(
            lines,
            ["600 f", "600 p", "700 d"],
            "umask {umask}: {done:?}"
        );
    }
}

/// Cleaners of temporary files go by the times of a file.
///
/// Shows G-13.
#[test]
fn files_of_a_held_lock_stay_young() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &["--lease", "1s"]);
    let mut files = vec![sandbox.path("store/a.lock"), sandbox.path("store/a.queue")];
    files.extend(
        read_dir(sandbox.path("store/.members"))
            .unwrap()
            .map(|entry| entry.unwrap().path()),
    );
    assert_eq!(files.len(), 3);

    let old = SystemTime::now() - Duration::from_secs(30 * 24 * 3600);
    for file in &files {
        let file: File = OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(file)
            .unwrap();
        file.set_times(FileTimes::new().set_accessed(old).set_modified(old))
            .unwrap();
    }
    let is_young = |file: &Path| {
        let about = metadata(file).unwrap();
        let limit = old + Duration::from_secs(3600);
        about.modified().unwrap() > limit && about.accessed().unwrap() > limit
    };
    until("a renewal touches them", || {
        files.iter().all(|file| is_young(file))
    });
    assert_eq!(holder.end().code(), 0);
}

/// Shows G-22.
#[test]
fn missing_permission_is_reported() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &[]);
    let store = sandbox.path("store");
    for (path, mode) in [("a.queue", 0o400), (".members", 0o500), ("", 0o500)] {
        let path = store.join(path);
        set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let name = if path.ends_with("a.queue") {
            "a"
        } else {
            "new"
        };
        // Not root there, whoever we are here: the modes count.
        let mut command = Command::new("unshare");
        command.args([
            "--map-user=1000",
            env!("CARGO_BIN_EXE_leasehold"),
            "run",
            name,
            "--store",
            &sandbox.url(),
        ]);
        let done: Finished = command.args(["--", "true"]).output().unwrap().into();
        assert_eq!(done.code(), 77, "{}", done.err);
        assert!(
            done.err.contains("permission denied; give this user"),
            "{}",
            done.err
        );
        set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    }
    holder.end();
}

#[test]
fn store_path_that_is_not_a_folder_exits_64() {
    let sandbox = Sandbox::new();
    for store in [
        "file:/etc/hostname",
        "file:/proc/store",
        "file://elsewhere/store",
    ] {
        let done = sandbox.done(&["run", "a", "--store", store, "--", "true"]);
        assert_eq!(done.code(), 64, "{}", done.err);
    }
}

/// `sudo` may keep the variables of its caller. The folders would be root's, in the home of a user.
///
/// Shows G-22.
#[test]
fn root_makes_no_folder_in_the_home_of_a_user() {
    let sandbox = shared_place();
    let home = sandbox.path("home");
    folder(&home, DAEMON, DAEMON, 0o755);
    let run = |user, variable, value: &Path| -> Finished {
        let mut command = as_user(user, user, env!("CARGO_BIN_EXE_leasehold"));
        command.args(["run", "a", "--store", "file:", "--", "true"]);
        command.env_remove("XDG_STATE_HOME").env(variable, value);
        command.output().unwrap().into()
    };

    for (variable, value) in [
        ("HOME", home.clone()),
        ("XDG_STATE_HOME", home.join("state")),
    ] {
        let done = run(0, variable, &value);
        done.assert(77, "", "in a folder of daemon, who could not use it");
        assert_eq!(read_dir(&home).unwrap().count(), 0);
    }
    run(DAEMON, "HOME", &home).assert(0, "", "");
    refused(
        &run(0, "HOME", &home),
        &home.join(".local/state/leasehold"),
        "daemon",
    );
}

/// The process that took the flock has ended. Which one has inherited it, only root can see.
///
/// Shows G-18.
#[test]
fn flock_of_an_unknown_heir_is_shown_to_other_users() {
    let sandbox = shared_place();
    folder(&sandbox.path("store"), 0, 0, 0o1777);
    let script = "flock store/a.lock sh -c 'sleep 1000 & echo $! > pid'";
    let mut flock = Command::new("sh");
    flock.args(["-c", script]).current_dir(sandbox.path(""));
    assert!(flock.status().unwrap().success());

    let mut show = as_user(DAEMON, DAEMON, env!("CARGO_BIN_EXE_leasehold"));
    show.args(["show", "a", "--store", &sandbox.url()]);
    let done = Finished::from(show.output().unwrap());
    kill(sandbox.pid("pid"), Signal::SIGKILL).unwrap();
    assert!(done.out.contains("a: in use"), "{done:?}");
}

/// A place that every user may enter.
fn shared_place() -> Sandbox {
    let root = nix::unistd::geteuid().is_root();
    assert!(
        root,
        "this test acts as several users, so it must be run as root"
    );
    let sandbox = Sandbox::new();
    set_permissions(sandbox.path(""), Permissions::from_mode(0o755)).unwrap();
    sandbox
}

fn folder(path: &Path, user: u32, group: u32, mode: u32) {
    if !path.exists() {
        create_dir(path).unwrap();
    }
    chown(path, Some(user), Some(group)).unwrap();
    set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A program that runs as a user with one group.
fn as_user(user: u32, group: u32, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command
        .arg(format!("--reuid={user}"))
        .arg(format!("--regid={group}"))
        .args(["--clear-groups", program]);
    command
        .env_remove("LEASEHOLD_STORE")
        .env_remove("LEASEHOLD_HELD")
        .env_remove("LEASEHOLD_LOG");
    command
}

/// A run of `leasehold` in the store of a place, as a user.
fn run_as(user: u32, group: u32, sandbox: &Sandbox) -> Finished {
    let mut command = as_user(user, group, env!("CARGO_BIN_EXE_leasehold"));
    command.args(["run", "a", "--store", &sandbox.url(), "--", "true"]);
    command.output().unwrap().into()
}

#[track_caller]
fn refused(done: &Finished, folder: &Path, owner: &str) {
    assert_eq!(done.code(), 77, "{done:?}");
    let output = format!("{} belongs to {owner}", folder.display());
    assert!(done.err.contains(&output), "{done:?}");
}
