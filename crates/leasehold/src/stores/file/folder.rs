//! The folder of a file store, and its files.
//!
//! Each lock has two files. flock(1) can also lock `NAME.lock`. `NAME.queue` has the holders and
//! the waiters. The folder `.members` has one FIFO for each process. `.counter` counts the tokens
//! that names have taken. The files of a name exist while it is in use, and for a moment longer:
//! see [`housekeeping`](super::housekeeping).
//!
//! The folder's mode and group decide who may use the files: see [`sharing`].

mod directory;
mod listing;
pub(super) mod names;
pub(super) mod object;
pub(super) mod sharing;
mod url_path;

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, fstat, fsync, linkat, openat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::local_fs::{Locality, io_error};
use crate::{ClaimId, Error, Name, Result};
use directory::LOOK;
use names::PENDING;
use object::{ObjectKind, OpenError, READ, look, open_checked};
use sharing::{Access, Sharing};

pub(super) use directory::is_abandoned;
pub(super) use url_path::path_of_url;

/// The open folder of a file store.
///
/// Its files are reached through its descriptors. If a part of its path is renamed, they are still
/// those of the folder that was opened and checked.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    locality: Locality,
    stated: Option<Access>,
    root: OwnedFd,
    members: OwnedFd,
}

impl Folder {
    /// Opens the folder, and makes it if it is missing. A stated access takes precedence over the
    /// access that the folder's mode gives.
    pub(super) fn open(
        path: &Path,
        locality: Locality,
        stated: Option<Access>,
    ) -> Result<Arc<Self>> {
        let path = std::path::absolute(path)
            .map_err(|error| io_error(error, "resolve the path of the folder", path))?;
        let root = directory::open_or_make(&path, locality, stated)?;

        // All names need `.members` and the counter, so a stated mode does not concern them.
        let sharing = sharing_of(&root, &path, None)?;
        let members = directory::open_or_make_inside(
            &root,
            OsStr::new(MEMBERS),
            &path.join(MEMBERS),
            sharing,
        )?;

        let folder = Arc::new(Self {
            path,
            locality,
            stated,
            root,
            members,
        });
        folder.counter_path().repair_mode(sharing)?;
        Ok(folder)
    }

    /// Opens the folder that is at the path now, or makes it. This one may have been deleted or
    /// replaced.
    pub(super) fn open_again(&self) -> Result<Arc<Self>> {
        Self::open(&self.path, self.locality, self.stated)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn members(&self) -> &OwnedFd {
        &self.members
    }

    /// A file in `.members`.
    pub(super) fn member(self: &Arc<Self>, name: &str) -> Location {
        self.location(Path::new(MEMBERS).join(name))
    }

    pub(super) fn lock_path(self: &Arc<Self>, name: &Name) -> Location {
        self.location(names::path_of(name, LOCK))
    }

    pub(super) fn queue_path(self: &Arc<Self>, name: &Name) -> Location {
        self.location(names::path_of(name, QUEUE))
    }

    /// The token counter of the folder.
    pub(super) fn counter_path(self: &Arc<Self>) -> Location {
        self.location(PathBuf::from(COUNTER))
    }

    fn location(self: &Arc<Self>, relative: PathBuf) -> Location {
        Location {
            folder: Arc::clone(self),
            relative,
        }
    }

    /// The mode and the group that files in the folder get now.
    pub(super) fn sharing(&self) -> Result<Sharing> {
        sharing_of(&self.root, &self.path, self.stated)
    }

    /// Every name that has a queue file, sorted.
    pub(super) fn names(&self) -> Result<Vec<Name>> {
        listing::names(&self.root, &self.path, &[QUEUE])
    }

    /// Every name that has any file, sorted.
    pub(super) fn names_of_files(&self) -> Result<Vec<Name>> {
        listing::names(&self.root, &self.path, &[QUEUE, LOCK])
    }

    /// Removes what killed processes have begun to make.
    pub(super) fn remove_abandoned(&self) {
        listing::remove_abandoned(&self.root, &self.path, names::PIECES_MAX);
    }
}

fn sharing_of(root: &OwnedFd, path: &Path, stated: Option<Access>) -> Result<Sharing> {
    let status = fstat(root).map_err(|error| io_error(error, "inspect the folder", path))?;
    Ok(Sharing::of(&status, stated))
}

/// A file of the folder. It is opened through a descriptor of the folder and shown by its path.
///
/// No operation follows a symbolic link, neither at the end of the path nor inside it.
#[derive(Clone, Debug)]
pub(super) struct Location {
    folder: Arc<Folder>,
    relative: PathBuf,
}

impl Location {
    pub(super) fn folder(&self) -> &Arc<Folder> {
        &self.folder
    }

