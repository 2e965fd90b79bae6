//! A store that is opened by its first request.

use std::fmt::{self, Debug, Formatter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::runtime::background;
use crate::store::{Extensions, Observe, RecordReader, Records, Subscription};
use crate::store_kind::{FirstClaim, UnopenedStore};
use crate::{
    Claim, Completion, Entered, Error, Guarantees, LockState, Name, OnContention, Record, Result,
    Standing, Store, Token,
};

/// A store that is opened by its first request, and by the next one after an opening has failed.
///
/// ```text
/// unopened ──request──► opening ──connected──► open
///                         │  ▲
///                   error │  │ request
///                         ▼  │
///                        failed
/// ```
pub struct LazyStore {
    unopened: UnopenedStore,
    runtime: Option<Handle>,
    opened: OnceLock<Arc<dyn Store>>,
    /// The requests that wait for one opening share its result, so that a store that is down gets
    /// one connection and not one for each request.
    opening: Mutex<Option<SharedOpening>>,
    /// If the first claim is entered while the store is opened: whether the server may have it.
    first: Option<Arc<AtomicBool>>,
}

type SharedOpening = Shared<BoxFuture<'static, Result<Arc<dyn Store>>>>;

impl LazyStore {
    #[allow(missing_docs, reason = "only `leasehold` uses it")]
    #[must_use]
    pub fn new(unopened: UnopenedStore, runtime: Option<Handle>) -> Self {
        Self {
            unopened,
            runtime,
            opened: OnceLock::new(),
            opening: Mutex::default(),
            first: None,
        }
    }

    /// Makes the opening enter the claim that begins it, if the store can do so.
    #[allow(missing_docs, reason = "only `leasehold` uses it")]
    #[must_use]
    pub fn entering(self) -> Self {
        Self {
            first: Some(Arc::default()),
            ..self
        }
    }

    #[allow(missing_docs, reason = "only `leasehold` uses it")]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.opened.get().is_some()
    }

    async fn store(&self) -> Result<&dyn Store> {
        self.store_entering(None).await
    }

    async fn store_entering(&self, first: Option<FirstClaim>) -> Result<&dyn Store> {
        if let Some(store) = self.opened.get() {
            return Ok(&**store);
        }
        let store = self.opening(first).await?;
        Ok(&**self.opened.get_or_init(|| store))
    }

    async fn records(&self) -> Result<&dyn Records> {
        self.store().await?.extensions().require_records()
    }

    /// Returns the opening that is under way, or begins one.
    fn opening(&self, first: Option<FirstClaim>) -> SharedOpening {
        let mut slot = self.opening.lock();
        // An opening whose requests have all given up has nobody who polls it.
        if let Some(opening) = &*slot
            && !matches!(opening.clone().now_or_never(), Some(Err(_)))
        {
            return opening.clone();
        }

        // It continues if the request is dropped, because others may wait for it too.
        let runtime = self.runtime.clone();
        let opening = match (self.unopened.enters.clone(), first) {
            (Some(opener), Some(first)) => async move { opener.open(runtime, first).await }.boxed(),
            _ => self.unopened.open(runtime),
        };
        let opening = background::handle().spawn(opening);
        let opening = opening.map(|opened| opened.unwrap_or_else(|error| Err(interrupted(&error))));
        let opening = opening.boxed().shared();
        *slot = Some(opening.clone());
        opening
    }
}

fn interrupted(error: &tokio::task::JoinError) -> Error {
    Error::unavailable(format!("the store could not be opened: {error}"))
}

#[async_trait]
impl Store for LazyStore {
    fn guarantees(&self) -> Guarantees {
        match self.opened.get() {
            Some(store) => store.guarantees(),
            None => self.unopened.guarantees.clone(),
        }
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        let first = self.first.clone().map(|may_be_there| FirstClaim {
            claim: claim.clone(),
            on_contention,
            may_be_there,
        });
        let store = self.store_entering(first).await?;
        store.enter(claim, on_contention).await
    }

    async fn queued(&self, claim: &Claim, ahead: u32) -> Result<Standing> {
        self.store().await?.queued(claim, ahead).await
    }

    async fn lost(&self, claim: &Claim, token: Token) -> Result<()> {
        self.store().await?.lost(claim, token).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        self.store().await?.renew(claims).await
    }

    /// A store that was never open has no entry of this client, unless an opening that has failed
    /// was to enter one.
    async fn leave(&self, claim: &Claim) -> Result<bool> {
        if let Some(store) = self.opened.get() {
            return store.leave(claim).await;
        }
        match (&self.first, &self.unopened.enters) {
            (Some(first), Some(opener)) if first.load(Ordering::Acquire) => {
                let left = opener.leave(claim).await?;
                first.store(false, Ordering::Release);
                Ok(left)
            }
            _ => Ok(false),
        }
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        self.store().await?.inspect(name).await
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        self.store().await?.list(prefix, count_max).await
    }

