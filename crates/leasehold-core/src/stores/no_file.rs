//! The kinds of stores in folders on systems that have no such store: it needs flock, FIFOs, epoll
//! and /proc of Linux.

use crate::Error;
use crate::store_kind::{Place, StoreKind};
use crate::stores::url::{Transport, UrlForm};

/// The folders that a URL names.
pub static FILE: StoreKind = unsupported(&[&FILE_URL]);
/// The folder that the users of a group share.
pub static SYSTEM: StoreKind = unsupported(&[&SYSTEM_URL]);

const fn unsupported(forms: &'static [&'static UrlForm]) -> StoreKind {
    let mut kind = StoreKind::new(forms, |_| {
        Err(Error::unsupported("the file store runs on Linux only")
            .help("use redis:, zookeeper: or memory: on this system"))
    });
    kind.place = Place::Folder(|_| None);
    kind
}

const FORM: UrlForm = UrlForm {
    store: "file",
    schemes: &[("file", Transport::Local)],
    example: "file:/some/folder",
    default_port: 0,
    settings: &[],
    dialect: None,
};
static FILE_URL: UrlForm = FORM;
static SYSTEM_URL: UrlForm = UrlForm {
    schemes: &[("system", Transport::Local)],
    ..FORM
};
