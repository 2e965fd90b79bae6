//! The files of a folder.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, flock, fstat, fsync,
    linkat, openat, renameat_with, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::geteuid;

use super::directory::{self, LOOK};
use super::names::{self, PENDING};
use super::object::{ObjectKind, OpenError, READ, look, open_checked};
use super::sharing::Sharing;
use super::{COUNTER, Folder, LOCK, MEMBERS, QUEUE, RECORD, sharing_of};
use crate::local_fs::{LOOK_INTERVAL, check_file_size, io_error, user_shown};
use crate::store::draw_claim_id;
use crate::{Error, Name, Result};

/// A file of the folder. It is opened through a descriptor of the folder and shown by its path.
///
/// No operation follows a symbolic link, neither at the end of the path nor inside it.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    folder: Arc<Folder>,
    place: Place,
}

/// A path inside the folder. That of a name is made when it is needed: a file that stays open needs
/// it only for errors.
#[derive(Clone, Debug)]
enum Place {
    Named(Name, &'static str),
    Path(PathBuf),
}

impl Location {
    pub(crate) fn lock(folder: &Arc<Folder>, name: &Name) -> Self {
        Self::named(folder, name, LOCK)
    }

    pub(crate) fn queue(folder: &Arc<Folder>, name: &Name) -> Self {
        Self::named(folder, name, QUEUE)
    }

    /// The record of completed jobs, which outlives the other files of a name.
    pub(crate) fn record(folder: &Arc<Folder>, name: &Name) -> Self {
        Self::named(folder, name, RECORD)
    }

    /// The token counter of the folder.
    pub(crate) fn counter(folder: &Arc<Folder>) -> Self {
        Self::new(folder, PathBuf::from(COUNTER))
    }

    /// A file in `.members`.
    pub(crate) fn member(folder: &Arc<Folder>, name: &str) -> Self {
        Self::new(folder, Path::new(MEMBERS).join(name))
    }

    fn named(folder: &Arc<Folder>, name: &Name, ending: &'static str) -> Self {
        Self {
            folder: Arc::clone(folder),
            place: Place::Named(name.clone(), ending),
        }
    }

    fn new(folder: &Arc<Folder>, relative: PathBuf) -> Self {
        Self {
            folder: Arc::clone(folder),
            place: Place::Path(relative),
        }
    }

    /// The path inside the folder.
    fn relative(&self) -> Cow<'_, Path> {
        match &self.place {
            Place::Named(name, ending) => Cow::Owned(names::path_of(name, ending)),
            Place::Path(path) => Cow::Borrowed(path),
        }
    }

    pub(crate) fn folder(&self) -> &Arc<Folder> {
        &self.folder
    }

    /// Opens a regular file or a FIFO. An entry of another type, or with a second name, is refused.
    pub(crate) fn open(
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
    pub(crate) fn open_file(&self, flags: OFlags, action: &str) -> Result<Option<OpenFile>> {
        match self.open(FileType::RegularFile, flags) {
            Ok(file) => OpenFile::inspect(File::from(file), self).map(Some),
            Err(OpenError::Kernel(Errno::NOENT)) => Ok(None),
            Err(error) => Err(self.open_error(error, action)),
        }
    }

    /// Opens a regular file. A missing file is made with the given content.
    pub(crate) fn open_or_make(
        &self,
        flags: OFlags,
        content: &[u8],
        action: &str,
    ) -> Result<OpenFile> {
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

        let pending = format!("{PENDING}{}", draw_claim_id());
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
        check_file_size(content.len() as u64).map_err(|error| self.io_error(error, "write"))?;
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
            .filter(|_| self.relative() != Path::new(COUNTER));
        sharing_of(&folder.root, &folder.path, stated)
    }

    /// A descriptor of the entry itself, of any type. The entry is not opened.
    pub(crate) fn look(&self) -> rustix::io::Result<OwnedFd> {
        self.in_parent(look)
    }

    /// The status of the entry, which may be a symbolic link; `None` if the entry is missing.
    pub(crate) fn stat(&self) -> Result<Option<Stat>> {
        let status = self.in_parent(|parent, name| statat(parent, name, AtFlags::SYMLINK_NOFOLLOW));
        match status {
            Ok(status) => Ok(Some(status)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.io_error(error, "inspect")),
        }
    }

    /// Removes the file. A missing file is not an error.
    pub(crate) fn remove(&self) -> Result<()> {
        match self.in_parent(|parent, name| unlinkat(parent, name, AtFlags::empty())) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            // In a folder with the sticky bit, only the owner of a file may remove it.
            Err(error @ (Errno::PERM | Errno::ACCESS)) => Err(self
                .io_error(error, "remove")
                .help("run `leasehold gc` as the owner of the file, or as root")),
            Err(error) => Err(self.io_error(error, "remove")),
        }
    }

    pub(crate) fn has_parents(&self) -> bool {
        let relative = self.relative();
        let (_, path) = self.nearest_opened(&relative);
        parents(path).next().is_some()
    }

    /// Makes the directories that a long name needs.
    fn make_parents(&self, sharing: Sharing) -> Result<()> {
        let mut parent = None::<OwnedFd>;
        let mut path = self.folder.path.clone();
        let relative = self.relative();
        for part in parents(self.nearest_opened(&relative).1) {
            let outer = parent.as_ref().unwrap_or(&self.folder.root);
            path.push(part);
            parent = Some(directory::open_or_make_inside(outer, part, &path, sharing)?);
        }
        Ok(())
    }

