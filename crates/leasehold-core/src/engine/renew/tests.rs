//! The renewal task, its schedule and its intervals.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use async_trait::async_trait;
use leasehold_conformance::support::within_timeout;
use tracing::Subscriber;
use tracing::span::{Id, Record};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, Registry};

use super::schedule::{PAUSE_MIN, retry_delay};
use super::*;
use crate::engine::Engine;
use crate::engine::calls::REPLY_TIMEOUT;
use crate::engine::validity::Limit;
use crate::runtime::background;
use crate::store::{Intercept, Intercepted, claimant_here};
use crate::stores::Memory;
use crate::{Error, Locks, Name, OnContention, Share, Store};

fn claim(name: &str) -> Claim {
    let name = Name::parse(name).expect("a valid name");
    let info = claimant_here("").expect("a valid label");
    Claim::new(name, Share::MUTEX, info.into())
}

fn validity(claim: &Claim) -> Arc<Validity> {
    let claim = Arc::new(claim.clone());
    Arc::new(Validity::held(claim, BootInstant::FAR_FUTURE))
}

/// Shows G-24.
#[test]
fn renew_interval_follows_phase_and_bound() {
    const SECOND: Duration = Duration::from_secs(1);
    let claim = Arc::new(claim("a"));
    let sent_at = BootInstant::now();
    let held = Validity::held(Arc::clone(&claim), BootInstant::FAR_FUTURE);
    let waiting = Validity::waiting(claim, BootInstant::FAR_FUTURE);

    let cases = [
        ("a tenth of a short grace", &held, 2 * SECOND, 199),
        ("a tenth of the default grace", &held, 10 * SECOND, 999),
        ("at most a second", &held, 20 * SECOND, 1_000),
        ("a tenth of the lease", &held, 30 * SECOND, 3_000),
        ("a third of the lease", &held, Duration::MAX, 10_000),
        ("a third while it waits", &waiting, 30 * SECOND, 9_994),
        (
            "a pause after the last of a hold",
            &held,
            Duration::ZERO,
            10,
        ),
        (
            "a pause after the last of a wait",
            &waiting,
            Duration::ZERO,
            10,
        ),
    ];
    for (case, validity, lease, expected) in cases {
        let until = sent_at.saturating_add(safe_duration(lease));
        let interval = renew_interval(validity, sent_at, until);
        assert_eq!(interval.as_millis(), expected, "{case}");
    }
}

#[test]
fn reply_is_awaited_until_a_retry_is_possible() {
    let now = BootInstant::now();
    let ends_in = |millis| {
        let expires_at = now.saturating_add(Duration::from_millis(millis));
        Arc::new(Validity::held(Arc::new(claim("a")), expires_at))
    };
    for (millis_left, expected) in [
        (&[6][..], PAUSE_MIN),
        (&[60_000], REPLY_TIMEOUT),
        (&[60_000, 3_000, 30_000], Duration::from_secs(1)),
    ] {
        let validities: Vec<_> = millis_left.iter().copied().map(ends_in).collect();
        let limit = reply_timeout(&validities, now);
        assert_eq!(limit, expected, "{millis_left:?} ms before the ends");
    }
}

#[test]
fn retry_is_sooner_for_a_short_lease_and_before_the_end() {
    let now = BootInstant::now();
    for (lease, left, expected) in [
        (30_000, 30_000, 500),
        (3_000, 3_000, 100),
        (30_000, 4_000, 200),
        (30_000, 100, 10),
    ] {
        let mut claim = claim("a");
        claim.lease = Duration::from_millis(lease);
        let end = now.saturating_add(Duration::from_millis(left));
        let delay = retry_delay(&Validity::held(Arc::new(claim), end), now);
        assert_eq!(delay, Duration::from_millis(expected), "{lease} {left}");
    }
}

/// The end of a `max_hold` is no reason to take a reply for missing: the claim goes on after it.
#[test]
fn reply_is_awaited_beyond_the_end_of_a_max_hold() {
    let now = BootInstant::now();
    let after = |millis| now.saturating_add(Duration::from_millis(millis));
    let limit = Limit {
        at: after(60),
        reason: LossReason::MaxHoldExceeded,
    };
    let validity = Validity::held(Arc::new(claim("a")), after(60_000)).with_limit(limit);

    assert_eq!(retry_delay(&validity, now), Duration::from_millis(500));
    assert_eq!(reply_timeout(&[Arc::new(validity)], now), REPLY_TIMEOUT);
}

