//! What this client knows of its own claims. Those that wait are known to it alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use super::record::{Keys, Told};
use super::rule::quorum;
use crate::claim::ById;
use crate::clock::Moment;
use crate::{Claim, ClaimId, Entry, Name, Note, Standing, Token};

/// How many names are remembered with the highest token seen. Forgetting costs a round.
const NAMES_MAX: usize = 4096;

/// How long whoever was told that a lock is free is given to take it: a few round trips.
const COURTESY: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
pub(super) struct Pages {
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    pages: ById<Arc<Page>>,
    /// Who waits for a key, in the order in which they came.
    waiting: HashMap<Arc<str>, Vec<Arc<Page>>>,
    highest: HashMap<Name, u64>,
    /// Until when a key is left to somebody who waits for it.
    left: HashMap<Arc<str>, Moment>,
    /// With so many pages those are looked for that nobody closed.
    sweep_at: usize,
}

/// One claim, from its first request to its last.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) claim: Claim,
    /// By the masters' clocks, in microseconds.
    pub(super) since: u64,
    pub(super) keys: Keys,
    key: Arc<str>,
    known: Mutex<Known>,
    /// Something has happened that somebody who waits should look at.
    pub(super) stirred: Notify,
    /// Where a master keeps nothing by which a late request can be refused, it is asked about this claim one thing after another.
    pub(super) lanes: Vec<Arc<AsyncMutex<()>>>,
}

#[derive(Debug)]
struct Known {
    standing: Standing,
    /// The highest token that was proposed.
    highest: u64,
    /// The highest token that a master has answered.
    answered: u64,
    /// Since when a question is under way that may grant.
    asking: Option<Moment>,
    /// A claim that waits is kept here until then.
    until: Moment,
    /// Whether it has waited and not been granted.
    waited: bool,
    /// Masters that have told something since the last question, a bit each.
    told: u32,
    /// Until when the vote of each master counts for the highest token: as long as a lease from before it was asked.
    votes: Vec<Option<Moment>>,
    /// Masters on which it was broken: they are not asked to give it again.
    broken: u32,
    /// How often it was asked to be kept, and the last time that was won.
    renewals: u32,
    renewed: u32,
}

impl Pages {
    /// The page of a claim, made if there is none.
    pub(super) fn begin(&self, claim: &Claim, keys: Keys, lanes: usize, since: u64) -> Arc<Page> {
        let mut books = self.books.lock();
        if let Some(page) = books.pages.get(&claim.id) {
            return Arc::clone(page);
        }
        if books.pages.len() >= books.sweep_at {
            books.sweep();
        }
        let known = Known {
            standing: Standing::Gone,
            highest: 0,
            answered: 0,
            asking: None,
            until: Moment::NEVER,
            waited: false,
            told: 0,
            votes: Vec::new(),
            broken: 0,
            renewals: 0,
            renewed: 0,
        };
        let lanes = (0..lanes).map(|_| Arc::default()).collect();
        let (key, known, claim) = (keys.lock.as_str().into(), Mutex::new(known), claim.clone());
        let page = Arc::new(Page { claim, since, keys, key, known, stirred: Notify::new(), lanes });
        books.pages.insert(page.claim.id, Arc::clone(&page));
        page
    }

    pub(super) fn page(&self, id: ClaimId) -> Option<Arc<Page>> {
        self.books.lock().pages.get(&id).map(Arc::clone)
    }

    /// It waits from now on, behind those of this client that wait already.
    pub(super) fn wait(&self, page: &Arc<Page>, until: Moment) {
        let mut books = self.books.lock();
        {
            let mut known = page.known.lock();
            (known.standing, known.until, known.waited) = (Standing::Queued { ahead: 1 }, until, true);
        }
        let waiting = books.waiting.entry(Arc::clone(&page.key)).or_default();
        if !waiting.iter().any(|other| Arc::ptr_eq(other, page)) {
            waiting.push(Arc::clone(page));
        }
    }

    /// It holds. Only now is the question over that granted it: a renewal of the waiting claim must not count from later.
    pub(super) fn hold(&self, page: &Arc<Page>, token: Token) {
        {
            let mut known = page.known.lock();
            (known.standing, known.waited) = (Standing::Held { token }, false);
            known.asking = None;
        }
        self.books.lock().stop_waiting(page);
    }

    /// It is over for this client; what masters have of it is remembered until [`forget`](Self::forget).
    pub(super) fn close(&self, id: ClaimId) -> Option<Arc<Page>> {
        let mut books = self.books.lock();
        let page = books.pages.get(&id).map(Arc::clone)?;
        books.stop_waiting(&page);
        {
            let mut known = page.known.lock();
            (known.standing, known.until) = (Standing::Gone, Moment::now().after(page.claim.lease));
        }
        page.stirred.notify_waiters();
        Some(page)
    }

    pub(super) fn forget(&self, id: ClaimId) {
        self.books.lock().pages.remove(&id);
    }

    /// Whether nobody else of this client waits for the same ahead of it.
    pub(super) fn is_foremost(&self, page: &Page) -> bool {
        let books = self.books.lock();
        let first = books.waiting.get(&page.key).and_then(|waiting| waiting.first());
        first.is_none_or(|first| first.claim.id == page.claim.id)
    }

