//! The list of all metrics.

use metrics::{
    Unit, describe_counter as counter, describe_gauge as gauge, describe_histogram as histogram,
};

/// The definition of one metric.
///
/// ```
/// for metric in leasehold::metrics::ALL {
///     println!("{}: {}", metric.name, metric.description);
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// The name, with its unit at the end.
    pub name: &'static str,
    /// How the values add up.
    pub kind: MetricKind,
    /// The names of the labels.
    pub labels: &'static [&'static str],
    /// What it measures.
    pub description: &'static str,
}

/// How the values of a metric add up.
///
/// ```
/// use leasehold::metrics::{ALL, MetricKind};
/// let counters = ALL.iter().filter(|metric| metric.kind == MetricKind::Counter);
/// for counter in counters {
///     println!("{} only rises", counter.name);
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// A number that only rises.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// The distribution of durations or lengths.
    Histogram,
}

impl Metric {
    pub(super) fn describe(&self) {
        let unit = self.unit();
        match self.kind {
            MetricKind::Counter => counter!(self.name, unit, self.description),
            MetricKind::Gauge => gauge!(self.name, unit, self.description),
            MetricKind::Histogram => histogram!(self.name, unit, self.description),
        }
    }

    fn unit(&self) -> Unit {
        if self.name.ends_with("_seconds") {
            Unit::Seconds
        } else {
            Unit::Count
        }
    }
}

pub(super) const ACQUIRES: &str = "leasehold_acquires_total";
pub(super) const WAIT: &str = "leasehold_wait_seconds";
pub(super) const HOLD: &str = "leasehold_hold_seconds";
pub(super) const LOSSES: &str = "leasehold_losses_total";
pub(super) const MISSED: &str = "leasehold_hand_overs_missed_total";
pub(super) const QUEUE: &str = "leasehold_queue_length";
pub(super) const CLAIMS: &str = "leasehold_claims";
pub(super) const RENEWALS: &str = "leasehold_renewals_total";
pub(super) const REQUESTS: &str = "leasehold_requests_total";
pub(super) const REQUEST: &str = "leasehold_request_seconds";
pub(super) const OUTAGES: &str = "leasehold_outages_total";
pub(super) const RECONNECTS: &str = "leasehold_reconnects_total";

/// Every metric that the library records.
pub const ALL: &[Metric] = &[
    Metric {
        name: ACQUIRES,
        kind: MetricKind::Counter,
        labels: &["store", "lock", "outcome"],
        description: "Acquires that have ended, by their outcome",
    },
    Metric {
        name: WAIT,
        kind: MetricKind::Histogram,
        labels: &["store", "lock"],
        description: "Time from the call of acquire to the grant",
    },
    Metric {
        name: HOLD,
        kind: MetricKind::Histogram,
        labels: &["store", "lock"],
        description: "Time from the grant to the release or the loss",
    },
    Metric {
        name: LOSSES,
        kind: MetricKind::Counter,
        labels: &["store", "lock", "reason"],
        description: "Holds that were lost, by the reason of the loss",
    },
    Metric {
        name: MISSED,
        kind: MetricKind::Counter,
        labels: &["store", "lock"],
        description: "Grants that had expired before the waiter could use them",
    },
    Metric {
        name: QUEUE,
        kind: MetricKind::Histogram,
        labels: &["store", "lock"],
        description: "Claims ahead of a claim that enters a queue and has to wait",
    },
    Metric {
        name: CLAIMS,
        kind: MetricKind::Gauge,
        labels: &["store", "state"],
        description: "Claims of this process that wait or are held",
    },
    Metric {
        name: RENEWALS,
        kind: MetricKind::Counter,
        labels: &["store", "outcome"],
        description: "Renewals of single claims, by their outcome",
    },
    Metric {
        name: REQUESTS,
        kind: MetricKind::Counter,
        labels: &["store", "operation", "outcome"],
        description: "Requests to the store, by operation and outcome",
    },
    Metric {
        name: REQUEST,
        kind: MetricKind::Histogram,
        labels: &["store", "operation"],
        description: "Time from a request to its reply or its failure",
    },
    Metric {
        name: OUTAGES,
        kind: MetricKind::Counter,
        labels: &["store"],
        description: "Changes of the store from reachable to unreachable",
    },
    Metric {
        name: RECONNECTS,
        kind: MetricKind::Counter,
        labels: &["service"],
        description: "Connections or sessions that replaced one that had ended",
    },
];
