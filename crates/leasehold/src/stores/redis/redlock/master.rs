//! One master: its links, and whether its votes count.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tokio::runtime::Handle;

use super::super::address::Address;
use super::super::greeting::{self, ServerClock};
use super::super::link::{Greet, Greeting, Link, Plan, State};
use super::super::script;
use super::super::session::{Ear, Session};
use super::super::trouble;
use super::address::Terms;
use super::record::{MARK, SINCE, millis};
use crate::clock::Moment;
use crate::{Error, Result};

#[derive(Debug)]
pub(super) struct Master {
    pub(super) near: Link,
    pub(super) far: Link,
    pub(super) place: String,
    pub(super) clock: Arc<ServerClock>,
    pub(super) trust: Arc<Trust>,
    /// It has not answered in time, and nothing since: nobody waits for it but if it takes it to decide.
    pub(super) silent: AtomicBool,
}

/// What is known of a master's memory.
///
/// A master that was restarted or emptied may have forgotten whose vote it gave. For as long as a lease may last, its votes do not
/// count: until then whatever it has forgotten is over. It is told from one that remembers by its mark, a key that goes with all
/// the others and names the run of the server.
#[derive(Debug)]
pub(super) struct Trust {
    place: String,
    is_one_of_several: bool,
    runs: Arc<Runs>,
    terms: Terms,
    known: Mutex<Option<Known>>,
    is_duplicate: AtomicBool,
}

/// Which run of a server each master is, by its place.
pub(super) type Runs = Mutex<HashMap<String, String>>;

#[derive(Clone, Debug)]
struct Known {
    mark: Greeting,
    /// From when on votes of a master with this mark count.
    from: Moment,
}

impl Master {
    pub(super) fn keep(
        address: &Address,
        terms: Terms,
        runs: Arc<Runs>,
        client: &str,
        ear: Ear,
        home: Option<Handle>,
    ) -> Self {
        let clock = Arc::<ServerClock>::default();
        let is_one_of_several = terms.longest_lease < Duration::MAX;
        let (place, known) = (address.to_string(), Mutex::default());
        let is_duplicate = AtomicBool::new(false);
        let trust = Arc::new(Trust { place, is_one_of_several, runs, terms, known, is_duplicate });
        let greet = greet(Arc::clone(&clock), Arc::clone(&trust));
        let plan = |channel: &str, ear: Ear, home| Plan {
            address: address.clone(),
            channel: format!("leasehold:{channel}:{client}"),
            ear,
            greet: Arc::clone(&greet),
            home,
        };
        let near = Link::keep(plan("inbox", ear, home));
        let far = Link::keep(plan("far", Arc::new(|_, _| {}), None));
        Self { near, far, place: address.to_string(), clock, trust, silent: AtomicBool::new(false) }
    }

    /// Waits until both links have been tried.
    pub(super) async fn first(&self) -> Result<()> {
        self.far.first().await?;
        self.near.first().await
    }

    pub(super) fn link(&self, near: bool) -> &Link {
        if near { &self.near } else { &self.far }
    }

    /// The session there is, with the mark it was greeted with; else why there is none.
    pub(super) fn session(&self, near: bool) -> Result<(Arc<Session>, Greeting)> {
        self.link(near).with_state(|state| match state {
            State::Up(session, mark) if !session.is_over() => Ok((Arc::clone(session), mark.clone())),
            State::Down(_, error) => Err(error.clone()),
            State::Connecting | State::Up(..) => Err(Error::unavailable("the server does not answer")),
        })
    }
}

impl Master {
    /// Ends both connections: each is greeted anew.
    #[cold]
    pub(super) fn distrust(&self) {
        for link in [&self.near, &self.far] {
            link.with_state(|state| {
                if let State::Up(session, _) = state {
                    session.poison();
                }
            });
        }
    }
}

impl Trust {
    /// Whether a vote counts that was given on a connection with this mark, and found it there or not.
    pub(super) fn counts(&self, mark: &Greeting, found: bool) -> bool {
        if !self.terms.quarantine {
            return true;
        }
        let known = self.known.lock();
        found && known.as_ref().is_some_and(|known| known.mark == *mark && known.from <= Moment::now())
    }

