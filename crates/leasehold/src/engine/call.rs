//! The one door to a store: time-outs, repeats of what may be repeated, and what is told to the log.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::clock::Moment;
use crate::{Claim, Entered, Error, Line, Name, Patience, Promises, Result, Standing, Store, Vote};

/// The longest that a question may go unanswered.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How often a question is asked that the store could not take.
const TRIES_MAX: u32 = 3;
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(crate) struct Door {
    store: Arc<dyn Store>,
    /// The store's URL without its password.
    place: Arc<str>,
}

/// A door that does not keep its store open.
#[derive(Debug)]
pub(crate) struct ClosingDoor {
    store: Weak<dyn Store>,
    place: Arc<str>,
}

impl ClosingDoor {
    /// `None` once nobody else has the store any more.
    pub(crate) fn open(&self) -> Option<Door> {
        self.store.upgrade().map(|store| Door { store, place: Arc::clone(&self.place) })
    }
}

impl Door {
    pub(crate) fn closing(&self) -> ClosingDoor {
        ClosingDoor { store: Arc::downgrade(&self.store), place: Arc::clone(&self.place) }
    }

    pub(crate) fn new(store: Arc<dyn Store>, place: &str) -> Self {
        Self { store, place: place.into() }
    }

    pub(crate) fn promises(&self) -> Promises {
        self.store.promises()
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// The answer, and the moment before the question that got it.
    ///
    /// Without a time limit of its own: it must run to its end, and whoever asked decides how long to listen.
    pub(crate) async fn enter(&self, claim: &Claim, patience: Patience) -> Result<(Moment, Entered)> {
        let ask = || async move {
            let asked = Moment::now();
            self.store.enter(claim, patience).await.map(|entered| (asked, entered))
        };
        self.repeat("acquire", Some(&claim.name), ask).await
    }

    /// Asked once: it may take for ever, and its caller knows for how long an error may be waited out.
    pub(crate) async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        let answer = self.store.changed(claim, seen).await;
        self.told("wait for", Some(&claim.name), answer)
    }

    /// Asked once, within `limit`; the renewal task asks again while there is time.
    pub(crate) async fn renew(&self, claims: &[Claim], limit: Duration) -> Result<Vec<Option<Duration>>> {
        let name = claims.first().map(|claim| &claim.name);
        let answer = within(limit, self.store.renew(claims)).await;
        self.told("renew", name, answer)
    }

    /// The moment before the question, and for how long a claim that has been granted is good from there, if it is still
    /// there. Repeated: whoever waited for the grant shall not hear of a broken connection.
    pub(crate) async fn confirm(&self, claim: &Claim) -> Result<(Moment, Option<Duration>)> {
        let ask = || async move {
            let asked = Moment::now();
            let answer = within(ANSWER_MAX, self.store.renew(std::slice::from_ref(claim))).await?;
            Ok((asked, answer.first().copied().flatten()))
        };
        self.repeat("acquire", Some(&claim.name), ask).await
    }

    /// Asked once; departing repeats it for as long as it matters.
    pub(crate) async fn leave(&self, claim: &Claim) -> Result<bool> {
        let answer = within(ANSWER_MAX, self.store.leave(claim)).await;
        self.told("release", Some(&claim.name), answer)
    }

    pub(crate) fn anchors(&self, claim: &Claim) -> Result<Vec<OwnedFd>> {
        self.told("anchor", Some(&claim.name), self.store.anchors(claim))
    }

    pub(crate) fn votes(&self, claim: &Claim) -> Vec<Vote> {
        self.store.votes(claim)
    }

    pub(crate) async fn look(&self, name: &Name) -> Result<Line> {
        self.repeat("look at", Some(name), || within(ANSWER_MAX, self.store.look(name))).await
    }

    pub(crate) async fn names(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        self.repeat("list the locks", None, || within(ANSWER_MAX, self.store.names(prefix, count_max))).await
    }

    /// Asks again what was not taken; every question is safe to repeat.
    async fn repeat<T, A, F>(&self, operation: &'static str, name: Option<&Name>, ask: A) -> Result<T>
    where
        A: Fn() -> F,
        F: Future<Output = Result<T>>,
    {
        let mut pauses = Pauses::default();
        for _ in 1..TRIES_MAX {
            match ask().await {
                Err(error) if error.is_unavailable() => pauses.next().await,
                answer => return self.told(operation, name, answer),
            }
        }
        let answer = ask().await;
        self.told(operation, name, answer)
    }

    fn told<T>(&self, operation: &'static str, name: Option<&Name>, answer: Result<T>) -> Result<T> {
        answer.map_err(|error| {
            let error = error.at(operation, &self.place, name.map(Name::as_str));
            tracing::debug!(operation, store = %self.place, name = name.map(Name::as_str), %error);
            error
        })
    }
}

/// Ever longer pauses between repeats.
#[derive(Default)]
pub(crate) struct Pauses {
    count: u32,
}

impl Pauses {
    pub(crate) async fn next(&mut self) {
        let pause = PAUSE_MIN.saturating_mul(1 << self.count.min(10)).min(PAUSE_MAX);
        self.count += 1;
        tokio::time::sleep(pause).await;
    }

    /// Says whether the pause was over before the deadline, if there is one.
    pub(crate) async fn next_before(&mut self, deadline: Option<Instant>) -> bool {
        let Some(deadline) = deadline else {
            self.next().await;
            return true;
        };
        timeout_at(deadline, self.next()).await.is_ok()
    }
}

async fn within<T>(limit: Duration, answer: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err(silent(limit)))
}

/// The error of a store that said nothing.
pub(crate) fn silent(limit: Duration) -> Error {
    Error::unavailable(format!("the store did not answer within {limit:?}"))
}
