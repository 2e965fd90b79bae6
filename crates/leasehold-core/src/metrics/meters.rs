//! The series of one open store. Each series is registered at its first use, and then kept: to
//! find it again in the recorder would take longer than to change it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use super::table;
use crate::metric_labels::{RenewalOutcome, RequestKind};
use crate::runtime::clock::BootInstant;
use crate::{LossReason, Name, Result};

/// The time just before a request is sent.
pub(crate) type Started = BootInstant;

/// Reads the clock just before a request is sent.
pub(crate) fn started() -> Started {
    BootInstant::now()
}

/// The meters of one open store.
#[derive(Debug)]
pub(crate) struct Meters {
    store: Arc<str>,
    patterns: Arc<[String]>,
    /// One for each pattern, and the last one for all other locks.
    locks: Vec<Arc<LockMeters>>,
    requests: [RequestMeters; 5],
    renewals: [OnceLock<Counter>; 3],
}

impl Meters {
    /// Creates the meters of the store at `url`, whose scheme is the label `store`.
    pub(crate) fn new(url: &str) -> Self {
        let store: Arc<str> = url.split(':').next().unwrap_or_default().into();
        let patterns = super::patterns();
        let labels = patterns.iter().map(String::as_str).chain(["other"]);

        Self {
            locks: labels
                .map(|label| Arc::new(LockMeters::new(&store, label)))
                .collect(),
            store,
            patterns,
            requests: Default::default(),
            renewals: Default::default(),
        }
    }

    /// Returns the meters of the locks that share the label of this one.
    pub(crate) fn lock(&self, name: &Name) -> &Arc<LockMeters> {
        let matching = self.patterns.iter().position(|one| matches(one, name));
        &self.locks[matching.unwrap_or(self.patterns.len())]
    }

    /// Records a request and its reply or failure.
    pub(crate) fn request<T>(&self, kind: RequestKind, started: Started, reply: &Result<T>) {
        let meters = &self.requests[kind as usize];
        let duration = BootInstant::now().duration_since(started);
        let register = || {
            let store = self.store.clone();
            histogram!(table::REQUEST, "store" => store, "operation" => kind.as_str())
        };
        meters.duration.get_or_init(register).record(duration);

        match reply {
            Ok(_) => {
                meters
                    .succeeded
                    .get_or_init(|| self.requests(kind, "ok"))
                    .increment(1);
            }
            Err(error) => self.requests(kind, error.kind().as_str()).increment(1),
        }
    }

    fn requests(&self, kind: RequestKind, outcome: &'static str) -> Counter {
        let store = self.store.clone();
        let operation = kind.as_str();
        counter!(
            table::REQUESTS, "store" => store, "operation" => operation, "outcome" => outcome
        )
    }

    pub(crate) fn renewal(&self, outcome: RenewalOutcome) {
        let counter = &self.renewals[outcome as usize];
        counter
            .get_or_init(|| {
                let store = self.store.clone();
                counter!(table::RENEWALS, "store" => store, "outcome" => outcome.as_str())
            })
            .increment(1);
    }

    pub(crate) fn outage(&self) {
        counter!(table::OUTAGES, "store" => self.store.clone()).increment(1);
    }
}

/// The meters of the locks that share a label.
#[derive(Debug)]
pub(crate) struct LockMeters {
    store: Arc<str>,
    label: Arc<str>,
    granted: OnceLock<Counter>,
    wait: OnceLock<Histogram>,
    hold: OnceLock<Histogram>,
    held: OnceLock<Gauge>,
    waiting: OnceLock<Gauge>,
}

impl LockMeters {
    fn new(store: &Arc<str>, label: &str) -> Self {
        Self {
            store: Arc::clone(store),
            label: label.into(),
            granted: OnceLock::new(),
            wait: OnceLock::new(),
            hold: OnceLock::new(),
            held: OnceLock::new(),
            waiting: OnceLock::new(),
        }
    }

    /// Records a grant after `waited`: from now on the lock is held.
    pub(crate) fn granted(&self, waited: Duration) {
        let register = || self.acquires("granted");
        self.granted.get_or_init(register).increment(1);
        self.wait
            .get_or_init(|| self.histogram(table::WAIT))
            .record(waited);
    }

    /// Records an acquire without a grant. It failed, or it found the lock held for too long.
    pub(crate) fn not_granted(&self, outcome: &'static str) {
        self.acquires(outcome).increment(1);
    }

    /// Records that a hold begins.
    pub(crate) fn hold_begins(&self) {
        self.claims(&self.held, "held").increment(1);
    }

    /// Records that a hold has ended after `held`.
    pub(crate) fn hold_ends(&self, held: Duration) {
        self.claims(&self.held, "held").decrement(1);
        self.hold
            .get_or_init(|| self.histogram(table::HOLD))
            .record(held);
    }

    /// Records that a hold that has ended was lost.
    pub(crate) fn lost(&self, reason: LossReason) {
        let store = self.store.clone();
        let label = self.label.clone();
        let reason = reason.as_str();
        counter!(table::LOSSES, "store" => store, "lock" => label, "reason" => reason).increment(1);
    }

    /// Records that a claim waits; the returned value ends the wait when it is dropped.
    pub(crate) fn waits(self: &Arc<Self>, ahead: u32) -> WaitingClaim {
        self.histogram(table::QUEUE).record(ahead);
        self.claims(&self.waiting, "waiting").increment(1);
        WaitingClaim(Arc::clone(self))
    }

    pub(crate) fn hand_over_missed(&self) {
        let store = self.store.clone();
        counter!(table::MISSED, "store" => store, "lock" => self.label.clone()).increment(1);
    }

    fn acquires(&self, outcome: &'static str) -> Counter {
        let store = self.store.clone();
        let label = self.label.clone();
        counter!(table::ACQUIRES, "store" => store, "lock" => label, "outcome" => outcome)
    }

    fn histogram(&self, name: &'static str) -> Histogram {
        histogram!(name, "store" => self.store.clone(), "lock" => self.label.clone())
    }

    fn claims<'a>(&self, gauge: &'a OnceLock<Gauge>, state: &'static str) -> &'a Gauge {
        gauge.get_or_init(|| gauge!(table::CLAIMS, "store" => self.store.clone(), "state" => state))
    }
}

/// A claim that waits. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct WaitingClaim(Arc<LockMeters>);

impl Drop for WaitingClaim {
    fn drop(&mut self) {
        self.0.claims(&self.0.waiting, "waiting").decrement(1);
    }
}

/// Records a connection or session that replaced one that had ended.
pub(crate) fn reconnected(service: &'static str) {
    counter!(table::RECONNECTS, "service" => service).increment(1);
}

#[derive(Debug, Default)]
struct RequestMeters {
    duration: OnceLock<Histogram>,
    succeeded: OnceLock<Counter>,
}

fn matches(pattern: &str, name: &Name) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.as_str().starts_with(prefix),
        None => name.as_str() == pattern,
    }
}
