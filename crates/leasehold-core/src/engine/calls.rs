//! The one way from the engine to a store: timeouts, retries, and the context of errors.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout;

use super::events::{contained, millis};
use crate::metric_labels::RequestKind;
use crate::metrics::{Meters, Started, started};
use crate::runtime::backlog::Backlog;
use crate::runtime::backoff::Backoff;
use crate::runtime::clock::BootInstant;
use crate::runtime::fork;
use crate::store::{Cleanup, RecordReader, Records, Revocable, Subscription};
use crate::{
    Claim, Completion, Entered, Error, Guarantees, LockState, Name, OnContention, Record, Result,
    ServerVote, Standing, Store, Token,
};

/// The longest time that a request waits for its reply, if no caller has a shorter limit: long
/// enough for a failover, which then fails no waiter and no holder.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a request is sent while the store is unavailable.
const TRIES_MAX: u32 = 3;

/// A store, called with timeouts and retries.
#[derive(Clone, Debug)]
pub(crate) struct StoreCalls {
    store: Arc<dyn Store>,
    /// The store's URL without its password.
    url: Arc<str>,
    reachability: Arc<Reachability>,
    meters: Arc<Meters>,
    backlog: Arc<Backlog<Claim>>,
}

/// A store inside this process, or one whose URL is shown so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum StoreId {
    InProcess(usize),
    Url(Arc<str>),
}

/// A reply, and the time just before its request was sent.
pub(crate) struct Timed<T> {
    pub(crate) sent_at: BootInstant,
    pub(crate) reply: T,
}

impl StoreCalls {
    pub(crate) fn new(store: Arc<dyn Store>, url: &str) -> Self {
        Self {
            store,
            url: url.into(),
            reachability: Arc::default(),
            meters: Arc::new(Meters::new(url)),
            backlog: Arc::default(),
        }
    }

    pub(crate) fn downgrade(&self) -> WeakStoreCalls {
        WeakStoreCalls {
            store: Arc::downgrade(&self.store),
            url: Arc::clone(&self.url),
            reachability: Arc::clone(&self.reachability),
            meters: Arc::clone(&self.meters),
            backlog: Arc::clone(&self.backlog),
        }
    }

    /// Returns what two engines have in common if they are clients of one store.
    pub(crate) fn store_id(&self) -> StoreId {
        match self.store.extensions().in_process {
            Some(store) => StoreId::InProcess(store.id()),
            None => StoreId::Url(self.shared_url()),
        }
    }

    /// Lets a store inside this process end the holds of this client.
    pub(super) fn add_client(&self, client: Weak<dyn Revocable>) {
        if let Some(store) = self.store.extensions().in_process {
            store.add_client(client);
        }
    }

    pub(crate) fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the error of the first request without a reply; `None` while the store replies.
    pub(super) fn outage_error(&self) -> Option<Error> {
        self.reachability.error()
    }

    pub(super) fn meters(&self) -> &Meters {
        &self.meters
    }

    pub(super) fn backlog(&self) -> &Backlog<Claim> {
        &self.backlog
    }

    pub(crate) fn shared_url(&self) -> Arc<str> {
        Arc::clone(&self.url)
    }

    /// Enters the claim, with retries.
    ///
    /// It has no timeout: it must run to its end, and its caller decides how long to wait for it.
    pub(crate) async fn enter(
        &self,
        claim: &Claim,
        on_contention: OnContention,
    ) -> Result<Timed<Entered>> {
        self.with_retries(
            RequestKind::Enter,
            "acquire",
            Some(&claim.name),
            || async move {
                let sent_at = BootInstant::now();
                let reply = self.store.enter(claim, on_contention).await?;
                Ok(Timed { sent_at, reply })
            },
        )
        .await
    }

    /// Enters a claim by the request that opens the store, without retries.
    pub(super) async fn enter_first(
        &self,
        claim: &Claim,
        on_contention: OnContention,
    ) -> Result<Timed<Entered>> {
        let sent_at = BootInstant::now();
        let reply = self.store.enter(claim, on_contention).await?;
        Ok(Timed { sent_at, reply })
    }