    /// For how long its votes do not count yet.
    pub(super) fn quarantine(&self) -> Duration {
        let known = self.known.lock();
        let from = known.as_ref().filter(|_| self.terms.quarantine).map(|known| known.from);
        from.map_or(Duration::ZERO, |from| from.since(Moment::now()))
    }

    /// No two masters may be one server.
    fn is_apart(&self, run: &str) -> Result<()> {
        let mut runs = self.runs.lock();
        if let Some((other, _)) =
            runs.iter().find(|(place, known)| **place != self.place && !run.is_empty() && *known == run)
        {
            self.is_duplicate.store(true, Ordering::Release);
            return Err(Error::invalid(format!("{other} and {} are one and the same server", self.place))
                .remedy("name each master once"));
        }
        runs.insert(self.place.clone(), run.to_owned());
        Ok(())
    }

    /// Whether it was refused for being a server that has another name here.
    pub(super) fn is_duplicate(&self) -> bool {
        self.is_duplicate.load(Ordering::Acquire)
    }

    /// Takes note of a mark, and from when on votes with it count. A master that has kept its mark has forgotten nothing
    /// since it was first trusted, whatever its clock says of the mark's age.
    fn learn(&self, mark: Greeting, from: Moment) {
        let mut known = self.known.lock();
        let earlier = known.as_ref().filter(|known| known.mark == mark).map(|known| known.from);
        let from = earlier.map_or(from, |earlier| earlier.min(from));
        *known = Some(Known { mark, from });
    }

    /// Whether it has ever been greeted, and its clock asked.
    pub(super) fn is_known(&self) -> bool {
        self.known.lock().is_some()
    }
}

fn greet(clock: Arc<ServerClock>, trust: Arc<Trust>) -> Greet {
    Arc::new(move |session: Arc<Session>| {
        let (clock, trust) = (Arc::clone(&clock), Arc::clone(&trust));
        Box::pin(async move {
            let role = greeting::about(&session, "replication").await?;
            if trust.is_one_of_several && greeting::field(&role, "role") == Some("slave") {
                return Err(Error::invalid(format!("{} is a replica, which has no vote of its own", trust.place))
                    .remedy("name masters that know nothing of each other"));
            }
            greeting::greet(&session, &clock).await?;
            let about = greeting::about(&session, "server").await?;
            let run = greeting::field(&about, "run_id").unwrap_or_default().to_owned();
            trust.is_apart(&run)?;
            let mark = if trust.terms.quarantine { Some(mark(&session, &run, &trust).await?) } else { None };
            let (mark, from) = mark.map_or((None, Moment::now()), |(mark, from)| (Some(mark), from));
            trust.learn(mark.clone(), from);
            Ok(mark)
        })
    })
}

/// Reads the mark, or sets it; and from when on it says that nothing is forgotten.
async fn mark(session: &Session, run: &str, trust: &Trust) -> Result<(Arc<str>, Moment)> {
    if run.is_empty() {
        return Err(Error::unsupported("the user may not ask whether the master was restarted")
            .remedy("allow +info, or say quarantine=off if no master ever forgets what it has answered"));
    }
    let longest = millis(trust.terms.longest_lease);
    let answer = script::MARK.run(session, &[MARK, SINCE], &[run, &longest.to_string()]).await?;
    let (mark, age, theirs): (String, u64, u64) = redis::from_redis_value(answer).map_err(|_| trouble::strange())?;
    if theirs != longest {
        return Err(Error::mismatch(format!("others use longest-lease={theirs}ms with this master, not {longest}ms"))
            .remedy(format!(
                "use the same everywhere; to change it, stop all clients and delete {MARK} on every master"
            )));
    }
    // What two clocks differ in rate, and a little for their grain.
    let wait = trust.terms.longest_lease.mul_f64(1.01) + Duration::from_millis(10);
    let from = Moment::now().after(wait.saturating_sub(Duration::from_micros(age)));
    Ok((mark.into(), from))
}

/// The text of an answer.
pub(super) fn text(answer: Value) -> Result<String> {
    redis::from_redis_value(answer).map_err(|_| trouble::strange())
}
