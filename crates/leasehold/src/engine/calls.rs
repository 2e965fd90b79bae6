//! The one door to a store: time-outs, repeats of what may be repeated, and what is told to the log.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::runtime::backoff::Backoff;
use crate::runtime::clock::BootInstant;
use crate::{
    Claim, Entered, Error, Guarantees, LockState, Name, OnContention, Result, ServerVote, Standing,
    Store,
};

/// The longest that a question may go unanswered.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a question is asked that the store could not take.
const TRIES_MAX: u32 = 3;

#[derive(Clone, Debug)]
pub(crate) struct StoreCalls {
    store: Arc<dyn Store>,
    /// The store's URL without its password.
    url: Arc<str>,
}

/// A door that does not keep its store open.
#[derive(Debug)]
pub(crate) struct WeakStoreCalls {
    store: Weak<dyn Store>,
    url: Arc<str>,
}

impl WeakStoreCalls {
    /// `None` once nobody else has the store any more.
    pub(crate) fn upgrade(&self) -> Option<StoreCalls> {
        self.store.upgrade().map(|store| StoreCalls {
            store,
            url: Arc::clone(&self.url),
        })
    }
}

impl StoreCalls {
    pub(crate) fn downgrade(&self) -> WeakStoreCalls {
        WeakStoreCalls {
            store: Arc::downgrade(&self.store),
            url: Arc::clone(&self.url),
        }
    }

    pub(crate) fn new(store: Arc<dyn Store>, url: &str) -> Self {
        Self {
            store,
            url: url.into(),
        }
    }

    pub(crate) fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The answer, and the moment before the question that got it.
    ///
    /// Without a time limit of its own: it must run to its end, and whoever asked decides how long to listen.
    pub(crate) async fn enter(
        &self,
        claim: &Claim,
        on_contention: OnContention,
    ) -> Result<(BootInstant, Entered)> {
        let send = || async move {
            let sent_at = BootInstant::now();
            self.store
                .enter(claim, on_contention)
                .await
                .map(|entered| (sent_at, entered))
        };
        self.with_retries("acquire", Some(&claim.name), send).await
    }

    /// Asked once: it may take for ever, and its caller knows for how long an error may be waited out.
    pub(crate) async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        let reply = self.store.changed(claim, seen).await;
        self.with_context("wait for", Some(&claim.name), reply)
    }

    /// Asked once, within `limit`; the renewal task asks again while there is time.
    pub(crate) async fn renew(
        &self,
        claims: &[Claim],
        limit: Duration,
    ) -> Result<Vec<Option<Duration>>> {
        let name = claims.first().map(|claim| &claim.name);
        let reply = with_timeout(limit, self.store.renew(claims)).await;
        self.with_context("renew", name, reply)
    }

    /// The moment before the question, and for how long a claim that has been granted is good from there, if it is still
    /// there. Repeated: whoever waited for the grant shall not hear of a broken connection.
    pub(crate) async fn confirm(&self, claim: &Claim) -> Result<(BootInstant, Option<Duration>)> {
        let send = || async move {
            let sent_at = BootInstant::now();
            let reply =
                with_timeout(REPLY_TIMEOUT, self.store.renew(std::slice::from_ref(claim))).await?;
            Ok((sent_at, reply.first().copied().flatten()))
        };
        self.with_retries("acquire", Some(&claim.name), send).await
    }

    /// Asked once; departing repeats it for as long as it matters.
    pub(crate) async fn leave(&self, claim: &Claim) -> Result<bool> {
        let reply = with_timeout(REPLY_TIMEOUT, self.store.leave(claim)).await;
        self.with_context("release", Some(&claim.name), reply)
    }

    pub(crate) fn inheritable_fds(&self, claim: &Claim) -> Result<Vec<OwnedFd>> {
        let fds = match self.store.extensions().inheritable_fds {
            Some(store) => store.inheritable_fds(claim),
            None => Ok(Vec::new()),
        };
        self.with_context("inherit", Some(&claim.name), fds)
    }

    pub(crate) fn votes(&self, claim: &Claim) -> Vec<ServerVote> {
        match self.store.extensions().votes {
            Some(store) => store.votes(claim),
            None => Vec::new(),
        }
    }

    pub(crate) async fn inspect(&self, name: &Name) -> Result<LockState> {
        self.with_retries("look at", Some(name), || {
            with_timeout(REPLY_TIMEOUT, self.store.inspect(name))
        })
        .await
    }

    pub(crate) async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        self.with_retries("list the locks", None, || {
            with_timeout(REPLY_TIMEOUT, self.store.list(prefix, count_max))
        })
        .await
    }

    /// Asks again what was not taken; every question is safe to repeat.
    async fn with_retries<T, A, F>(
        &self,
        operation: &'static str,
        name: Option<&Name>,
        send: A,
    ) -> Result<T>
    where
        A: Fn() -> F,
        F: Future<Output = Result<T>>,
    {
        let mut backoff = Backoff::default();
        for _ in 1..TRIES_MAX {
            match send().await {
                Err(error) if error.is_unavailable() => backoff.wait().await,
                reply => return self.with_context(operation, name, reply),
            }
        }
        let reply = send().await;
        self.with_context(operation, name, reply)
    }

    fn with_context<T>(
        &self,
        operation: &'static str,
        name: Option<&Name>,
        reply: Result<T>,
    ) -> Result<T> {
        reply.map_err(|error| {
            let error = error.during(operation, &self.url, name.map(Name::as_str));
            tracing::debug!(operation, store = %self.url, name = name.map(Name::as_str), %error);
            error
        })
    }
}

async fn with_timeout<T>(limit: Duration, reply: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(limit, reply)
        .await
        .unwrap_or_else(|_| Err(timed_out(limit)))
}

/// The error of a store that said nothing.
pub(crate) fn timed_out(limit: Duration) -> Error {
    Error::unavailable(format!("the store did not answer within {limit:?}"))
}
