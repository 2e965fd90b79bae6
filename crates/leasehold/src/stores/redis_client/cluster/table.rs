//! Which master has a slot, and the connections to it.

use std::collections::HashMap;
use std::sync::Arc;

use super::slots::{Range, Ranges};
use crate::stores::url::Host;

/// The slots, and the connections to their masters.
pub(super) struct Table<S> {
    known: Ranges,
    /// The masters of slots that have moved since then.
    moved: HashMap<u16, Host>,
    servers: HashMap<Host, Arc<S>>,
}

impl<S> Default for Table<S> {
    fn default() -> Self {
        Self {
            known: Ranges::default(),
            moved: HashMap::new(),
            servers: HashMap::new(),
        }
    }
}

impl<S> Table<S> {
    pub(super) fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    pub(super) fn server_of(&self, slot: u16) -> Option<Arc<S>> {
        let ranges = &self.known.ranges;
        let has_slot = |range: &&Range| range.first <= slot && slot <= range.last;
        let known = || ranges.iter().find(has_slot).map(|range| &range.master);
        let host = self.moved.get(&slot).or_else(known)?;
        self.servers.get(host).cloned()
    }

    pub(super) fn server_at(&self, host: &Host) -> Option<Arc<S>> {
        self.servers.get(host).cloned()
    }

    pub(super) fn server_at_or(&mut self, host: &Host, connect: impl FnOnce() -> S) -> Arc<S> {
        let server = self.servers.entry(host.clone());
        Arc::clone(server.or_insert_with(|| Arc::new(connect())))
    }

    pub(super) fn servers(&self) -> Vec<Arc<S>> {
        self.servers.values().cloned().collect()
    }

    pub(super) fn hosts(&self) -> Vec<(Host, Arc<S>)> {
        let servers = self.servers.iter();
        servers
            .map(|(host, server)| (host.clone(), Arc::clone(server)))
            .collect()
    }

    /// Notes the new master of a slot.
    pub(super) fn moved(&mut self, slot: u16, host: &Host, connect: impl FnOnce() -> S) {
        self.server_at_or(host, connect);
        self.moved.insert(slot, host.clone());
    }

    /// Takes over what a node sees; `false` if it changes nothing, or if a newer view is known.
    ///
    /// The connections to servers that have no slot any more are closed.
    pub(super) fn apply(&mut self, seen: &Ranges, connect: impl Fn(&Host) -> S) -> bool {
        if seen.epoch < self.known.epoch {
            return false;
        }
        let is_change = *seen != self.known || !self.moved.is_empty();
        self.moved.clear();
        self.known = seen.clone();

        let is_master = |host: &Host| seen.ranges.iter().any(|range| range.master == *host);
        self.servers.retain(|host, _| is_master(host));
        for range in &seen.ranges {
            self.server_at_or(&range.master, || connect(&range.master));
        }
        is_change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(port: u16) -> Host {
        let name = "a".to_owned();
        Host { name, port }
    }

    fn view(epoch: u64, ports: [u16; 2]) -> Ranges {
        let range = |first, last, port| Range {
            first,
            last,
            master: host(port),
        };
        let ranges = vec![range(0, 99, ports[0]), range(100, 199, ports[1])];
        Ranges { epoch, ranges }
    }

    fn port_of(table: &Table<u16>, slot: u16) -> Option<u16> {
        table.server_of(slot).map(|server| *server)
    }

    #[test]
    fn moved_slot_is_known_before_the_next_view() {
        let mut table = Table::default();
        assert!(table.apply(&view(3, [1, 2]), |host| host.port));
        assert_eq!(port_of(&table, 99), Some(1));
        assert_eq!(port_of(&table, 100), Some(2));
        assert_eq!(port_of(&table, 200), None);

        table.moved(100, &host(7), || 7);
        assert_eq!(port_of(&table, 100), Some(7));
        assert_eq!(port_of(&table, 101), Some(2));
    }

    /// A node that was cut off does not know of the last failover.
    #[test]
    fn older_view_is_ignored() {
        let mut table = Table::default();
        table.apply(&view(4, [1, 5]), |host| host.port);
        assert!(!table.apply(&view(3, [1, 2]), |host| host.port));
        assert_eq!(port_of(&table, 100), Some(5));
        assert_eq!(table.servers().len(), 2);
    }
}
