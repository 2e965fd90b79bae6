//! A tower layer that runs each request under a lock that the request names.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use leasehold::{FencingToken, Lock};
use tower::{BoxError, Layer, Service};

/// Runs each request under a lock.
///
/// The handler finds the [`FencingToken`] of the hold in the extensions of the request. If the lock
/// is lost, the layer drops the handler. If the client closes the connection, the server drops the
/// request, and the lock is released.
///
/// The lock is held until the handler returns the response. It is not held while the body of a
/// response is streamed.
#[derive(Clone, Debug)]
pub struct LockLayer<F> {
    lock_of: Arc<F>,
    wait: Duration,
}

impl<F> LockLayer<F> {
    /// Creates a layer. `lock_of` returns the lock of a request, and `wait` limits the wait for it.
    pub fn new(lock_of: F, wait: Duration) -> Self {
        Self {
            lock_of: Arc::new(lock_of),
            wait,
        }
    }
}

impl<S, F> Layer<S> for LockLayer<F> {
    type Service = UnderLock<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        UnderLock {
            inner,
            lock_of: Arc::clone(&self.lock_of),
            wait: self.wait,
        }
    }
}

/// A service whose requests run under locks; [`LockLayer`] creates it.
#[derive(Debug)]
pub struct UnderLock<S, F> {
    inner: S,
    lock_of: Arc<F>,
    wait: Duration,
}

impl<S: Clone, F> Clone for UnderLock<S, F> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            lock_of: Arc::clone(&self.lock_of),
            wait: self.wait,
        }
    }
}

impl<S, B, F> Service<Request<B>> for UnderLock<S, F>
where
    S: Service<Request<B>, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
    B: Send + 'static,
    F: Fn(&Request<B>) -> Lock,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let lock = (self.lock_of)(&request);
        let wait = self.wait;
        // The service that is ready handles this request, and its clone handles the next one.
        let next = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, next);

        Box::pin(async move {
            let guard = lock.try_acquire_for(wait).await??;
            let token = guard.fencing_token()?;
            request.extensions_mut().insert::<FencingToken>(token);

            let response = guard.while_held(inner.call(request)).await?;
            response.map_err(Into::into)
        })
    }
}
