//! File systems of this machine: which of them are accepted, and the errors of their files.
//!
//! The file store and fenced files both need a file system that one machine uses alone.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::{fstat, fstatfs, major, minor};
use rustix::io::{Errno, pwrite, retry_on_intr};
use rustix::process::{Resource, getrlimit};

use crate::{Error, Result};

/// Which file systems are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locality {
    /// Only file systems that are known to be local are accepted.
    Known,
    /// The user states that the file system is local. Only known network file systems are refused.
    Stated,
}

/// Refuses a file system that other machines may use too.
///
/// A FIFO, and often a flock, has no effect across machines. Two machines could hold the same lock.
/// `help` says how to state that an unknown file system is local.
pub(crate) fn check_local(
    folder: impl AsFd,
    path: &Path,
    locality: Locality,
    help: &str,
) -> Result<()> {
    let number = system_number(&folder, path)?;
    if is_local(number) {
        return Ok(());
    }

    let path = path.display();
    if let Some(system) = network_system(number) {
        let message =
            format!("{path} is on {system}, where file locks do not work across machines");
        return Err(Error::unsupported(message)
            .help("choose a folder on a local disk, or a store made for several machines"));
    }
    if locality == Locality::Stated {
        return Ok(());
    }

    let system = mounted_system(&folder).unwrap_or_else(|| "of a type without a name".to_owned());
    let message = format!("{path} is on an unknown file system, {system} (0x{number:X})");
    Err(Error::unsupported(message).help(help.to_owned()))
}

/// Turns an error of the kernel into one for the user. `action` reads like "open the queue file".
pub(crate) fn io_error(error: impl Into<io::Error>, action: &str, path: &Path) -> Error {
    let error = error.into();
    let message = |reason: &str| format!("cannot {action} {}: {reason}", path.display());

    let described = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS | Errno::PERM) => Error::denied(message("permission denied")).help(
            "give this user access to the folder and all files in it, \
             or choose another folder with file:/some/folder",
        ),
        Some(Errno::ROFS) => Error::denied(message("the file system is read-only"))
            .help("choose a writable folder with file:/some/folder"),
        Some(Errno::NOSPC | Errno::DQUOT) => Error::unavailable(message("the disk is full"))
            .help("free some space, or choose a folder on another disk"),
        Some(Errno::MFILE | Errno::NFILE | Errno::FBIG) => {
            let what = format_args!("cannot {action} {}", path.display());
            return Error::exhausted(error, what);
        }
        Some(Errno::NOENT) => Error::invalid(message("no such file or folder")),
        Some(Errno::EXIST) => Error::invalid(message("the path exists and is not a folder")),
        Some(Errno::NOTDIR) => Error::invalid(message("a part of the path is not a folder")),
        Some(Errno::LOOP) => {
            Error::damaged(message("the path is a symbolic link")).help("remove the link")
        }
        Some(Errno::NAMETOOLONG) => {
            Error::invalid(message("the path is too long")).help("choose a shorter folder")
        }
        _ => Error::unavailable(message(&error.to_string())),
    };
    described.caused_by(error)
}

/// A user of this machine as errors show it: by name if it has one.
pub(crate) fn user_shown(user: u32) -> String {
    user_name(user).unwrap_or_else(|| format!("user {user}"))
}

fn user_name(user: u32) -> Option<String> {
    let table = std::fs::read_to_string("/etc/passwd").ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let is_this_user = fields.nth(1)?.parse() == Ok(user);
        is_this_user.then(|| name.to_owned())
    })
}

/// Writes bytes at a place in a file, unless the process may not write a file of that length.
///
/// At the limit the kernel writes a part of the bytes, and then ends the process by SIGXFSZ. The
/// signals of the process are not leasehold's to change, so this knows the limit first. It reads the
/// limit once a second, and again before it goes on with what was written in part.
pub(crate) fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    let end = at + bytes.len() as u64;
    check_within(recent_limit(), end)?;
    let written = retry_on_intr(|| pwrite(file, bytes, at))?;
    if written == bytes.len() {
        return Ok(());
    }

    check_file_size(end)?;
    file.write_all_at(&bytes[written..], at + written as u64)
}

/// Writes the former bytes back after a write that failed at the limit, as far as the limit allows:
/// so far the write may have come.
pub(crate) fn write_back(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    let allowed = usize::try_from(limit.saturating_sub(at)).unwrap_or(usize::MAX);
    file.write_all_at(&bytes[..allowed.min(bytes.len())], at)
}

/// Fails if this process may not write a file of this length.
pub(crate) fn check_file_size(len: u64) -> io::Result<()> {
    check_within(getrlimit(Resource::Fsize).current, len)
}

fn check_within(limit: Option<u64>, len: u64) -> io::Result<()> {
    match limit {
        Some(limit) if len > limit => Err(Errno::FBIG.into()),
        _ => Ok(()),
    }
}