    /// Opens a regular file or a FIFO. An entry of another type, or with a second name, is refused.
    pub(super) fn open(
        &self,
        file_type: FileType,
        flags: OFlags,
    ) -> std::result::Result<OwnedFd, OpenError> {
        for _ in 0..NAMING_TRIES {
            match self.in_parent(|parent, name| open_checked(parent, name, file_type, flags)) {
                // See `name`. A FIFO is renamed on all file systems.
                Err(OpenError::Linked) if file_type == FileType::RegularFile => {
                    std::thread::sleep(NAMING_PAUSE);
                }
                opened => return opened,
            }
        }
        Err(OpenError::Linked)
    }

    /// Opens a regular file; `None` if it is missing. `action` is for errors, such as "open the
    /// queue file".
    pub(super) fn open_file(&self, flags: OFlags, action: &str) -> Result<Option<File>> {
        match self.open(FileType::RegularFile, flags) {
            Ok(file) => Ok(Some(File::from(file))),
            Err(OpenError::Kernel(Errno::NOENT)) => Ok(None),
            Err(error) => Err(self.open_error(error, action)),
        }
    }

    /// Opens a regular file. A missing file is made with the given content.
    pub(super) fn open_or_make(&self, flags: OFlags, content: &[u8], action: &str) -> Result<File> {
        loop {
            if let Some(file) = self.open_file(flags, action)? {
                return Ok(file);
            }
            self.make(content)?;
        }
    }

    /// Makes a file, which gets its name only when its mode is right. Another process may open the
    /// file as soon as it has the name, and this process may be killed at any moment.
    #[cold]
    fn make(&self, content: &[u8]) -> Result<()> {
        let sharing = self.sharing()?;
        self.make_parents(sharing)?;

        let pending = format!("{PENDING}{}", ClaimId::draw());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&self.folder.members, &pending, flags, FILE_MODE)
            .map_err(|error| self.io_error(error, "make"))?;
        let named = self.complete(&file, content, sharing, &pending);

        // The file still has this name if it has no other, or two. If it keeps the name, the next
        // process that joins removes it.
        let _ = unlinkat(&self.folder.members, &pending, AtFlags::empty());
        named
    }

    fn complete(
        &self,
        file: &OwnedFd,
        content: &[u8],
        sharing: Sharing,
        pending: &str,
    ) -> Result<()> {
        rustix::io::write(file, content).map_err(|error| self.io_error(error, "write"))?;
        sharing.apply(file, ObjectKind::NewFile, &self.path())?;

        match self.name(pending) {
            // Another process made the file at the same moment.
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            // Another process removed the folder of the long name because it was empty. The caller
            // tries again.
            Err(Errno::NOENT) if self.has_parents() => Ok(()),
            Err(error) => Err(self.io_error(error, "make")),
        }
    }

    /// Renames a file of `.members` to this name, unless this name is taken.
    ///
    /// Not all file systems can rename without replacing. There, the file has two names for some
    /// microseconds.
    fn name(&self, pending: &str) -> rustix::io::Result<()> {
        let members = &self.folder.members;
        self.in_parent(|parent, name| {
            match renameat_with(members, pending, parent, name, RenameFlags::NOREPLACE) {
                Err(Errno::INVAL | Errno::NOSYS) => {
                    linkat(members, pending, parent, name, AtFlags::empty())
                }
                renamed => renamed,
            }
        })
    }

    /// The mode and the group that the file gets if it is made. All names need the counter, so the
    /// folder alone decides who may use it.
    fn sharing(&self) -> Result<Sharing> {
        let folder = &self.folder;
        let stated = folder
            .stated
            .filter(|_| self.relative != Path::new(COUNTER));
        sharing_of(&folder.root, &folder.path, stated)
    }

