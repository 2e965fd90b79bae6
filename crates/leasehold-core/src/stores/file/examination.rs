//! Risks to the locks in a folder.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{StatVfs, statvfs};

use crate::examination::{Check, Examination};
use crate::local_fs::system_number;

/// The findings have this order.
const CHECKS: &[Check<FolderFacts>] = &[
    Check::warning("overlay", is_overlay)
        .message(
            "the folder is in an overlay file system, as the root of a container is: other \
             containers see another folder",
        )
        .remedy("mount a volume of the machine there, the same one in each container"),
    Check::warning("memory-file-system", is_in_memory)
        .message(
            "the folder is in memory: after a restart of the machine, tokens continue from the \
             clock",
        )
        .remedy(
            "use a folder on a disk, if a resource checks tokens and the clock may be set back",
        ),
    Check::warning("disk-full", scarce_space)
        .message("the disk has {} files left")
        .remedy("free some space: without it, no lock can be acquired"),
    Check::warning("world-writable", mode_for_all)
        .message("every user of the machine may write to the folder (mode {})")
        .remedy("chmod o-w, and a group for the users that share the locks"),
    Check::warning("protected-files", missing_protections)
        .message(
            "every user may put files of locks into the folder, and the kernel does not protect \
             other users from them: {} is 0",
        )
        .remedy("sysctl -w fs.protected_regular=1 fs.protected_fifos=1"),
];

/// The numbers of statfs(2).
const OVERLAY: u32 = 0x794C_7630;
const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58F6;

const STICKY: u32 = 0o1000;
const WRITABLE_BY_ALL: u32 = 0o002;
const BYTES_MIN: u64 = 16 << 20;
const FILES_MIN: u64 = 1_000;

/// What the kernel reports of a folder. A part is absent if it cannot be read.
struct FolderFacts {
    file_system: Option<u32>,
    space: Option<StatVfs>,
    mode: Option<u32>,
    /// The protections of sticky folders that are switched off.
    switched_off: Vec<&'static str>,
}

/// Examines the folder of a store that can be opened.
pub(crate) fn examine(folder: &Path) -> Examination {
    let opened = std::fs::File::open(folder).ok();
    let metadata = std::fs::metadata(folder).ok();
    let mut protections = vec!["fs.protected_regular", "fs.protected_fifos"];
    protections.retain(|sysctl| is_switched_off(sysctl));
    let facts = FolderFacts {
        file_system: opened.and_then(|opened| system_number(&opened, folder).ok()),
        space: statvfs(folder).ok(),
        mode: metadata.map(|metadata| metadata.mode()),
        switched_off: protections,
    };

    let mut examination = Examination::default();
    examination.check(CHECKS, &facts, folder.display());
    examination
}

fn is_overlay(facts: &FolderFacts) -> Option<String> {
    (facts.file_system? == OVERLAY).then(String::new)
}

fn is_in_memory(facts: &FolderFacts) -> Option<String> {
    matches!(facts.file_system?, TMPFS | RAMFS).then(String::new)
}

fn mode_for_all(facts: &FolderFacts) -> Option<String> {
    let mode = facts.mode? & 0o7777;
    (mode & WRITABLE_BY_ALL != 0).then(|| format!("{mode:o}"))
}

fn scarce_space(facts: &FolderFacts) -> Option<String> {
    let space = facts.space.as_ref()?;
    let bytes = space.f_bavail.saturating_mul(space.f_frsize);
    // Some file systems have no fixed number of files, and report 0.
    let has_files = space.f_files == 0 || space.f_favail > FILES_MIN;
    let is_scarce = bytes <= BYTES_MIN || !has_files;
    is_scarce.then(|| format!("{} MiB and {}", bytes >> 20, space.f_favail))
}

/// In a sticky folder, the kernel can refuse to open the file or the FIFO that another user has put
/// where a program expects its own.
fn missing_protections(facts: &FolderFacts) -> Option<String> {
    let mode = facts.mode?;
    let is_shared = mode & STICKY != 0 && mode & WRITABLE_BY_ALL != 0;
    (is_shared && !facts.switched_off.is_empty()).then(|| facts.switched_off.join(" and "))
}

/// Whether a setting of the kernel is 0.
fn is_switched_off(sysctl: &str) -> bool {
    let path = Path::new("/proc/sys").join(sysctl.replace('.', "/"));
    std::fs::read_to_string(path).is_ok_and(|value| value.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprotected_files_of_a_sticky_folder_are_a_warning() {
        let message = |mode, switched_off: &[&'static str]| {
            let facts = FolderFacts {
                file_system: None,
                space: None,
                mode: Some(mode),
                switched_off: switched_off.to_vec(),
            };
            let mut findings = CHECKS.iter().filter_map(|check| check.finding(&facts));
            let found = findings.find(|finding| finding.code == "protected-files");
            found.map(|finding| finding.message)
        };
        let fifos = message(0o1777, &["fs.protected_fifos"]).expect("a finding");
        assert!(fifos.ends_with(": fs.protected_fifos is 0"), "{fifos}");

        assert_eq!(message(0o1777, &[]), None);
        assert_eq!(message(0o3770, &["fs.protected_fifos"]), None);
        assert_eq!(message(0o777, &["fs.protected_fifos"]), None);
    }
}
