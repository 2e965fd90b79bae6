//! The locks in the text format of Prometheus.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::{Entry, LockState, Name};

use super::snapshot::Snapshot;
use crate::format::known_age;
use crate::usage::{Kind, Usage};

pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric of each lock: its name, its help, and its value, if the lock has one.
type PerLock = (&'static str, &'static str, fn(&LockState) -> Option<f64>);

/// docs/operate.md documents these names; they are stable.
const PER_LOCK: [PerLock; 9] = [
    (
        "leasehold_holders",
        "Claims that hold the lock.",
        |lock_state| Some(count(lock_state.holders().count())),
    ),
    (
        "leasehold_held",
        "How much of the capacity is held.",
        |lock_state| Usage::of(lock_state).map(|usage| usage.held.into()),
    ),
    (
        "leasehold_waiters",
        "Claims that wait for the lock.",
        |lock_state| Some(count(lock_state.waiters().count())),
    ),
    (
        "leasehold_capacity",
        "Slots of a semaphore, 1 for a mutex.",
        |lock_state| Usage::of(lock_state)?.kind.capacity().map(f64::from),
    ),
    (
        "leasehold_external_holders",
        "Processes that hold the lock by flock(1).",
        |lock_state| Some(count(lock_state.external_holders.len())),
    ),
    (
        "leasehold_first_token",
        "The smallest fencing token of the last grant, while it is held.",
        |lock_state| Some(count(last_grant(lock_state)?.first_token()?.get())),
    ),
    (
        "leasehold_last_token",
        "The largest fencing token of the last grant.",
        |lock_state| Some(count(lock_state.last_token?.get())),
    ),
    (
        "leasehold_oldest_hold_seconds",
        "Age of the oldest hold.",
        |lock_state| oldest(lock_state.holders()),
    ),
    (
        "leasehold_oldest_wait_seconds",
        "Age of the oldest wait.",
        |lock_state| oldest(lock_state.waiters()),
    ),
];

pub(super) fn text(snapshot: &Snapshot) -> String {
    let is_up = snapshot.error.is_none();
    let mut text = String::new();
    let out = &mut text;

    single(
        out,
        "leasehold_up",
        "Whether the store was read.",
        flag(is_up),
    );
    single(
        out,
        "leasehold_scan_duration_seconds",
        "How long reading the store took.",
        snapshot.took.as_secs_f64(),
    );
    // Values of an earlier scan would look like present ones.
    if !is_up {
        return text;
    }

    let locks = count(snapshot.locks.len());
    single(
        out,
        "leasehold_locks",
        "Locks that are held or waited for.",
        locks,
    );
    single(
        out,
        "leasehold_locks_skipped",
        "Locks that could not be read.",
        count(snapshot.skipped.len()),
    );
    single(
        out,
        "leasehold_locks_complete",
        "Whether there are no more locks than these series.",
        flag(snapshot.is_complete),
    );
    for metric in &PER_LOCK {
        per_lock(out, metric, snapshot);
    }
    if let Some(last_successes) = &snapshot.last_successes {
        per_job(out, last_successes);
    }
    text
}

fn per_job(out: &mut String, last_successes: &[(Name, SystemTime)]) {
    const METRIC: &str = "leasehold_last_success_timestamp_seconds";
    head(out, METRIC, "When a job was last completed, since 1970.");
    for (name, at) in last_successes {
        let name = escaped(name.as_str());
        let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{METRIC}{{name=\"{name}\"}} {}", at.as_secs_f64());
    }
}

fn per_lock(out: &mut String, (metric, help, value): &PerLock, snapshot: &Snapshot) {
    head(out, metric, help);
    for (name, lock_state) in &snapshot.locks {
        let Some(value) = value(lock_state) else {
            continue;
        };
        let kind = Usage::of(lock_state).map_or("external", |usage| Kind::name(usage.kind));
        let name = escaped(name);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{metric}{{name=\"{name}\",kind=\"{kind}\"}} {value}");
    }
}

fn single(out: &mut String, metric: &str, help: &str, value: f64) {
    head(out, metric, help);
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{metric} {value}");
}

fn head(out: &mut String, metric: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# HELP {metric} {help}\n# TYPE {metric} gauge");
}

/// Escapes the characters that would end a label value.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn last_grant(lock_state: &LockState) -> Option<&Entry> {
    let last = lock_state.last_token;
    lock_state.holders().find(|holder| holder.token() == last)
}

fn oldest<'a>(entries: impl Iterator<Item = &'a Entry>) -> Option<f64> {
    let oldest = entries.filter_map(known_age).max()?;
    Some(oldest.as_secs_f64())
}

fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}

/// A number as Prometheus keeps it.
fn count(value: impl TryInto<u64>) -> f64 {
    #[allow(
        clippy::cast_precision_loss,
        reason = "Prometheus keeps floating-point numbers; tokens stay exact up to 2^53"
    )]
    value.try_into().map_or(f64::NAN, |value| value as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_cannot_end_early() {
        assert_eq!(escaped("a\"} 1\n\\"), r#"a\"} 1\n\\"#);
    }
}