#[test]
fn claims_due_soon_are_renewed_together() {
    let renewals = Renewals::default();
    let now = BootInstant::now();
    for (name, millis_ago) in [("a", 3_000), ("b", 2_950), ("c", 2_000)] {
        let sent_at = now.before(Duration::from_millis(millis_ago));
        let expires_at = sent_at.saturating_add(Duration::from_secs(30));
        let validity = Validity::held(Arc::new(claim(name)), expires_at);
        renewals.add(Arc::new(validity), sent_at);
    }

    let due = renewals.due().validities;
    let names: Vec<_> = due.iter().map(|due| due.claim.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);

    let due = renewals.due().validities;
    assert!(due.is_empty(), "their renewal is under way");
}

/// A request without a reply is a reason to renew at once, and thousands of them are one.
#[test]
fn renewals_are_hastened_at_most_once_a_second() {
    let renewals = Renewals::default();
    let now = BootInstant::now();
    let add = |name: &str| {
        let expires_at = now.saturating_add(Duration::from_secs(30));
        let validity = Validity::held(Arc::new(claim(name)), expires_at);
        renewals.add(Arc::new(validity), now);
    };

    add("a");
    assert!(renewals.due().validities.is_empty(), "it is early");
    renewals.hasten();
    assert_eq!(renewals.due().validities.len(), 1);
    add("b");
    renewals.hasten();
    assert!(renewals.due().validities.is_empty(), "it is hastened again");
}

#[test]
fn claim_that_has_left_is_not_renewed() {
    let renewals = Renewals::default();
    let sent_at = BootInstant::now().before(Duration::from_secs(5));
    let claims = [claim("a"), claim("b")];
    for claim in &claims {
        let expires_at = sent_at.saturating_add(Duration::from_secs(30));
        let validity = Validity::held(Arc::new(claim.clone()), expires_at);
        renewals.add(Arc::new(validity), sent_at);
    }
    renewals.remove(claims[0].id);

    let due = renewals.due().validities;
    let names: Vec<_> = due.iter().map(|due| due.claim.name.as_str()).collect();
    assert_eq!(names, ["b"]);
}

/// A store that rejects each renewal in which one claim has a damaged queue.
#[derive(Debug)]
struct DamagedQueue {
    store: Memory,
    damaged: Name,
}

#[async_trait]
impl Intercept for DamagedQueue {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        if claims.iter().any(|claim| claim.name == self.damaged) {
            return Err(Error::damaged("the queue is damaged"));
        }
        self.store.renew(claims).await
    }
}

#[tokio::test]
async fn damaged_queue_does_not_block_other_renewals() {
    let damaged = claim("a");
    let broken = claim("b");
    let store = DamagedQueue {
        store: Memory::new(),
        damaged: damaged.name.clone(),
    };

    let renewals = Renewals::default();
    let kept = validity(&damaged);
    let held = validity(&broken);
    let validities = vec![Arc::clone(&kept), Arc::clone(&held)];
    let calls = StoreCalls::new(Arc::new(Intercepted(store)), "memory:");
    background::start().expect("the background thread runs");
    background::on_background(round(calls, &renewals, validities)).await;

    assert_eq!(held.ending(), Some(End::Lost(LossReason::Revoked)));
    assert_eq!(kept.ending(), None, "no reply is about it");
}

/// A store that sends no reply about all claims but one, and refuses to renew several at once.
#[derive(Debug)]
struct SilentAboutOthers {
    store: Memory,
    kept: Name,
}

#[async_trait]
impl Intercept for SilentAboutOthers {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        match claims {
            [claim] if claim.name == self.kept => self.store.renew(claims).await,
            [_] => std::future::pending().await,
            _ => Err(Error::damaged("a queue is damaged")),
        }
    }
}

/// Shows G-13.
#[tokio::test]
async fn requests_without_reply_leave_time_to_renew_the_last_claim() {
    let claims = ["a", "b", "c", "d"].map(claim);
    let store = SilentAboutOthers {
        store: Memory::new(),
        kept: claims[3].name.clone(),
    };
    let entered = store.store.enter(&claims[3], OnContention::Queue).await;
    entered.expect("the store replies");

    let expires_at = BootInstant::now().saturating_add(Duration::from_millis(900));
    let validities = claims.map(|claim| Arc::new(Validity::held(Arc::new(claim), expires_at)));
    let calls = StoreCalls::new(Arc::new(Intercepted(store)), "memory:");
    background::start().expect("the background thread runs");
    let renewals = Renewals::default();
    let renewing = round(calls, &renewals, validities.to_vec());
    background::on_background(renewing).await;

    assert_eq!(validities[3].ending(), None, "it was renewed too late");
}

