//! The kinds of stores in folders, for the table of schemes of `leasehold`.

use std::future::ready;
use std::path::Path;

use futures_util::FutureExt;

use super::File;
use super::examination::examine;
use crate::store_kind::{OpenedStore, StoreKind, after_scheme};

/// The folders that a URL names.
pub const FILE: StoreKind = StoreKind {
    examine_opened: |url| examine(Path::new(after_scheme(url))),
    ..StoreKind::new(|url, _| {
        let opened = File::at_url_path(after_scheme(url)).map(|store| {
            let shown_url = store.url();
            OpenedStore::new(store, shown_url)
        });
        ready(opened).boxed()
    })
};

/// The folder that the users of a group share.
pub const SYSTEM: StoreKind = StoreKind {
    examine_opened: |_| examine(Path::new(File::SYSTEM_FOLDER)),
    ..StoreKind::new(|url, _| {
        let opened = File::at_system_url(after_scheme(url))
            .map(|store| OpenedStore::new(store, "system:".to_owned()));
        ready(opened).boxed()
    })
};
