//! The record of a lock: which jobs were completed under it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::claimant_info::truncate;
use crate::{Claim, ClaimId, Error, Result, Token};

/// Which jobs were completed under a lock, as the store has kept it beside the lock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::open("memory:").await?;
/// assert!(locks.record("report").await?.last_success().is_none());
///
/// let Ok(guard) = locks.once("report").id("2026-11-28").acquire().await? else { return Ok(()) };
/// guard.complete().await?;
/// let record = locks.record("report").await?;
/// assert_eq!(record.last_success().expect("it was completed").id, "2026-11-28");
/// # Ok(()) }
/// ```
///
/// All times are those of the store's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The last 32 completions, the latest one first.
    pub completions: Vec<Completion>,
    /// The last failure that a holder has reported.
    pub failure: Option<Completion>,
    /// When the store has read the record.
    pub read_at: SystemTime,
}

/// One job that was completed, or that failed.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// let Ok(guard) = locks.once("report").id("2026-11-28").acquire().await? else { return Ok(()) };
/// guard.complete().await?;
/// for completion in locks.record("report").await?.completions {
///     println!("{} by {} at {:?}", completion.id, completion.by, completion.ended_at);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// The claim that held the lock meanwhile.
    pub claim: ClaimId,
    /// The token of its grant. It is for people: nothing compares it.
    pub token: Token,
    /// When the holder has read the record, just before the job.
    pub started_at: SystemTime,
    /// When the job was recorded. The store sets it.
    pub ended_at: SystemTime,
    /// The id of the job; empty if it has a period instead.
    pub id: String,
    /// The process that held the lock, in readable form.
    pub by: String,
    /// Whether the job succeeded.
    pub outcome: Outcome,
}

/// How a job ended.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// use leasehold::Outcome;
/// let Ok(guard) = locks.once("report").id("2026-11-28").acquire().await? else { return Ok(()) };
/// guard.fail().await?;
/// let failure = locks.record("report").await?.failure.expect("it failed");
/// assert_eq!(failure.outcome, Outcome::Failure);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was completed, and is not run again.
    Success,
    /// It failed, and the next claim runs it.
    Failure,
}

/// What runs once: a job with an id, or a job of each period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    Id(String),
    Period(Duration),
}

impl Record {
    /// Creates a record without completions.
    #[doc(hidden)]
    #[must_use]
    pub fn empty(read_at: SystemTime) -> Self {
        Self {
            completions: Vec::new(),
            failure: None,
            read_at,
        }
    }

    /// Returns the last job that was completed.
    ///
    /// A completion more than a minute in the future of the store's clock does not count: a clock
    /// that went back would otherwise stop the job until then.
    #[must_use]
    pub fn last_success(&self) -> Option<&Completion> {
        self.past().next()
    }

    /// Returns the completion after which a job need not run that was asked for so long ago.
    ///
    /// A waiter is due since it began to wait: however long the job of another one takes, it is this
    /// one's too.
    pub(crate) fn done(&self, occasion: &Occasion, waited: Duration) -> Option<&Completion> {
        let asked_at = self.read_at.checked_sub(waited).unwrap_or(self.read_at);
        let is_this = |completion: &&Completion| match occasion {
            // Ids have no order: a waiter or a catch-up may try one after its successor.
            Occasion::Id(id) => completion.id == *id,
            Occasion::Period(period) => age(completion.started_at, asked_at) < *period / 2,
        };
        self.past().find(is_this)
    }

    fn past(&self) -> impl Iterator<Item = &Completion> {
        let latest = self.read_at + FUTURE_MAX;
        let all = self.completions.iter();
        all.filter(move |completion| completion.ended_at <= latest)
    }

    /// Returns whether this claim has added a completion or a failure.
    #[doc(hidden)]
    #[must_use]
    pub fn is_of(&self, claim: ClaimId) -> bool {
        let mut all = self.completions.iter().chain(&self.failure);
        all.any(|completion| completion.claim == claim)
    }

