//! The process behind a claim, in readable form.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::name::Escaped;
use crate::runtime::fork;
use crate::{Error, Result};

/// The process behind a holder or waiter, as `show` and `ls` print it. No decision depends on it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// let _guard = locks.mutex("a").label("nightly report").acquire().await?;
/// let lock_state = locks.inspect("a").await?;
/// let info = &lock_state.holders().next().expect("this process holds it").info;
/// assert_eq!((info.pid, &*info.label), (std::process::id(), "nightly report"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimantInfo {
    /// The host name of the machine, truncated to 64 bytes.
    pub host: Arc<str>,
    /// The process id, as the process's own machine or container numbers it.
    pub pid: u32,
    /// The file name of the program, truncated to 32 bytes.
    pub program: Arc<str>,
    /// The label that the user gave the claim; empty without one.
    pub label: String,
    /// Whether it is a candidate of an [election](crate::Election): its label is an address.
    pub is_candidate: bool,
    /// When the claim was granted, or queued if it waits, by the wall clock of the process that
    /// queued or granted it. In memory and in the formats of other libraries it stays the time at
    /// which the claim was queued.
    pub since: SystemTime,
}

impl ClaimantInfo {
    /// Returns the program as stores keep it, with a mark if it is a candidate.
    ///
    /// No format has a field for the mark. A client that does not know it shows it with the program.
    pub(crate) fn stored_program(&self) -> Cow<'_, str> {
        if !self.is_candidate {
            return Cow::Borrowed(&self.program);
        }
        let program_max = PROGRAM_MAX - CANDIDATE.len();
        Cow::Owned(truncate(&self.program, program_max) + CANDIDATE)
    }

    /// Returns the program of a stored one, and whether it is a candidate.
    pub(crate) fn from_stored_program(stored: &str) -> (Arc<str>, bool) {
        let program = stored.strip_suffix(CANDIDATE);
        (program.unwrap_or(stored).into(), program.is_some())
    }
}

/// Writes `program[pid]@host (label)`, with escaped control characters. The formats of other
/// libraries have no process and no host.
impl fmt::Display for ClaimantInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaped(&self.program).fmt(f)?;
        if self.pid != 0 || !self.host.is_empty() {
            write!(f, "[{}]@{}", self.pid, Escaped(&self.host))?;
        }
        if !self.label.is_empty() {
            write!(f, " ({})", Escaped(&self.label))?;
        }
        Ok(())
    }
}

/// Describes this process, with the current time as `since`.
///
/// # Errors
/// [`is_invalid`](Error::is_invalid) if the label is longer than [`LABEL_MAX`] bytes.
pub fn claimant_here(label: &str) -> Result<ClaimantInfo> {
    if label.len() > LABEL_MAX {
        let len = label.len();
        return Err(Error::invalid(format!(
            "a label has at most {LABEL_MAX} bytes, and this one has {len}"
        )));
    }

    let process = this_process();
    Ok(ClaimantInfo {
        host: Arc::clone(&process.host),
        pid: fork::process_id(),
        program: Arc::clone(&process.program),
        label: label.to_owned(),
        is_candidate: false,
        since: SystemTime::now(),
    })
}

/// Describes a claim of another program, of which nothing else is known.
#[must_use]
pub fn foreign_claimant(program: &str, label: String) -> ClaimantInfo {
    ClaimantInfo {
        host: Arc::default(),
        pid: 0,
        program: program.into(),
        label,
        is_candidate: false,
        since: UNIX_EPOCH,
    }
}

/// Appends five words, each after a space: since, pid, host, program, label.
///
/// The time is in milliseconds since 1970. The texts are percent-encoded, so that a space ends a
/// word. The store keeps the words with the claim, and [`parse_words`] reads them back.
///
/// ```
/// use leasehold::store::{claimant_here, parse_words, write_words};
/// let mut record = String::from("1 of 4");
/// write_words(&claimant_here("two words")?, &mut record);
///
/// let mut words = record.split(' ').skip(3);
/// let parsed = parse_words(&mut words).expect("it was just written");
/// assert_eq!(parsed.label, "two words");
/// # Ok::<(), leasehold::Error>(())
/// ```
pub fn write_words(info: &ClaimantInfo, text: &mut String) {
    write_words_encoded(info, text, ENCODED);
}

/// Appends the words of [`write_words`], with the characters of `encoded` encoded.
///
/// The set must contain the space and the percent sign. [`parse_words`] reads words that were
/// encoded with any such set.
pub fn write_words_encoded(info: &ClaimantInfo, text: &mut String, encoded: &'static AsciiSet) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{}", Words { info, encoded });
}

