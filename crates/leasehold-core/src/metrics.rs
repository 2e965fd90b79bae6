//! The metrics of the library, by the facade of the crate `metrics`.
//!
//! The program installs a recorder, for example that of `metrics-exporter-prometheus`, *before* it
//! opens a store. Without a recorder nothing is measured. [`ALL`] lists the metrics, and
//! docs/operate.md describes them for operators. Names, units and labels are stable.
//!
//! A lock name is a label only if [`label_locks`] allows it, because a program may use any number
//! of names.
//!
//! ```
//! leasehold::metrics::describe();
//! leasehold::metrics::label_locks(["nightly", "orders/*"]);
//! ```

mod meters;
mod table;

use std::sync::Arc;

use parking_lot::RwLock;

pub(crate) use meters::reconnected;
pub(crate) use meters::{LockMeters, Meters, Started, WaitingClaim, started};
pub use table::{ALL, Metric, MetricKind};

/// Registers the description and the unit of every metric with the recorder.
pub fn describe() {
    for metric in ALL {
        metric.describe();
    }
}

/// Sets which lock names are values of the label `lock`; replaces the patterns set before.
///
/// A pattern is a name, or a prefix followed by `*`. A lock that matches a pattern has this pattern
/// as its label: all locks of `orders/*` share one label. The first pattern that matches counts.
/// Every other lock has the label `other`.
///
/// A store keeps the patterns that are set when it is opened.
///
/// ```
/// leasehold::metrics::label_locks(["nightly", "orders/*"]);
/// ```
pub fn label_locks<P: Into<String>>(patterns: impl IntoIterator<Item = P>) {
    let patterns = patterns.into_iter().map(Into::into);
    *PATTERNS.write() = patterns.collect();
}

/// Returns the patterns of a store that is being opened.
fn patterns() -> Arc<[String]> {
    PATTERNS.read().as_slice().into()
}

static PATTERNS: RwLock<Vec<String>> = RwLock::new(Vec::new());
