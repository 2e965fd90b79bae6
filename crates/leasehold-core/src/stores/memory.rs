//! The store inside one process.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::runtime::clock::BootInstant;
use crate::store::{
    Extensions, InProcess, Observe, RecordReader, Records, Revocable, Subscription,
    check_same_kind, check_shrinks, replies,
};
use crate::store_kind::{Place, StoreKind, UnopenedStore, after_scheme};
use crate::stores::url::{Transport, UrlForm};
use crate::{
    Claim, ClaimantInfo, Completion, CrashRelease, Entered, Entry, Error, Guarantees, LockState,
    Name, OnContention, Record, Result, SemaphoreSupport, Share, Standing, Store, Token, admitted,
};

/// Locks inside one process, for tests, examples, and programs that can also run without a service.
///
/// Clones share one store, and [`Memory::new`] creates another one. Leases expire as on a server.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let store = leasehold::stores::Memory::new();
/// let one = leasehold::Locks::from_store(store.clone(), "memory:")?;
/// let two = leasehold::Locks::from_store(store, "memory:")?;
/// let _guard = one.mutex("a").acquire().await?;
/// assert!(two.mutex("a").try_acquire().await?.is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Memory {
    queues: Arc<Mutex<Queues>>,
    records: Arc<Mutex<KeptRecords>>,
    changes: Arc<Notify>,
    clients: Arc<Mutex<Vec<Weak<dyn Revocable>>>>,
    is_down: Arc<AtomicBool>,
}

/// The store of this process, for the table of schemes of `leasehold`.
pub static MEMORY: StoreKind = StoreKind {
    place: Place::Process,
    ..StoreKind::new(&[&FORM], |url| match after_scheme(url) {
        "" => Ok(UnopenedStore::opened(Memory::new(), "memory:".to_owned())),
        _ => Err(Error::invalid(
            "memory: takes no path, and no setting but reply-timeout=",
        )),
    })
};

static FORM: UrlForm = UrlForm {
    store: "memory",
    schemes: &[("memory", Transport::Local)],
    example: "memory:",
    default_port: 0,
    settings: &[],
    dialect: None,
};

impl Memory {
    /// Creates an empty store.
    ///
    /// ```
    /// let store = leasehold::stores::Memory::new();
    /// let locks = leasehold::Locks::from_store(store, "memory:");
    /// # assert!(locks.is_ok());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends all holds of a name, as if an operator had broken the lock; returns their number.
    ///
    /// A program tests by it how it handles a loss. The guards are lost when it returns, with
    /// [`LossReason::Revoked`](crate::LossReason::Revoked), and the next waiter is granted the
    /// lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::{Locks, LossReason, stores::Memory};
    /// let store = Memory::new();
    /// let locks = Locks::from_store(store.clone(), "memory:")?;
    /// let guard = locks.mutex("nightly").acquire().await?;
    ///
    /// assert_eq!(store.revoke("nightly"), 1);
    /// assert!(guard.check().unwrap_err().is_lost());
    /// assert_eq!(guard.lost().await, LossReason::Revoked);
    /// # Ok(()) }
    /// ```
    pub fn revoke(&self, name: impl AsRef<str>) -> usize {
        let Ok(name) = Name::parse(name.as_ref()) else {
            return 0;
        };
        let held = self.queue(&name, |queue| {
            let holders = queue.entries.iter().map(|queued| &queued.entry);
            let held = holders.filter(|entry| entry.token().is_some());
            held.map(|entry| entry.id).collect::<Vec<_>>()
        });

        // The guards become invalid before another claim is granted.
        let clients = self.clients.lock().clone();
        for client in clients.iter().filter_map(Weak::upgrade) {
            for &id in &held {
                client.revoke(id);
            }
        }

        self.queue(&name, |queue| {
            let before = queue.entries.len();
            queue
                .entries
                .retain(|queued| !held.contains(&queued.entry.id));
            before - queue.entries.len()
        })
    }

