//! A file that refuses late writers.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    CWD, FlockOperation, Mode, OFlags, fchmod, flock, fstat, fsync, mkdirat, openat, renameat,
};
use rustix::io::Errno;

use crate::local_fs::{Locality, check_local};
use crate::{Error, FencingToken, Result, Token};

/// Ends the name of the folder beside the file that keeps its mark.
const BESIDE: &str = ".fence";
/// In that folder: the mark, and what is about to take the place of the mark or of the file.
const TOKEN_FILE: &str = "mark";
const NEW: &str = "new";
/// Begins a mark that has a claim id: `v2 TOKEN CLAIM`. Version 1 is the token alone, in decimal.
const VERSION: &str = "v2";
/// A file's name has at most 255 bytes, and the longest we make ends so.
const NAME_MAX: usize = 255 - BESIDE.len();
/// What a new file and its folder may be used for; the process's umask takes away from it.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o777);
/// Both are opened as what they are, and never through a symbolic link.
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
const NO_LINK: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

/// A file that is read and replaced as a whole, and only by who is not late.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("leasehold-fence-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).expect("made");
/// # let locks = leasehold::open("memory:").await?;
/// let late = locks.mutex("report").acquire().await?.fencing_token();
/// let guard = locks.mutex("report").acquire().await?;
///
/// let report = leasehold::fence::File::open(&folder, "report.txt")?;
/// let before = report.seal(guard.fencing_token())?; // from here on earlier holders are rejected
/// assert_eq!(before, None);
/// report.write(guard.fencing_token(), b"42 orders")?;
/// assert!(report.write(late, b"41 orders").unwrap_err().is_lost());
/// assert_eq!(report.seal(guard.fencing_token())?.as_deref(), Some(&b"42 orders"[..]));
/// # std::fs::remove_dir_all(folder).expect("removed");
/// # Ok(()) }
/// ```
///
/// The mark is kept in a folder beside the file, `NAME.fence`. Mark and contents are each written elsewhere, synced, and put in place
/// by a rename, under a flock on that folder: whoever reads the file without any of this finds the old contents or the new ones,
/// also after a loss of power, and never contents whose token is above the mark.
///
/// Its methods block, for as long as a sync takes or another has the flock: from async code call them where blocking is allowed
/// (`tokio::task::spawn_blocking`). So there is nothing to cancel; a process that is killed in the middle has done all or nothing
/// of it, but for the mark, which may be raised already.
///
/// **Limits.** It protects from those who write through it, and from nobody else; whoever deletes `NAME.fence` makes it forget its
/// mark. The new file belongs to who wrote it and has the old one's permissions. A name that is a symbolic link is refused, and one
/// that becomes a link is replaced, not followed. Local disks only, as for the file store.
#[derive(Debug)]
pub struct File {
    folder: OwnedFd,
    beside: OwnedFd,
    name: String,
    path: PathBuf,
}

impl File {
    /// The file of this name in a folder; it need not be there, the folder must.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the name is no plain file name (it has a slash, or is `..`) or the folder is missing,
    /// [`is_unsupported`](Error::is_unsupported) on a file system that is not known to be local, and why `NAME.fence` cannot be made.
    pub fn open(folder: impl AsRef<Path>, name: &str) -> Result<Self> {
        Self::open_on(folder.as_ref(), name, Locality::Known)
    }

