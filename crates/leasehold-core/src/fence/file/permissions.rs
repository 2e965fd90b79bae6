//! The users who may open a file, and how the file in its place gets the same ones.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::fs::{
    Gid, Mode, Stat, Uid, XattrFlags, fchmod, fchown, fgetxattr, fremovexattr, fsetxattr, fstat,
};
use rustix::io::{Errno, Result};

/// Owner, group, mode and ACL of a file.
pub(super) struct Permissions {
    status: Stat,
    /// As the kernel encodes it; `None` if the mode says everything.
    acl: Option<Vec<u8>>,
}

impl Permissions {
    pub(super) fn of(file: &OwnedFd) -> Result<Self> {
        let mut acl = Vec::with_capacity(ACL_MAX);
        let found = if_supported(fgetxattr(file, ACL, spare_capacity(&mut acl)))?;
        Ok(Self {
            status: fstat(file)?,
            acl: found.map(|_| acl),
        })
    }

    /// Opens a complete file of this process, whose mode is 0600, to the same users.
    ///
    /// The writer owns the new file if only root could give it to the old owner. If the group
    /// cannot be kept, the new group gets no right. All other users, who have the members of the
    /// old group among them then, get no right that this group did not have.
    pub(super) fn give_to(&self, new: &OwnedFd) -> Result<()> {
        let has_group = self.give_owner(new)?;
        if has_group && let Some(acl) = &self.acl {
            return fsetxattr(new, ACL, acl, XattrFlags::empty());
        }

        // The file has the default ACL of the folder, if there is one. It has had no effect yet,
        // because the mode of the group limits it.
        if_supported(fremovexattr(new, ACL))?;
        fchmod(new, self.mode(has_group))
    }

    /// Gives a file its owner and its group, or the group alone. Returns whether it has the group.
    fn give_owner(&self, new: &OwnedFd) -> Result<bool> {
        if !is_unambiguous(self.status.st_gid, "/proc/self/gid_map") {
            return Ok(false);
        }
        let group = Some(Gid::from_raw(self.status.st_gid));
        let owner = Some(Uid::from_raw(self.status.st_uid));
        let is_known = is_unambiguous(self.status.st_uid, "/proc/self/uid_map");
        if is_known && fchown(new, owner, group).is_ok() {
            return Ok(true);
        }
        match fchown(new, None, group) {
            Ok(()) => Ok(true),
            // This user is not in the group, or the group has no number in this user namespace.
            Err(Errno::PERM | Errno::INVAL) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The mode of the new file. Set-user-ID, set-group-ID and sticky bits remain with the old file.
    ///
    /// If the old file has an ACL, its mode does not say what its group may do.
    fn mode(&self, has_group: bool) -> Mode {
        let mode = Mode::from_raw_mode(self.status.st_mode);
        let of_group = Mode::from_bits_truncate((mode & Mode::RWXG).bits() >> GROUP_SHIFT);
        match (has_group, &self.acl) {
            (true, _) => mode & (Mode::RWXU | Mode::RWXG | Mode::RWXO),
            (false, None) => mode & (Mode::RWXU | of_group),
            (false, Some(_)) => mode & Mode::RWXU,
        }
    }
}

/// Whether this is the number of one user or group, and not of all that have none in this user
/// namespace. There may be a user or a group of the namespace with the latter number too.
fn is_unambiguous(id: u32, map: &str) -> bool {
    id != OVERFLOW_ID
        || fs::read_to_string(map)
            .is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}

/// The outcome of a request for an ACL; `None` if the file has none.
fn if_supported<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// The usual number of all users and groups without one: `user_namespaces(7)`.
const OVERFLOW_ID: u32 = 65_534;

/// From the rights of the group to those of all other users.
const GROUP_SHIFT: u32 = 3;

/// The extended attribute that has the ACL of a file.
const ACL: &str = "system.posix_acl_access";

/// The most bytes of an extended attribute.
const ACL_MAX: usize = 64 * 1024;
