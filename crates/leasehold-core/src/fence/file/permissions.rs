//! The users who may open a file, and how the file in its place gets the same ones.

use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::fs::{
    Gid, Mode, Uid, XattrFlags, fchmod, fchown, fgetxattr, fremovexattr, fsetxattr, fstat,
};
use rustix::io::{Errno, Result};

/// Owner, group, mode and ACL of a file.
#[derive(Debug)]
pub(super) struct Permissions {
    owner: Uid,
    group: Gid,
    mode: Mode,
    /// As the kernel encodes it; `None` if the mode says everything.
    acl: Option<Vec<u8>>,
}

impl Permissions {
    pub(super) fn of(file: &OwnedFd) -> Result<Self> {
        let status = fstat(file)?;
        Ok(Self {
            owner: Uid::from_raw(status.st_uid),
            group: Gid::from_raw(status.st_gid),
            mode: Mode::from_raw_mode(status.st_mode) & RIGHTS,
            acl: acl_of(file)?,
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
        match fremovexattr(new, ACL) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
        let mode = if has_group {
            self.mode
        } else {
            self.without_group()
        };
        fchmod(new, mode)
    }

    /// Gives a file its owner and its group, or the group alone. Returns whether it has the group.
    fn give_owner(&self, new: &OwnedFd) -> Result<bool> {
        let status = fstat(new)?;
        if status.st_uid == self.owner.as_raw() && status.st_gid == self.group.as_raw()
            || fchown(new, Some(self.owner), Some(self.group)).is_ok()
        {
            return Ok(true);
        }

        match fchown(new, None, Some(self.group)) {
            Ok(()) => Ok(true),
            // This user is not in the group, or the group has no number in this user namespace.
            Err(Errno::PERM | Errno::INVAL) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// With an ACL, the mode does not say what the group may do.
    fn without_group(&self) -> Mode {
        let of_group = match self.acl {
            None => (self.mode & Mode::RWXG).bits() >> GROUP_SHIFT,
            Some(_) => 0,
        };
        self.mode & (Mode::RWXU | Mode::from_bits_truncate(of_group))
    }
}

fn acl_of(file: &OwnedFd) -> Result<Option<Vec<u8>>> {
    let mut acl = Vec::with_capacity(ACL_MAX);
    match fgetxattr(file, ACL, spare_capacity(&mut acl)) {
        Ok(_) => Ok(Some(acl)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a mode may give. Set-user-ID, set-group-ID and sticky bits belong to the old file alone.
const RIGHTS: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);

/// From the rights of the group to those of all other users.
const GROUP_SHIFT: u32 = 3;

/// The extended attribute that has the ACL of a file.
const ACL: &str = "system.posix_acl_access";

/// The most bytes of an extended attribute.
const ACL_MAX: usize = 64 * 1024;
