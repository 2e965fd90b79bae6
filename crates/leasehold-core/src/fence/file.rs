//! A file that rejects writers with stale tokens.

mod mark;
mod permissions;

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, fchmod, flock, fstat, fsync, mkdirat,
    openat, renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::local_fs::{self, Locality, check_file_size, check_local, user_shown};
use crate::{Error, FencingToken, Result, Token};

use mark::Mark;
use permissions::Permissions;

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
/// **Users.** One user writes a file through the fence. `NAME.fence` has the mode 0700, and one
/// that belongs to another user is refused, for root too. In a sticky folder that others may write,
/// such as `/tmp`, a file of another user is refused too, unless that is root or the owner of the
/// folder: anybody could have made it first. Nobody else can open the new file before it is
/// complete. Then it has the owner, the group, the mode and the ACL of the old file, but no
/// set-user-ID bit. So a file of another user remains one of that user if root writes it. Only root
/// can give a file away: for another writer, the new file belongs to this writer. If the writer is
/// not in the group of the old file, the group of the new one gets no right. In a user namespace
/// without all users, 65534 may be the number of many. It counts as none. A file that was missing
/// gets the mode and the ACL that any new file gets there. A writer must be able to read the file.
///
/// **Limits.** The fence protects from writers that write through it, and from no others. A user
/// who deletes `NAME.fence` deletes the mark, and a user who may create or rename files in the
/// folder can put another file in the place of this one. In a sticky folder, only the owner of the
/// folder can. A name that is a symbolic link, or another thing than a regular file, is refused. If
/// the name becomes a link later, a write replaces the link and does not follow it. Only local
/// disks are accepted, as for the file store.
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
    /// - [`is_denied`](Error::is_denied) if `NAME.fence` belongs to another user.
    /// - [`is_damaged`](Error::is_damaged) if `NAME.fence` is not a folder.
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

        let beside = open_beside(&opened, name, &path)?;
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
    /// - [`is_damaged`](Error::is_damaged) if the mark is invalid, or the file is not a regular
    ///   file (a symbolic link, a FIFO, a folder).
    /// - [`is_denied`](Error::is_denied) if another user may have put the file or the mark there.
    /// - Errors of the kernel.
    pub fn seal(&self, token: FencingToken) -> Result<Option<Vec<u8>>> {
        let _locked = self.accept(token)?;
        let contents = self.open_current()?.map(read).transpose();
        contents.map_err(|error| io_error(error, "read", &self.path))
    }

    /// Replaces the contents if the token is accepted, and raises the mark if the token is larger.
    ///
    /// # Errors
    /// As [`seal`](Self::seal). After an error the file is unchanged, but the mark may be raised.
    pub fn write(&self, token: FencingToken, contents: &[u8]) -> Result<()> {
        let _locked = self.accept(token)?;
        let current = self.open_current()?;
        self.replace_contents(current, contents)
            .map_err(|error| io_error(error, "replace", &self.path))
    }

    /// The highest token that the file has received, if any.
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("doc-highest-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder).expect("made");
    /// let report = leasehold::fence::File::open(&folder, "report.txt")?;
    /// assert_eq!(report.highest_token()?, None);
    /// # std::fs::remove_dir_all(folder).expect("removed");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`seal`](Self::seal), but never `is_lost`.
    pub fn highest_token(&self) -> Result<Option<Token>> {
        Ok(self.stored_mark()?.map(Mark::token))
    }

    fn stored_mark(&self) -> Result<Option<Mark>> {
        let failed = |error| io_error(error, "read the mark of", &self.path);
        let file = open_regular(&self.beside, TOKEN_FILE).map_err(failed)?;
        let Some(file) = file else { return Ok(None) };

        // An earlier mode of the folder may have let another user put it there.
        let owner = fstat(&file).map_err(|error| failed(error.into()))?.st_uid;
        if ![ROOT, geteuid().as_raw()].contains(&owner) {
            return Err(foreign(&self.path, owner));
        }
        let text = read(file).map_err(failed)?;
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
            self.replace(raised.text().as_bytes(), None, &self.beside, TOKEN_FILE)
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

    /// Opens the file; `None` if it is missing.
    ///
    /// In a folder like `/tmp`, any user may have put a file there first, and would keep it. So
    /// only files of this user are opened, and of those who can replace any file there. Linux has a
    /// similar rule: `fs.protected_regular`.
    fn open_current(&self) -> Result<Option<OwnedFd>> {
        let failed = |error| io_error(error, "open", &self.path);
        let file = open_regular(&self.folder, &self.name).map_err(failed)?;
        let Some(file) = file else { return Ok(None) };

        let owner = fstat(&file).map_err(|error| failed(error.into()))?.st_uid;
        let folder = fstat(&self.folder).map_err(|error| failed(error.into()))?;
        if is_shared_and_sticky(Mode::from_raw_mode(folder.st_mode))
            && ![ROOT, geteuid().as_raw(), folder.st_uid].contains(&owner)
        {
            return Err(self.foreign_file(owner));
        }
        Ok(Some(file))
    }

    /// Replaces the file by one that the same users may open. If it is missing, these are the users
    /// who may open a file that any program makes here.
    fn replace_contents(&self, current: Option<OwnedFd>, contents: &[u8]) -> io::Result<()> {
        let model = match current {
            Some(old) => old,
            None => self.make_new(NEW_FILE_MODE)?,
        };
        let permissions = Permissions::of(&model)?;
        self.replace(contents, Some(&permissions), &self.folder, &self.name)
    }

    /// Writes the new contents to another file, syncs it, and renames it. The rename is also synced
    /// before this returns. Nobody else can open the other file before it is complete.
    fn replace(
        &self,
        contents: &[u8],
        permissions: Option<&Permissions>,
        folder: &OwnedFd,
        name: &str,
    ) -> io::Result<()> {
        check_file_size(contents.len() as u64)?;
        let new = self.make_new(PRIVATE_FILE_MODE)?;
        let mut file = fs::File::from(new.try_clone()?);
        file.write_all(contents)?;

        if let Some(permissions) = permissions {
            permissions.give_to(&new)?;
        }
        file.sync_all()?;
        renameat(&self.beside, NEW, folder, name)?;
        Ok(fsync(folder.as_fd())?)
    }

    /// Makes the file for the next contents, in place of one that a killed process left behind.
    ///
    /// An existing file is never opened: another user may have linked a file elsewhere to its name.
    fn make_new(&self, mode: Mode) -> rustix::io::Result<OwnedFd> {
        match unlinkat(&self.beside, NEW, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | NO_LINK;
        openat(&self.beside, NEW, flags, mode)
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
    fn foreign_file(&self, owner: u32) -> Error {
        let path = self.path.display();
        let owner = user_shown(owner);
        let message = format!(
            "{path} belongs to {owner}, and any user may have put it there: \
             others may write to its folder, which has the sticky bit"
        );
        Error::denied(message).help(format!(
            "remove {path} if you do not know who made it, or else give it to this user: \
             chown USER {path}"
        ))
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
///
/// Only its owner may use it: a user who could rename files in it could put another file in the
/// place of the next contents.
fn open_beside(folder: &OwnedFd, name: &str, path: &Path) -> Result<OwnedFd> {
    let failed = |error: Errno| io_error(error, "open the folder NAME.fence of", path);
    let beside = format!("{name}{BESIDE}");
    match mkdirat(folder, &beside, Mode::RWXU) {
        Ok(()) => fsync(folder).map_err(failed)?,
        Err(Errno::EXIST) => {}
        Err(error) => return Err(failed(error)),
    }

    let look = FOLDER | OFlags::PATH | NO_LINK;
    let found = match openat(folder, &beside, look, Mode::empty()) {
        Err(Errno::NOTDIR) => return Err(not_a_folder(path)),
        found => found.map_err(failed)?,
    };
    let status = fstat(&found).map_err(failed)?;
    if status.st_uid != geteuid().as_raw() {
        return Err(foreign(path, status.st_uid));
    }

    let opened = openat(&found, ".", FOLDER, Mode::empty()).map_err(failed)?;
    // An earlier version gave rights to others. No other mode is set: a read-only file system and
    // RestrictSUIDSGID= forbid it, and for an owner outside the group, the kernel takes the setgid
    // bit, which gives new files their group.
    let mode = Mode::from_raw_mode(status.st_mode);
    let of_others = Mode::RWXG | Mode::RWXO;
    if mode.intersects(of_others) {
        fchmod(&opened, mode - of_others).map_err(failed)?;
    }
    Ok(opened)
}

/// Opens a regular file; `None` if it is missing. A FIFO in its place does not block this process.
fn open_regular(folder: &OwnedFd, name: &str) -> io::Result<Option<OwnedFd>> {
    let file = match openat(folder, name, READ_FILE, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        file => file?,
    };
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(Some(file)),
        _ => Err(NOT_REGULAR.into()),
    }
}

/// Whether several users may make files in a folder of this mode, and only the owners of a file and
/// of the folder may replace it.
fn is_shared_and_sticky(mode: Mode) -> bool {
    mode.contains(Mode::SVTX) && mode.intersects(Mode::WGRP | Mode::WOTH)
}

fn read(file: OwnedFd) -> io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    fs::File::from(file).read_to_end(&mut contents)?;
    Ok(contents)
}

/// The error if another user could replace the file or lower the mark.
#[cold]
fn foreign(path: &Path, owner: u32) -> Error {
    let path = path.display();
    let owner = user_shown(owner);
    let message =
        format!("{path}{BESIDE} or its mark belongs to {owner}, who could replace {path}");
    Error::denied(message).help(format!(
        "let one user write {path}; while no program uses it, remove {path}{BESIDE} if you do not \
         know who made it, or give it to that user: chown -R USER {path}{BESIDE}"
    ))
}

#[cold]
fn not_a_folder(path: &Path) -> Error {
    let path = path.display();
    Error::damaged(format!("{path}{BESIDE} is not a folder"))
        .help(format!("remove {path}{BESIDE}, or choose another name"))
}

/// Turns an error of the kernel into one for the user.
fn io_error(error: impl Into<io::Error>, action: &str, path: &Path) -> Error {
    let error = error.into();
    let message = format!("cannot {action} {}: {error}", path.display());

    let described = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
            Error::denied(message).help("let this user read the file and write to the folder")
        }
        Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => {
            Error::invalid(message).help("name a file in an existing folder")
        }
        Some(Errno::LOOP) => {
            Error::damaged(message).help("replace the symbolic link by a regular file")
        }
        Some(NOT_REGULAR | Errno::ISDIR) => {
            let path = path.display();
            let files = format!("{path}, {path}{BESIDE}/{TOKEN_FILE} or {path}{BESIDE}/{NEW}");
            Error::damaged(format!("cannot {action} {path}: not a regular file"))
                .help(format!("remove what is in the place of {files}"))
        }
        Some(Errno::AGAIN) => Error::unavailable(message)
            .help("try again: another program has a lease on the file (F_SETLEASE of fcntl)"),
        _ => return local_fs::io_error(error, action, path),
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

/// The first mode of a file: nobody else can open it while it is written.
const PRIVATE_FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The mode of a new file as most programs state it. The umask or the folder's ACL limits it.
const NEW_FILE_MODE: Mode = Mode::from_raw_mode(0o666);

const ROOT: u32 = 0;

/// The kernel's error for opening a socket.
const NOT_REGULAR: Errno = Errno::NXIO;

/// How folders are opened.
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Opens an entry itself, never the target of a symbolic link.
const NO_LINK: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

/// Opens a file that may be a FIFO or a terminal by now.
const READ_FILE: OFlags = OFlags::RDONLY
    .union(NO_LINK)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    /// The advice for a store's folder would not help.
    #[test]
    fn errors_say_what_to_do_with_the_file() {
        let cases = [
            (Errno::ACCESS, ErrorKind::Denied, "let this user read"),
            (Errno::PERM, ErrorKind::Denied, "let this user read"),
            (Errno::ROFS, ErrorKind::Denied, "let this user read"),
            (Errno::NOENT, ErrorKind::Invalid, "an existing folder"),
            (Errno::NOTDIR, ErrorKind::Invalid, "an existing folder"),
            (Errno::NAMETOOLONG, ErrorKind::Invalid, "an existing folder"),
            (Errno::LOOP, ErrorKind::Damaged, "replace the symbolic link"),
            (Errno::ISDIR, ErrorKind::Damaged, "remove what is in the"),
            (NOT_REGULAR, ErrorKind::Damaged, "remove what is in the"),
            (Errno::AGAIN, ErrorKind::Unavailable, "try again"),
            (Errno::NOSPC, ErrorKind::Unavailable, "free some space"),
        ];
        for (errno, kind, help) in cases {
            let error = io_error(errno, "read", Path::new("/f"));
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(help), "{error}");
        }
    }
}