    /// Gives the token counter its new mode, if the mode of the folder was changed later.
    fn repair_mode(&self, sharing: Sharing) -> Result<()> {
        match self.look() {
            Ok(file) => sharing.repair(&file, ObjectKind::Counter, &self.path()),
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.io_error(error, "open the token counter")),
        }
    }

    /// A descriptor of the entry itself, of any type. The entry is not opened.
    pub(super) fn look(&self) -> rustix::io::Result<OwnedFd> {
        self.in_parent(look)
    }

    /// The status of the entry, which may be a symbolic link; `None` if the entry is missing.
    pub(super) fn stat(&self) -> Result<Option<Stat>> {
        let status = self.in_parent(|parent, name| statat(parent, name, AtFlags::SYMLINK_NOFOLLOW));
        match status {
            Ok(status) => Ok(Some(status)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.io_error(error, "inspect")),
        }
    }

    /// Removes the file. A missing file is not an error.
    pub(super) fn remove(&self) -> Result<()> {
        match self.in_parent(|parent, name| unlinkat(parent, name, AtFlags::empty())) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            // In a folder with the sticky bit, only the owner of a file may remove it.
            Err(error @ (Errno::PERM | Errno::ACCESS)) => Err(self
                .io_error(error, "remove")
                .help("run `leasehold gc` as the owner of the file, or as root")),
            Err(error) => Err(self.io_error(error, "remove")),
        }
    }

    pub(super) fn has_parents(&self) -> bool {
        self.parents().next().is_some()
    }

    /// Makes the directories that a long name needs.
    fn make_parents(&self, sharing: Sharing) -> Result<()> {
        let mut parent = None::<OwnedFd>;
        let mut path = self.folder.path.clone();
        for part in self.parents() {
            let outer = parent.as_ref().unwrap_or(&self.folder.root);
            path.push(part);
            parent = Some(directory::open_or_make_inside(outer, part, &path, sharing)?);
        }
        Ok(())
    }

    /// Removes the directories of a long name that have become empty, from the innermost outwards.
    pub(super) fn remove_empty_parents(&self) {
        for parent in self.relative.ancestors().skip(1) {
            if parent.as_os_str().is_empty() {
                return;
            }
            let at = self.folder.location(parent.to_owned());
            let removed = at.in_parent(|parent, name| unlinkat(parent, name, AtFlags::REMOVEDIR));
            // Another name uses it, or another user owns it.
            if removed.is_err() {
                return;
            }
        }
    }

    /// Makes a new name durable.
    pub(super) fn sync_parent(&self) -> rustix::io::Result<()> {
        self.in_parent(|parent, _| fsync(openat(parent, ".", READ, Mode::empty())?))
    }

    /// The whole path, for messages and tables. Files are not opened by it.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path.join(&self.relative)
    }

    /// Runs an operation on the last part of the path, in the directory of that part.
    ///
    /// The directories before the last part are opened one by one. In a folder that several users
    /// may write, another user can put a symbolic link in the place of one of them.
    fn in_parent<T, E: From<Errno>>(
        &self,
        operation: impl FnOnce(BorrowedFd<'_>, &OsStr) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let (opened, _) = self.from_opened();
        let mut parent = None::<OwnedFd>;
        for part in self.parents() {
            let outer = parent.as_ref().unwrap_or(opened);
            parent = Some(openat(outer, part, LOOK | OFlags::NOFOLLOW, Mode::empty())?);
        }

        let name = self.relative.file_name();
        operation(
            parent.as_ref().unwrap_or(opened).as_fd(),
            name.expect("a location has a name"),
        )
    }

    fn parents(&self) -> impl Iterator<Item = &OsStr> {
        let (_, path) = self.from_opened();
        path.parent().into_iter().flat_map(Path::iter)
    }

    /// The open directory on the way to the file, and the path from there.
    fn from_opened(&self) -> (&OwnedFd, &Path) {
        match self.relative.strip_prefix(MEMBERS) {
            Ok(member) => (&self.folder.members, member),
            Err(_) => (&self.folder.root, &self.relative),
        }
    }

    /// Turns an error of the kernel into one for the user.
    #[cold]
    pub(super) fn io_error(&self, error: impl Into<std::io::Error>, action: &str) -> Error {
        io_error(error, action, &self.path())
    }

    /// Returns the error for a file or FIFO that cannot be opened.
    #[cold]
    pub(super) fn open_error(&self, error: OpenError, action: &str) -> Error {
        let path = self.path();
        let shown = path.display();
        match error {
            OpenError::Kernel(error) => self.kernel_error(error, action),
            OpenError::Type(FileType::Symlink) => self.io_error(Errno::LOOP, action),
            OpenError::Type(_) => {
                Error::damaged(format!("{shown} is not a regular file")).help("remove it")
            }
            OpenError::Linked => {
                let message = format!(
                    "cannot {action} {shown}: it has a second name (a hard link), and may be a \
                     file elsewhere"
                );
                Error::damaged(message).help(format!(
                    "remove the wrong name: find / -xdev -samefile {shown} lists both"
                ))
            }
        }
    }

    /// If a file that may not be opened belongs to another user, the error names that user.
    fn kernel_error(&self, error: Errno, action: &str) -> Error {
        let described = self.io_error(error, action);
        let Ok(Some(status)) = self.stat() else {
            return described;
        };
        if error != Errno::ACCESS || status.st_uid == geteuid().as_raw() {
            return described;
        }

        let owner = directory::user_name(status.st_uid)
            .unwrap_or_else(|| format!("user {}", status.st_uid));
        let mode = status.st_mode & 0o7777;
        let path = self.path();
        let message = format!(
            "cannot {action} {}: permission denied; it belongs to {owner}, with the mode {mode:04o}",
            path.display()
        );
        Error::denied(message).help(format!(
            "when the lock is free, have {owner} or root remove it or give it the mode of the \
             folder"
        ))
    }
}

/// The first mode of a new file. Only the owner may use the file until it gets its final mode.
pub(super) const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The folder with one FIFO for each process that uses the store.
const MEMBERS: &str = ".members";

/// The token counter of the folder.
const COUNTER: &str = ".counter";

const LOCK: &str = ".lock";
const QUEUE: &str = ".queue";

/// How long a file with two names may still be getting its name. Only file systems that cannot
/// rename without replacing need that, so a file of another user is rarely waited for.
const NAMING_TRIES: u32 = 20;
const NAMING_PAUSE: Duration = Duration::from_millis(2);
