//! A file that rejects writers with stale tokens.

mod mark;

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, fchmod, flock, fstat, fsync, mkdirat,
    openat, renameat, unlinkat,
};
use rustix::io::Errno;

use crate::local_fs::{Locality, check_local};
use crate::{Error, FencingToken, Result, Token};

use mark::Mark;

/// A file, read and replaced as a whole, that rejects writers with a stale token.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("leasehold-fence-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).expect("made");
/// # let locks = leasehold::open("memory:").await?;
/// let late = locks.mutex("report").acquire().await?.fencing_token()?;
/// let guard = locks.mutex("report").acquire().await?;
///
/// let report = leasehold::fence::File::open(&folder, "report.txt")?;
/// let before = report.seal(guard.fencing_token()?)?; // from here on earlier holders are rejected
/// assert_eq!(before, None);
/// report.write(guard.fencing_token()?, b"42 orders")?;
/// assert!(report.write(late, b"41 orders").unwrap_err().is_lost());
/// assert_eq!(report.seal(guard.fencing_token()?)?.as_deref(), Some(&b"42 orders"[..]));
/// # std::fs::remove_dir_all(folder).expect("removed");
/// # Ok(()) }
/// ```
///
/// The mark is kept in a folder beside the file, `NAME.fence`. Mark and contents are each written
/// to another file, synced, and put in place by a rename, under a flock on that folder. So a
/// program that reads the file without a token finds the old contents or the new ones, even after a
/// power loss. It never finds contents whose token is above the mark.
///
/// The methods block while they sync, or while another process has the flock. From async code, call
/// them where blocking is allowed (`tokio::task::spawn_blocking`). So there is no future to cancel.
/// If a process is killed during a call, the file has either its old or its new contents, and the
/// mark may already be raised.
///
/// **Limits.** The fence protects from writers that write through it, and from no others. A user
/// who deletes `NAME.fence` deletes the mark. The new file belongs to the user who wrote it and has
/// the permissions of the old one. A name that is a symbolic link is refused. If the name becomes a
/// link later, a write replaces the link and does not follow it. Only local disks are accepted, as
/// for the file store.
#[derive(Debug)]
pub struct File {
    folder: OwnedFd,
    /// The folder `NAME.fence`.
    beside: OwnedFd,
    name: String,
    path: PathBuf,
}

impl File {
    /// Opens the file of a name in a folder. The file may be missing, and the folder must exist.
    ///
    /// # Errors
    /// - [`is_invalid`](Error::is_invalid) if the name is not a plain file name (it has a slash, or
    ///   is `..`), or the folder is missing.
    /// - [`is_unsupported`](Error::is_unsupported) on a file system that is not known to be local.
    /// - Errors of the kernel if `NAME.fence` cannot be made.
    pub fn open(folder: impl AsRef<Path>, name: &str) -> Result<Self> {
        Self::open_on(folder.as_ref(), name, Locality::Known)
    }

    /// Opens the file on a file system that leasehold does not know. The caller states that it is
    /// local to this machine.
    ///
    /// Network file systems that leasehold knows are refused all the same.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_stated_local(folder: impl AsRef<Path>, name: &str) -> Result<Self> {
        Self::open_on(folder.as_ref(), name, Locality::Stated)
    }

    fn open_on(folder: &Path, name: &str, locality: Locality) -> Result<Self> {
        let path = folder.join(checked_name(name)?);
        let failed = |error: Errno| io_error(error, "open the folder of", &path);
        let opened = openat(CWD, folder, FOLDER, Mode::empty()).map_err(failed)?;

        check_local(
            &opened,
            folder,
            locality,
            "if it is local to this machine, open the file with open_stated_local",
        )?;

        let beside = open_beside(&opened, name).map_err(failed)?;
        Ok(Self {
            folder: opened,
            beside,
            name: name.to_owned(),
            path,
        })
    }

    /// Raises the mark to this token and reads the file; `None` if the file is missing. This is the
    /// first operation under a new token.
    ///
    /// # Errors
    /// - [`is_lost`](Error::is_lost) if a later holder has sealed the file, or another claim with
    ///   an equal token has.
    /// - [`is_damaged`](Error::is_damaged) if the mark is invalid, or the file is a symbolic link.
    /// - Errors of the kernel.
    pub fn seal(&self, token: FencingToken) -> Result<Option<Vec<u8>>> {
        let _locked = self.accept(token)?;
        read(&self.folder, &self.name).map_err(|error| io_error(error, "read", &self.path))
    }

    /// Replaces the contents if the token is accepted, and raises the mark if the token is larger.
    ///
    /// # Errors
    /// As [`seal`](Self::seal). After an error the file is unchanged, but the mark may be raised.
    pub fn write(&self, token: FencingToken, contents: &[u8]) -> Result<()> {
        let _locked = self.accept(token)?;
        self.replace(contents, &self.folder, &self.name)
            .map_err(|error| io_error(error, "replace", &self.path))
    }

    /// The highest token that the file has received, if any.
    ///
    /// # Errors
    /// As [`seal`](Self::seal), but never `is_lost`.
    pub fn highest_token(&self) -> Result<Option<Token>> {
        Ok(self.stored_mark()?.map(Mark::token))
    }

    fn stored_mark(&self) -> Result<Option<Mark>> {
        let text = read(&self.beside, TOKEN_FILE)
            .map_err(|error| io_error(error, "read the mark of", &self.path))?;
        let Some(text) = text else { return Ok(None) };

        let mark = std::str::from_utf8(&text).ok().and_then(Mark::parse);
        mark.map(Some).ok_or_else(|| self.damaged_mark())
    }

    /// Checks a token and raises the mark to it. The caller may continue until it drops the lock.
    fn accept(&self, token: FencingToken) -> Result<LockedFolder> {
        let locked = self
            .lock()
            .map_err(|error| io_error(error, "lock the mark of", &self.path))?;
        let mark = self.stored_mark()?;

        if let Some(mark) = mark
            && !mark.accepts(token)
        {
            return Err(self.stale_token(token.token(), mark.token()));
        }
        let raised = Mark::Claim(token);
        if mark != Some(raised) {
            self.replace(raised.text().as_bytes(), &self.beside, TOKEN_FILE)
                .map_err(|error| io_error(error, "raise the mark of", &self.path))?;
        }
        Ok(locked)
    }

    /// Locks `NAME.fence` by a new descriptor: two threads with one descriptor would not exclude
    /// each other.
    fn lock(&self) -> io::Result<LockedFolder> {
        let folder = openat(&self.beside, ".", FOLDER, Mode::empty())?;
        rustix::io::retry_on_intr(|| flock(&folder, FlockOperation::LockExclusive))?;
        Ok(LockedFolder { _folder: folder })
    }

    /// Writes the new contents to another file, syncs it, and renames it. The rename is also synced
    /// before this returns.
    fn replace(&self, contents: &[u8], folder: &OwnedFd, name: &str) -> io::Result<()> {
        let new = self.make_new()?;
        if let Some(mode) = mode_of(folder, name)? {
            fchmod(&new, mode)?;
        }

        let mut new = fs::File::from(new);
        new.write_all(contents)?;
        new.sync_all()?;
        renameat(&self.beside, NEW, folder, name)?;
        Ok(fsync(folder.as_fd())?)
    }

    /// Makes the file for the next contents, in place of one that a killed process left behind.
    ///
    /// An existing file is never opened: another user may have linked a file elsewhere to its name.
    fn make_new(&self) -> io::Result<OwnedFd> {
        match unlinkat(&self.beside, NEW, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | NO_LINK;
        Ok(openat(&self.beside, NEW, flags, FILE_MODE)?)
    }

    #[cold]
    fn stale_token(&self, token: Token, sealed: Token) -> Error {
        let path = self.path.display();
        let message = if token == sealed {
            format!("{path} was sealed by another claim with the same token {sealed}")
        } else {
            format!("{path} was sealed with token {sealed}, which is later than {token}")
        };
        Error::lost(message).help("acquire the lock again and start over")
    }

    #[cold]
    fn damaged_mark(&self) -> Error {
        let path = self.path.display();
        let message = format!("{path}{BESIDE}/{TOKEN_FILE} does not contain a valid mark");
        Error::damaged(message)
            .help("write the highest token that was ever granted there, in decimal")
    }
}

