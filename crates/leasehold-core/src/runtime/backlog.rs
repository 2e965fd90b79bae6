//! Requests that got no reply, and are repeated in the background until they get one.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::backoff::Backoff;

/// Requests without a reply. While there is one, a task sends the first.
#[derive(Debug)]
pub struct Backlog<T>(Mutex<VecDeque<Arc<T>>>);

/// Whoever sends the requests of a backlog.
pub trait Repeat: Send {
    type Request: Send + Sync;

    fn backlog(&self) -> &Backlog<Self::Request>;

    /// Sends a request; returns whether there was a reply.
    fn has_reply(&self, request: &Self::Request) -> impl Future<Output = bool> + Send;
}

impl<R: Repeat + Sync> Repeat for Arc<R> {
    type Request = R::Request;

    fn backlog(&self) -> &Backlog<Self::Request> {
        R::backlog(self)
    }

    fn has_reply(&self, request: &Self::Request) -> impl Future<Output = bool> + Send {
        R::has_reply(self, request)
    }
}

/// Sends the requests one after the other, until there is none, or its sender is gone.
pub async fn repeat<R: Repeat>(sender: impl Fn() -> Option<R>, mut pauses: Backoff) {
    pauses.wait().await;

    while let Some(sender) = sender() {
        let Some(request) = sender.backlog().first() else {
            return;
        };
        if !sender.has_reply(&request).await {
            sender.backlog().postpone(&request);
            drop(sender);
            pauses.wait().await;
        } else if sender.backlog().remove(&request) {
            // The next request starts the task again.
            return;
        } else {
            pauses.reset();
        }
    }
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Backlog<T> {
    /// Adds a request; returns whether it is the only one, and the one that is given up for it.
    pub fn push(&self, request: Arc<T>, count_max: usize) -> (bool, Option<Arc<T>>) {
        let mut requests = self.0.lock();
        let is_only = requests.is_empty();
        let given_up = (requests.len() >= count_max).then(|| requests.pop_front());
        requests.push_back(request);
        (is_only, given_up.flatten())
    }

    /// Changes the first request that matches; returns whether there is one.
    pub fn change(&self, matches: impl Fn(&T) -> bool, change: impl FnOnce(&mut Arc<T>)) -> bool {
        let mut requests = self.0.lock();
        let found = requests.iter_mut().find(|request| matches(request));
        found.map(change).is_some()
    }

    fn first(&self) -> Option<Arc<T>> {
        self.0.lock().front().map(Arc::clone)
    }

    /// Moves a request that got no reply behind the others: they may be for another server.
    fn postpone(&self, request: &Arc<T>) {
        let mut requests = self.0.lock();
        if requests
            .front()
            .is_some_and(|first| Arc::ptr_eq(first, request))
        {
            requests.rotate_left(1);
        }
    }

    /// Removes a request that got a reply; returns whether none is left.
    fn remove(&self, request: &Arc<T>) -> bool {
        let mut requests = self.0.lock();
        requests.retain(|other| !Arc::ptr_eq(other, request));
        requests.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows G-10.
    #[test]
    fn oldest_request_is_given_up_when_there_are_too_many() {
        let backlog = Backlog::default();
        let [first, second, third] = [1, 2, 3].map(Arc::new);

        assert_eq!(backlog.push(Arc::clone(&first), 2), (true, None));
        assert_eq!(backlog.push(Arc::clone(&second), 2), (false, None));
        assert_eq!(backlog.push(Arc::clone(&third), 2), (false, Some(first)));

        backlog.postpone(&second);
        assert_eq!(backlog.first().as_ref(), Some(&third));
        assert!(!backlog.remove(&third));
        assert!(backlog.remove(&second));
    }
}
