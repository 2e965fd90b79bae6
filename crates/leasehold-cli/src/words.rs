//! How things are said: people, times and places in line, safe for a terminal.

use std::fmt;
use std::time::{Duration, SystemTime};

use jiff::fmt::friendly::{Designator, Spacing, SpanPrinter};
use jiff::{Timestamp, Unit};
use leasehold::{Entry, Note, Stranger};

/// A text from elsewhere, with its control characters escaped.
pub(crate) struct Plain<'a>(pub(crate) &'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
        }
        Ok(())
    }
}

/// `program[pid]@host (label)`
pub(crate) fn who(note: &Note) -> String {
    let who = format!("{}[{}]@{}", Plain(&note.program), note.pid, Plain(&note.host));
    if note.label.is_empty() { who } else { format!("{who} ({})", Plain(&note.label)) }
}

/// `program[pid]`
pub(crate) fn stranger(by: &Stranger) -> String {
    format!("{}[{}]", Plain(&by.program), by.pid)
}

/// `who for 12s`
pub(crate) fn who_and_how_long(entry: &Entry) -> String {
    // Clocks differ between machines; a time that is yet to come is now.
    let held = SystemTime::now().duration_since(entry.note.since).unwrap_or_default();
    format!("{} for {}", who(&entry.note), whole_seconds(held))
}

/// Down to seconds, as nobody waits for less.
pub(crate) fn whole_seconds(duration: Duration) -> String {
    printed(Duration::from_secs(duration.as_secs()))
}

/// Down to milliseconds, as terms are given: `1h 30m`, `200ms`.
pub(crate) fn as_term(duration: Duration) -> String {
    printed(Duration::from_millis(duration.as_millis().try_into().unwrap_or(u64::MAX)))
}

fn printed(duration: Duration) -> String {
    let printer = SpanPrinter::new().spacing(Spacing::BetweenUnits).designator(Designator::Compact);
    printer.unsigned_duration_to_string(&duration)
}

/// RFC 3339; the first moment there is for a time beyond its years.
pub(crate) fn time(at: SystemTime) -> Timestamp {
    let at = Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH);
    at.round(Unit::Millisecond).unwrap_or(at)
}

/// `1st`, `2nd`, `3rd`
pub(crate) fn ordinal(number: usize) -> String {
    let suffix = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_line() {
        let said: Vec<_> = [1, 2, 3, 4, 11, 12, 13, 21, 102, 111].into_iter().map(ordinal).collect();
        assert_eq!(said, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th"]);
    }

    #[test]
    fn durations_are_read_back() {
        assert_eq!(as_term(Duration::from_secs(5_400)), "1h 30m");
        assert_eq!(as_term(Duration::from_millis(200)), "200ms");
        assert_eq!(whole_seconds(Duration::from_millis(12_900)), "12s");
        assert_eq!(whole_seconds(Duration::ZERO), "0s");
    }

    #[test]
    fn nobody_writes_to_anothers_terminal() {
        assert_eq!(Plain("a\x1b[2J\nü").to_string(), r"a\u{1b}[2J\nü");
    }
}
