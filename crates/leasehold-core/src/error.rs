//! The one error type of this crate: opaque, with methods instead of variants.

use std::error::Error as StdError;
use std::sync::Arc;
use std::{fmt, io};

use rustix::io::Errno;

/// The result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The operation that failed, its store and lock, and a hint.
///
/// Its methods classify it, so that no program has to match on its text:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::open("memory:").await?;
/// let error = locks.mutex("").acquire().await.unwrap_err();
/// assert!(error.is_invalid() && !error.can_retry());
/// # Ok(()) }
/// ```
///
/// Cloning is cheap. No error of this crate contains a password.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    what: String,
    help: Option<String>,
    operation: Option<Operation>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

#[derive(Clone)]
struct Operation {
    action: &'static str,
    store: String,
    name: Option<String>,
}

/// The kinds of errors, for a `match`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::ErrorKind;
/// let locks = leasehold::open("memory:").await?;
/// let error = locks.mutex("").acquire().await.unwrap_err();
/// let status = match error.kind() {
///     ErrorKind::Unavailable => 503,
///     ErrorKind::Invalid => 400,
///     _ => 500,
/// };
/// assert_eq!((status, error.kind().as_str()), (400, "invalid"));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// See [`Error::is_lost`].
    Lost,
    /// See [`Error::is_unavailable`].
    Unavailable,
    /// See [`Error::is_unsupported`].
    Unsupported,
    /// See [`Error::is_denied`].
    Denied,
    /// See [`Error::is_invalid`].
    Invalid,
    /// See [`Error::is_mismatch`].
    Mismatch,
    /// See [`Error::is_damaged`].
    Damaged,
}

impl ErrorKind {
    /// Returns the stable name of the kind: the value of `error.type` in spans, and a label of
    /// metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Unavailable => "unavailable",
            Self::Unsupported => "unsupported",
            Self::Denied => "denied",
            Self::Invalid => "invalid",
            Self::Mismatch => "mismatch",
            Self::Damaged => "damaged",
        }
    }
}

impl Error {
    /// Returns the kind, for a `match`.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns whether the lock was lost, or may have been lost.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::{Locks, stores::Memory};
    /// let store = Memory::new();
    /// let guard = Locks::from_store(store.clone(), "memory:")?.mutex("nightly").acquire().await?;
    /// store.revoke("nightly");
    /// assert!(guard.release().await.unwrap_err().is_lost());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.kind == ErrorKind::Lost
    }

    /// Returns whether the store was unreachable, sent no reply in time, or has no room.
    ///
    /// A retry may succeed later.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// # async fn answer(locks: leasehold::Locks) -> u16 {
    /// match locks.mutex("orders/42").try_acquire().await {
    ///     Err(error) if error.is_unavailable() => 503,
    ///     Err(_) => 500,
    ///     Ok(Err(_refused)) => 423,
    ///     Ok(Ok(_guard)) => 200,
    /// }
    /// # }
    /// # assert_eq!(answer(locks).await, 200);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.0.kind == ErrorKind::Unavailable
    }

    /// Returns whether the store cannot do this at all in its present configuration.
    ///
    /// ```
    /// use leasehold::Need;
    /// let masters = leasehold::open_lazy("redlock://a,b,c")?;
    /// assert!(masters.require([Need::Semaphores]).unwrap_err().is_unsupported());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        self.0.kind == ErrorKind::Unsupported
    }

    /// Returns whether the store denied access: missing permission or wrong credentials.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.0.kind == ErrorKind::Denied
    }

    /// Returns whether an argument is invalid.
    ///
    /// Examples are an empty name, a lease out of range and an unknown URL scheme.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// assert!(leasehold::open("ftp://host").await.unwrap_err().is_invalid());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        self.0.kind == ErrorKind::Invalid
    }

    /// Returns whether the name is in use for a lock of another kind or capacity.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let two = locks.semaphore("gpu", 2).acquire().await?;
    /// assert!(locks.semaphore("gpu", 3).acquire().await.unwrap_err().is_mismatch());
    /// # drop(two);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_mismatch(&self) -> bool {
        self.0.kind == ErrorKind::Mismatch
    }

    /// Returns whether the data of this name is damaged, or was not written by leasehold.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.0.kind == ErrorKind::Damaged
    }

    /// Returns whether the same call may succeed later without a change of the configuration.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind};
    /// assert!(Error::for_test(ErrorKind::Unavailable).can_retry());
    /// assert!(!Error::for_test(ErrorKind::Denied).can_retry());
    /// ```
    #[must_use]
    pub fn can_retry(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::Lost | ErrorKind::Unavailable | ErrorKind::Mismatch
        )
    }
}

/// Constructors. Those of stores are hidden: a program only reads errors.
impl Error {
    /// Creates an error of this kind, for a test of your own code.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind};
    /// let error = Error::for_test(ErrorKind::Unavailable);
    /// assert!(error.is_unavailable() && error.can_retry());
    /// ```
    #[must_use]
    pub fn for_test(kind: ErrorKind) -> Self {
        Self::new(kind, format!("a test made this error: {}", kind.as_str()))
    }