    /// Waits for a change in the queue, without a timeout or retries.
    ///
    /// The caller knows how long an error may last.
    pub(crate) async fn queued(&self, claim: &Claim, ahead: u32) -> Result<Standing> {
        let reply = self.store.queued(claim, ahead).await;
        self.noted_wait(claim, reply)
    }

    /// Waits for the loss of a hold, without a timeout or retries.
    pub(crate) async fn lost(&self, claim: &Claim, token: Token) -> Result<()> {
        let reply = self.store.lost(claim, token).await;
        self.noted_wait(claim, reply)
    }

    fn noted_wait<T>(&self, claim: &Claim, reply: Result<T>) -> Result<T> {
        // A client may know the new state without a reply of the store.
        if reply.is_err() {
            contained(|| self.reachability.note(&self.url, &reply, &self.meters));
        }
        self.with_context("wait for", Some(&claim.name), reply)
    }

    /// Renews claims once, within `limit`; the renewal task retries while there is time.
    pub(crate) async fn renew(
        &self,
        claims: &[Claim],
        limit: Duration,
    ) -> Result<Vec<Option<Duration>>> {
        let name = claims.first().map(|claim| &claim.name);
        let started = started();
        let reply = with_timeout(limit, self.store.renew(claims)).await;
        self.note(RequestKind::Renew, started, &reply);
        self.with_context("renew", name, reply)
    }

    /// Returns the lease of a granted claim, or `None` if the store no longer has the claim.
    ///
    /// It retries, so that a broken connection does not fail the acquire of a granted claim.
    pub(crate) async fn confirm(&self, claim: &Claim) -> Result<Timed<Option<Duration>>> {
        let claims = std::slice::from_ref(claim);
        self.with_retries(
            RequestKind::Renew,
            "acquire",
            Some(&claim.name),
            || async move {
                let sent_at = BootInstant::now();
                let leases = with_timeout(REPLY_TIMEOUT, self.store.renew(claims)).await?;
                let reply = leases.first().copied().flatten();
                Ok(Timed { sent_at, reply })
            },
        )
        .await
    }

    /// Leaves once; the departure repeats the request while it may still have an effect.
    pub(crate) async fn leave(&self, claim: &Claim) -> Result<bool> {
        let started = started();
        let reply = with_timeout(REPLY_TIMEOUT, self.store.leave(claim)).await;
        self.note(RequestKind::Leave, started, &reply);
        self.with_context("release", Some(&claim.name), reply)
    }

    /// Records a completion and leaves once; the departure repeats the request.
    pub(crate) async fn complete(&self, claim: &Claim, completion: &Completion) -> Result<bool> {
        let records = self.records("complete", &claim.name)?;
        let started = started();
        let reply = with_timeout(REPLY_TIMEOUT, records.complete(claim, completion)).await;
        self.note(RequestKind::Leave, started, &reply);
        self.with_context("complete", Some(&claim.name), reply)
    }

    /// Reads the record of a lock, with retries, within `limit`.
    pub(crate) async fn record(
        &self,
        name: &Name,
        reader: RecordReader,
        limit: Duration,
    ) -> Result<Record> {
        const OPERATION: &str = "read the record of";
        let records = self.records(OPERATION, name)?;
        self.read(RequestKind::Inspect, OPERATION, Some(name), limit, || {
            records.record(name, reader)
        })
        .await
    }

    /// Returns how long the store keeps a record after its last use, with retries, within `limit`.
    pub(crate) async fn records_kept(&self, name: &Name, limit: Duration) -> Result<Duration> {
        let records = self.records("acquire", name)?;
        self.read(RequestKind::Inspect, "acquire", Some(name), limit, || {
            records.kept()
        })
        .await
    }

    /// Lists the names with records, with retries, within `limit`.
    pub(crate) async fn list_records(
        &self,
        prefix: &str,
        count_max: usize,
        limit: Duration,
    ) -> Result<Vec<Name>> {
        const OPERATION: &str = "list the records";
        let records = self.store.extensions().require_records();
        let records = self.with_context(OPERATION, None, records)?;
        self.read(RequestKind::List, OPERATION, None, limit, || {
            records.list_records(prefix, count_max)
        })
        .await
    }

