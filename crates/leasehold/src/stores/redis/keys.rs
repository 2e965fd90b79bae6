//! The keys of a lock, as a request declares them.

use super::server::Server;
use crate::stores::redis_client::StoreServers;

/// The keys of a lock.
///
/// A single server takes the first one, from which the scripts derive the others. A cluster takes
/// all of them. So while it moves their slot, it refuses the whole request unless all of them are
/// on one node, and no script stops halfway.
pub(super) struct LockKeys<'a> {
    key: &'a str,
    others: Option<[String; 3]>,
}

impl<'a> LockKeys<'a> {
    pub(super) fn new(key: &'a str, servers: &StoreServers<Server>) -> Self {
        let others = || ["claims", "queue", "holders"].map(|part| format!("{key}:{part}"));
        Self {
            key,
            others: servers.is_cluster().then(others),
        }
    }

    pub(super) fn texts(&self) -> Vec<&str> {
        let others = self.others.iter().flatten().map(String::as_str);
        std::iter::once(self.key).chain(others).collect()
    }
}
