//! The users that may use the files of a folder: the folder's mode and group decide.
//!
//! | folder | files and FIFOs | folders inside |
//! |---|---|---|
//! | only its owner may write: 0700, 0755 | 0600 | 0700 |
//! | its group may write: 0770, 2775, 3770 | 0660 with its group | 2770 with its group |
//! | all users may write: 0777, 1777 | 0666 | 0777 |
//!
//! A folder inside has the sticky bit if the folder has it. No class of users gets only the right
//! to read: a user who may open a file may lock it with flock(2), and delay all others.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Gid, Mode, Stat, fstat};
use rustix::process::{geteuid, getgroups};

use super::object::{Change, Changed, ObjectKind};
use crate::local_fs::io_error;
use crate::{Error, Result};

/// The users that may use the files of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Owner,
    Group,
    AllUsers,
}

impl Access {
    /// Parses the mode of files, as a URL states it.
    pub(crate) fn of_file_mode(mode: &str) -> Result<Self> {
        match mode.trim_start_matches('0') {
            "600" => Ok(Self::Owner),
            "660" => Ok(Self::Group),
            "666" => Ok(Self::AllUsers),
            _ => Err(Error::invalid(format!("the mode {mode:?} is unknown"))
                .help("write mode=0600, mode=0660 or mode=0666")),
        }
    }

    fn of_folder(mode: Mode) -> Self {
        if mode.contains(Mode::WOTH) {
            Self::AllUsers
        } else if mode.contains(Mode::WGRP) {
            Self::Group
        } else {
            Self::Owner
        }
    }
}

/// The mode and the group that the files of a folder get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sharing {
    access: Access,
    group: Gid,
    owner: u32,
    is_sticky: bool,
}

impl Sharing {
    /// Returns the sharing that a folder with this status determines. A stated access takes
    /// precedence.
    pub(crate) fn of(folder: &Stat, stated: Option<Access>) -> Self {
        let mode = Mode::from_raw_mode(folder.st_mode);
        Self {
            access: stated.unwrap_or_else(|| Access::of_folder(mode)),
            group: Gid::from_raw(folder.st_gid),
            owner: folder.st_uid,
            is_sticky: mode.contains(Mode::SVTX),
        }
    }

    /// Returns the sharing of a new folder, which has no status yet. A folder for all users gets
    /// the sticky bit, so users cannot remove each other's files.
    pub(crate) fn of_new_folder(folder: &Stat, access: Access) -> Self {
        Self {
            is_sticky: access == Access::AllUsers,
            ..Self::of(folder, Some(access))
        }
    }

    pub(crate) fn is_private(self) -> bool {
        self.access == Access::Owner
    }

    /// Gives a new file, FIFO or directory its group and its mode, regardless of the umask.
    pub(crate) fn apply(self, new: &OwnedFd, kind: ObjectKind, path: &Path) -> Result<()> {
        self.change(kind, geteuid().as_raw())
            .apply_to_new(new, path)
    }

    /// Gives an existing file or directory of this user the mode that a crash, or an earlier mode
    /// of the folder, left it without. Root does the same for the owner of the folder.
    ///
    /// An object that another program may have made stays as it is, and its use then reports an
    /// error. So does a folder of long names while it has files.
    pub(crate) fn repair(self, found: &OwnedFd, kind: ObjectKind, path: &Path) -> Result<()> {
        if self.is_private() {
            return Ok(());
        }

        let status = fstat(found).map_err(|error| io_error(error, "inspect", path))?;
        let user = geteuid();
        let is_for_owner = user.is_root() && status.st_uid == self.owner;
        let owner = if is_for_owner {
            self.owner
        } else {
            user.as_raw()
        };
        if self.change(kind, owner).apply(found, path)? == Changed::Refused {
            tracing::debug!(path = %path.display(), "left the mode as it is");
        }
        Ok(())
    }

    fn change(self, kind: ObjectKind, owner: u32) -> Change {
        Change {
            kind,
            owner,
            group: (self.access == Access::Group).then_some(self.group),
            mode: match kind {
                ObjectKind::Directory => self.directory_mode(),
                ObjectKind::NewFile | ObjectKind::Counter | ObjectKind::Fifo => self.file_mode(),
            },
        }
    }

    fn file_mode(self) -> Mode {
        match self.access {
            Access::Owner => OWNER,
            Access::Group => OWNER | GROUP,
            Access::AllUsers => OWNER | GROUP | OTHERS,
        }
    }

    fn directory_mode(self) -> Mode {
        let mode = match self.access {
            Access::Owner => return Mode::RWXU,
            Access::Group => Mode::RWXU | Mode::RWXG | Mode::SGID,
            Access::AllUsers => Mode::RWXU | Mode::RWXG | Mode::RWXO,
        };
        if self.is_sticky {
            mode | Mode::SVTX
        } else {
            mode
        }
    }
}

/// Whether this process is in a group. Root counts as a member of each.
pub(crate) fn is_in_group(group: u32) -> bool {
    geteuid().is_root()
        || rustix::process::getegid().as_raw() == group
        || getgroups().is_ok_and(|groups| groups.iter().any(|own| own.as_raw() == group))
}

const OWNER: Mode = Mode::RUSR.union(Mode::WUSR);
const GROUP: Mode = Mode::RGRP.union(Mode::WGRP);
const OTHERS: Mode = Mode::ROTH.union(Mode::WOTH);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_mode_decides_access() {
        let access = |mode| Access::of_folder(Mode::from_raw_mode(mode));
        for private in [0o700, 0o750, 0o755, 0o2755, 0o1755] {
            assert_eq!(access(private), Access::Owner, "{private:o}");
        }
        for group in [0o770, 0o2770, 0o3770, 0o2775] {
            assert_eq!(access(group), Access::Group, "{group:o}");
        }
        for all_users in [0o777, 0o1777, 0o2777] {
            assert_eq!(access(all_users), Access::AllUsers, "{all_users:o}");
        }
    }

    #[test]
    fn mode_without_right_to_write_is_refused() {
        for mode in ["0644", "0640", "0", "", "rw", "0770", "1666"] {
            assert!(Access::of_file_mode(mode).is_err(), "{mode}");
        }
        assert_eq!(Access::of_file_mode("0660").ok(), Some(Access::Group));
        assert_eq!(Access::of_file_mode("666").ok(), Some(Access::AllUsers));
    }
}
