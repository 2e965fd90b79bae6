//! A store that must refuse requests grants no lock, and its clients get an error.

use super::{Span, Violation};
use crate::{Event, EventKind, Hold};

/// Checks that no claim is both requested and granted in the span.
///
/// Returns the first such hold.
#[must_use]
pub fn refusal(holds: &[Hold], (since, until): Span) -> Option<Violation> {
    let granted = holds
        .iter()
        .find(|hold| hold.requested > since && hold.granted < until)?;
    Some(Violation {
        rule: "granted by a store that must refuse",
        first: *granted,
        second: *granted,
    })
}

/// Whether a client got an error in the span. The end of its own wait limit is none.
#[must_use]
pub fn refused_in(events: &[Event], (since, until): Span) -> bool {
    let is_error =
        |event: &Event| event.kind == EventKind::Refused && since < event.at && event.at < until;
    events.iter().any(is_error)
}
