//! What this client knows of its own claims.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::record::{Answer, Told};
use crate::claim::ById;
use crate::clock::Moment;
use crate::{Claim, ClaimId, Name, Standing};

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
    pub(super) stirred: Notify,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The last that was heard, asked or not.
    pub(super) standing: Option<Standing>,
    pub(super) is_next: bool,
    /// The highest token that an answer told of. A grant that was told and has no higher one was lost before that answer was
    /// given, in which the same claim may be in line anew.
    last: u64,
    /// When somebody's lease ends, as far as was told.
    pub(super) soonest: Option<Moment>,
    /// The epoch of the near link before the last question: what is told since then is heard, until the next.
    pub(super) near: u32,
    /// The last question about it that a script answered, and the epoch of the connection it named.
    pub(super) heard: Option<(Moment, u32)>,
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

    pub(super) fn end(&self, id: ClaimId) {
        let mut books = self.books.lock();
        let Some(page) = books.pages.remove(&id) else { return };
        if let Some(claims) = books.names.get_mut(&page.name) {
            claims.remove(&(page.number, id));
            if claims.is_empty() {
                books.names.remove(&page.name);
            }
        }
    }

    /// Whether no other claim of this client waits for the same name ahead of this one.
    pub(super) fn is_foremost(&self, page: &Page) -> bool {
        let books = self.books.lock();
        let Some(claims) = books.names.get(&page.name) else { return true };
        let mut ahead = claims.range(..(page.number, ClaimId::from_bytes([0; 16])));
        !ahead.any(|(_, id)| books.pages.get(id).is_some_and(|page| page.known().standing.is_none_or(is_queued)))
    }

    /// Takes note of what was told to the inbox.
    pub(super) fn told(&self, text: &str) {
        let Some((id, told)) = Told::parse(text) else { return };
        if let Some(page) = self.page(id) {
            page.told(&told);
        }
    }
}

impl Books {
    fn page(&mut self, claim: &Claim) -> Arc<Page> {
        if let Some(page) = self.pages.get(&claim.id) {
            return Arc::clone(page);
        }
        self.begun += 1;
        let (name, number) = (claim.name.clone(), self.begun);
        let page = Arc::new(Page { name, number, known: Mutex::default(), stirred: Notify::new() });
        self.pages.insert(claim.id, Arc::clone(&page));
        page
    }
}

fn is_queued(standing: Standing) -> bool {
    matches!(standing, Standing::Queued { .. })
}

impl Page {
    pub(super) fn known(&self) -> Known {
        self.known.lock().clone()
    }

    /// Takes note of an answer to a question sent at `asked`, which named the connection of `epoch`, while the near link
    /// was in its epoch `near`.
    pub(super) fn answered(&self, answer: &Answer, asked: Moment, epoch: u32, near: u32) {
        let mut known = self.known.lock();
        known.near = near;
        known.last = known.last.max(answer.last);
        // What was pushed may be read before the answer that was given before it.
        if !is_queued(answer.standing) || known.standing.is_none_or(|told| is_queued(told) || known.is_late(told)) {
            known.standing = Some(answer.standing);
        }
        known.is_next |= answer.is_next;
        known.soonest = answer.soonest.map(|soonest| Moment::now().after(soonest));
        if answer.standing != Standing::Gone {
            known.heard(asked, epoch);
        }
    }

    /// Takes note of a renewal.
    pub(super) fn renewed(&self, asked: Moment, epoch: u32) {
        self.known.lock().heard(asked, epoch);
    }

    pub(super) fn gone(&self) {
        self.told(&Told::Gone);
    }

    fn told(&self, told: &Told) {
        {
            let mut known = self.known.lock();
            match *told {
                Told::Held(token) => {
                    let told = Standing::Held { token };
                    if known.is_late(told) {
                        return;
                    }
                    known.standing = Some(told);
                }
                Told::Gone => known.standing = Some(Standing::Gone),
                Told::Next => {
                    known.is_next = true;
                    known.soonest = None;
                }
            }
        }
        self.stirred.notify_waiters();
    }
}

impl Known {
    fn is_late(&self, told: Standing) -> bool {
        told.token().is_some_and(|token| token.get() <= self.last)
    }

    fn heard(&mut self, asked: Moment, epoch: u32) {
        if self.heard.is_none_or(|(before, _)| before <= asked) {
            self.heard = Some((asked, epoch));
        }
    }

    /// How much of the lease is left at `now`, less what two clocks may differ in rate over what has passed.
    pub(super) fn lease_left(&self, lease: Duration, now: Moment) -> Duration {
        let Some((asked, _)) = self.heard else { return Duration::ZERO };
        let passed = now.since(asked);
        lease.saturating_sub(passed).saturating_sub(passed / 2_000)
    }
}