    /// Removes the directories of a long name that have become empty, from the innermost outwards.
    pub(crate) fn remove_empty_parents(&self) {
        for parent in self.relative().ancestors().skip(1) {
            if parent.as_os_str().is_empty() {
                return;
            }
            let at = Self::new(&self.folder, parent.to_owned());
            let removed = at.in_parent(|parent, name| unlinkat(parent, name, AtFlags::REMOVEDIR));
            // Another name uses it, or another user owns it.
            if removed.is_err() {
                return;
            }
        }
    }

    /// Makes a new name durable.
    pub(crate) fn sync_parent(&self) -> rustix::io::Result<()> {
        self.in_parent(|parent, _| fsync(openat(parent, ".", READ, Mode::empty())?))
    }

    /// The whole path, for messages and tables. Files are not opened by it.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path.join(self.relative())
    }

    /// Runs an operation on the last part of the path, in the directory of that part.
    ///
    /// The directories before the last part are opened one by one. In a folder that several users
    /// may write, another user can put a symbolic link in the place of one of them.
    fn in_parent<T, E: From<Errno>>(
        &self,
        operation: impl FnOnce(BorrowedFd<'_>, &OsStr) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let relative = self.relative();
        let (opened, path) = self.nearest_opened(&relative);
        let mut parent = None::<OwnedFd>;
        for part in parents(path) {
            let outer = parent.as_ref().unwrap_or(opened);
            parent = Some(openat(outer, part, LOOK | OFlags::NOFOLLOW, Mode::empty())?);
        }

        let name = path.file_name();
        operation(
            parent.as_ref().unwrap_or(opened).as_fd(),
            name.expect("a location has a name"),
        )
    }

    /// The open directory on the way to the file, and the path from there.
    fn nearest_opened<'a>(&'a self, relative: &'a Path) -> (&'a OwnedFd, &'a Path) {
        match relative.strip_prefix(MEMBERS) {
            Ok(member) => (&self.folder.members, member),
            Err(_) => (&self.folder.root, relative),
        }
    }

    /// Turns an error of the kernel into one for the user.
    #[cold]
    pub(crate) fn io_error(&self, error: impl Into<std::io::Error>, action: &str) -> Error {
        io_error(error, action, &self.path())
    }

    /// Returns the error for a file or FIFO that cannot be opened.
    #[cold]
    pub(crate) fn open_error(&self, error: OpenError, action: &str) -> Error {
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

        let owner = user_shown(status.st_uid);
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

/// The directories of a path.
fn parents(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.parent().into_iter().flat_map(Path::iter)
}

/// An open regular file, with its identity on the file system.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: File,
    device: u64,
    inode: u64,
    /// In which folder, and when, the file was last found at its path.
    found: Mutex<Option<(Arc<Folder>, Instant)>>,
}

impl OpenFile {
    /// Inspects a file that was just opened.
    pub(crate) fn inspect(file: File, at: &Location) -> Result<Self> {
        let status = file
            .metadata()
            .map_err(|error| at.io_error(error, "inspect"))?;
        Ok(Self {
            device: status.dev(),
            inode: status.ino(),
            file,
            found: Mutex::default(),
        })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    /// Locks the file by flock(2), and returns whether it is locked. An operation that may block
    /// sleeps until it is.
    pub(crate) fn lock(&self, operation: FlockOperation, at: &Location) -> Result<bool> {
        match retry_on_intr(|| flock(&self.file, operation)) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(at.io_error(error, "lock")),
        }
    }

    /// Unlocks the file. Closing alone would not do that if another process inherited the file.
    pub(crate) fn unlock(&self) {
        // Unlocking fails only on an invalid descriptor, and this one is open.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }

    /// The present status of the file; `None` if it is no longer at its path.
    ///
    /// A file that was removed or replaced has no name left, which shows without its path. A file
    /// that a user has renamed shows when the path is looked at, once a second.
    pub(crate) fn status_at(&self, at: &Location) -> Result<Option<Stat>> {
        let found = self.found.lock().clone();
        let is_recent = found.is_some_and(|(folder, found_at)| {
            Arc::ptr_eq(&folder, &at.folder) && found_at.elapsed() < LOOK_INTERVAL
        });
        if is_recent {
            let status = fstat(&self.file).map_err(|error| at.io_error(error, "inspect"))?;
            if status.st_nlink < 2 {
                return Ok(Some(status).filter(|status| status.st_nlink == 1));
            }
        }
        self.look_at(at)
    }

    /// As [`status_at`](Self::status_at), by the path.
    pub(crate) fn look_at(&self, at: &Location) -> Result<Option<Stat>> {
        let status = at.stat()?;
        let status =
            status.filter(|present| self.device == present.st_dev && self.inode == present.st_ino);
        let found = status.map(|_| (Arc::clone(&at.folder), Instant::now()));
        *self.found.lock() = found;
        Ok(status)
    }
}

/// The first mode of a new file. Only the owner may use the file until it gets its final mode.
pub(crate) const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// How long a file with two names may still be getting its name. Only file systems that cannot
/// rename without replacing need that, so a file of another user is rarely waited for.
const NAMING_TRIES: u32 = 20;
const NAMING_PAUSE: Duration = Duration::from_millis(2);