/// The limit on the size of files, as it was at most a second ago.
fn recent_limit() -> Option<u64> {
    static READ: Mutex<Option<(Instant, Option<u64>)>> = Mutex::new(None);
    let mut read = READ.lock();
    match *read {
        Some((at, limit)) if at.elapsed() < LOOK_INTERVAL => limit,
        _ => {
            let limit = getrlimit(Resource::Fsize).current;
            *read = Some((Instant::now(), limit));
            limit
        }
    }
}

/// The number by which statfs(2) names the type of a file system.
pub(crate) fn system_number(folder: impl AsFd, path: &Path) -> Result<u32> {
    let status = fstatfs(folder).map_err(|error| io_error(error, "inspect the folder", path))?;

    // The field's type differs between machines; the numbers are 32 bits wide everywhere.
    #[allow(
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation,
        clippy::unnecessary_cast
    )]
    let number = status.f_type as u32;
    Ok(number)
}

/// The numbers of statfs(2) for file systems that belong to one machine.
fn is_local(number: u32) -> bool {
    const LOCAL: [u32; 11] = [
        0xEF53,      // ext2, ext3, ext4
        0x5846_5342, // xfs
        0x9123_683E, // btrfs
        0x2FC1_2FC1, // zfs
        0xF2F5_2010, // f2fs
        0xCA45_1A4E, // bcachefs
        0x3153_464A, // jfs
        0x5265_4973, // reiserfs
        0x794C_7630, // overlay
        0x0102_1994, // tmpfs
        0x8584_58F6, // ramfs
    ];
    LOCAL.contains(&number)
}

/// The numbers of statfs(2) for file systems that several machines use.
fn network_system(number: u32) -> Option<&'static str> {
    Some(match number {
        0x6969 => "NFS",
        0x517B | 0xFE53_4D42 | 0xFF53_4D42 => "SMB",
        0x564C => "NCP",
        0x0102_1997 => "9P",
        0x00C3_6400 => "Ceph",
        0x5346_414F | 0x6B41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x0116_1970 => "GFS2",
        0x7461_636F => "OCFS2",
        0x0BD0_0BD0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0x2003_0528 => "OrangeFS",
        0xAAD7_AAEA => "PanFS",
        0xBEEF_DEAD => "StorNext",
        0x0131_11A8 => "IBRIX",
        0x6163_6673 => "ACFS",
        0x786F_4256 => "a VirtualBox share",
        0xBACB_ACBC => "a VMware share",
        0x7C7C_6673 => "a Parallels share",
        0x5346_4846 => "a WSL share",
        _ => return None,
    })
}

/// The name of the file system in the kernel's table of mounts, such as `fuse.sshfs`.
fn mounted_system(folder: impl AsFd) -> Option<String> {
    let number = fstat(folder).ok()?.st_dev;
    let device = format!("{}:{}", major(number), minor(number));

    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    table
        .lines()
        .find_map(|line| system_of(line, &device).map(str::to_owned))
}

/// Reads a line such as `36 35 98:0 / /mnt rw master:1 - ext4 /dev/sda1 rw`.
fn system_of<'a>(line: &'a str, device: &str) -> Option<&'a str> {
    let (mount, system) = line.split_once(" - ")?;
    let is_this_device = mount.split(' ').nth(2) == Some(device);
    is_this_device.then(|| system.split(' ').next()).flatten()
}

/// How long something that another program rarely changes counts as it was when it was looked at.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_system_is_local_network_or_unknown() {
        const EXT4: u32 = 0xEF53;
        const BEEGFS: u32 = 0x1983_0326;
        const FUSE: u32 = 0x6573_5546;

        assert!(is_local(EXT4) && !is_local(BEEGFS) && !is_local(FUSE));
        assert_eq!(network_system(BEEGFS), Some("BeeGFS"));
        assert_eq!(network_system(EXT4), None);
        assert_eq!(network_system(FUSE), None);
    }

    #[test]
    fn mounted_system_is_named_as_the_kernel_names_it() {
        let line =
            "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - fuse.sshfs me@host:/ rw,errors=continue";
        assert_eq!(system_of(line, "98:0"), Some("fuse.sshfs"));
        assert_eq!(system_of(line, "98:1"), None);

        let proc = std::fs::File::open("/proc").expect("/proc is mounted");
        assert_eq!(mounted_system(&proc).as_deref(), Some("proc"));
    }

    #[test]
    fn stated_locality_accepts_unknown_file_systems() {
        let path = Path::new("/proc");
        let proc = std::fs::File::open(path).expect("/proc is mounted");

        let refused =
            check_local(&proc, path, Locality::Known, "say so").expect_err("proc is unknown");
        assert!(
            refused.is_unsupported() && refused.to_string().contains("unknown file system, proc"),
            "{refused}"
        );

        check_local(&proc, path, Locality::Stated, "say so").expect("stated");
    }
}