    fn records(&self, operation: &'static str, name: &Name) -> Result<&dyn Records> {
        let records = self.store.extensions().require_records();
        self.with_context(operation, Some(name), records)
    }

    pub(crate) fn inheritable_fds(&self, claim: &Claim) -> Result<Vec<OwnedFd>> {
        let fds = match self.store.extensions().inheritable_fds {
            Some(store) => store.inheritable_fds(claim),
            None => Ok(Vec::new()),
        };
        self.with_context("inherit", Some(&claim.name), fds)
    }

    /// Returns for how long the store keeps a claim without a renewal.
    pub(super) fn lease_of(&self, claim: &Claim) -> Duration {
        match self.store.extensions().own_leases {
            Some(store) => store.lease_of(claim),
            None => claim.lease,
        }
    }

    pub(crate) fn votes(&self, claim: &Claim) -> Vec<ServerVote> {
        match self.store.extensions().votes {
            Some(store) => store.votes(claim),
            None => Vec::new(),
        }
    }

    /// Returns the statement that pins a grant in a transaction of the user, and the name that it
    /// takes.
    pub(crate) fn check_statement(&self, name: &Name) -> Option<(String, String)> {
        let store = self.store.extensions().pinning?;
        Some((store.check_statement(), store.bound_name(name)))
    }

    /// Inspects a lock, with retries, within `limit`.
    pub(crate) async fn inspect(&self, name: &Name, limit: Duration) -> Result<LockState> {
        self.read(RequestKind::Inspect, "inspect", Some(name), limit, || {
            self.store.inspect(name)
        })
        .await
    }

    /// Lists names, with retries, within `limit`.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        count_max: usize,
        limit: Duration,
    ) -> Result<Vec<Name>> {
        self.read(RequestKind::List, "list the locks", None, limit, || {
            self.store.list(prefix, count_max)
        })
        .await
    }

    /// Subscribes to a lock; `None` if the store pushes nothing to this client.
    pub(crate) async fn subscribe(&self, name: &Name) -> Result<Option<Box<dyn Subscription>>> {
        self.check_not_forked("observe", Some(name))?;
        let Some(store) = self.store.extensions().observe else {
            return Ok(None);
        };
        match with_timeout(REPLY_TIMEOUT, store.subscribe(name)).await {
            Err(error) if !error.is_unavailable() => {
                tracing::debug!(store = %self.url, name = %name, %error, "observing by polls");
                Ok(None)
            }
            subscribed => self
                .with_context("observe", Some(name), subscribed)
                .map(Some),
        }
    }

    pub(crate) async fn remove_unused(&self) -> Result<Cleanup> {
        self.check_not_forked("remove unused locks", None)?;
        let cleanup = match self.store.extensions().housekeeping {
            Some(store) => store.remove_unused().await,
            None => Err(Error::unsupported("free locks leave nothing in this store")),
        };
        self.with_context("remove unused locks", None, cleanup)
    }

    /// Fails in a fork, which must not send requests on the connections of its parent.
    pub(crate) fn check_not_forked(
        &self,
        operation: &'static str,
        name: Option<&Name>,
    ) -> Result<()> {
        self.with_context(operation, name, fork::check_not_forked())
    }

    /// Sends a request that only reads, with retries, and waits at most `limit` for all of them.
    async fn read<T, S, F>(
        &self,
        request: RequestKind,
        operation: &'static str,
        name: Option<&Name>,
        limit: Duration,
        send: S,
    ) -> Result<T>
    where
        S: Fn() -> F,
        F: Future<Output = Result<T>>,
    {
        self.check_not_forked(operation, name)?;
        let started = started();
        let reading = pin!(self.with_retries(request, operation, name, send));
        if let Ok(reply) = timeout(limit, reading).await {
            return reply;
        }

        let reply = Err(timed_out(limit));
        self.note(request, started, &reply);
        self.with_context(operation, name, reply)
    }

    /// Sends a request again while the store is unavailable; every request is repeatable.
    async fn with_retries<T, S, F>(
        &self,
        request: RequestKind,
        operation: &'static str,
        name: Option<&Name>,
        send: S,
    ) -> Result<T>
    where
        S: Fn() -> F,
        F: Future<Output = Result<T>>,
    {
        let mut backoff = Backoff::default();
        for _ in 1..TRIES_MAX {
            let started = started();
            let reply = send().await;
            self.note(request, started, &reply);
            match reply {
                Err(error) if error.is_unavailable() => backoff.wait().await,
                reply => return self.with_context(operation, name, reply),
            }
        }

        let started = started();
        let reply = send().await;
        self.note(request, started, &reply);
        self.with_context(operation, name, reply)
    }

    fn note<T>(&self, request: RequestKind, started: Started, reply: &Result<T>) {
        contained(|| self.meters.request(request, started, reply));
        contained(|| self.reachability.note(&self.url, reply, &self.meters));
    }

    fn with_context<T>(
        &self,
        operation: &'static str,
        name: Option<&Name>,
        reply: Result<T>,
    ) -> Result<T> {
        let name = name.map(Name::as_str);
        reply.map_err(|error| {
            let error = error.during(operation, &self.url, name);
            contained(|| tracing::debug!(operation, store = %self.url, name, %error));
            error
        })
    }
}

