//! The folder a file store lives in.

pub(super) mod directory;
mod names;

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fchmod, linkat, openat, unlinkat};
use rustix::io::Errno;

use crate::local_fs::Locality;
use crate::local_fs::io_error;
use directory::{Directory, Location};

use crate::{ClaimId, Error, Name, Result};

/// Only its owner may read or write a file.
pub(super) const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Where the processes that use a store are known by.
const MEMBERS: &str = ".members";
const LOCK: &str = ".lock";
const QUEUE: &str = ".queue";
/// Begins the name, in `.members`, of a file that is being made.
pub(super) const PENDING: &str = "new-";

/// Per lock `NAME.lock`, which flock(1) users take too, and `NAME.queue`, who holds and waits; and `.members`, one FIFO
/// for each process. The files of a name stay when it is free: unlinking a file that others may be about to lock would
/// let two of them in.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    locality: Locality,
    opened: RwLock<Opened>,
}

/// Both directories, as they were when they were opened last.
#[derive(Clone, Debug)]
struct Opened {
    root: Arc<Directory>,
    members: Arc<Directory>,
}

impl Opened {
    fn open(path: &Path, locality: Locality) -> Result<Self> {
        let root = Directory::open_or_make(path, locality)?;
        let members = root.open_or_make_inside(OsStr::new(MEMBERS))?;
        Ok(Self {
            root: Arc::new(root),
            members: Arc::new(members),
        })
    }
}

impl Folder {
    /// Opens the folder, making it if it is missing.
    pub(super) fn open(path: &Path, locality: Locality) -> Result<Self> {
        let path =
            std::path::absolute(path).map_err(|error| io_error(error, "find the folder", path))?;
        let opened = RwLock::new(Opened::open(&path, locality)?);
        Ok(Self {
            path,
            locality,
            opened,
        })
    }

    /// Opens what has the path now, or makes it: the folder may have been deleted or replaced.
    pub(super) fn open_again(&self) -> Result<()> {
        let opened = Opened::open(&self.path, self.locality)?;
        *self.opened.write() = opened;
        Ok(())
    }

    /// The user's state folder.
    pub(super) fn default_path() -> Result<PathBuf> {
        let var = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let state =
            var("XDG_STATE_HOME").or_else(|| var("HOME").map(|home| home.join(".local/state")));
        let state = state.ok_or_else(|| {
            Error::invalid("neither XDG_STATE_HOME nor HOME says where this user's files are")
                .help("name a folder: file:/some/folder")
        })?;
        Ok(state.join("leasehold"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn members(&self) -> Arc<Directory> {
        Arc::clone(&self.opened.read().members)
    }

    pub(super) fn lock_path(&self, name: &Name) -> Location {
        self.location(name, LOCK)
    }

    pub(super) fn queue_path(&self, name: &Name) -> Location {
        self.location(name, QUEUE)
    }

    fn location(&self, name: &Name, ending: &str) -> Location {
        self.opened
            .read()
            .root
            .file(names::path_of(Path::new(""), name, ending))
    }

    /// Opens a file, and makes it if it is missing.
    pub(super) fn open_or_make_file(
        &self,
        at: &Location,
        flags: OFlags,
    ) -> rustix::io::Result<OwnedFd> {
        loop {
            match at.open(flags) {
                Err(Errno::NOENT) => self.make_file(at)?,
                opened => return opened,
            }
        }
    }

    /// Makes an empty file. It gets its name when its mode is right: another process may open it from then on, and this
    /// one may be killed at any moment.
    #[cold]
    fn make_file(&self, at: &Location) -> rustix::io::Result<()> {
        let members = self.members();
        let pending = format!("{PENDING}{}", ClaimId::draw());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&members, &pending, flags, FILE_MODE)?;
        let named = fchmod(&file, FILE_MODE).and_then(|()| {
            linkat(
                &members,
                &pending,
                at.directory(),
                at.relative(),
                AtFlags::empty(),
            )
        });
        unlinkat(&members, &pending, AtFlags::empty())?;
        match named {
            // Another process made it at the same moment.
            Err(Errno::EXIST) => Ok(()),
            named => named,
        }
    }

    /// Every name that has a line file, sorted.
    pub(super) fn names(&self) -> Result<Vec<Name>> {
        let root = Arc::clone(&self.opened.read().root);
        let mut names = Vec::new();
        collect(&root, "", &mut names)?;
        names.sort_unstable();
        Ok(names)
    }
}

fn collect(folder: &Directory, begun: &str, names: &mut Vec<Name>) -> Result<()> {
    let failed = |error| io_error(error, "list the folder", folder.path());
    for entry in Dir::read_from(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // What is not ours may be called anything.
        match entry
            .file_name()
            .to_str()
            .ok()
            .and_then(|file| names::piece_of(file, QUEUE))
        {
            // Some file systems do not tell the types of their entries.
            Some((piece, true))
                if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) =>
            {
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if let Some(inner) = folder.read_inside(name)? {
                    collect(&inner, &format!("{begun}{piece}"), names)?;
                }
            }
            Some((piece, false)) => names.extend(names::decode(&format!("{begun}{piece}"))),
            Some((_, true)) | None => {}
        }
    }
    Ok(())
}
