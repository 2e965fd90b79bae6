//! Look-ups of host names, which attempts to connect share.
//!
//! If the first name server of a machine is dead, each look-up takes longer than an attempt to connect
//! may. So the next attempt takes over the look-up of the one that was given up.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;

use crate::Result;
use crate::runtime::background::run_blocking;

/// The look-ups that are under way, and those that have just ended.
#[derive(Debug)]
pub(super) struct Lookups(Mutex<Vec<Lookup>>);

#[derive(Debug)]
struct Lookup {
    name: String,
    port: u16,
    begun: Instant,
    found: SharedLookup,
}

pub(super) type SharedLookup = Shared<BoxFuture<'static, Result<Arc<Found>>>>;

/// The addresses of a host, and when they were found.
#[derive(Debug)]
pub(super) struct Found {
    ended: Instant,
    addresses: io::Result<Vec<SocketAddr>>,
}

impl Lookups {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Returns the look-up of a host that others may have begun, or begins one.
    pub(super) fn of(
        &self,
        name: &str,
        port: u16,
        resolve: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> SharedLookup {
        let mut lookups = self.0.lock();
        lookups.retain(Lookup::is_recent);
        let is_same = |lookup: &&Lookup| (&*lookup.name, lookup.port) == (name, port);
        if let Some(known) = lookups.iter().find(is_same) {
            return known.found.clone();
        }

        let resolving = move || {
            let addresses = resolve();
            let ended = Instant::now();
            Arc::new(Found { ended, addresses })
        };
        let found = run_blocking("resolving a host", resolving).boxed().shared();
        lookups.push(Lookup {
            name: name.to_owned(),
            port,
            begun: Instant::now(),
            found: found.clone(),
        });
        found
    }
}

impl Lookup {
    fn is_recent(&self) -> bool {
        // Nobody may have polled it since it has ended.
        let _ = self.found.clone().now_or_never();
        match self.found.peek() {
            Some(Ok(found)) => found.addresses.is_ok() && found.ended.elapsed() < KEPT,
            Some(Err(_)) => false,
            None => self.begun.elapsed() < TAKEN_OVER,
        }
    }
}

impl Found {
    pub(super) fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let same = |error: &io::Error| match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        self.addresses.as_ref().map_err(same).cloned()
    }
}

/// How long the addresses of a host count, so that its connections need one look-up.
const KEPT: Duration = Duration::from_secs(1);
/// For how long a look-up is taken over: as long as a resolver tries at most by default.
const TAKEN_OVER: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use futures_util::poll;

    use super::*;

    /// The first attempt to connect is given up while the name server does not reply.
    #[tokio::test]
    async fn look_up_that_was_given_up_serves_the_next_attempt() {
        let lookups = Lookups::new();
        let address: SocketAddr = "127.0.0.1:1".parse().expect("an address");
        let (reply, replies) = channel::<()>();
        let slow = move || {
            replies.recv().expect("the name server replies");
            Ok(vec![address])
        };
        let given_up = lookups.of("host", 1, slow);
        assert!(poll!(given_up.clone()).is_pending());
        drop(given_up);

        let next = lookups.of("host", 1, || panic!("it is looked up again"));
        reply.send(()).expect("it is looked up");
        let found = next.await.expect("it is resolved");
        assert_eq!(found.addresses().expect("found"), [address]);

        // Each store has two connections.
        let other = lookups.of("host", 1, || panic!("it is looked up again"));
        let found = other.await.expect("it is resolved");
        assert_eq!(found.addresses().expect("found"), [address]);
    }

    /// The attempt was given up before, so that nobody polls the look-up when it fails.
    #[tokio::test]
    async fn look_up_that_failed_after_it_was_given_up_is_repeated() {
        let lookups = Lookups::new();
        let (reply, replies) = channel::<()>();
        let failing = move || {
            replies.recv().expect("the name server replies");
            Err(io::ErrorKind::NotFound.into())
        };
        let given_up = lookups.of("host", 1, failing);
        assert!(poll!(given_up.clone()).is_pending());
        reply.send(()).expect("it is looked up");

        let repeated = async {
            while lookups.of("host", 1, || Ok(vec![])).ptr_eq(&given_up) {
                tokio::task::yield_now().await;
            }
        };
        let repeated = tokio::time::timeout(Duration::from_secs(10), repeated).await;
        repeated.expect("the failure is kept");
    }
}