    /// As [`open`](Self::open), on a file system that leasehold does not know: the caller states that it is local to this
    /// machine. Network file systems that leasehold knows are refused all the same.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_stated_local(folder: impl AsRef<Path>, name: &str) -> Result<Self> {
        Self::open_on(folder.as_ref(), name, Locality::Stated)
    }

    fn open_on(folder: &Path, name: &str, locality: Locality) -> Result<Self> {
        let path = folder.join(checked_path(name)?);
        let output = |error: Errno| io_error(error, "open the folder of", &path);
        let opened = openat(CWD, folder, FOLDER, Mode::empty()).map_err(output)?;
        check_local(
            &opened,
            folder,
            locality,
            "if it is local to this machine, open the file with open_stated_local",
        )?;
        let beside = beside(&opened, name).map_err(output)?;
        Ok(Self {
            folder: opened,
            beside,
            name: name.to_owned(),
            path,
        })
    }

    /// Raises the mark to this token and reads the file, `None` if it is not there: the first thing to do under a new token.
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost) if a later holder has sealed it, or another claim with an equal token; [`is_damaged`](Error::is_damaged) if the mark is none, or the
    /// file is a symbolic link; and what the system says.
    pub fn seal(&self, token: FencingToken) -> Result<Option<Vec<u8>>> {
        let _locked = self.display_path(token)?;
        Self::read(&self.folder, &self.name).map_err(|error| io_error(error, "read", &self.path))
    }

    /// Replaces the contents if the token is accepted; raises the mark if it is above.
    ///
    /// # Errors
    /// As [`seal`](Self::seal). Then the file is as it was; the mark may be raised.
    pub fn write(&self, token: FencingToken, contents: &[u8]) -> Result<()> {
        let _locked = self.display_path(token)?;
        self.replace(contents, &self.folder, &self.name)
            .map_err(|error| io_error(error, "replace", &self.path))
    }

    /// The highest token it was shown, if any.
    ///
    /// # Errors
    /// As [`seal`](Self::seal), but never `is_lost`.
    pub fn highest_token(&self) -> Result<Option<Token>> {
        Ok(self.stored_mark()?.map(Mark::token))
    }

    fn stored_mark(&self) -> Result<Option<Mark>> {
        let text = Self::read(&self.beside, TOKEN_FILE)
            .map_err(|error| io_error(error, "read the mark of", &self.path))?;
        let Some(text) = text else { return Ok(None) };

        let last_token = std::str::from_utf8(&text).ok().and_then(Mark::parse);
        last_token.map(Some).ok_or_else(|| self.damaged_token())
    }

    /// Shows it a token: whoever has the answer may go on until it is dropped.
    fn display_path(&self, token: FencingToken) -> Result<LockedFolder> {
        let locked = self
            .lock()
            .map_err(|error| io_error(error, "lock the mark of", &self.path))?;
        let last_token = self.stored_mark()?;

        if let Some(last_token) = last_token
            && !last_token.accepts(token)
        {
            return Err(self.stale_token(token.token(), last_token.token()));
        }
        if last_token != Some(Mark::Claim(token)) {
            let output = |error: io::Error| io_error(error, "raise the mark of", &self.path);
            self.replace(
                Mark::Claim(token).text().as_bytes(),
                &self.beside,
                TOKEN_FILE,
            )
            .map_err(output)?;
        }
        Ok(locked)
    }

    /// Each time by a descriptor of its own, as two threads with one would not exclude each other.
    fn lock(&self) -> io::Result<LockedFolder> {
        let folder = openat(&self.beside, ".", FOLDER, Mode::empty())?;
        rustix::io::retry_on_intr(|| flock(&folder, FlockOperation::LockExclusive))?;
        Ok(LockedFolder { _folder: folder })
    }

    fn read(folder: &OwnedFd, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match openat(folder, name, OFlags::RDONLY | NO_LINK, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            file => fs::File::from(file?),
        };
        let mut contents = Vec::new();
        (&file).read_to_end(&mut contents)?;
        Ok(Some(contents))
    }

    /// Written whole and on the disk before it is in place, and in place on the disk before this returns. What a killed process
    /// left of it is written over.
    fn replace(&self, contents: &[u8], folder: &OwnedFd, name: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | NO_LINK;
        let new = openat(&self.beside, NEW, flags, FILE_MODE)?;
        if let Some(mode) = mode_of(folder, name)? {
            fchmod(&new, mode)?;
        }
        let mut new = fs::File::from(new);
        new.write_all(contents)?;
        new.sync_all()?;
        renameat(&self.beside, NEW, folder, name)?;
        Ok(fsync(folder.as_fd())?)
    }

    #[cold]
    fn stale_token(&self, token: Token, last_token: Token) -> Error {
        let path = self.path.display();
        let what = if token == last_token {
            format!("{path} was sealed by another claim with the same token {last_token}")
        } else {
            format!("{path} was sealed with token {last_token}, and {token} is earlier")
        };
        Error::lost(what).help("acquire the lock again and begin anew")
    }

    #[cold]
    fn damaged_token(&self) -> Error {
        Error::damaged(format!(
            "what {}{BESIDE}/{TOKEN_FILE} holds is not a mark",
            self.path.display()
        ))
        .help("write the highest token that was ever granted there, in decimal")
    }
}

