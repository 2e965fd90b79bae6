//! What this client knows of its own claims.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::belief::{Known, is_queued};
use super::orphans::Orphan;
use super::record::{self, Answer, Renewed, Told};
use crate::claim::ById;
use crate::clock::Moment;
use crate::{Claim, ClaimId, Name};

#[derive(Debug, Default)]
pub(super) struct Ledger {
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    pages: ById<Arc<Page>>,
    /// Claims that wait or have waited, by name, in the order in which they were begun.
    names: HashMap<Name, BTreeSet<(u64, ClaimId)>>,
    begun: u64,
}

/// One claim, from its first request to its last.
#[derive(Debug)]
pub(super) struct Page {
    name: Name,
    number: u64,
    known: Mutex<Known>,
    /// Until when requests to enter that were not answered may be carried out.
    late_until: Mutex<Option<Moment>>,
    /// Until when the last renewal said that the claim is safe.
    safe_until: Mutex<Moment>,
    pub(super) stirred: Notify,
}

impl Ledger {
    /// The page of a claim, made if there is none.
    pub(super) fn begin(&self, claim: &Claim) -> Arc<Page> {
        self.books.lock().page(claim)
    }

    /// The page of a claim that waits, or listens for its end.
    pub(super) fn listen(&self, claim: &Claim) -> Arc<Page> {
        let mut books = self.books.lock();
        let page = books.page(claim);
        books.names.entry(claim.name.clone()).or_default().insert((page.number, claim.id));
        page
    }

    pub(super) fn page(&self, id: ClaimId) -> Option<Arc<Page>> {
        self.books.lock().pages.get(&id).map(Arc::clone)
    }

    /// Forgets a claim; the page it had.
    pub(super) fn end(&self, id: ClaimId) -> Option<Arc<Page>> {
        let mut books = self.books.lock();
        let page = books.pages.remove(&id)?;
        if let Some(claims) = books.names.get_mut(&page.name) {
            claims.remove(&(page.number, id));
            if claims.is_empty() {
                books.names.remove(&page.name);
            }
        }
        Some(page)
    }

    /// Whether no other claim of this client waits for the same name ahead of this one.
    pub(super) fn is_foremost(&self, page: &Page) -> bool {
        let books = self.books.lock();
        let Some(claims) = books.names.get(&page.name) else { return true };
        let mut ahead = claims.range(..(page.number, ClaimId::from_bytes([0; 16])));
        !ahead.any(|(_, id)| books.pages.get(id).is_some_and(|page| page.known().standing.is_none_or(is_queued)))
    }

    /// Takes note of what was told to the inbox. A grant to a claim that this client does not have makes an orphan: its
    /// id never comes again.
    pub(super) fn told(&self, text: &str) -> Option<Orphan> {
        let (id, told, key) = Told::parse(text)?;
        if let Some(page) = self.page(id) {
            page.told(&told);
            return None;
        }
        matches!(told, Told::Held(_)).then(|| Orphan { key: key.to_owned(), id: record::id_text(id) })
    }
}

impl Books {
    fn page(&mut self, claim: &Claim) -> Arc<Page> {
        if let Some(page) = self.pages.get(&claim.id) {
            return Arc::clone(page);
        }
        self.begun += 1;
        let (name, number) = (claim.name.clone(), self.begun);
        let page = Arc::new(Page {
            name,
            number,
            known: Mutex::default(),
            late_until: Mutex::default(),
            safe_until: Mutex::new(Moment::from_nanos(0)),
            stirred: Notify::new(),
        });
        self.pages.insert(claim.id, Arc::clone(&page));
        page
    }
}

impl Page {
    pub(super) fn known(&self) -> Known {
        self.known.lock().clone()
    }

    /// Takes note of an answer to a question sent at `asked`, which named the connection of `epoch`, while the near link
    /// was in its epoch `near`.
    pub(super) fn answered(&self, answer: &Answer, asked: Moment, epoch: u32, near: u32) {
        self.known.lock().answered(answer, asked, epoch, near, Moment::now());
    }

    /// Takes note of the answer to a look.
    pub(super) fn looked(&self, answer: &Answer, asked: Moment, epoch: u32, near: u32) {
        self.known.lock().looked(answer, asked, epoch, near, Moment::now());
    }

    /// Takes note of a renewal; `false` if the claim is gone.
    pub(super) fn renewal(&self, renewed: Renewed, asked: Moment, epoch: u32) -> bool {
        let (is_there, is_news) = {
            let mut known = self.known.lock();
            let before = (known.position, known.due);
            let is_there = known.renewal(renewed, asked, epoch);
            (is_there, before != (known.position, known.due))
        };
        if is_news {
            self.stirred.notify_waiters();
        }
        is_there
    }

    /// Notes that the caller is given the claim as held.
    pub(super) fn pass_on(&self) {
        self.known.lock().pass_on(Moment::now());
    }

    /// Notes that a request to enter was not answered, and may be carried out until `until`.
    pub(super) fn may_be_late(&self, until: Moment) {
        let mut late_until = self.late_until.lock();
        *late_until = Some(late_until.map_or(until, |known| known.max(until)));
    }

    pub(super) fn late_until(&self) -> Option<Moment> {
        *self.late_until.lock()
    }

    pub(super) fn set_safe_until(&self, until: Moment) {
        let mut safe_until = self.safe_until.lock();
        *safe_until = safe_until.max(until);
    }

    pub(super) fn safe_until(&self) -> Moment {
        *self.safe_until.lock()
    }

    pub(super) fn gone(&self) {
        self.told(&Told::Gone);
    }

    fn told(&self, told: &Told) {
        if self.known.lock().told(told) {
            self.stirred.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use lab_servers::Redis as Server;

    use super::super::Redis;
    use crate::{Locks, Store};

    /// However a claim has come to its end, nothing is remembered of it.
    #[tokio::test]
    async fn what_has_left_leaves_no_page() {
        const SOON: Duration = Duration::from_millis(5);
        let server = Server::start();
        let store = Arc::new(Redis::at(&server.url()).expect("a good URL").connect().await.expect("it connects"));
        let locks = Locks::over(Arc::clone(&store) as Arc<dyn Store>, "redis:").expect("the background thread runs");
        for _ in 0..20 {
            let lock = locks.mutex("a");
            let held = lock.acquire().await.expect("granted");
            assert!(lock.try_acquire().await.expect("asked").is_none());
            assert!(lock.try_acquire_for(SOON).await.expect("asked").is_none());
            drop(tokio::time::timeout(SOON, lock.acquire()).await);
            drop(tokio::time::timeout(SOON, held.lost()).await);
            drop(held);
            lock.acquire().await.expect("granted").release().await.expect("released");
        }
        crate::drain().await;
        let books = store.ledger.books.lock();
        assert!(books.pages.is_empty() && books.names.is_empty(), "{books:?}");
    }
}
