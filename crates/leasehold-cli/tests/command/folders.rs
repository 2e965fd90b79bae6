//! Folders that cannot be used, each made so for real.

use std::fs::{Permissions, create_dir, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::place::{Done, Place};

/// A shell in a mount namespace of its own, as root there. `$L` is the program, `$D` a folder to mount on.
fn shell(place: &Place, script: &str) -> Done {
    let folder = place.path("mounted");
    create_dir(&folder).ok();
    let mut shell = Command::new("unshare");
    shell.args(["--map-root-user", "--mount", "sh", "-ec", script]);
    shell.env("L", env!("CARGO_BIN_EXE_leasehold")).env("D", folder).env_remove("LEASEHOLD_STORE");
    shell.output().expect("unshare is part of util-linux").into()
}

#[test]
fn a_full_disk_is_said_and_loses_nothing() {
    let place = Place::new();
    let script = "mount -t tmpfs -o size=64k none $D; S=file:$D/store
        $L run --store $S used -- true
        dd if=/dev/zero of=$D/fill bs=4k 2> /dev/null || true
        $L run --store $S used -- echo 'a known name still works'
        $L run --store $S new -- true || echo $?
        rm $D/fill
        $L run --store $S new -- echo 'room again'";
    let done = shell(&place, script);
    assert_eq!(done.out, "a known name still works\n69\nroom again\n");
    assert!(done.err.contains("the disk is full; free some space"), "{}", done.err);
}

#[test]
fn a_read_only_folder_is_said() {
    let place = Place::new();
    let script = "mount -t tmpfs none $D; $L run --store file:$D/store a -- true; mount -o remount,ro $D
        $L run --store file:$D/store a -- true || echo $?
        $L run --store file:$D/other a -- true || echo $?";
    let done = shell(&place, script);
    assert_eq!(done.out, "77\n77\n");
    assert_eq!(done.err.matches("read-only; choose a folder that can be written").count(), 2, "{}", done.err);
}

#[test]
fn a_network_file_system_is_refused() {
    let place = Place::new();
    create_dir(place.path("behind")).unwrap();
    let script = "bindfs $D/../behind $D; $L run --store file:$D a -- true || echo $?; umount $D";
    let done = shell(&place, script);
    assert_eq!(done.out, "64\n", "{}", done.err);
    assert!(done.err.contains("is on FUSE, where file locks do not hold"), "{}", done.err);
}

#[test]
fn missing_permission_is_said() {
    let place = Place::new();
    place.done(&["run", "a", "--", "true"]).assert(0, "", "");
    let store = place.path("store");
    for (path, mode) in [("a.line", 0o400), (".members", 0o500), ("", 0o500)] {
        let path = store.join(path);
        set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let name = if path.ends_with("a.line") { "a" } else { "new" };
        // Not root there, whoever we are here: the modes count.
        let mut command = Command::new("unshare");
        command.args(["--map-user=1000", env!("CARGO_BIN_EXE_leasehold"), "run", name, "--store", &place.url()]);
        let done: Done = command.args(["--", "true"]).output().unwrap().into();
        assert_eq!(done.code(), 77, "{}", done.err);
        assert!(done.err.contains("permission denied; give this user"), "{}", done.err);
        set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn what_is_no_folder_is_wrong_usage() {
    let place = Place::new();
    for store in ["file:/etc/hostname", "file:/proc/store", "file://elsewhere/store"] {
        let done = place.done(&["run", "a", "--store", store, "--", "true"]);
        assert_eq!(done.code(), 64, "{}", done.err);
    }
}