/// The highest token that the file was shown, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// Version 1: it is not known which claim had the token.
    Token(Token),
    Claim(FencingToken),
}

impl Mark {
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.trim_end().split(' ').collect();
        match words[..] {
            [token] => Some(Self::Token(token.parse().ok()?)),
            [VERSION, token, claim] => Some(Self::Claim(FencingToken::new(
                token.parse().ok()?,
                claim.parse().ok()?,
            ))),
            _ => None,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Token(token) => format!("{token}\n"),
            Self::Claim(token) => format!("{VERSION} {} {}\n", token.token(), token.claim()),
        }
    }

    fn token(self) -> Token {
        match self {
            Self::Token(token) => token,
            Self::Claim(token) => token.token(),
        }
    }

    fn accepts(self, token: FencingToken) -> bool {
        match self {
            Self::Token(last_token) => token.token() > last_token,
            Self::Claim(last_token) => token.is_accepted_after(last_token),
        }
    }
}

/// While it lives nobody else reads or writes mark or file.
struct LockedFolder {
    _folder: OwnedFd,
}

/// The folder beside, made if missing, and on the disk before anything in it counts.
fn beside(folder: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let beside = format!("{name}{BESIDE}");
    match mkdirat(folder, &beside, FOLDER_MODE) {
        Ok(()) => fsync(folder)?,
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    openat(folder, &beside, FOLDER | NO_LINK, Mode::empty())
}

/// The permissions of a file that is there. A link is refused: it would be replaced by what was meant for its target.
fn mode_of(folder: &OwnedFd, name: &str) -> rustix::io::Result<Option<Mode>> {
    match openat(folder, name, OFlags::PATH | NO_LINK, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        file => {
            let about = fstat(file?)?;
            if rustix::fs::FileType::from_raw_mode(about.st_mode).is_symlink() {
                return Err(Errno::LOOP);
            }
            Ok(Some(Mode::from_raw_mode(about.st_mode)))
        }
    }
}

/// What the system said, in words.
fn io_error(error: impl Into<io::Error>, doing: &str, path: &Path) -> Error {
    let error = error.into();
    let what = format!("cannot {doing} {}: {error}", path.display());
    let output = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
            Error::denied(what).help("let this user write to the folder, and to NAME.fence in it")
        }
        Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::ISDIR) => {
            Error::invalid(what).help("name a file in a folder that is there")
        }
        Some(Errno::LOOP) => {
            Error::damaged(what).help("put a file in the place of the symbolic link")
        }
        _ => Error::unavailable(what),
    };
    output.caused_by(error)
}

fn checked_path(name: &str) -> Result<&str> {
    let mut parts = Path::new(name).components();
    let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name);
    match name.len() {
        1..=NAME_MAX if plain && !name.contains('\0') => Ok(name),
        _ => Err(Error::invalid(format!(
            "{name:?} is no plain file name of at most {NAME_MAX} bytes"
        ))
        .help("name the folder and the file in it apart")),
    }
}
