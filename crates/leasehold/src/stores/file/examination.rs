//! Risks to the locks in a folder.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{StatVfs, statvfs};

use crate::examination::{Examination, Finding};
use crate::local_fs::system_number;

/// Examines the folder of a store that can be opened.
pub(crate) fn examine(folder: &Path) -> Examination {
    let mut examination = Examination::default();
    let findings = &mut examination.findings;
    findings.extend(file_system(folder));
    findings.extend(space(folder));
    if let Ok(status) = std::fs::metadata(folder) {
        findings.extend(other_users(status.mode()));
        findings.extend(protection(status.mode(), is_switched_off));
    }
    for finding in &mut examination.findings {
        finding.server = folder.display().to_string();
    }
    examination
}

fn file_system(folder: &Path) -> Option<Finding> {
    /// The numbers of statfs(2).
    const OVERLAY: u32 = 0x794C_7630;
    const TMPFS: u32 = 0x0102_1994;
    const RAMFS: u32 = 0x8584_58F6;

    let opened = std::fs::File::open(folder).ok()?;
    match system_number(&opened, folder).ok()? {
        OVERLAY => Some(Finding::warning(
            "overlay",
            "the folder is in an overlay file system, as the root of a container is: other \
             containers see another folder",
            "mount a volume of the machine there, the same one in each container",
        )),
        TMPFS | RAMFS => Some(Finding::warning(
            "memory-file-system",
            "the folder is in memory: after a restart of the machine, tokens continue from the \
             clock",
            "use a folder on a disk, if a resource checks tokens and the clock may be set back",
        )),
        _ => None,
    }
}

fn space(folder: &Path) -> Option<Finding> {
    let status: StatVfs = statvfs(folder).ok()?;
    let bytes = status.f_bavail.saturating_mul(status.f_frsize);
    // Some file systems have no fixed number of files, and report 0.
    let has_files = status.f_files == 0 || status.f_favail > FILES_MIN;
    if bytes > BYTES_MIN && has_files {
        return None;
    }
    let mib = bytes >> 20;
    let message = format!("the disk has {mib} MiB and {} files left", status.f_favail);
    let remedy = "free some space: without it, no lock can be acquired";
    Some(Finding::warning("disk-full", message, remedy))
}

fn other_users(mode: u32) -> Option<Finding> {
    (mode & WRITABLE_BY_ALL != 0).then(|| {
        let mode = mode & 0o7777;
        let message = format!("every user of the machine may write to the folder (mode {mode:o})");
        let remedy = "chmod o-w, and a group for the users that share the locks";
        Finding::warning("world-writable", message, remedy)
    })
}

/// In a sticky folder, the kernel can refuse to open the file or the FIFO that another user has put
/// where a program expects its own.
fn protection(mode: u32, is_switched_off: impl Fn(&str) -> bool) -> Option<Finding> {
    if mode & STICKY == 0 || mode & WRITABLE_BY_ALL == 0 {
        return None;
    }
    let mut sysctls = vec!["fs.protected_regular", "fs.protected_fifos"];
    sysctls.retain(|sysctl| is_switched_off(sysctl));
    if sysctls.is_empty() {
        return None;
    }

    let message = format!(
        "every user may put files of locks into the folder, and the kernel does not protect other \
         users from them: {} is 0",
        sysctls.join(" and ")
    );
    let remedy = "sysctl -w fs.protected_regular=1 fs.protected_fifos=1";
    Some(Finding::warning("protected-files", message, remedy))
}

/// Whether a setting of the kernel is 0.
fn is_switched_off(sysctl: &str) -> bool {
    let path = Path::new("/proc/sys").join(sysctl.replace('.', "/"));
    std::fs::read_to_string(path).is_ok_and(|value| value.trim() == "0")
}

const STICKY: u32 = 0o1000;
const WRITABLE_BY_ALL: u32 = 0o002;
const BYTES_MIN: u64 = 16 << 20;
const FILES_MIN: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprotected_files_of_a_sticky_folder_are_a_warning() {
        let message = |mode, off: &'static [&str]| {
            let found = protection(mode, |sysctl| off.contains(&sysctl));
            found.map(|finding| finding.message)
        };
        let fifos = message(0o1777, &["fs.protected_fifos"]).expect("a finding");
        assert!(fifos.ends_with(": fs.protected_fifos is 0"), "{fifos}");

        assert_eq!(message(0o1777, &[]), None);
        assert_eq!(message(0o3770, &["fs.protected_fifos"]), None);
        assert_eq!(message(0o777, &["fs.protected_fifos"]), None);
    }
}
