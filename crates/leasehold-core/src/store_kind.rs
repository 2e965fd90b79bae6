//! The stores of one kind: the URLs that name them, and how a URL opens and examines them.

use std::fmt::{self, Debug, Formatter};
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use tokio::runtime::Handle;

use crate::stores::url::{Setting, UrlForm};
use crate::{Claim, Examination, Guarantees, OnContention, Result, Store};

/// The stores of one kind. Each crate with stores exports one of these for each kind.
pub struct StoreKind {
    /// The URLs, with their settings. The schemes with locks of leasehold itself come first.
    pub forms: &'static [&'static UrlForm],
    /// URLs, and what they name, for the help of the command.
    pub help: &'static [(&'static str, &'static str)],
    /// Schemes that other programs use for the service, and the advice what to write instead.
    pub aliases: &'static [(&'static str, &'static str)],
    /// The libraries whose locks the stores can read.
    pub dialects: &'static [Dialect],
    /// Where the locks are.
    pub place: Place,
    /// Parses the URL of a store, and connects to nothing.
    pub prepare: fn(&str) -> Result<UnopenedStore>,
}

/// Where the locks of a store are.
pub enum Place {
    /// On the servers that the URL names, perhaps with a user.
    Servers,
    /// In the folder that this returns for what follows the colon of a valid URL.
    Folder(fn(&str) -> Option<PathBuf>),
    /// In one process, so that no other one finds them.
    Process,
}

/// The locks of another library.
#[derive(Debug, PartialEq, Eq)]
pub struct Dialect {
    /// The word for it on the command line.
    pub name: &'static str,
    /// What the help of the command says of it.
    pub help: &'static str,
    /// The settings of a URL that select it; empty for the format that a store uses by itself.
    pub settings: &'static str,
}

impl StoreKind {
    /// Creates a kind of stores on a service.
    #[must_use]
    pub const fn new(
        forms: &'static [&'static UrlForm],
        prepare: fn(&str) -> Result<UnopenedStore>,
    ) -> Self {
        Self {
            forms,
            help: &[],
            aliases: &[],
            dialects: &[],
            place: Place::Servers,
            prepare,
        }
    }

    /// Whether a URL has no server, and so no user.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        !matches!(self.place, Place::Servers)
    }

    /// Whether no other process finds the locks.
    #[must_use]
    pub const fn is_in_process(&self) -> bool {
        matches!(self.place, Place::Process)
    }

    /// Returns the folder that a URL names.
    #[must_use]
    pub fn folder(&self, url: &str) -> Option<PathBuf> {
        match self.place {
            Place::Folder(folder) => folder(after_scheme(url)),
            Place::Servers | Place::Process => None,
        }
    }

    /// Returns the words before the colon.
    pub fn schemes(&self) -> impl Iterator<Item = &'static str> {
        let own = self.forms.iter().filter(|form| form.dialect.is_none());
        own.flat_map(|form| form.schemes).map(|(scheme, _)| *scheme)
    }

    /// Returns the dialects that a URL of these stores can have.
    pub fn dialects_of(&self, url: &str) -> impl Iterator<Item = &'static Dialect> {
        let (scheme, _) = split(url);
        let dialects = self.dialects.iter();
        dialects.filter(move |dialect| self.form_in(scheme, dialect).is_some())
    }

    /// Returns the dialect of a URL: the one of which it states the most settings.
    #[must_use]
    pub fn dialect_of(&self, url: &str) -> Option<&'static Dialect> {
        let (_, settings) = split(url);
        let named = dialect_in(settings);
        let is_stated = |setting: &str| settings.split('&').any(|stated| stated == setting);
        let stated = self.dialects.iter().filter(|dialect| {
            let mut selecting = dialect.settings.split_terminator('&');
            let is_default = dialect.settings.is_empty();
            selecting.all(is_stated) && (!is_default || named.is_none_or(|it| it == dialect.name))
        });
        stated.max_by_key(|dialect| dialect.settings.len())
    }

    /// Returns a URL with the settings of one of its [dialects](Self::dialects_of) in place of those of
    /// its own format.
    #[must_use]
    pub fn in_dialect(&self, url: &str, dialect: &Dialect) -> String {
        let (scheme, settings) = split(url);
        let form = self.form_in(scheme, dialect);
        if self.dialect_of(url) == Some(dialect) {
            return url.to_owned();
        }

        let is_kept = |stated: &&str| {
            let name = stated.split('=').next().unwrap_or_default();
            name == Setting::REPLY_TIMEOUT.name || form.is_some_and(|it| it.keeps_in_dialect(name))
        };
        let kept = settings.split('&').filter(is_kept);
        let selecting = dialect.settings.split_terminator('&');
        let settings: Vec<&str> = kept.chain(selecting).collect();

        let base = url.split('?').next().unwrap_or_default();
        let separator = if settings.is_empty() { "" } else { "?" };
        format!("{base}{separator}{}", settings.join("&"))
    }

    /// Returns a URL whose paths of files are absolute, for a process in another working directory.
    #[must_use]
    pub fn with_absolute_paths(&self, url: &str) -> String {
        let (scheme, settings) = split(url);
        let mut forms = self.forms.iter();
        let form = forms.find(|form| form.has_scheme(scheme));
        let (Some(form), false) = (form, settings.is_empty()) else {
            return url.to_owned();
        };

        let settings = settings.split('&').map(|it| form.with_absolute_path(it));
        let settings: Vec<String> = settings.collect();
        let base = url.split('?').next().unwrap_or_default();
        format!("{base}?{}", settings.join("&"))
    }

    fn form_in(&self, scheme: &str, dialect: &Dialect) -> Option<&'static UrlForm> {
        let named = dialect_in(dialect.settings);
        let mut forms = self.forms.iter().copied();
        forms.find(|form| form.has_scheme(scheme) && form.has_dialect(named))
    }
}

