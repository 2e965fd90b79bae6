//! The open connections, and which of them gives way to a new one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::task::AbortHandle;

/// The open connections. A client that sends no request does not keep others from sending theirs,
/// and neither does one that watches events, which have no end.
#[derive(Debug, Default)]
pub(super) struct Connections {
    table: Mutex<OpenTable>,
}

#[derive(Debug, Default)]
struct OpenTable {
    /// The connections by their numbers, and so by age.
    open: BTreeMap<u64, Connection>,
    last_number: u64,
}

#[derive(Debug)]
struct Connection {
    peer: IpAddr,
    activity: Activity,
    task: AbortHandle,
}

/// What a connection does. The first in this order gives way first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Activity {
    /// Its request has not arrived.
    None,
    Events,
    /// A reply that ends.
    Reply,
}

/// The place of an open connection. Dropping it makes place for another connection.
#[derive(Debug)]
pub(super) struct Place {
    connections: Arc<Connections>,
    number: u64,
}

impl Connections {
    /// Starts to serve a connection, or closes it if all places are taken by requests.
    pub(super) fn spawn<F>(self: &Arc<Self>, peer: IpAddr, serve: impl FnOnce(Place) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut table = self.table();
        if !table.make_place(peer) {
            tracing::warn!(%peer, "too many requests at the same time; closed a connection");
            return;
        }

        table.last_number += 1;
        let number = table.last_number;
        let place = Place {
            connections: Arc::clone(self),
            number,
        };
        // The table is locked until the connection is in it, so the task cannot end earlier.
        let task = tokio::spawn(serve(place)).abort_handle();
        let connection = Connection {
            peer,
            activity: Activity::None,
            task,
        };
        table.open.insert(number, connection);
    }

    fn table(&self) -> MutexGuard<'_, OpenTable> {
        self.table.lock().expect("no code panics with the table")
    }
}

impl OpenTable {
    /// Closes connections that give way until there is a place; returns whether there is one.
    fn make_place(&mut self, peer: IpAddr) -> bool {
        self.limit(OF_PEER_MAX, |connection| connection.peer == peer)
            && self.limit(CONNECTIONS_MAX, |_| true)
    }

    /// If `max` connections are selected, closes the oldest of them that has sent no request, or the
    /// oldest that watches events.
    fn limit(&mut self, max: usize, is_selected: impl Fn(&Connection) -> bool) -> bool {
        let selected = || self.open.iter().filter(|(_, found)| is_selected(found));
        if selected().count() < max {
            return true;
        }

        let first = selected().min_by_key(|(number, found)| (found.activity, **number));
        let first = first.filter(|(_, found)| found.activity != Activity::Reply);
        let Some(number) = first.map(|(number, _)| *number) else {
            return false;
        };
        if let Some(connection) = self.open.remove(&number) {
            connection.task.abort();
        }
        true
    }
}

impl Place {
    /// Notes what has arrived of the request, and what it asks for.
    pub(super) fn note_request(&self, activity: Activity) {
        let mut table = self.connections.table();
        if let Some(connection) = table.open.get_mut(&self.number) {
            connection.activity = activity;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.table().open.remove(&self.number);
    }
}

/// The most connections at the same time.
const CONNECTIONS_MAX: usize = 256;
/// The most connections of one address, so that it leaves half of the places to others.
const OF_PEER_MAX: usize = CONNECTIONS_MAX / 2;

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::net::Ipv4Addr;

    use super::*;

    const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
    const THIRD: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));

    fn connect(connections: &Arc<Connections>, peer: IpAddr, activity: Activity) {
        connections.spawn(peer, |place| async move {
            let _place = place;
            pending::<()>().await;
        });
        let mut table = connections.table();
        let number = table.last_number;
        if let Some(connection) = table.open.get_mut(&number) {
            connection.activity = connection.activity.max(activity);
        }
    }

    fn count_of(connections: &Arc<Connections>, peer: IpAddr) -> usize {
        let table = connections.table();
        let open = table.open.values();
        open.filter(|connection| connection.peer == peer).count()
    }

    /// Shows G-57.
    #[tokio::test]
    async fn oldest_connection_without_a_request_gives_way() {
        let connections = Arc::default();
        connect(&connections, FIRST, Activity::Reply);
        for _ in 0..CONNECTIONS_MAX {
            connect(&connections, FIRST, Activity::None);
        }
        assert_eq!(count_of(&connections, FIRST), OF_PEER_MAX);
        assert_eq!(connections.table().open[&1].activity, Activity::Reply);

        for _ in 0..CONNECTIONS_MAX {
            connect(&connections, SECOND, Activity::Reply);
        }
        assert_eq!(count_of(&connections, SECOND), OF_PEER_MAX);
        connect(&connections, THIRD, Activity::Reply);
        assert_eq!(count_of(&connections, THIRD), 1);
        assert_eq!(count_of(&connections, FIRST), OF_PEER_MAX - 1);
    }
    /// Shows G-57.
    #[tokio::test]
    async fn oldest_stream_of_events_gives_way() {
        let connections = Arc::default();
        for _ in 0..=OF_PEER_MAX {
            connect(&connections, FIRST, Activity::Events);
        }
        assert_eq!(count_of(&connections, FIRST), OF_PEER_MAX);
        assert!(!connections.table().open.contains_key(&1));

        for _ in 0..CONNECTIONS_MAX {
            connect(&connections, FIRST, Activity::Reply);
        }
        let table = connections.table();
        let mut open = table.open.values();
        assert!(open.all(|connection| connection.activity == Activity::Reply));
        assert_eq!(table.open.len(), OF_PEER_MAX);
    }
}