    fn extensions(&self) -> Extensions<'_> {
        match self.opened.get() {
            Some(store) => store.extensions(),
            None => Extensions {
                observe: Some(self),
                records: Some(self),
                ..Extensions::default()
            },
        }
    }
}

#[async_trait]
impl Observe for LazyStore {
    async fn subscribe(&self, name: &Name) -> Result<Box<dyn Subscription>> {
        match self.store().await?.extensions().observe {
            Some(store) => store.subscribe(name).await,
            None => Err(Error::unsupported("this store pushes no changes")),
        }
    }
}

/// Before the store is open, nothing shows whether it has records.
#[async_trait]
impl Records for LazyStore {
    async fn kept(&self) -> Result<Duration> {
        self.records().await?.kept().await
    }

    async fn record(&self, name: &Name, reader: RecordReader) -> Result<Record> {
        self.records().await?.record(name, reader).await
    }

    async fn complete(&self, claim: &Claim, completion: &Completion) -> Result<bool> {
        self.records().await?.complete(claim, completion).await
    }

    async fn list_records(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        self.records().await?.list_records(prefix, count_max).await
    }
}

impl Debug for LazyStore {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LazyStore").field(&self.unopened).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::Semaphore;

    use super::*;
    use crate::Share;
    use crate::store_kind::OpenEntering;
    use crate::stores::Memory;

    /// A request gives up before the opening fails. The next one begins another opening.
    #[tokio::test]
    async fn failure_that_nobody_awaited_is_not_returned_later() {
        background::start().expect("it starts");
        let is_down = Arc::new(AtomicBool::new(true));
        let may_fail = Arc::new(Semaphore::new(0));
        let (down, fails) = (Arc::clone(&is_down), Arc::clone(&may_fail));
        let connect = move |_| {
            let (down, fails) = (Arc::clone(&down), Arc::clone(&fails));
            async move {
                if down.load(Ordering::SeqCst) {
                    let _permit = fails.acquire().await;
                    return Err(Error::unavailable("it is down"));
                }
                Ok(Memory::new())
            }
        };
        let guarantees = Memory::new().guarantees();
        let store = UnopenedStore::new("memory:".to_owned(), guarantees, connect);
        let lazy = LazyStore::new(store, None);

        assert!(lazy.store().now_or_never().is_none(), "it is not open yet");
        may_fail.add_permits(1);
        // The thread has one task at a time, so the opening has ended when a later task has.
        for _ in 0..3 {
            background::handle().spawn(async {}).await.expect("it ends");
        }
        is_down.store(false, Ordering::SeqCst);
        lazy.store().await.expect("it is up");
    }

    /// An opener whose server takes the claim, and that gets a reply to the second leave only.
    #[derive(Default)]
    struct Failing(AtomicBool);

    #[async_trait]
    impl OpenEntering for Failing {
        async fn open(&self, _: Option<Handle>, first: FirstClaim) -> Result<Arc<dyn Store>> {
            first.may_be_there.store(true, Ordering::SeqCst);
            Err(Error::unavailable("it is down"))
        }

        async fn leave(&self, _: &Claim) -> Result<bool> {
            let is_up = self.0.swap(true, Ordering::SeqCst);
            is_up
                .then_some(true)
                .ok_or_else(|| Error::unavailable("it is down"))
        }
    }

    /// Shows G-10.
    #[tokio::test]
    async fn claim_of_a_failed_opening_leaves_until_there_is_a_reply() {
        background::start().expect("it starts");
        let guarantees = Memory::new().guarantees();
        let connect = |_| async { Ok(Memory::new()) };
        let mut store = UnopenedStore::new("memory:".to_owned(), guarantees, connect);
        store.enters = Some(Arc::new(Failing::default()));
        let lazy = LazyStore::new(store, None).entering();

        let name = Name::parse("a").expect("it is valid");
        let info = crate::store::claimant_here("").expect("it is valid");
        let claim = Claim::new(name, Share::MUTEX, Arc::new(info));
        let entered = lazy.enter(&claim, OnContention::Queue).await;
        entered.expect_err("it is down");
        lazy.leave(&claim).await.expect_err("it is down");
        assert!(
            lazy.leave(&claim).await.expect("it replies"),
            "it was there"
        );
        assert!(
            !lazy.leave(&claim).await.expect("it replies"),
            "it has left"
        );
    }
}