    /// Adds a completion or a failure that ends when the record was read.
    #[doc(hidden)]
    pub fn add(&mut self, completion: &Completion) {
        let completion = Completion {
            ended_at: self.read_at,
            ..completion.clone()
        };
        match completion.outcome {
            Outcome::Success => self.completions.insert(0, completion),
            Outcome::Failure => self.failure = Some(completion),
        }
        self.completions.truncate(COMPLETIONS_MAX);
    }

    /// Writes the record in the form that stores keep and [`parse`](Self::parse) reads.
    ///
    /// ```text
    /// v1
    /// S claim token started ended id by
    /// F claim token started ended id by
    /// ```
    ///
    /// A line ends with a line feed. `S` is a success, and the latest one is first; `F` is the last
    /// failure. Times are in milliseconds since 1970. The texts are percent-encoded.
    #[doc(hidden)]
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{VERSION}\n");
        for completion in self.completions.iter().chain(&self.failure) {
            let (head, tail) = completion.line();
            let ended = millis(completion.ended_at).to_string();
            text += &[head, ended, tail].join(" ");
            text.push('\n');
        }
        text
    }

    /// Parses a record that the store has read at this time.
    ///
    /// # Errors
    /// [`is_unsupported`](Error::is_unsupported) if a later version wrote it, and
    /// [`is_damaged`](Error::is_damaged) for any other text.
    #[doc(hidden)]
    pub fn parse(text: &str, read_at: SystemTime) -> Result<Self> {
        let mut lines = text.lines();
        match lines.next() {
            Some(VERSION) => {}
            Some(other) if other.starts_with('v') => return Err(newer(other)),
            _ => return Err(damaged()),
        }

        let mut record = Self::empty(read_at);
        for line in lines {
            let completion = Completion::parse(line).ok_or_else(damaged)?;
            match completion.outcome {
                Outcome::Success => record.completions.push(completion),
                Outcome::Failure => record.failure = Some(completion),
            }
        }
        Ok(record)
    }
}

impl Completion {
    /// Creates the completion of a job without an id.
    #[doc(hidden)]
    #[must_use]
    pub fn success(claim: &Claim, token: Token, started_at: SystemTime) -> Self {
        Self {
            claim: claim.id,
            token,
            started_at,
            ended_at: started_at,
            id: String::new(),
            by: truncate(&claim.info.to_string(), BY_MAX),
            outcome: Outcome::Success,
        }
    }

    /// Returns its line without the end, which the store inserts between the two parts.
    #[doc(hidden)]
    #[must_use]
    pub fn line(&self) -> (String, String) {
        let kind = match self.outcome {
            Outcome::Success => 'S',
            Outcome::Failure => 'F',
        };
        let started = millis(self.started_at);
        let head = format!("{kind} {} {} {started}", self.claim, self.token);

        let [id, by] = [&self.id, &self.by].map(|text| utf8_percent_encode(text, ENCODED));
        (head, format!("{id} {by}"))
    }

    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let &[kind, claim, token, started, ended, id, by] = &words[..] else {
            return None;
        };
        let text = |encoded| Some(percent_decode_str(encoded).decode_utf8().ok()?.into_owned());

        Some(Self {
            claim: claim.parse().ok()?,
            token: token.parse().ok()?,
            started_at: time(started)?,
            ended_at: time(ended)?,
            id: text(id)?,
            by: text(by)?,
            outcome: match kind {
                "S" => Outcome::Success,
                "F" => Outcome::Failure,
                _ => return None,
            },
        })
    }
}

/// Parses milliseconds since 1970.
#[doc(hidden)]
#[must_use]
pub fn time(millis: &str) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis.parse().ok()?))
}

fn millis(time: SystemTime) -> u128 {
    let since = time.duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_millis()
}

/// Returns the time since a moment; zero if it is in the future.
fn age(since: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(since).unwrap_or_default()
}

#[cold]
pub(crate) fn newer(version: &str) -> Error {
    Error::unsupported(format!(
        "its record has the version {:?}, newer than this program",
        version.get(..8).unwrap_or(version)
    ))
    .help("use the newer leasehold everywhere")
}

#[cold]
fn damaged() -> Error {
    Error::damaged("its record is not one of leasehold")
}