/// Excludes every other reader and writer of the mark and the file while it lives.
struct LockedFolder {
    _folder: OwnedFd,
}

/// Opens `NAME.fence`. If it is missing, it is created, and synced before it is used.
fn open_beside(folder: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let beside = format!("{name}{BESIDE}");
    match mkdirat(folder, &beside, FOLDER_MODE) {
        Ok(()) => fsync(folder)?,
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    openat(folder, &beside, FOLDER | NO_LINK, Mode::empty())
}

/// Reads a file; `None` if it is missing.
fn read(folder: &OwnedFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    let file = match openat(folder, name, OFlags::RDONLY | NO_LINK, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        file => fs::File::from(file?),
    };
    let mut contents = Vec::new();
    (&file).read_to_end(&mut contents)?;
    Ok(Some(contents))
}

/// The permissions of an existing file. A link is refused: the rename would replace the link
/// instead of its target.
fn mode_of(folder: &OwnedFd, name: &str) -> rustix::io::Result<Option<Mode>> {
    match openat(folder, name, OFlags::PATH | NO_LINK, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        file => {
            let status = fstat(file?)?;
            if FileType::from_raw_mode(status.st_mode).is_symlink() {
                return Err(Errno::LOOP);
            }
            Ok(Some(Mode::from_raw_mode(status.st_mode)))
        }
    }
}

/// Turns an error of the kernel into one for the user.
fn io_error(error: impl Into<io::Error>, action: &str, path: &Path) -> Error {
    let error = error.into();
    let message = format!("cannot {action} {}: {error}", path.display());

    let described = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Error::denied(message)
            .help("let this user write to the folder, and to NAME.fence in it"),
        Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::ISDIR) => {
            Error::invalid(message).help("name a file in an existing folder")
        }
        Some(Errno::LOOP) => {
            Error::damaged(message).help("replace the symbolic link by a regular file")
        }
        _ => Error::unavailable(message),
    };
    described.caused_by(error)
}

fn checked_name(name: &str) -> Result<&str> {
    let mut parts = Path::new(name).components();
    let is_plain = matches!(parts.next(), Some(Component::Normal(part)) if part == name)
        && parts.next().is_none()
        && !name.contains('\0');
    if is_plain && (1..=NAME_MAX).contains(&name.len()) {
        return Ok(name);
    }

    let message = format!("{name:?} is not a plain file name of at most {NAME_MAX} bytes");
    Err(Error::invalid(message).help("pass the folder and the file name separately"))
}

/// Ends the name of the folder beside the file that has its mark.
const BESIDE: &str = ".fence";

/// The mark, in that folder.
const TOKEN_FILE: &str = "mark";

/// The next mark or contents, in that folder, before the rename.
const NEW: &str = "new";

/// A file name has at most 255 bytes. The longest name that is made has this ending.
const NAME_MAX: usize = 255 - BESIDE.len();

/// The permissions of a new file and of a new folder, before the umask.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o777);

/// How folders are opened.
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Opens an entry itself, never the target of a symbolic link.
const NO_LINK: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);