/// Store calls that do not keep the store open.
#[derive(Clone, Debug)]
pub(crate) struct WeakStoreCalls {
    store: Weak<dyn Store>,
    url: Arc<str>,
    reachability: Arc<Reachability>,
    meters: Arc<Meters>,
    backlog: Arc<Backlog<Claim>>,
}

impl WeakStoreCalls {
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns `None` once the store is closed.
    pub(crate) fn upgrade(&self) -> Option<StoreCalls> {
        Some(StoreCalls {
            store: self.store.upgrade()?,
            url: Arc::clone(&self.url),
            reachability: Arc::clone(&self.reachability),
            meters: Arc::clone(&self.meters),
            backlog: Arc::clone(&self.backlog),
        })
    }
}

async fn with_timeout<T>(limit: Duration, reply: impl Future<Output = Result<T>>) -> Result<T> {
    match timeout(limit, reply).await {
        Ok(reply) => reply,
        Err(_elapsed) => Err(timed_out(limit)),
    }
}

/// Returns the error of a store that sent no reply.
pub(crate) fn timed_out(limit: Duration) -> Error {
    // A measured time has nanoseconds, which only make the text longer.
    let limit = Duration::from_millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    Error::unavailable(format!("the store sent no reply within {limit:?}"))
}

/// Whether the store replies, as its last requests show it. Changes are logged.
#[derive(Debug, Default)]
struct Reachability {
    /// When the first request without a reply failed, and its error; `None` while the store
    /// replies.
    unreachable: Mutex<Option<(BootInstant, Error)>>,
}

impl Reachability {
    fn error(&self) -> Option<Error> {
        self.unreachable
            .lock()
            .as_ref()
            .map(|(_, error)| error.clone())
    }

    /// Notes the reply to a request, or its failure.
    fn note<T>(&self, store: &str, reply: &Result<T>, meters: &Meters) {
        match reply {
            Err(error) if error.is_unavailable() => self.failed(store, error, meters),
            Ok(_) | Err(_) => self.replied(store),
        }
    }

    fn failed(&self, store: &str, error: &Error, meters: &Meters) {
        let mut unreachable = self.unreachable.lock();
        if unreachable.is_none() {
            *unreachable = Some((BootInstant::now(), error.clone()));
            meters.outage();
            tracing::warn!(store, %error, error.type = error.kind().as_str(), "store unreachable");
        }
    }

    fn replied(&self, store: &str) {
        let Some((since, _)) = self.unreachable.lock().take() else {
            return;
        };
        let outage = BootInstant::now().duration_since(since);
        tracing::info!(store, outage_ms = millis(outage), "store reachable again");
    }
}
