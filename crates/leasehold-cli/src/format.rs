//! The text form of claimants, times and queue positions, safe to print on a terminal.

use std::fmt;
use std::time::{Duration, SystemTime};

use jiff::fmt::friendly::{Designator, Spacing, SpanPrinter};
use jiff::{Timestamp, Unit};
pub(crate) use leasehold::store::Escaped;
use leasehold::store::claimant_here;
use leasehold::{ClaimProcess, Entry, ExternalHolder};

use crate::process_state::{is_command_stopped, is_stopped};

/// Displays a lock's name as an argument, in a line that a user types into a shell.
pub(crate) struct NameArgument<'a>(pub(crate) &'a str);

impl fmt::Display for NameArgument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |c: char| c.is_alphanumeric() || "_-./:@%+,".contains(c);

        if self.0.starts_with('-') {
            f.write_str("--name=")?;
        }
        if Escaped(self.0).to_string() != self.0 {
            // No form of it is a word in all shells.
            f.write_str("NAME")
        } else if !self.0.is_empty() && self.0.chars().all(is_plain) {
            f.write_str(self.0)
        } else {
            write!(f, "'{}'", self.0.replace('\'', r"'\''"))
        }
    }
}

/// Formats a holder and the time since its grant as `program[pid]@host (label) for 12s`.
pub(crate) fn claimant_and_age(entry: &Entry) -> String {
    let claimant = &entry.info;
    let hindrance = hindrance(entry);
    match known_age(entry) {
        None => format!("{claimant}{hindrance}"),
        Some(age) => format!("{claimant} for {}{hindrance}", whole_seconds(age)),
    }
}

/// Returns what keeps a claim's client from making progress, or its user from finding it.
pub(crate) fn hindrance(entry: &Entry) -> String {
    if let Some(process) = &entry.process {
        return claim_process(process);
    }

    if is_missing(entry) {
        return ", connection missing".to_owned();
    }

    let words = if is_stopped(&entry.info) {
        ", stopped"
    } else if is_command_stopped(&entry.info) {
        ", its command is stopped"
    } else {
        ""
    };
    words.to_owned()
}

fn claim_process(process: &ClaimProcess) -> String {
    match process {
        ClaimProcess::OtherNamespace(process) => {
            format!(", of another PID namespace, process {} here", process.pid)
        }
        ClaimProcess::Ended { held_by, .. } => {
            format!(
                ", which has ended; its {} still hold it",
                processes(held_by)
            )
        }
        _ => ", whose processes are not visible here".to_owned(),
    }
}

/// Formats some processes as `processes 4711 (sh), 4712 (sleep) and 3 others`.
pub(crate) fn processes(processes: &[ExternalHolder]) -> String {
    const SHOWN_MAX: usize = 10;

    let shown = processes.iter().take(SHOWN_MAX);
    let shown: Vec<_> = shown
        .map(|process| format!("{} ({})", process.pid, Escaped(&process.program)))
        .collect();
    let shown = shown.join(", ");
    match processes.len().saturating_sub(SHOWN_MAX) {
        0 => format!("processes {shown}"),
        others => format!("processes {shown} and {others} others"),
    }
}

/// Whether the store knows that the connection of a claim's client is missing.
pub(crate) fn is_missing(entry: &Entry) -> bool {
    entry.connected == Some(false)
}

/// Whether this process has made a claim.
pub(crate) fn is_own(entry: &Entry) -> bool {
    claimant_here("").is_ok_and(|here| (&here.host, here.pid) == (&entry.info.host, entry.info.pid))
}

/// Returns the tokens of a claim that holds, after the word for them. A cohort has several.
pub(crate) fn tokens(entry: &Entry) -> Option<(&'static str, String)> {
    let (first, last) = (entry.first_token()?, entry.token()?);
    Some(if first == last {
        ("token", last.to_string())
    } else {
        ("tokens", format!("{first} to {last}"))
    })
}

/// Returns the time since a claim was queued or granted.
pub(crate) fn age(entry: &Entry) -> Duration {
    // The clock of the holder's machine may be ahead of this one. The start of the hold is then in
    // the future.
    SystemTime::now()
        .duration_since(entry.info.since)
        .unwrap_or_default()
}

/// Returns the time since a claim was queued or granted, if the format of the claim has it.
pub(crate) fn known_age(entry: &Entry) -> Option<Duration> {
    known_since(entry).map(|_| age(entry))
}

/// Returns when a claim was queued or granted. The formats of other libraries have no times.
pub(crate) fn known_since(entry: &Entry) -> Option<SystemTime> {
    Some(entry.info.since).filter(|since| *since != SystemTime::UNIX_EPOCH)
}

/// Formats a duration in whole seconds, for a user who waits for it to pass.
pub(crate) fn whole_seconds(duration: Duration) -> String {
    printed(Duration::from_secs(duration.as_secs()))
}

/// Formats a duration in whole milliseconds, as options are typed: `1h 30m`, `200ms`.
pub(crate) fn whole_unit(duration: Duration) -> String {
    printed(Duration::from_millis(
        duration.as_millis().try_into().unwrap_or(u64::MAX),
    ))
}

fn printed(duration: Duration) -> String {
    let printer = SpanPrinter::new()
        .spacing(Spacing::BetweenUnits)
        .designator(Designator::Compact);
    printer.unsigned_duration_to_string(&duration)
}

/// Converts a time to RFC 3339. A time outside its range of years becomes 1970-01-01.
pub(crate) fn time(at: SystemTime) -> Timestamp {
    let at = Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH);
    at.round(Unit::Millisecond).unwrap_or(at)
}

/// Formats a number as `1st`, `2nd`, `3rd`.
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
    fn ordinals_have_english_suffixes() {
        let printed: Vec<_> = [1, 2, 3, 4, 11, 12, 13, 21, 102, 111]
            .into_iter()
            .map(ordinal)
            .collect();
        assert_eq!(
            printed,
            [
                "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th"
            ]
        );
    }

    #[test]
    fn durations_are_formatted_readably() {
        assert_eq!(whole_unit(Duration::from_secs(5_400)), "1h 30m");
        assert_eq!(whole_unit(Duration::from_millis(200)), "200ms");
        assert_eq!(whole_seconds(Duration::from_millis(12_900)), "12s");
        assert_eq!(whole_seconds(Duration::ZERO), "0s");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(Escaped("a\x1b[2J\nü").to_string(), r"a\u{1b}[2J\nü");
    }

    /// A label with an override of the direction could show another holder than there is.
    #[test]
    fn invisible_characters_are_escaped() {
        for c in [
            '\u{202a}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{200b}',
            '\u{e0041}',
        ] {
            let code = c.escape_default();
            assert_eq!(Escaped(&format!("a{c}b")).to_string(), format!("a{code}b"));
            assert_eq!(NameArgument(&format!("a{c}b")).to_string(), "NAME");
        }
        let visible = "e\u{301} 数据 می‌خواهم 👩‍🚀";
        assert_eq!(Escaped(visible).to_string(), visible);
    }

    #[test]
    fn names_are_quoted_for_a_shell_where_they_must_be() {
        for (name, word) in [
            ("orders/ü-42", "orders/ü-42"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("-x y", "--name='-x y'"),
            ("a\nb", "NAME"),
        ] {
            assert_eq!(NameArgument(name).to_string(), word);
        }
    }
}