    /// Whether anybody of this client waits for what this one wants.
    pub(super) fn is_wanted(&self, key: &str) -> bool {
        self.books.lock().waiting.contains_key(key)
    }

    /// Those of this client that wait for a name.
    pub(super) fn waiters(&self, key: &str, now: Moment) -> Vec<Entry> {
        let books = self.books.lock();
        let waiting = books.waiting.get(key).map(Vec::as_slice).unwrap_or_default();
        let alive = waiting.iter().filter(|page| page.known.lock().until > now);
        alive
            .zip(1..)
            .map(|(page, ahead)| Entry {
                id: page.claim.id,
                share: page.claim.share,
                standing: Standing::Queued { ahead },
                note: Note::clone(&page.claim.note),
            })
            .collect()
    }

    /// Takes note of what a master has told.
    pub(super) fn told(&self, master: usize, text: &str) {
        match Told::parse(text) {
            Some(Told::Free(key)) => self.freed(master, key),
            Some(Told::Gone(id)) => {
                if let Some(page) = self.page(id) {
                    {
                        let mut known = page.known.lock();
                        (known.told, known.broken) = (known.told | 1 << master, known.broken | 1 << master);
                    }
                    page.stirred.notify_waiters();
                }
            }
            None => {}
        }
    }

    /// A master has a lock free.
    pub(super) fn freed(&self, master: usize, key: &str) {
        let books = self.books.lock();
        if let Some(first) = books.waiting.get(key).and_then(|waiting| waiting.first()) {
            first.known.lock().told |= 1 << master;
            first.stirred.notify_waiters();
        }
    }

    /// Somebody was told that the lock is free.
    pub(super) fn handed_over(&self, key: &str) {
        let mut books = self.books.lock();
        if books.left.len() >= NAMES_MAX {
            books.left.clear();
        }
        books.left.insert(key.into(), Moment::now().after(COURTESY));
    }

    /// For how long the lock is left to another, who waits for it.
    pub(super) fn courtesy(&self, key: &str) -> Duration {
        let mut books = self.books.lock();
        if books.left.is_empty() {
            return Duration::ZERO;
        }
        books.left.remove(key).map_or(Duration::ZERO, |until| until.since(Moment::now()))
    }

    /// The highest token seen of a name.
    pub(super) fn highest(&self, name: &Name) -> u64 {
        self.books.lock().highest.get(name).copied().unwrap_or(0)
    }

    pub(super) fn saw(&self, name: &Name, token: u64) {
        let mut books = self.books.lock();
        if let Some(highest) = books.highest.get_mut(name) {
            *highest = token.max(*highest);
            return;
        }
        if books.highest.len() >= NAMES_MAX {
            books.highest.clear();
        }
        books.highest.insert(name.clone(), token);
    }
}

impl Books {
    /// Claims that could not leave for as long as their lease are over by themselves.
    fn sweep(&mut self) {
        let now = Moment::now();
        self.pages.retain(|_, page| {
            let known = page.known.lock();
            known.standing != Standing::Gone || known.until > now
        });
        self.sweep_at = (self.pages.len() * 2).max(1024);
    }

    fn stop_waiting(&mut self, page: &Arc<Page>) {
        let Some(waiting) = self.waiting.get_mut(&page.key) else { return };
        waiting.retain(|other| !Arc::ptr_eq(other, page));
        match waiting.first() {
            // It looks for itself from now on.
            Some(first) => first.stirred.notify_waiters(),
            None => drop(self.waiting.remove(&page.key)),
        }
    }
}

impl Page {
    pub(super) fn standing(&self) -> Standing {
        self.known.lock().standing
    }

    /// Of a claim that waits: until when this client keeps it.
    pub(super) fn kept_until(&self) -> Moment {
        self.known.lock().until
    }

    pub(super) fn keep(&self, until: Moment) {
        self.known.lock().until = until;
    }

    pub(super) fn highest(&self) -> u64 {
        self.known.lock().highest
    }

    /// Whether it waited when it was closed.
    pub(super) fn has_waited(&self) -> bool {
        self.known.lock().waited
    }

    /// A question begins that may grant `token`.
    pub(super) fn asks(&self, token: u64) {
        let mut known = self.known.lock();
        (known.asking, known.told) = (Some(Moment::now()), 0);
        if known.highest != token {
            known.highest = known.highest.max(token);
            known.votes.clear();
        }
    }

    pub(super) fn asked(&self) {
        self.known.lock().asking = None;
    }

    /// Where the claim stands; a waiting one is kept for a lease from `question`. Also for how long from there the waiting
    /// claim is safe, `None` if its time is over.
    ///
    /// A question that is under way may have been granted when it was sent: a lease runs from there at the earliest.
    pub(super) fn standing_renewed(&self, question: Moment) -> (Standing, Option<Duration>) {
        let mut known = self.known.lock();
        let is_kept = matches!(known.standing, Standing::Queued { .. }) && known.until > question;
        if !is_kept {
            return (known.standing, None);
        }

        let lease = self.claim.lease;
        known.until = question.after(lease);
        let left = known.asking.map_or(lease, |asking| lease.saturating_sub(question.since(asking)));
        (known.standing, Some(left))
    }

