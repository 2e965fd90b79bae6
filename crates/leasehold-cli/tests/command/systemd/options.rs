//! The sandboxing options of systemd.exec(5), one at a time: under each of them leasehold works, or
//! says what it needs.
//!
//! A container of tests has no systemd. So each test does what the option does, by mounts in a
//! namespace, by another user, or by a filter of system calls.

use std::fs::{Permissions, create_dir, read_dir, set_permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;

use crate::sandbox::{Finished, Sandbox, Started, until};

/// The user of the service, who has no account.
const USER: u32 = 54_321;
const AS_USER: &[&str] = &[
    "setpriv",
    "--reuid=54321",
    "--regid=54321",
    "--groups=54300",
];
/// A group that the user is in.
const TEAM: u32 = 54_300;
/// Another user in that group.
const AS_COLLEAGUE: &[&str] = &[
    "setpriv",
    "--reuid=54322",
    "--regid=54322",
    "--groups=54300",
];

/// What services and their scripts do with a lock. `$L` is leasehold.
const USES: &str = r#"
    set -e
    "$L" run -q a --max-hold 5m -- echo run
    "$L" run -q a --until-all-end -- sh -c '(sleep 0.1; echo "the last process") &'

    token=$("$L" acquire a --detach)
    "$L" run -nq a -- echo overlap || echo "$?"
    "$L" check a --token "$token" && "$L" release a --token "$token" && echo released

    sleep 1000 & owner=$!
    token=$("$L" acquire a --while-pid "$owner")
    "$L" check a --token "$token" && kill "$owner"
    "$L" run -q a -- echo "after the owner"

    "$L" run -q a --max-hold 5m -- sh -c 'echo > started; exec sleep 1000' & run=$!
    until [ -e started ]; do sleep 0.01; done
    kill -9 "$run"
    "$L" run -q a -- echo "after the watchdog"
"#;
const USED: &str = "run\nthe last process\n75\nreleased\nafter the owner\nafter the watchdog\n";

/// A service whose locks are in a folder of its user, or on a server.
struct Service(Sandbox);

impl Service {
    fn on_folder() -> Self {
        Self::of(Sandbox::new())
    }

    fn on_redis() -> Self {
        let mut sandbox = Sandbox::on_redis();
        sandbox.set("crash-grace=1s");
        Self::of(sandbox)
    }

    fn of(sandbox: Sandbox) -> Self {
        set_permissions(sandbox.path(""), Permissions::from_mode(0o777)).unwrap();
        let store = sandbox.path("store");
        create_dir(&store).unwrap();
        chown(&store, Some(USER), Some(USER)).unwrap();
        Self(sandbox)
    }

    /// The folder belongs to a group with two users.
    fn in_group() -> Self {
        let service = Self::on_folder();
        let store = service.0.path("store");
        chown(&store, Some(0), Some(TEAM)).unwrap();
        set_permissions(&store, Permissions::from_mode(0o3770)).unwrap();
        service
    }

    /// Runs a script as these words start it.
    fn runs(&self, start: &[&str], script: &str) -> Finished {
        self.command(start, script).output().unwrap().into()
    }

    fn command(&self, start: &[&str], script: &str) -> Command {
        let mut command = Command::new(start[0]);
        command
            .args(&start[1..])
            .args(["sh", "-c", script])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("L", env!("CARGO_BIN_EXE_leasehold"))
            .env("LEASEHOLD_STORE", self.0.url())
            .current_dir(self.0.path(""));
        command
    }

    #[track_caller]
    fn works(&self, start: &[&str]) {
        let done = self.runs(start, USES);
        assert_eq!(done.out, USED, "{}: {done:?}", self.0.url());
    }

    /// Checks that a line fails with this exit code and message.
    #[track_caller]
    fn refuses(&self, start: &[&str], line: &str, code: i32, message: &str) {
        let done = self.runs(start, line);
        assert_eq!(done.code(), code, "{line}: {done:?}");
        assert!(done.err.contains(message), "{line}: {done:?}");
    }

    /// Checks that a line is granted the lock, or fails with an error that names the limit.
    #[track_caller]
    fn works_or_names(&self, start: &[&str], line: &str, must_work: bool, named: &str) {
        let done = self.runs(start, line);
        let is_expected = match done.status.code() {
            Some(0) => line != LIMITED_RUN || done.out == "run\n",
            Some(69) => !must_work && done.err.contains(named),
            _ => false,
        };
        assert!(is_expected, "{start:?}: {line}: {done:?}");
    }
}

/// The start of a program as the user, in a mount namespace in which a script has run.
fn mounted(script: &str) -> Vec<&str> {
    let namespace = [
        "unshare",
        "--mount",
        "sh",
        "-ec",
        "eval \"$0\"; exec \"$@\"",
        script,
    ];
    [&namespace, AS_USER].concat()
}

/// The start of a program as the user, under the filter of an option.
fn filtered(option: &str) -> Vec<&str> {
    let filter = ["python3", "-c", include_str!("seccomp.py"), option];
    [&filter, AS_USER].concat()
}

const RUN: &str = "\"$L\" run a -- true";
const ACQUIRE: &str = "\"$L\" acquire a --detach";

#[test]
fn protect_proc_invisible_works() {
    let hidden = mounted("mount -t proc -o hidepid=invisible proc /proc");
    Service::on_folder().works(&hidden);
    Service::on_redis().works(&hidden);
}

/// The kernel's list of locks names a process that `/proc` hides.
#[test]
fn holder_that_protect_proc_hides_is_named() {
    let service = Service::on_folder();
    let mut flock = Command::new("flock");
    flock.arg(service.0.path("store/a.lock")).arg("cat");
    let flock = Started::of(&mut flock);
    until("flock(1) holds the lock", || !service.0.flock("a"));

    let hidden = mounted("mount -t proc -o hidepid=invisible proc /proc");
    let done = service.runs(&hidden, "\"$L\" show a");
    let holder = format!("process {} or its descendants", flock.pid());
    assert!(done.out.contains(&holder), "{done:?}");
    assert_eq!(flock.end().code(), 0);
}

#[test]
fn proc_subset_pid_works_on_redis_and_is_named_on_a_folder() {
    let subset = mounted("mount -t proc -o subset=pid proc /proc");
    Service::on_redis().works(&subset);

    let folder = Service::on_folder();
    for line in [RUN, ACQUIRE] {
        folder.refuses(&subset, line, 64, "without ProcSubset=pid");
    }
}

#[test]
fn private_users_works() {
    let users = ["unshare", "--user", "--map-user=54321", "--map-group=54321"];
    let mapped = [AS_USER, &users].concat();
    Service::on_folder().works(&mapped);
    Service::on_redis().works(&mapped);
}

/// There, all other users have one number, and so have all other groups.
#[test]
fn private_users_share_a_folder_with_other_users() {
    let service = Service::in_group();
    let users = ["unshare", "--user", "--map-user=54321", "--map-group=54321"];
    let mapped = [AS_USER, &users].concat();
    for (holder, contender) in [(&mapped[..], AS_COLLEAGUE), (AS_COLLEAGUE, &mapped[..])] {
        let line = "\"$L\" run -q a -- sh -c 'echo held; cat'";
        let holder = Started::of(&mut service.command(holder, line));
        until("the lock is held", || !service.0.is_free("a"));
        let tries = "\"$L\" run -n a -- true";
        service.refuses(contender, tries, 75, "held by leasehold[");
        assert_eq!(holder.end().code(), 0);
        let done = service.runs(contender, "\"$L\" run a -- echo granted");
        assert_eq!(done.out, "granted\n", "{done:?}");
    }

    // The kernel gives new files the group only there.
    let without_bit = Service::in_group();
    set_permissions(without_bit.0.path("store"), Permissions::from_mode(0o770)).unwrap();
    for line in [RUN, ACQUIRE] {
        without_bit.refuses(&mapped, line, 77, "set the folder's setgid bit");
    }
}

#[test]
fn protect_system_strict_needs_a_writable_folder() {
    let strict = "mount --bind store store; mount -o remount,bind,ro store";
    let folder = Service::on_folder();
    for line in [RUN, ACQUIRE] {
        let message = "the file system is read-only; choose a writable folder";
        folder.refuses(&mounted(strict), line, 77, message);
    }
    Service::on_redis().works(&mounted(strict));
}

#[test]
fn protect_home_needs_another_folder() {
    let hidden = "mkdir -p home; mount -t tmpfs -o mode=000,ro none home; unset LEASEHOLD_STORE; \
                  export HOME=\"$PWD/home/app\"";
    let empty = "mkdir -p home; mount -t tmpfs -o mode=755,ro none home; unset LEASEHOLD_STORE; \
                 export HOME=\"$PWD/home/app\"";
    let service = Service::on_folder();
    for line in [RUN, ACQUIRE] {
        service.refuses(
            &mounted(hidden),
            line,
            77,
            "choose another folder with file:/some/folder",
        );
        service.refuses(
            &mounted(empty),
            line,
            64,
            "name a folder: file:/some/folder",
        );
    }
}

#[test]
fn restrict_address_families_needs_af_unix_where_processes_are_asked() {
    let restricted = filtered("RestrictAddressFamilies");
    for service in [Service::on_folder(), Service::on_redis()] {
        let done = service.runs(&restricted, "\"$L\" run a --max-hold 5m -- echo run");
        assert_eq!(done.out, "run\n", "{done:?}");

        let message = "add AF_UNIX to RestrictAddressFamilies=";
        service.refuses(&restricted, ACQUIRE, 77, message);
        service.refuses(&restricted, "\"$L\" hold a --while-pid $$", 77, message);

        let acquired = service.runs(AS_USER, "\"$L\" acquire a --detach --wait 0");
        let held = acquired.out.trim_end();
        for subcommand in ["check", "release"] {
            let line = format!("\"$L\" {subcommand} a --token {held}");
            service.refuses(&restricted, &line, 77, message);
        }
        let line = format!("\"$L\" check a --token {held} && \"$L\" release a --token {held}");
        assert_eq!(service.runs(AS_USER, &line).code(), 0);
    }
}

#[test]
fn restrict_namespaces_works() {
    let restricted = filtered("RestrictNamespaces");
    let folder = Service::on_folder();
    folder.refuses(
        &restricted,
        "unshare --user true",
        1,
        "Operation not permitted",
    );
    folder.works(&restricted);
    Service::on_redis().works(&restricted);
}

/// A call outside of the set would end the process.
#[test]
fn system_call_filter_of_services_works() {
    let limited = filtered("SystemCallFilter");
    let folder = Service::on_folder();
    folder.refuses(
        &limited,
        "python3 -c 'import os; os.chroot(\"/\")'; exit $?",
        159,
        "Bad system call",
    );
    folder.works(&limited);
    Service::on_redis().works(&limited);
}

#[test]
fn memory_deny_write_execute_works() {
    let denied = filtered("MemoryDenyWriteExecute");
    let folder = Service::on_folder();
    let executable = "python3 -c 'import mmap; mmap.mmap(-1, 4096, prot=7)'";
    folder.refuses(&denied, executable, 1, "PermissionError");
    folder.works(&denied);
    Service::on_redis().works(&denied);
}

/// It implies `RestrictSUIDSGID=`. `HOME` is missing, or `/`.
#[test]
fn dynamic_user_works_in_a_folder_of_its_own() {
    let restricted = filtered("RestrictSUIDSGID");
    let privileges = ["--no-new-privs", "env", "HOME=/"];
    let dynamic = [&restricted[..], &privileges].concat();
    let folder = Service::on_folder();
    folder.works(&dynamic);
    Service::on_redis().works(&dynamic);

    let line = "unset LEASEHOLD_STORE; \"$L\" run a -- true";
    folder.refuses(
        &dynamic,
        line,
        77,
        "choose another folder with file:/some/folder",
    );
}

/// The folders inside the folder of a group have the set-group-ID bit, which the option forbids.
#[test]
fn dynamic_user_needs_a_folder_that_its_group_has_used() {
    let dynamic = filtered("RestrictSUIDSGID");
    let mapped = [&dynamic[..], &["unshare", "--user", "--map-user=54321"]].concat();
    for (folder, setting) in [("store", ""), ("store/new", "?mode=0660")] {
        let service = Service::in_group();
        let url = format!("file:{}{setting}", service.0.path(folder).display());
        let export = format!("umask 022; export LEASEHOLD_STORE='{url}'");
        for line in [RUN, ACQUIRE] {
            let message = "use this lock once outside of the unit";
            service.refuses(&dynamic, &format!("{export}; {line}"), 77, message);
        }

        let colleague = service.runs(AS_COLLEAGUE, &format!("{export}; {RUN}"));
        assert_eq!(colleague.code(), 0, "{folder}: {colleague:?}");
        for start in [&dynamic[..], &mapped[..], AS_COLLEAGUE] {
            let done = service.runs(start, &format!("rm -f started; {export}\n{USES}"));
            assert_eq!(done.out, USED, "{folder}: {start:?}: {done:?}");
        }
    }
}

/// A command that fails leaves its lock free for the next one.
const LIMITED_RUN: &str = "exec \"$L\" run -n a -- echo run";
/// The owner ends with the command, and the background process a moment later.
const LIMITED_ACQUIRE: &str = "exec \"$L\" acquire -n b$$ --while-pid $$";

/// The recipes name 8 tasks.
#[test]
fn tasks_max_is_enough_or_named() {
    // The kernel counts the tasks of a user, so no other test may use this one.
    const COUNTED: u32 = 54_323;
    let user = [
        "setpriv",
        "--reuid=54323",
        "--regid=54323",
        "--groups=54300",
    ];
    let ended = || !user_runs(COUNTED);
    for service in [Service::in_group(), Service::on_redis()] {
        for count in 1..=8 {
            let limit = format!("--nproc={count}");
            let limited = [&user[..], &["prlimit", &limit]].concat();
            for line in [LIMITED_RUN, LIMITED_ACQUIRE] {
                until("no process of the user is left", ended);
                let named = "TasksMax=";
                service.works_or_names(&limited, line, count == 8, named);
            }
        }
    }
}

fn user_runs(user: u32) -> bool {
    let processes = read_dir("/proc").unwrap().flatten();
    let mut users = processes.filter_map(|process| Some(process.metadata().ok()?.uid()));
    users.any(|found| found == user)
}

/// The recipes name 64 descriptors.
#[test]
fn limit_nofile_is_enough_or_named() {
    for service in [Service::on_folder(), Service::on_redis()] {
        for count in (6..=40).step_by(2).chain([64]) {
            let limit = format!("--nofile={count}");
            let limited = [AS_USER, &["prlimit", &limit]].concat();
            for line in [LIMITED_RUN, LIMITED_ACQUIRE] {
                let named = "LimitNOFILE=";
                service.works_or_names(&limited, line, count == 64, named);
            }
        }
    }
}