    /// Fails every request from now on, as if the store could not be reached.
    ///
    /// A program tests by it what it does while its store is down: an acquire fails as
    /// [unavailable](crate::Error::is_unavailable), and holds are lost when their leases end,
    /// because no renewal succeeds. The store keeps its locks, and [`recover`](Self::recover) ends
    /// the outage.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use std::time::Duration;
    /// use leasehold::{Locks, LossReason, stores::Memory};
    /// let store = Memory::new();
    /// let locks = Locks::from_store(store.clone(), "memory:")?;
    /// let guard = locks.mutex("held").lease(Duration::from_millis(200)).acquire().await?;
    ///
    /// store.fail();
    /// let error = locks.mutex("nightly").try_acquire().await.unwrap_err();
    /// assert!(error.is_unavailable());
    /// assert_eq!(guard.lost().await, LossReason::RenewalTimedOut);
    ///
    /// store.recover();
    /// assert!(locks.mutex("nightly").try_acquire().await?.is_ok());
    /// # Ok(()) }
    /// ```
    pub fn fail(&self) {
        self.is_down.store(true, Ordering::SeqCst);
        // The requests that wait for a change fail too.
        self.changes.notify_waiters();
    }

    /// Replies to requests again, after [`fail`](Self::fail).
    pub fn recover(&self) {
        self.is_down.store(false, Ordering::SeqCst);
    }

    fn check_is_up(&self) -> Result<()> {
        if self.is_down.load(Ordering::SeqCst) {
            return Err(Error::unavailable("a test has called `Memory::fail`"));
        }
        Ok(())
    }

    /// Runs `work` on a queue without expired claims, then grants the claims that fit and notifies
    /// the waiters of a change.
    fn queue<T>(&self, name: &Name, work: impl FnOnce(&mut LockQueue) -> T) -> T {
        let mut queues = self.queues.lock();
        let Queues { in_use, last_token } = &mut *queues;
        let queue = in_use.entry(name.clone()).or_default();

        let mut changed = queue.update(last_token);
        let reply = work(queue);
        changed |= queue.update(last_token);
        if changed {
            self.changes.notify_waiters();
        }
        if queue.entries.is_empty() {
            in_use.remove(name);
        }
        reply
    }

