//! Departures that have no reply when the claim's lease has ended.
//!
//! [`depart`](super::depart) repeats their requests in the background.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Claim;

/// The claims of one store that still have to leave. While there is one, a task sends the request
/// of the first.
#[derive(Debug, Default)]
pub(super) struct Backlog(Mutex<VecDeque<Arc<Claim>>>);

impl Backlog {
    /// Adds a claim; returns whether it is the only one, and the claim that is given up for it.
    pub(super) fn push(&self, claim: Arc<Claim>, count_max: usize) -> (bool, Option<Arc<Claim>>) {
        let mut claims = self.0.lock();
        let is_only = claims.is_empty();
        let given_up = (claims.len() >= count_max).then(|| claims.pop_front());
        claims.push_back(claim);
        (is_only, given_up.flatten())
    }

    pub(super) fn first(&self) -> Option<Arc<Claim>> {
        self.0.lock().front().map(Arc::clone)
    }

    /// Moves a claim that could not leave behind the others: they may be on another server.
    pub(super) fn postpone(&self, claim: &Claim) {
        let mut claims = self.0.lock();
        if claims.front().is_some_and(|first| first.id == claim.id) {
            claims.rotate_left(1);
        }
    }

    /// Removes a claim that has left; returns the next one.
    pub(super) fn remove(&self, claim: &Claim) -> Option<Arc<Claim>> {
        let mut claims = self.0.lock();
        claims.retain(|other| other.id != claim.id);
        claims.front().map(Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClaimantInfo, Name, Share};

    /// Shows G-10.
    #[test]
    fn oldest_departure_is_given_up_when_there_are_too_many() {
        let backlog = Backlog::default();
        let claims = [1, 2, 3].map(|_| {
            let info = ClaimantInfo::here("test").expect("valid");
            let name = Name::parse("a").expect("valid");
            Arc::new(Claim::new(name, Share::MUTEX, Arc::new(info)))
        });
        let [first, second, third] = &claims;
        let ids = |claim: Option<Arc<Claim>>| claim.map(|claim| claim.id);

        let (is_only, given_up) = backlog.push(Arc::clone(first), 2);
        assert!(is_only && given_up.is_none());
        let (is_only, given_up) = backlog.push(Arc::clone(second), 2);
        assert!(!is_only && given_up.is_none());
        let (is_only, given_up) = backlog.push(Arc::clone(third), 2);
        assert!(!is_only);
        assert_eq!(ids(given_up), Some(first.id));

        backlog.postpone(second);
        assert_eq!(ids(backlog.first()), Some(third.id));
        assert_eq!(ids(backlog.remove(third)), Some(second.id));
        assert_eq!(ids(backlog.remove(second)), None);
    }
}
