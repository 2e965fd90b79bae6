//! Which master has a slot, and the connections to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::slots::Ranges;
use leasehold_core::internal::Host;

/// For how long an older view is ignored. After that, the cluster must have been built again.
///
/// A node that is cut off counts the cluster as down much sooner.
const NEWER_VIEW_MAX: Duration = Duration::from_secs(60);

/// The slots, and the connections to their masters.
pub(super) struct Table<S> {
    known: Ranges,
    /// When a node has last shown this view or a newer one.
    confirmed: Option<Instant>,
    /// The nodes that have received requests about a moving slot since the last view. They may not
    /// have a slot of their own yet.
    receiving: BTreeSet<Host>,
    /// The masters of slots that have moved since then.
    moved: BTreeMap<u16, Host>,
    servers: BTreeMap<Host, Arc<S>>,
}

impl<S> Default for Table<S> {
    fn default() -> Self {
        Self {
            known: Ranges::default(),
            confirmed: None,
            receiving: BTreeSet::new(),
            moved: BTreeMap::new(),
            servers: BTreeMap::new(),
        }
    }
}

impl<S> Table<S> {
    pub(super) fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    pub(super) fn server_of(&self, slot: u16) -> Option<Arc<S>> {
        let ranges = &self.known.ranges;
        let host = self.moved.get(&slot).or_else(|| {
            ranges
                .iter()
                .find(|range| range.first <= slot && slot <= range.last)
                .map(|range| &range.master)
        })?;
        self.servers.get(host).cloned()
    }

    pub(super) fn receiving_server(&mut self, host: &Host, connect: impl FnOnce() -> S) -> Arc<S> {
        self.receiving.insert(host.clone());
        self.server_at_or(host, connect)
    }

    fn server_at_or(&mut self, host: &Host, connect: impl FnOnce() -> S) -> Arc<S> {
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

    /// Completes an address without a name: it is that of the node that replied with it.
    pub(super) fn named(&self, host: Host, replied: &Arc<S>) -> Host {
        if !host.name.is_empty() {
            return host;
        }

        let mut servers = self.servers.iter();
        let known = servers.find(|(_, server)| Arc::ptr_eq(server, replied));
        let name = known.map_or(host.name, |(known, _)| known.name.clone());
        Host { name, ..host }
    }

    /// Notes the new master of a slot.
    pub(super) fn moved(&mut self, slot: u16, host: &Host, connect: impl FnOnce() -> S) {
        self.server_at_or(host, connect);
        self.moved.insert(slot, host.clone());
    }

    /// Takes over what a node sees at `now`; `false` if it changes nothing, or if a newer view is
    /// known.
    ///
    /// The connections to servers that have no slot any more are closed.
    pub(super) fn apply(
        &mut self,
        seen: &Ranges,
        now: Instant,
        connect: impl Fn(&Host) -> S,
    ) -> bool {
        let confirmed = self.confirmed.unwrap_or(now);
        if seen.epoch < self.known.epoch && now < confirmed + NEWER_VIEW_MAX {
            return false;
        }
        self.confirmed = Some(now);
        let is_change = *seen != self.known || !self.moved.is_empty();
        self.moved.clear();
        self.known = seen.clone();

        let is_master = |host: &Host| seen.ranges.iter().any(|range| range.master == *host);
        let receiving = std::mem::take(&mut self.receiving);
        self.servers
            .retain(|host, _| is_master(host) || receiving.contains(host));
        for range in &seen.ranges {
            self.server_at_or(&range.master, || connect(&range.master));
        }
        is_change
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::cluster::slots::Range;

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
        assert!(table.apply(&view(3, [1, 2]), Instant::now(), |host| host.port));
        assert_eq!(port_of(&table, 99), Some(1));
        assert_eq!(port_of(&table, 100), Some(2));
        assert_eq!(port_of(&table, 200), None);

        table.moved(100, &host(7), || 7);
        assert_eq!(port_of(&table, 100), Some(7));
        assert_eq!(port_of(&table, 101), Some(2));

        // A node that replaces the one to which the slot moved has all of its slots.
        assert!(table.apply(&view(4, [1, 9]), Instant::now(), |host| host.port));
        assert_eq!(port_of(&table, 100), Some(9));
    }

    #[test]
    fn address_without_a_name_is_that_of_the_replying_node() {
        let mut table = Table::default();
        table.apply(&view(3, [1, 2]), Instant::now(), |host| host.port);
        let replied = table.server_of(0).expect("known");

        let nameless = Host {
            name: String::new(),
            port: 7,
        };
        assert_eq!(table.named(nameless.clone(), &replied), host(7));
        assert_eq!(table.named(nameless.clone(), &Arc::new(1)), nameless);
        let other = Host {
            name: "b".to_owned(),
            port: 7,
        };
        assert_eq!(table.named(other.clone(), &replied), other);
    }

    /// A node that was cut off does not know of the last failover.
    #[test]
    fn older_view_is_ignored_unless_the_cluster_was_built_again() {
        let mut table = Table::default();
        let begun = Instant::now();
        table.apply(&view(4, [1, 5]), begun, |host| host.port);
        assert!(!table.apply(&view(3, [1, 2]), begun, |host| host.port));
        assert_eq!(port_of(&table, 100), Some(5));
        assert_eq!(table.servers().len(), 2);

        let confirmed = begun + NEWER_VIEW_MAX;
        table.apply(&view(4, [1, 5]), confirmed, |host| host.port);
        let almost = confirmed + NEWER_VIEW_MAX - Duration::from_secs(1);
        assert!(!table.apply(&view(1, [8, 9]), almost, |host| host.port));
        let later = confirmed + NEWER_VIEW_MAX;
        assert!(table.apply(&view(1, [8, 9]), later, |host| host.port));
        assert_eq!(port_of(&table, 100), Some(9));
    }

    #[test]
    fn connections_to_a_receiving_node_are_kept_while_it_is_used() {
        let mut table = Table::default();
        let now = Instant::now();
        table.apply(&view(3, [1, 2]), now, |host| host.port);
        let used = table.receiving_server(&host(7), || 7);
        table.apply(&view(3, [1, 2]), now, |host| host.port);
        let again = table.receiving_server(&host(7), || 8);
        assert!(Arc::ptr_eq(&used, &again));

        table.apply(&view(3, [1, 2]), now, |host| host.port);
        table.apply(&view(3, [1, 2]), now, |host| host.port);
        assert_eq!(table.servers().len(), 2);
    }
}