/// The version of the text. The scripts of Redis have it too.
const VERSION: &str = "v1";
/// A waiter or a catch-up may try an id after the ids of later days; none is 32 behind.
const COMPLETIONS_MAX: usize = 32;
/// How far a completion may be in the future. Clocks of masters differ by less, and a clock that
/// was set back by more must not stop a job for as long.
const FUTURE_MAX: Duration = Duration::from_secs(60);
/// A space ends a word, and a line feed ends a line.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// The longest id, in bytes.
pub(crate) const ID_MAX: usize = 64;
/// The longest text of a process in a record, in bytes.
pub(crate) const BY_MAX: usize = 128;
/// No record is longer, in bytes.
#[allow(dead_code, reason = "the file store has blocks of this length")]
pub(crate) const TEXT_MAX: usize = 32 * 1024 - 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::draw_claim_id;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn completion(id: &str, started: u64) -> Completion {
        Completion {
            claim: draw_claim_id(),
            token: Token::new(7).expect("it is not zero"),
            started_at: at(started),
            ended_at: at(started),
            id: id.to_owned(),
            by: "backup[1]@a (nightly % \n)".to_owned(),
            outcome: Outcome::Success,
        }
    }

    #[test]
    fn record_is_read_as_it_was_written() {
        let mut record = Record::empty(at(1_000));
        for id in ["a", "b c%\n", ""] {
            record.add(&completion(id, 990));
        }
        let mut failure = completion("d", 991);
        failure.outcome = Outcome::Failure;
        record.add(&failure);

        let text = record.to_text();
        assert_eq!(Record::parse(&text, at(1_000)).expect("it is read"), record);
        assert!(record.is_of(failure.claim) && !record.is_of(draw_claim_id()));
        assert_eq!(record.completions[0].ended_at, at(1_000));
        for (text, is_newer) in [("v2\n", true), ("v1\nS 1\n", false), ("", false)] {
            let error = Record::parse(text, at(0)).expect_err(text);
            assert_eq!(
                (error.is_unsupported(), error.is_damaged()),
                (is_newer, !is_newer)
            );
        }
    }

    #[test]
    fn longest_record_of_a_file_fits_its_block() {
        let mut record = Record::empty(at(1 << 40));
        for _ in 0..100 {
            let mut longest = completion(&"ü".repeat(ID_MAX / 2), 1 << 40);
            longest.by = "ü".repeat(BY_MAX / 2);
            record.add(&longest);
        }
        assert_eq!(record.completions.len(), COMPLETIONS_MAX);
        assert!(
            record.to_text().len() <= TEXT_MAX,
            "{}",
            record.to_text().len()
        );
    }

    #[test]
    fn id_is_done_after_its_successors() {
        let mut record = Record::empty(at(1_000));
        for id in ["friday", "saturday", "sunday"] {
            record.add(&completion(id, 900));
        }
        let done = |id: &str| {
            record
                .done(&Occasion::Id(id.to_owned()), Duration::ZERO)
                .is_some()
        };
        assert!(done("friday") && done("sunday") && !done("monday") && !done(""));
    }

    #[test]
    fn period_is_done_for_half_of_it_after_the_start() {
        let mut record = Record::empty(at(1_000));
        record.add(&completion("", 950));
        let done = |seconds, waited| {
            let period = Occasion::Period(Duration::from_secs(seconds));
            record.done(&period, Duration::from_secs(waited)).is_some()
        };
        assert!(done(102, 0) && !done(100, 0));
        // The job began after this one was due, or shortly before.
        assert!(done(100, 60) && done(100, 1));
    }

    #[test]
    fn completion_far_in_the_future_counts_as_none() {
        let mut record = Record::empty(at(1_000));
        record.add(&completion("a", 1_000));
        let id = Occasion::Id("a".to_owned());
        for (read_at, is_done) in [(940, true), (939, false)] {
            record.read_at = at(read_at);
            assert_eq!(record.done(&id, Duration::ZERO).is_some(), is_done);
            assert_eq!(record.last_success().is_some(), is_done);
        }
    }
}
