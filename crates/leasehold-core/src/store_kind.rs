//! The stores of one kind: how a URL opens them, and what examines them.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use tokio::runtime::Handle;

use crate::{Examination, Result, Store};

/// The stores of one kind. Each crate with stores exports one of these for each kind.
#[derive(Clone, Copy)]
pub struct StoreKind {
    /// Opens the store of a URL. The runtime drives connections in addition to those of the
    /// background thread.
    pub open: for<'a> fn(&'a str, Option<Handle>) -> BoxFuture<'a, Result<OpenedStore>>,
    /// Examines the servers of a URL before the store is opened.
    pub examine: for<'a> fn(&'a str) -> BoxFuture<'a, Result<Examination>>,
    /// Examines the store that was opened, by the URL that is shown.
    pub examine_opened: fn(&str) -> Examination,
}

/// A store without an engine.
pub struct OpenedStore {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The URL without its password.
    pub shown_url: String,
}

impl StoreKind {
    /// Creates a kind of which nothing is examined.
    #[must_use]
    pub const fn new(
        open: for<'a> fn(&'a str, Option<Handle>) -> BoxFuture<'a, Result<OpenedStore>>,
    ) -> Self {
        Self {
            open,
            examine: |_| ready(Ok(Examination::default())).boxed(),
            examine_opened: |_| Examination::default(),
        }
    }
}

impl OpenedStore {
    /// Creates a store whose URL is shown so.
    #[must_use]
    pub fn new(store: impl Store, shown_url: String) -> Self {
        Self {
            store: Arc::new(store),
            shown_url,
        }
    }
}

impl Debug for StoreKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreKind").finish_non_exhaustive()
    }
}

impl Debug for OpenedStore {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenedStore").field(&self.shown_url).finish()
    }
}

/// Returns what follows the scheme of a URL.
pub(crate) fn after_scheme(url: &str) -> &str {
    url.split_once(':').map_or("", |(_, rest)| rest)
}