    /// Waits until the standing of a claim differs from `seen`.
    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        loop {
            let changed = self.changes.notified();
            self.check_is_up()?;
            let (standing, next_expiry) = self.queue(&claim.name, |queue| {
                (queue.standing(claim), queue.next_expiry())
            });
            if standing != seen {
                return Ok(standing);
            }

            // The end of a lease sends no notification, so each waiter polls for it.
            let pause = next_expiry.duration_since(BootInstant::now()).min(POLL_MAX);
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

#[derive(Debug, Default)]
struct Queues {
    in_use: HashMap<Name, LockQueue>,
    /// The last token of all names: the queue of a free name is not kept, and its tokens rise.
    last_token: u64,
}

/// The queue of one name.
#[derive(Debug, Default)]
struct LockQueue {
    entries: Vec<QueueEntry>,
    /// The token of the last grant since the name is in use.
    last_token: u64,
}

#[derive(Debug)]
struct QueueEntry {
    entry: Entry,
    expires_at: BootInstant,
}

impl LockQueue {
    /// Removes expired claims and grants the claims that fit, with tokens above `last_token`.
    /// Returns whether the queue changed.
    fn update(&mut self, last_token: &mut u64) -> bool {
        let now = BootInstant::now();
        let before = self.entries.len();
        self.entries.retain(|queued| queued.expires_at > now);
        let mut changed = self.entries.len() != before;

        let granted = admitted(self.shares());
        for QueueEntry { entry, .. } in &mut self.entries[..granted] {
            if entry.token().is_none() {
                *last_token += 1 + u64::from(entry.reserved);
                self.last_token = *last_token;
                let token = Token::new(self.last_token).expect("the counter was just raised");
                entry.standing = Standing::Held { token };
                changed = true;
            }
        }
        changed
    }

    fn shares(&self) -> impl Iterator<Item = Share> {
        self.entries.iter().map(|queued| queued.entry.share)
    }

    fn standing(&self, claim: &Claim) -> Standing {
        self.position(claim)
            .map_or(Standing::Gone, |at| self.standing_at(at))
    }

    fn standing_at(&self, at: usize) -> Standing {
        match self.entries[at].entry.standing {
            Standing::Queued { .. } => Standing::Queued {
                ahead: u32::try_from(at).unwrap_or(u32::MAX),
            },
            other => other,
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let entries = self.entries.iter().enumerate().map(|(at, queued)| Entry {
            standing: self.standing_at(at),
            ..queued.entry.clone()
        });
        entries.collect()
    }

    fn position(&self, claim: &Claim) -> Option<usize> {
        self.entries
            .iter()
            .position(|queued| queued.entry.id == claim.id)
    }

    /// Returns whether the claim is a new entry.
    fn enter(&mut self, claim: &Claim, on_contention: OnContention) -> Result<bool> {
        let expires_at = BootInstant::now().saturating_add(claim.lease);
        if let Some(at) = self.position(claim) {
            let present = &mut self.entries[at];
            check_shrinks(claim.share, present.entry.share)?;
            present.entry.share = claim.share;
            present.expires_at = expires_at;
            return Ok(false);
        }

        if let Some(first) = self.shares().next() {
            check_same_kind(claim.share, first)?;
        }
        let has_room = admitted(self.shares().chain([claim.share])) > self.entries.len();
        let is_new = has_room || on_contention == OnContention::Queue;
        if is_new {
            let standing = Standing::Queued { ahead: 0 };
            let info = ClaimantInfo::clone(&claim.info);
            let mut entry = replies::entry(claim.id, claim.share, standing, info);
            entry.reserved = claim.reserved;
            self.entries.push(QueueEntry { entry, expires_at });
        }
        Ok(is_new)
    }

    /// Whether one of its claims has not expired.
    fn has_claim(&self, now: BootInstant) -> bool {
        self.entries.iter().any(|queued| queued.expires_at > now)
    }

    fn next_expiry(&self) -> BootInstant {
        self.entries
            .iter()
            .map(|queued| queued.expires_at)
            .min()
            .unwrap_or(BootInstant::FAR_FUTURE)
    }
}

#[async_trait]
impl Store for Memory {
    fn guarantees(&self) -> Guarantees {
        Guarantees {
            fifo: true,
            tokens: true,
            rwlock: true,
            semaphore: SemaphoreSupport::WhileInUse,
            lease_expiry: true,
            cohorts: true,
            crash_release: CrashRelease::Immediate,
        }
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        self.check_is_up()?;
        let is_new = self.queue(&claim.name, |queue| queue.enter(claim, on_contention))?;
        if is_new {
            self.changes.notify_waiters();
        }
        Ok(self.queue(&claim.name, |queue| {
            let standing = queue.standing(claim);
            let refused = (standing == Standing::Gone).then(|| {
                let mut lock_state = replies::lock_state(claim.name.clone());
                lock_state.entries = queue.entries();
                replies::refused(lock_state, None)
            });
            Entered::new(standing, claim.lease).with_refused(refused)
        }))
    }

    async fn queued(&self, claim: &Claim, ahead: u32) -> Result<Standing> {
        self.changed(claim, Standing::Queued { ahead }).await
    }

    async fn lost(&self, claim: &Claim, token: Token) -> Result<()> {
        self.changed(claim, Standing::Held { token })
            .await
            .map(drop)
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        self.check_is_up()?;
        Ok(claims
            .iter()
            .map(|claim| {
                self.queue(&claim.name, |queue| {
                    let at = queue.position(claim)?;
                    queue.entries[at].expires_at = BootInstant::now().saturating_add(claim.lease);
                    Some(claim.lease)
                })
            })
            .collect())
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.check_is_up()?;
        let removed = self.queue(&claim.name, |queue| {
            let at = queue.position(claim)?;
            Some(queue.entries.remove(at))
        });
        if removed.is_some() {
            self.changes.notify_waiters();
        }
        Ok(removed.is_some())
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            observe: Some(self),
            records: Some(self),
            in_process: Some(self),
            ..Extensions::default()
        }
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        self.check_is_up()?;
        let mut lock_state = replies::lock_state(name.clone());
        self.queue(name, |queue| {
            lock_state.entries = queue.entries();
            lock_state.last_token = Token::new(queue.last_token);
        });
        Ok(lock_state)
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        self.check_is_up()?;
        let queues = self.queues.lock();
        let now = BootInstant::now();

        let mut names: Vec<Name> = queues
            .in_use
            .iter()
            .filter(|(name, queue)| name.as_str().starts_with(prefix) && queue.has_claim(now))
            .map(|(name, _)| name.clone())
            .collect();
        names.sort_unstable();
        names.truncate(count_max);
        Ok(names)
    }
}

#[async_trait]
impl Observe for Memory {
    async fn subscribe(&self, _name: &Name) -> Result<Box<dyn Subscription>> {
        self.check_is_up()?;
        Ok(Box::new(Changes {
            next: Box::pin(Arc::clone(&self.changes).notified_owned()),
            store: self.clone(),
        }))
    }
}

#[async_trait]
impl Records for Memory {
    async fn kept(&self) -> Result<Duration> {
        self.check_is_up()?;
        Ok(RECORDS_KEPT)
    }

    async fn record(&self, name: &Name, reader: RecordReader) -> Result<Record> {
        self.check_is_up()?;
        let mut records = self.records.lock();
        let record = records.read(name);
        if reader == RecordReader::Holder && record != Record::empty(record.read_at) {
            records.keep(name, record.clone());
        }
        Ok(record)
    }

    async fn complete(&self, claim: &Claim, completion: &Completion) -> Result<bool> {
        self.check_is_up()?;
        let completed = self.queue(&claim.name, |queue| {
            let mut records = self.records.lock();
            let mut record = records.read(&claim.name);
            if queue.standing(claim).token().is_none() {
                return record.is_of(claim.id);
            }

            record.add(completion);
            records.keep(&claim.name, record);
            queue.entries.retain(|queued| queued.entry.id != claim.id);
            true
        });
        self.changes.notify_waiters();
        Ok(completed)
    }

    async fn list_records(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        self.check_is_up()?;
        let mut records = self.records.lock();
        records.forget_old();
        let names = records.by_name.keys();
        let mut names: Vec<Name> = names
            .filter(|name| name.as_str().starts_with(prefix))
            .cloned()
            .collect();
        names.sort_unstable();
        names.truncate(count_max);
        Ok(names)
    }
}

/// The records of all names, and when each was used last.
#[derive(Debug, Default)]
struct KeptRecords {
    by_name: HashMap<Name, (Record, BootInstant)>,
    /// One moment by the wall clock, from which the clock of leases continues. So records age in
    /// the paused time of a test, and no step of the wall clock changes their age.
    started: Option<(SystemTime, BootInstant)>,
}

impl KeptRecords {
    fn now(&mut self) -> SystemTime {
        let now = BootInstant::now();
        let (at, started) = *self.started.get_or_insert_with(|| (SystemTime::now(), now));
        at + now.duration_since(started)
    }

    fn read(&mut self, name: &Name) -> Record {
        self.forget_old();
        let read_at = self.now();
        match self.by_name.get(name) {
            Some((record, _)) => Record {
                read_at,
                ..record.clone()
            },
            None => Record::empty(read_at),
        }
    }

    fn keep(&mut self, name: &Name, record: Record) {
        let used = (record, BootInstant::now());
        self.by_name.insert(name.clone(), used);
    }

    fn forget_old(&mut self) {
        let now = BootInstant::now();
        self.by_name
            .retain(|_, (_, used)| now.duration_since(*used) < RECORDS_KEPT);
    }
}

impl InProcess for Memory {
    fn id(&self) -> usize {
        Arc::as_ptr(&self.queues).addr()
    }

    fn add_client(&self, client: Weak<dyn Revocable>) {
        let mut clients = self.clients.lock();
        clients.retain(|client| client.strong_count() > 0);
        clients.push(client);
    }
}

/// The changes of all names.
#[derive(Debug)]
struct Changes {
    store: Memory,
    next: Pin<Box<OwnedNotified>>,
}

#[async_trait]
impl Subscription for Changes {
    async fn changed(&mut self) -> Result<()> {
        self.next.as_mut().await;
        self.next = Box::pin(Arc::clone(&self.store.changes).notified_owned());
        self.store.check_is_up()
    }
}

/// How long a record is kept after its last use.
const RECORDS_KEPT: Duration = Duration::from_secs(40 * 24 * 60 * 60);

/// The longest that a waiter sleeps between two polls.
const POLL_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::store::draw_claim_id;
    use crate::{Locks, LossReason};

    #[tokio::test]
    async fn revoked_hold_is_lost_and_the_next_waiter_is_granted() {
        let store = Memory::new();
        let locks = Locks::from_store(store.clone(), "memory:").expect("it starts");
        let guard = locks.mutex("a").acquire().await.expect("the store replies");
        let other = Locks::from_store(store.clone(), "memory:").expect("it starts");
        let second = other.mutex("a").label("second");
        let waiting = tokio::spawn(async move { second.acquire().await });
        while locks.inspect("a").await.expect("a state").waiters().count() == 0 {
            tokio::task::yield_now().await;
        }

        assert_eq!(store.revoke("a"), 1);
        assert!(guard.check().expect_err("it is revoked").is_lost());
        assert_eq!(guard.lost().await, LossReason::Revoked);
        let next = waiting.await.expect("it runs").expect("the store replies");
        assert!(next.token() > guard.token());

        // The late release of the first guard does not end the second hold.
        guard.release().await.expect_err("it was lost");
        assert!(next.check().is_ok());
        assert_eq!(store.revoke("a"), 1);
        assert!(next.check().expect_err("it is revoked").is_lost());
        assert_eq!((store.revoke("b"), store.revoke("")), (0, 0));
    }

    #[tokio::test]
    async fn guards_say_whether_they_are_held() {
        let store = Memory::new();
        let locks = Locks::from_store(store.clone(), "memory:").expect("it starts");
        let one = locks.mutex("a").acquire().await.expect("granted");
        let both = locks.multi_lock(["b", "c"]).acquire().await;
        let both = both.expect("granted");
        assert!(one.is_held() && both.is_held());

        store.revoke("a");
        store.revoke("c");
        assert!(!one.is_held() && !both.is_held());
    }

    #[tokio::test]
    async fn failing_store_fails_every_request_and_keeps_its_locks() {
        let store = Memory::new();
        let locks = Locks::from_store(store.clone(), "memory:").expect("it starts");
        let guard = locks.mutex("a").acquire().await.expect("the store replies");
        let held = Claim::clone(guard.hold().claim());
        let name = held.name.clone();
        let waiter = Claim {
            id: draw_claim_id(),
            ..held.clone()
        };
        let entered = store.enter(&waiter, OnContention::Queue).await;
        entered.expect("the store replies");
        let mut subscription = store.subscribe(&name).await.expect("the store replies");

        // A request that waits when the outage begins fails as well.
        let waiting = store.queued(&waiter, 1);
        let (queued, pushed, ()) =
            tokio::join!(waiting, subscription.changed(), async { store.fail() });
        let completion = Completion::success(&held, guard.token(), SystemTime::now());
        let failed = [
            queued.err(),
            pushed.err(),
            store.enter(&held, OnContention::Queue).await.err(),
            store.queued(&waiter, 1).await.err(),
            store.lost(&held, guard.token()).await.err(),
            store.renew(slice::from_ref(&held)).await.err(),
            store.leave(&held).await.err(),
            store.inspect(&name).await.err(),
            store.list("", 1).await.err(),
            store.subscribe(&name).await.err(),
            store.kept().await.err(),
            store.record(&name, RecordReader::Observer).await.err(),
            store.complete(&held, &completion).await.err(),
            store.list_records("", 1).await.err(),
        ];
        for (request, error) in failed.iter().enumerate() {
            let is_unavailable = error.as_ref().is_some_and(Error::is_unavailable);
            assert!(is_unavailable, "request {request}: {error:?}");
        }

        store.recover();
        let lock_state = locks.inspect("a").await.expect("the store replies");
        assert_eq!(lock_state.entries.len(), 2);
        guard.release().await.expect("it is still held");
    }

    #[tokio::test]
    async fn waiter_is_granted_after_an_outage() {
        let store = Memory::new();
        let locks = Locks::from_store(store.clone(), "memory:").expect("it starts");
        let guard = locks.mutex("a").acquire().await.expect("the store replies");
        let waiting = tokio::spawn(locks.mutex("a").acquire());
        while locks.inspect("a").await.expect("a state").waiters().count() == 0 {
            tokio::task::yield_now().await;
        }

        store.fail();
        let releasing = tokio::spawn(guard.release());
        locks.inspect("a").await.expect_err("the store is down");
        store.recover();
        releasing.await.expect("it runs").expect("it is repeated");
        let next = waiting.await.expect("it runs").expect("the store replies");
        next.release().await.expect("the store replies");
    }

    #[tokio::test]
    async fn free_names_are_forgotten_and_their_tokens_rise() {
        let store = Memory::new();
        let locks = Locks::from_store(store.clone(), "memory:").expect("it starts");
        let first = locks.mutex("0").acquire().await.expect("granted");
        let token = first.token();
        first.release().await.expect("released");

        for number in 1..50_000 {
            let guard = locks.mutex(number.to_string()).acquire().await;
            let released = guard.expect("granted").release().await;
            released.expect("released");
        }
        assert_eq!(store.queues.lock().in_use.len(), 0);
        let again = locks.mutex("0").acquire().await.expect("granted");
        assert!(again.token() > token);
    }
}