/// Returns the dialect that the settings of a URL name.
fn dialect_in(settings: &str) -> Option<&str> {
    let mut settings = settings.split('&');
    settings.find_map(|setting| setting.strip_prefix("dialect="))
}

/// Returns the scheme and the settings of a URL.
fn split(url: &str) -> (&str, &str) {
    let scheme = url.split(':').next().unwrap_or_default();
    let settings = url.split_once('?').map_or("", |(_, settings)| settings);
    (scheme, settings)
}

/// A store whose URL is valid, and which is not connected.
pub struct UnopenedStore {
    /// The URL without its password.
    pub shown_url: String,
    /// What the store guarantees, by its URL.
    pub guarantees: Guarantees,
    /// The store, if it needs no server and so is open already.
    pub opened: Option<Arc<dyn Store>>,
    open: Box<dyn Fn(Option<Handle>) -> Opening + Send + Sync>,
    examine: Box<dyn Fn() -> Examining + Send + Sync>,
    /// What opens the store and enters a claim at the same time, if it can.
    pub enters: Option<Arc<dyn OpenEntering>>,
}

/// Opens a store, and meanwhile enters the first claim of its client.
#[async_trait]
pub trait OpenEntering: Send + Sync + 'static {
    /// Opens the store. Its first [`enter`](Store::enter) of the same claim need not send a request.
    ///
    /// # Errors
    /// As when the store is opened alone. The server may have the claim.
    async fn open(&self, runtime: Option<Handle>, first: FirstClaim) -> Result<Arc<dyn Store>>;

    /// Makes the claim leave after an opening has failed; returns whether it was there. It connects
    /// without the checks, so that a server that they reject does not keep the claim. It may be
    /// repeated.
    async fn leave(&self, claim: &Claim) -> Result<bool>;
}

/// A claim that is entered while its store is opened.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "only the store crates use it")]
pub struct FirstClaim {
    pub claim: Claim,
    pub on_contention: OnContention,
    /// Whether the server may have the claim: set before the request is sent.
    pub may_be_there: Arc<AtomicBool>,
}

/// The opening of a store.
type Opening = BoxFuture<'static, Result<Arc<dyn Store>>>;
/// The examination of a store.
type Examining = BoxFuture<'static, Result<Examination>>;

impl UnopenedStore {
    /// Creates a store that `connect` opens, and of which nothing is examined.
    pub fn new<S: Store, F>(
        shown_url: String,
        guarantees: Guarantees,
        connect: impl Fn(Option<Handle>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<S>> + Send + 'static,
    {
        Self {
            shown_url,
            guarantees,
            opened: None,
            open: Box::new(move |runtime| {
                let connecting = connect(runtime);
                async move { Ok(Arc::new(connecting.await?) as Arc<dyn Store>) }.boxed()
            }),
            examine: Box::new(|| ready(Ok(Examination::default())).boxed()),
            enters: None,
        }
    }

    /// Creates a store that needs no server, and so is open already.
    pub(crate) fn opened(store: impl Store, shown_url: String) -> Self {
        let store: Arc<dyn Store> = Arc::new(store);
        let guarantees = store.guarantees();
        Self {
            shown_url,
            guarantees,
            opened: Some(Arc::clone(&store)),
            open: Box::new(move |_| ready(Ok(Arc::clone(&store))).boxed()),
            examine: Box::new(|| ready(Ok(Examination::default())).boxed()),
            enters: None,
        }
    }

    /// Sets what examines risks to locks in the store.
    #[must_use]
    pub fn examined_by<F>(mut self, examine: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Examination>> + Send + 'static,
    {
        self.examine = Box::new(move || examine().boxed());
        self
    }

    /// Examines risks to locks in the store, before it is opened.
    #[must_use]
    pub fn examine(&self) -> Examining {
        (self.examine)()
    }

    /// Opens the store. The runtime drives connections in addition to those of the background
    /// thread.
    #[must_use]
    pub fn open(&self, runtime: Option<Handle>) -> Opening {
        (self.open)(runtime)
    }
}

impl Debug for StoreKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.schemes()).finish()
    }
}

impl Debug for UnopenedStore {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UnopenedStore")
            .field(&self.shown_url)
            .finish()
    }
}

/// Returns what follows the scheme of a URL.
pub(crate) fn after_scheme(url: &str) -> &str {
    url.split_once(':').map_or("", |(_, rest)| rest)
}
