//! The kinds of stores in folders.

use std::future::ready;
use std::path::{Path, PathBuf};

use super::File;
use super::builder::{FILE_URL, SYSTEM_URL, split_settings};
use super::examination::examine;
use super::folder::path_of_url;
use crate::store_kind::{Place, StoreKind, UnopenedStore, after_scheme};

/// The folders that a URL names.
pub static FILE: StoreKind = StoreKind {
    place: Place::Folder(|rest| path_of_url(split_settings(rest).0).ok()),
    help: &[
        ("file:/some/folder", "a folder on this machine"),
        (
            "file:/some/folder?mode=0660",
            "the same, with files for the members of its group",
        ),
        ("file:", "leasehold in $XDG_STATE_HOME or ~/.local/state"),
    ],
    aliases: &[
        (
            "flock",
            "write file:/some/folder: a file store shares its locks with flock(1)",
        ),
        ("dir", "write file:/some/folder"),
    ],
    ..StoreKind::new(&[&FILE_URL], |url| {
        let store = File::at_url_path(after_scheme(url))?;
        let shown_url = store.url();
        Ok(unopened(store, shown_url))
    })
};

/// The folder that the users of a group share.
pub static SYSTEM: StoreKind = StoreKind {
    place: Place::Folder(|rest| {
        let (path, _) = split_settings(rest);
        path.is_empty().then(|| PathBuf::from(File::SYSTEM_FOLDER))
    }),
    help: &[("system:", "/var/lib/leasehold, for the group leasehold")],
    ..StoreKind::new(&[&SYSTEM_URL], |url| {
        let store = File::at_system_url(after_scheme(url))?;
        Ok(unopened(store, "system:".to_owned()))
    })
};

fn unopened(store: File, shown_url: String) -> UnopenedStore {
    let folder = store.url();
    let examine = move || ready(Ok(examine(Path::new(after_scheme(&folder)))));
    UnopenedStore::opened(store, shown_url).examined_by(examine)
}
