//! The folder a file store lives in.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::statfs;

use super::names;
use super::trouble::trouble;
use crate::{Error, Name, Result};

/// Only its owner may look inside.
const FOLDER_MODE: u32 = 0o700;
/// Where the processes that use a store are known by.
const MEMBERS: &str = ".members";
const LOCK: &str = ".lock";
const LINE: &str = ".line";

/// Per lock `NAME.lock`, which flock(1) users take too, and `NAME.line`, who holds and waits; and `.members`, one FIFO
/// for each process. The files of a name stay when it is free: unlinking a file that others may be about to lock would
/// let two of them in.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Opens the folder, making it if it is missing.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let path = std::path::absolute(path).map_err(|error| trouble(error, "find the folder", path))?;
        make(&path)?;
        check_local(&path)?;
        let folder = Self { path };
        folder.make_members()?;
        Ok(folder)
    }

    /// Makes the folder of the processes, and with it its own, if somebody deleted them.
    pub(super) fn make_members(&self) -> Result<()> {
        make(&self.members())
    }

    /// The user's state folder.
    pub(super) fn default_path() -> Result<PathBuf> {
        let var = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = var("XDG_STATE_HOME").or_else(|| var("HOME").map(|home| home.join(".local/state")));
        let state = state.ok_or_else(|| {
            Error::invalid("neither XDG_STATE_HOME nor HOME says where this user's files are")
                .remedy("name a folder: file:/some/folder")
        })?;
        Ok(state.join("leasehold"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn members(&self) -> PathBuf {
        self.path.join(MEMBERS)
    }

    pub(super) fn lock(&self, name: &Name) -> PathBuf {
        names::path_of(&self.path, name, LOCK)
    }

    pub(super) fn line(&self, name: &Name) -> PathBuf {
        names::path_of(&self.path, name, LINE)
    }

    /// Makes the folders that a long name needs.
    pub(super) fn make_room(&self, file: &Path) -> Result<()> {
        match file.parent() {
            Some(parent) if parent != self.path => make(parent),
            _ => Ok(()),
        }
    }

    /// Every name that has a line file, sorted.
    pub(super) fn names(&self) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        collect(&self.path, "", &mut names)?;
        names.sort_unstable();
        Ok(names)
    }
}

fn collect(folder: &Path, begun: &str, names: &mut Vec<Name>) -> Result<()> {
    let entries = fs::read_dir(folder).map_err(|error| trouble(error, "list the folder", folder))?;
    for entry in entries {
        let entry = entry.map_err(|error| trouble(error, "list the folder", folder))?;
        let file = entry.file_name();
        // What is not ours may be called anything.
        match file.to_str().and_then(|file| names::piece_of(file, LINE)) {
            Some((piece, true)) if entry.file_type().is_ok_and(|kind| kind.is_dir()) => {
                collect(&entry.path(), &format!("{begun}{piece}"), names)?;
            }
            Some((piece, false)) => names.extend(names::decode(&format!("{begun}{piece}"))),
            Some((_, true)) | None => {}
        }
    }
    Ok(())
}

/// Makes a folder that only this user may enter; one that is there is left as it is.
fn make(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(path)
        .map_err(|error| trouble(error, "make the folder", path))?;
    // A strict umask could have taken away the owner's own rights.
    fs::set_permissions(path, Permissions::from_mode(FOLDER_MODE))
        .map_err(|error| trouble(error, "set up the folder", path))
}

/// Locks on a network file system are emulated, or not seen by other machines.
pub(crate) fn check_local(path: &Path) -> Result<()> {
    let about = statfs(path).map_err(|error| trouble(error, "look at the folder", path))?;
    // The field's type differs between machines; the numbers are 32 bits wide everywhere.
    #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation, clippy::unnecessary_cast)]
    let kind = about.f_type as u32;
    let Some(system) = remote_system(kind) else { return Ok(()) };
    Err(Error::unsupported(format!("{} is on {system}, where file locks do not hold between machines", path.display()))
        .remedy("choose a folder on a local disk, or a store made for several machines"))
}

/// The numbers of statfs(2) for file systems that are not this machine's own.
fn remote_system(kind: u32) -> Option<&'static str> {
    Some(match kind {
        0x6969 => "NFS",
        0x517B | 0xFE53_4D42 | 0xFF53_4D42 => "SMB",
        0x0102_1997 => "9P",
        0x00C3_6400 => "Ceph",
        0x6573_5546 => "FUSE",
        0x5346_414F | 0x6B41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x0116_1970 => "GFS2",
        0x7461_636F => "OCFS2",
        0x0BD0_0BD0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x786F_4256 => "a VirtualBox share",
        0xBACB_ACBC => "a VMware share",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_number() {
        const EXT4: u32 = 0xEF53;
        assert_eq!(remote_system(0x6969), Some("NFS"));
        assert_eq!(remote_system(EXT4), None);
    }

    #[test]
    fn folders_are_private_whatever_the_umask() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let folder = Folder::open(&parent.path().join("a/b")).expect("it can be made");
        for path in [folder.path().to_owned(), folder.members()] {
            let mode = fs::metadata(path).expect("it was made").permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
    }
}