/// A renewal of the waiting claim is under way. The claim is granted and broken; then the reply
/// arrives.
#[tokio::test]
async fn hold_is_revoked_by_reply_to_its_waiting_renewal() {
    let claim = claim("a");
    let store = Memory::new();
    let entered = store.enter(&claim, OnContention::Queue).await;
    entered.expect("the store replies");

    let renewals = Renewals::default();
    let waiting = validity(&claim);
    renewals.add(Arc::clone(&waiting), BootInstant::now());
    let calls = StoreCalls::new(Arc::new(store.clone()), "memory:");
    let renewing = round(calls, &renewals, vec![waiting]);

    let held = validity(&claim);
    renewals.add(Arc::clone(&held), BootInstant::now());
    store.leave(&claim).await.expect("the store replies");
    background::start().expect("the background thread runs");
    background::on_background(renewing).await;

    assert_eq!(held.ending(), Some(End::Lost(LossReason::Revoked)));
}

/// A renewal of the waiting claim is under way, and the claim is granted. The store keeps the hold
/// for less time than the waiting claim, for which the reply states a whole lease.
///
/// Shows G-12.
#[tokio::test]
async fn hold_is_not_extended_by_reply_to_its_waiting_renewal() {
    let claim = Arc::new(claim("a"));
    let store = Memory::new();
    let entered = store.enter(&claim, OnContention::Queue).await;
    entered.expect("the store replies");

    let renewals = Renewals::default();
    let expires_at = BootInstant::now().saturating_add(claim.lease / 3);
    let waiting = Arc::new(Validity::waiting(Arc::clone(&claim), expires_at));
    renewals.add(Arc::clone(&waiting), BootInstant::now());
    let calls = StoreCalls::new(Arc::new(store), "memory:");
    let renewing = round(calls, &renewals, vec![waiting]);

    let held = Arc::new(Validity::held(claim, expires_at));
    renewals.add(Arc::clone(&held), BootInstant::now());
    background::start().expect("the background thread runs");
    background::on_background(renewing).await;

    assert_eq!(held.expires_at(), expires_at);
}

/// Looks for due claims while the end of a hold is recorded, as the task may do.
struct LookAtEnds(Arc<Engine>);

impl<S: Subscriber> Layer<S> for LookAtEnds {
    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        if format!("{values:?}").contains("hold_ms") {
            self.0.renewals.hasten();
            drop(self.0.renewals.due());
        }
    }
}

/// Shows G-53.
#[tokio::test]
async fn hold_that_is_due_while_it_is_passed_on_is_not_lost() {
    let locks = Locks::from_store(Memory::new(), "memory:").expect("it starts");
    let engine = &locks.engine;
    let layer = LookAtEnds(Arc::clone(engine));
    let _subscriber = tracing::subscriber::set_default(Registry::default().with(layer));

    let lock = locks.mutex("a").cohort(8);
    let first = lock.acquire().await.expect("granted");
    let releasing = async {
        while engine.local_waiters("a") == 0 {
            tokio::task::yield_now().await;
        }
        first.release().await
    };
    let (released, second) = tokio::join!(releasing, lock.acquire());

    released.expect("it is passed on");
    let second = second.expect("granted");
    second.check().expect("it is valid");
    second.release().await.expect("released");
}

/// A store whose requests panic once.
#[derive(Debug, Default)]
struct Panics {
    store: Memory,
    renew: AtomicBool,
    leave: AtomicBool,
}

#[async_trait]
impl Intercept for Panics {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        assert!(!self.renew.swap(false, SeqCst), "the test lets it panic");
        self.store.renew(claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        assert!(!self.leave.swap(false, SeqCst), "the test lets it panic");
        self.store.leave(claim).await
    }
}

/// Shows G-13.
#[tokio::test]
async fn hold_is_renewed_after_a_panic_of_the_renewal_task() {
    const LEASE: Duration = Duration::from_secs(2);
    let store = Panics {
        renew: true.into(),
        ..Panics::default()
    };
    let locks = Locks::from_store(Intercepted(store), "memory:").expect("it starts");
    let held = locks.mutex("a").lease(LEASE).acquire().await;
    let held = held.expect("granted");

    // Time has to pass here: without renewals the hold ends by its lease.
    tokio::time::sleep(LEASE + LEASE / 2).await;
    held.check().expect("it is renewed");
}

/// Shows G-10.
#[tokio::test]
async fn dropped_hold_leaves_after_a_panic_of_its_departure() {
    let store = Memory::default();
    let panics = Panics {
        store: store.clone(),
        leave: true.into(),
        ..Panics::default()
    };
    let ours = Locks::from_store(Intercepted(panics), "memory:").expect("it starts");
    let theirs = Locks::from_store(store, "memory:").expect("it starts");

    let hours = Duration::from_secs(10_000);
    let held = ours.mutex("a").lease(hours).acquire().await;
    drop(held.expect("granted"));
    let next = within_timeout("it has left", theirs.mutex("a").acquire()).await;
    drop(next.expect("granted"));
}
