//! The kinds of stores in folders on systems that have no such store: it needs flock, FIFOs, epoll
//! and /proc of Linux.

use crate::Error;
use crate::store_kind::StoreKind;

/// The folders that a URL names.
pub const FILE: StoreKind = StoreKind::new(|_| Err(unsupported()));
/// The folder that the users of a group share.
pub const SYSTEM: StoreKind = FILE;

fn unsupported() -> Error {
    Error::unsupported("the file store runs on Linux only")
        .help("use redis:, zookeeper: or memory: on this system")
}
