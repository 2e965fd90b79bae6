//! Futures that run to completion even if their caller drops them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::background;
use crate::drain::Departure;

/// A future that always runs to its end.
///
/// The caller polls it in place, which is fast. If the caller drops it, the background thread
/// completes it, even if it was never polled.
pub(crate) struct Detached<T: Send + 'static> {
    /// `None` once it is complete.
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

impl<T: Send + 'static> Detached<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self {
            future: Some(Box::pin(future)),
        }
    }
}

impl<T: Send + 'static> Future for Detached<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let future = self
            .future
            .as_mut()
            .expect("a completed future is not polled again");

        let output = ready!(future.as_mut().poll(context));
        self.future = None;
        Poll::Ready(output)
    }
}

impl<T: Send + 'static> Drop for Detached<T> {
    fn drop(&mut self) {
        let Some(future) = self.future.take() else {
            return;
        };

        let departure = Departure::begin();
        background::spawn(async move {
            future.await;
            drop(departure);
        });
    }
}