    pub(super) fn answered(&self) -> u64 {
        self.known.lock().answered
    }

    /// A master has answered that its last token is this one.
    pub(super) fn saw(&self, last: u64) {
        let mut known = self.known.lock();
        known.answered = last.max(known.answered);
    }

    /// Until when a quorum of votes counts for the highest token.
    pub(super) fn quorum_until(&self, quorum: usize) -> Option<Moment> {
        let mut until: Vec<Moment> = self.known.lock().votes.iter().flatten().copied().collect();
        until.sort_unstable_by(|one, other| other.cmp(one));
        until.get(quorum - 1).copied()
    }

    pub(super) fn granted_by(&self, master: usize, token: u64, until: Moment) {
        let mut known = self.known.lock();
        if known.highest == token {
            let len = known.votes.len().max(master + 1);
            known.votes.resize(len, None);
            known.votes[master] = Some(until);
        }
    }

    /// Until when a master's vote counts for what is held.
    pub(super) fn vote_until(&self, master: usize) -> Option<Moment> {
        let known = self.known.lock();
        let held = known.standing.token().is_some();
        known.votes.get(master).copied().flatten().filter(|_| held)
    }

    /// How many votes count at a moment.
    pub(super) fn votes_at(&self, now: Moment) -> usize {
        self.known.lock().votes.iter().flatten().filter(|until| **until > now).count()
    }

    /// The number of a renewal that begins.
    pub(super) fn begin_renewal(&self) -> u32 {
        let mut known = self.known.lock();
        known.renewals += 1;
        known.renewals
    }

    /// Votes that were given again by this renewal, or an earlier one, count from the next on.
    pub(super) fn won_renewal(&self, number: u32) {
        let mut known = self.known.lock();
        known.renewed = known.renewed.max(number);
    }

    pub(super) fn is_broken_on(&self, master: usize) -> bool {
        self.known.lock().broken & 1 << master != 0
    }

    /// Whether a vote counts that this master gave by such a renewal, 0 being the grant. Between the loss of a vote and a renewal
    /// another may have held; so what was given again shows a hold only from when it is known that it has gone on without.
    pub(super) fn counts(&self, master: usize, renewal: u32) -> bool {
        let known = self.known.lock();
        renewal <= known.renewed && (renewal == 0 || known.broken & 1 << master == 0)
    }

    /// Whether any master has told something since the last question, and whether as many as decide have.
    pub(super) fn told(&self, masters: usize) -> (bool, bool) {
        let told = self.known.lock().told.count_ones() as usize;
        (told > 0, told >= quorum(masters))
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Format;
    use super::*;
    use crate::Share;

    fn page(pages: &Pages) -> Arc<Page> {
        let (name, note) = (Name::parse("a").expect("a good name"), Note::here("").expect("a good label"));
        let (share, lease, note) = (Share::MUTEX, Duration::from_secs(30), note.into());
        let claim = Claim { name, id: ClaimId::draw(), share, lease, renewed: true, note };
        let keys = Format::Fenced.keys(&claim.name).expect("a good name");
        pages.begin(&claim, keys, 0, 0)
    }

    /// It may have been granted when it was asked: what is renewed meanwhile is good for no longer than that grant.
    #[test]
    fn a_lease_runs_from_the_question_that_may_have_granted() {
        let pages = Pages::default();
        let page = page(&pages);
        pages.wait(&page, Moment::now().after(page.claim.lease));
        page.asks(5);
        let later = Moment::now().after(page.claim.lease / 3);
        let left = |page: &Page| page.standing_renewed(later).1.expect("it waits");
        assert!(left(&page) <= page.claim.lease * 2 / 3);
        page.asked();
        assert_eq!(left(&page), page.claim.lease);
    }

    /// A renewal that was sent for the waiting claim finds the hold, and says nothing of the waiting claim's lease.
    #[test]
    fn renewal_of_waiting_claim_that_holds_by_now_has_no_lease_of_its_own() {
        let pages = Pages::default();
        let page = page(&pages);
        pages.wait(&page, Moment::now().after(page.claim.lease));
        page.asks(5);
        let token = Token::new(5).expect("not 0");
        pages.hold(&page, token);
        assert_eq!(page.standing_renewed(Moment::now()), (Standing::Held { token }, None));
    }

    #[test]
    fn hold_without_renewal_is_safe_while_a_quorum_of_votes_counts() {
        let page = page(&Pages::default());
        page.asks(5);
        let now = Moment::now();
        let after = |seconds| now.after(Duration::from_secs(seconds));
        for (master, seconds) in [(0, 9), (1, 3), (4, 7)] {
            assert_eq!(page.quorum_until(3), None);
            page.granted_by(master, 5, after(seconds));
        }
        assert_eq!(page.quorum_until(3), Some(after(3)));
        page.granted_by(3, 5, after(5));
        assert_eq!(page.quorum_until(3), Some(after(5)));
    }
}
