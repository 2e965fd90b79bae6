//! A store whose requests a test counts, delays, drops or changes.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;

use crate::store::{Extensions, RecordReader, Records};
use crate::{
    Claim, Completion, Entered, Guarantees, LockState, Name, OnContention, Record, Result,
    Standing, Store, Token,
};

/// The hooks of a test between a client and a store.
///
/// Every method forwards to the [inner](Self::inner) store unless a test replaces it. A test that
/// treats all requests alike replaces [`around`](Self::around) alone. A test that changes a reply
/// replaces the method of that request.
///
/// ```
/// use leasehold::store::{Intercept, Intercepted, Request, Store};
/// use leasehold::{Error, ErrorKind, Result, stores};
///
/// /// Executes every request and loses its reply.
/// #[derive(Debug)]
/// struct LostReplies(stores::Memory);
///
/// #[async_trait::async_trait]
/// impl Intercept for LostReplies {
///     fn inner(&self) -> &dyn Store {
///         &self.0
///     }
///
///     async fn around<T: Send>(
///         &self,
///         _request: Request,
///         reply: impl Future<Output = Result<T>> + Send,
///     ) -> Result<T> {
///         reply.await?;
///         Err(Error::for_test(ErrorKind::Unavailable))
///     }
/// }
///
/// let _store = Intercepted(LostReplies(stores::Memory::new()));
/// ```
#[async_trait]
pub trait Intercept: Debug + Send + Sync + 'static {
    /// The store that executes the requests.
    fn inner(&self) -> &dyn Store;

    /// Runs around each request: `reply` sends the request when it is first polled, and resolves to
    /// the reply.
    async fn around<T: Send>(
        &self,
        _request: Request,
        reply: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        reply.await
    }

    /// Replaces [`Store::enter`].
    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        let reply = self.inner().enter(claim, on_contention);
        self.around(Request::Enter, reply).await
    }

    /// Replaces [`Store::queued`].
    async fn queued(&self, claim: &Claim, ahead: u32) -> Result<Standing> {
        let reply = self.inner().queued(claim, ahead);
        self.around(Request::Queued, reply).await
    }

    /// Replaces [`Store::lost`].
    async fn lost(&self, claim: &Claim, token: Token) -> Result<()> {
        let reply = self.inner().lost(claim, token);
        self.around(Request::Lost, reply).await
    }

    /// Replaces [`Store::renew`].
    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        let reply = self.inner().renew(claims);
        self.around(Request::Renew, reply).await
    }

    /// Replaces [`Store::leave`].
    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let reply = self.inner().leave(claim);
        self.around(Request::Leave, reply).await
    }

    /// Replaces [`Store::inspect`], which [`around`](Self::around) leaves alone.
    async fn inspect(&self, name: &Name) -> Result<LockState> {
        self.inner().inspect(name).await
    }
}

/// The method of a store that a client calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// [`Store::enter`].
    Enter,
    /// [`Store::queued`].
    Queued,
    /// [`Store::lost`].
    Lost,
    /// [`Store::renew`].
    Renew,
    /// [`Store::leave`].
    Leave,
    /// [`Records::record`].
    Record,
    /// [`Records::complete`].
    Complete,
}

/// The store of an [`Intercept`].
#[derive(Clone, Debug)]
pub struct Intercepted<I>(pub I);

#[async_trait]
impl<I: Intercept> Store for Intercepted<I> {
    fn guarantees(&self) -> Guarantees {
        self.0.inner().guarantees()
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        self.0.enter(claim, on_contention).await
    }

    async fn queued(&self, claim: &Claim, ahead: u32) -> Result<Standing> {
        self.0.queued(claim, ahead).await
    }

    async fn lost(&self, claim: &Claim, token: Token) -> Result<()> {
        self.0.lost(claim, token).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        self.0.renew(claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.0.leave(claim).await
    }

    fn extensions(&self) -> Extensions<'_> {
        let inner = self.0.inner().extensions();
        let records: &dyn Records = self;
        Extensions {
            records: inner.records.map(|_| records),
            ..inner
        }
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        self.0.inspect(name).await
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        self.0.inner().list(prefix, count_max).await
    }
}

/// It exists only if the inner store has records.
#[async_trait]
impl<I: Intercept> Records for Intercepted<I> {
    async fn kept(&self) -> Result<Duration> {
        self.inner_records()?.kept().await
    }

    async fn record(&self, name: &Name, reader: RecordReader) -> Result<Record> {
        let reply = self.inner_records()?.record(name, reader);
        self.0.around(Request::Record, reply).await
    }

    async fn complete(&self, claim: &Claim, completion: &Completion) -> Result<bool> {
        let reply = self.inner_records()?.complete(claim, completion);
        self.0.around(Request::Complete, reply).await
    }

    async fn list_records(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        self.inner_records()?.list_records(prefix, count_max).await
    }
}

impl<I: Intercept> Intercepted<I> {
    fn inner_records(&self) -> Result<&dyn Records> {
        self.0.inner().extensions().require_records()
    }
}