    /// Creates the error of a lost lock; see [`is_lost`](Self::is_lost).
    #[doc(hidden)]
    pub fn lost(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Lost, what)
    }

    /// Creates the error of an unavailable store; see [`is_unavailable`](Self::is_unavailable).
    #[doc(hidden)]
    pub fn unavailable(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, what)
    }

    /// Creates the error of a process that has reached a limit on threads, processes, descriptors
    /// or the size of a file. It says which limit to raise.
    #[doc(hidden)]
    #[must_use]
    pub fn exhausted(error: io::Error, what: impl fmt::Display) -> Self {
        let help = match Errno::from_io_error(&error) {
            Some(Errno::AGAIN) => {
                Some("raise the limit on processes (ulimit -u, TasksMax=, pids.max)")
            }
            Some(Errno::MFILE) => Some("raise the limit on files (ulimit -n, LimitNOFILE=)"),
            Some(Errno::NFILE) => Some("raise the machine's limit on files (sysctl fs.file-max)"),
            Some(Errno::FBIG) => {
                Some("raise the limit on the size of files (ulimit -f, LimitFSIZE=)")
            }
            _ => None,
        };
        Self::unavailable(format!("{what}: {error}"))
            .with(|inner| inner.help = help.map(str::to_owned))
            .caused_by(error)
    }

    /// Creates the error of an unsupported operation; see [`is_unsupported`](Self::is_unsupported).
    #[doc(hidden)]
    pub fn unsupported(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, what)
    }

    /// Creates the error of a missing permission; see [`is_denied`](Self::is_denied).
    #[doc(hidden)]
    pub fn denied(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Denied, what)
    }

    /// Creates the error of an invalid argument; see [`is_invalid`](Self::is_invalid).
    #[doc(hidden)]
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, what)
    }

    /// Creates the error of a name that another kind of lock uses; see
    /// [`is_mismatch`](Self::is_mismatch).
    #[doc(hidden)]
    pub fn mismatch(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Mismatch, what)
    }

    /// Creates the error of damaged or foreign data; see [`is_damaged`](Self::is_damaged).
    #[doc(hidden)]
    pub fn damaged(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Damaged, what)
    }

    /// Adds a hint: what the user can do.
    #[doc(hidden)]
    #[must_use]
    pub fn help(self, help: impl Into<String>) -> Self {
        self.with(|inner| inner.help = Some(help.into()))
    }

    /// Adds the cause.
    #[doc(hidden)]
    #[must_use]
    pub fn caused_by(self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.with(|inner| inner.source = Some(Arc::new(source)))
    }

    /// Returns the hint alone.
    #[doc(hidden)]
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.0.help.as_deref()
    }

    /// Returns the error alone, without operation, store and hint.
    #[doc(hidden)]
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.0.what
    }

    /// Adds the operation, store and lock, unless an inner layer has added them.
    #[doc(hidden)]
    #[must_use]
    pub fn during(self, operation: &'static str, store: &str, name: Option<&str>) -> Self {
        if self.0.operation.is_some() {
            return self;
        }
        let context = Operation {
            action: operation,
            store: store.to_owned(),
            name: name.map(str::to_owned),
        };
        self.with(|inner| inner.operation = Some(context))
    }

    fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            what: what.into(),
            help: None,
            operation: None,
            source: None,
        }))
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

/// The longest name of a lock, in bytes.
pub(crate) const NAME_LEN_MAX: usize = 512;
/// How many characters are shown of a longer text.
const SHOWN_OF_LONG_NAME: usize = 32;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(context) = &self.0.operation {
            write!(f, "cannot {}", context.action)?;
            match &context.name {
                Some(name) if name.len() > NAME_LEN_MAX => {
                    let begin: String = name.chars().take(SHOWN_OF_LONG_NAME).collect();
                    write!(f, " \"{}…\"", begin.escape_debug())?;
                }
                Some(name) => write!(f, " {name:?}")?,
                None => {}
            }
            // A URL may end with a colon of its own.
            write!(f, " on {}: ", context.store.trim_end_matches(':'))?;
        }

        f.write_str(&self.0.what)?;
        match &self.0.help {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)?;
        match &self.0.source {
            Some(source) => write!(f, " (caused by: {source})"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_text_has_operation_store_and_help() {
        let error = Error::denied("the folder is read-only")
            .help("choose another with --store")
            .during("acquire", "file:/locks", Some("a\nb"));
        assert_eq!(
            error.to_string(),
            "cannot acquire \"a\\nb\" on file:/locks: \
             the folder is read-only; choose another with --store"
        );
        let outer = error.during("release", "elsewhere", None);
        assert!(
            outer.to_string().starts_with("cannot acquire"),
            "the innermost operation is kept"
        );
    }
}