/// Returns the words of [`write_words`], to be written into another text.
#[must_use]
pub fn words(info: &ClaimantInfo) -> Words<'_> {
    let encoded = ENCODED;
    Words { info, encoded }
}

/// The words of [`write_words_encoded`].
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    info: &'a ClaimantInfo,
    encoded: &'static AsciiSet,
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.info;
        let since = info.since.duration_since(UNIX_EPOCH).unwrap_or_default();
        write!(f, " {} {}", since.as_millis(), info.pid)?;

        for word in [&*info.host, &*info.stored_program(), &info.label] {
            write!(f, " {}", utf8_percent_encode(word, self.encoded))?;
        }
        Ok(())
    }
}

/// Reads the next five words as [`write_words`] writes them.
///
/// Returns `None` if a word is missing or malformed.
pub fn parse_words<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<ClaimantInfo> {
    let since = Duration::from_millis(words.next()?.parse().ok()?);
    let pid = words.next()?.parse().ok()?;
    let host = decode(words.next()?)?.into();
    let (program, is_candidate) = ClaimantInfo::from_stored_program(&decode(words.next()?)?);

    Some(ClaimantInfo {
        host,
        pid,
        program,
        label: decode(words.next()?)?,
        is_candidate,
        since: UNIX_EPOCH.checked_add(since)?,
    })
}

/// The longest host name that is kept, in bytes.
pub const HOST_MAX: usize = 64;
/// The longest program name that is kept, in bytes.
pub const PROGRAM_MAX: usize = 32;
/// The longest label that is allowed, in bytes. The file store keeps at most 64.
pub const LABEL_MAX: usize = 255;

/// The mark of a candidate at the end of its program.
const CANDIDATE: &str = " elect";

fn decode(word: &str) -> Option<String> {
    let decoded = percent_decode_str(word).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

struct ThisProcess {
    host: Arc<str>,
    program: Arc<str>,
}

fn this_process() -> &'static ThisProcess {
    static THIS_PROCESS: OnceLock<ThisProcess> = OnceLock::new();

    THIS_PROCESS.get_or_init(|| {
        let system = rustix::system::uname();
        let host = system.nodename().to_string_lossy();

        let path = std::env::current_exe().unwrap_or_default();
        let program = path.file_name().unwrap_or_default().to_string_lossy();

        ThisProcess {
            host: truncate(&host, HOST_MAX).into(),
            program: truncate(&program, PROGRAM_MAX).into(),
        }
    })
}

/// Returns at most `max` bytes of `text`, and cuts it between two characters.
pub(crate) fn truncate(text: &str, max: usize) -> String {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// Characters of a word that are percent-encoded. A space is among them, as it ends a word.
pub const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'/')
    .remove(b':')
    .remove(b'@');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_keeps_whole_characters() {
        assert_eq!(truncate("abc", 8), "abc");
        assert_eq!(truncate("ääää", 3), "ä");
    }

    #[test]
    fn label_that_is_too_long_is_refused() {
        let label = "x".repeat(LABEL_MAX + 1);
        assert!(claimant_here(&label).unwrap_err().is_invalid());
    }

    #[test]
    fn words_of_claimant_info_round_trip() {
        let longest = "%".repeat(LABEL_MAX);
        for label in [" two  words, 50 % of ü/ß\n\0", &longest] {
            let mut info = claimant_here(label).expect("it is short enough");
            info.since = UNIX_EPOCH + Duration::from_millis(1_763_731_234_567);
            info.program = Arc::default();

            let mut text = String::new();
            write_words(&info, &mut text);

            let mut words = text.strip_prefix(' ').expect("a space first").split(' ');
            assert_eq!(parse_words(&mut words), Some(info));
            assert_eq!(words.next(), None);
        }
    }

    /// It fits into the field of the file store.
    #[test]
    fn mark_of_a_candidate_round_trips() {
        for program in ["worker", &"ü".repeat(16), ""] {
            let mut info = claimant_here("").expect("a short label");
            (info.program, info.is_candidate) = (program.into(), true);

            let stored = info.stored_program();
            assert!(stored.len() <= PROGRAM_MAX);
            let (kept, is_candidate) = ClaimantInfo::from_stored_program(&stored);
            assert!(is_candidate && program.starts_with(&*kept), "{stored}");
        }
    }

    #[test]
    fn malformed_words_of_claimant_info_are_rejected() {
        for text in [
            "",
            "0",
            "0 1 host program",
            "x 1 h p l",
            "0 -1 h p l",
            "0 1 %ff p l",
        ] {
            assert_eq!(parse_words(&mut text.split(' ')), None, "{text:?}");
        }
    }
}
