//! The kinds of stores in folders, for the table of schemes of `leasehold`.

use std::path::Path;

use super::File;
use super::examination::examine;
use crate::store_kind::{StoreKind, UnopenedStore, after_scheme};

/// The folders that a URL names.
pub const FILE: StoreKind = StoreKind {
    examine_opened: |url| examine(Path::new(after_scheme(url))),
    ..StoreKind::new(|url| {
        let store = File::at_url_path(after_scheme(url))?;
        let shown_url = store.url();
        Ok(UnopenedStore::opened(store, shown_url))
    })
};

/// The folder that the users of a group share.
pub const SYSTEM: StoreKind = StoreKind {
    examine_opened: |_| examine(Path::new(File::SYSTEM_FOLDER)),
    ..StoreKind::new(|url| {
        let store = File::at_system_url(after_scheme(url))?;
        Ok(UnopenedStore::opened(store, "system:".to_owned()))
    })
};
