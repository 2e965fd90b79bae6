//! The stores of one kind: how a URL opens them, and what examines them.

use std::fmt::{self, Debug, Formatter};
use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use tokio::runtime::Handle;

use crate::{Examination, Guarantees, Result, Store};

/// The stores of one kind. Each crate with stores exports one of these for each kind.
#[derive(Clone, Copy)]
pub struct StoreKind {
    /// Parses the URL of a store, and connects to nothing.
    pub prepare: fn(&str) -> Result<UnopenedStore>,
    /// Examines the servers of a URL before the store is opened.
    pub examine: for<'a> fn(&'a str) -> BoxFuture<'a, Result<Examination>>,
    /// Examines the store that was opened, by the URL that is shown.
    pub examine_opened: fn(&str) -> Examination,
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
}

/// The opening of a store.
type Opening = BoxFuture<'static, Result<Arc<dyn Store>>>;

impl StoreKind {
    /// Creates a kind of which nothing is examined.
    #[must_use]
    pub const fn new(prepare: fn(&str) -> Result<UnopenedStore>) -> Self {
        Self {
            prepare,
            examine: |_| ready(Ok(Examination::default())).boxed(),
            examine_opened: |_| Examination::default(),
        }
    }
}

impl UnopenedStore {
    /// Creates a store that `connect` opens.
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
        }
    }

    /// Creates a store that needs no server, and so is open already.
    pub(crate) fn opened(store: impl Store, shown_url: String) -> Self {
        let store: Arc<dyn Store> = Arc::new(store);
        Self {
            shown_url,
            guarantees: store.guarantees(),
            opened: Some(Arc::clone(&store)),
            open: Box::new(move |_| ready(Ok(Arc::clone(&store))).boxed()),
        }
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
        f.debug_struct("StoreKind").finish_non_exhaustive()
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
