//! Jobs that run once: the options of `run`, and the records that `show` and `ls` print.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use leasehold::{
    BootInstant, Completion, Done, Error, Guard, Locks, LossReason, MultiGuard, Once, Outcome,
    Record, StartedJob,
};
use nix::sys::signal::Signal;
use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::commands::Run;
use crate::exit::{Exit, print_error};
use crate::format::{Escaped, time, whole_seconds, whole_unit};
use crate::guards::{LossReport, RELEASE_TIMEOUT, no_reply_to_release, release_and_report};
use crate::run::Ended;
use crate::run::retry::Retry;
use crate::run::signals::Signals;
use crate::run::waiting::{self, NotGranted};

impl Run {
    /// Returns the job of --once and --once-per.
    ///
    /// # Errors
    /// Invalid with an option whose meaning would be doubtful.
    pub(crate) fn job(&self, locks: &Locks) -> Result<Option<Once>, Error> {
        let options = &self.once;
        if options.id.is_none() && options.period.is_none() {
            return Ok(None);
        }
        if let Some(reason) = self.reason_against_once() {
            let error = Error::invalid(format!("--once cannot be combined with {reason}"));
            return Err(error.help("leave out one of them"));
        }

        let job = locks.once(&self.names()[0]);
        Ok(Some(match (&options.id, options.period) {
            (Some(id), _) => job.id(id),
            (None, Some(period)) => job.per(period),
            (None, None) => job,
        }))
    }

    fn reason_against_once(&self) -> Option<&'static str> {
        let lock = &self.lock;
        Some(match self {
            _ if self.names().len() > 1 => "several names: each name has a record of its own",
            _ if lock.shared => "--shared: sharing holders run at the same time",
            _ if lock.slots.is_some() => "--slots: several holders run at the same time",
            _ if self.reentrant => "--reentrant: the outer run releases the lock",
            _ if self.hold_at_least.is_some() => "--hold-at-least: the record replaces it",
            _ if self.also_store.is_some() => "--also-store: each store has a record of its own",
            _ => return None,
        })
    }
}

/// What becomes of a job whose lock was granted.
pub(crate) enum Start {
    Started(MultiGuard, StartedJob),
    Done(Done),
    Interrupted(NotGranted),
    /// The lock was lost before the job began, so it can be acquired again.
    Lost,
}

/// Reads the record after the grant, also if the store is unavailable for a while.
pub(crate) async fn start(
    job: &Once,
    asked: BootInstant,
    guards: MultiGuard,
    retry: &mut Retry,
    signals: &mut Signals,
) -> Result<Start> {
    let guard = &guards.guards()[0];
    let starting = retry.until_replied(READ_TIMEOUT, || job.start(guard, asked));
    let started = waiting::open(starting, signals).await;
    let start = match started {
        Ok(Ok(Ok(started))) => return Ok(Start::Started(guards, started)),
        Ok(Ok(Err(done))) => Ok(Start::Done(done)),
        Ok(Err(not_granted)) => Ok(Start::Interrupted(not_granted)),
        Err(_) if guard.check().is_err() && may_wait_again(guard, retry) => Ok(Start::Lost),
        Err(error) => Err(error),
    };
    let report = match start {
        // The job did not run under this hold.
        Ok(_) => LossReport::Printed,
        Err(_) => LossReport::Due,
    };
    // The process would leave the lock to the crash grace.
    let _ = release_and_report(guards, report).await;
    start
}

/// Whether a lock that was lost before its job began may be acquired again: not if the job can
/// never begin within --max-hold.
fn may_wait_again(guard: &Guard, retry: &Retry) -> bool {
    let has_time = retry.remaining() != Some(Duration::ZERO);
    has_time && guard.loss() != Some(LossReason::MaxHoldExceeded)
}

/// How long the store has for the read of a record after the grant, whatever is left of --wait.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Says by whom and when the job was completed. Returns how leasehold ends.
pub(crate) fn already_done(done: &Done, args: &Run) -> Exit {
    if !args.lock.quiet {
        let name = &done.name;
        let by = Escaped(&done.by);
        let at = time(done.at);
        print_error(format_args!("{name} is done: {by} completed it at {at}"));
    }
    args.once.done_exit.map_or(Exit::DONE, Exit::Code)
}

/// Records how COMMAND ended and releases the lock. Returns how leasehold ends.
///
/// A COMMAND that was asked to end may stop in the middle of its work, and still exit with 0. A
/// second run is better than one that nobody did.
pub(crate) async fn end(
    job: StartedJob,
    guards: MultiGuard,
    ended: Ended,
    signals: &mut Signals,
) -> Result<Exit> {
    let guard = guards.into_guards().pop();
    let guard = guard.expect("a job has one lock");
    if ended.exit != Exit::DONE {
        return Ok(end_failed(job, guard, ended.exit).await);
    }
    if ended.end_requested || is_end_requested_late(signals).await? {
        print_error(
            "COMMAND exited with 0 after a signal had asked it to end: this is not recorded as \
             done, so it may run again",
        );
        return Ok(end_failed(job, guard, ended.exit).await);
    }

    let recorded = tokio::select! {
        biased;
        recorded = job.end(guard, Outcome::Success) => recorded,
        signal = end_request_during_silence(signals) => {
            print_unrecorded("a signal has ended the wait for it");
            return Ok(Exit::by_signal(signal?));
        }
    };
    Ok(match recorded {
        Ok(()) => ended.exit,
        Err(error) => {
            print_unrecorded(&error);
            if error.is_lost() {
                Exit::LOST
            } else {
                Exit::UNAVAILABLE
            }
        }
    })
}

/// Whether a signal that requests the end arrives just after the end of COMMAND.
///
/// Who stops all processes, as systemd does by default, sends the signal to one after the other. If
/// it begins with COMMAND, leasehold may note the end of COMMAND before the signal.
async fn is_end_requested_late(signals: &mut Signals) -> Result<bool> {
    /// Far longer than sending a signal to several processes takes, and too short to delay a job.
    const LATE_MAX: Duration = Duration::from_millis(100);

    match timeout(LATE_MAX, signals.next_end_request()).await {
        Ok(signal) => signal.map(|_| true).map_err(Into::into),
        Err(_elapsed) => Ok(false),
    }
}

/// Waits for a signal that requests the end, once the store was silent for a while: the record of a
/// success is worth a longer wait than a release, unless the user decides otherwise.
async fn end_request_during_silence(signals: &mut Signals) -> io::Result<Signal> {
    sleep(RELEASE_TIMEOUT).await;
    print_error("COMMAND succeeded, and the store has not replied yet; a signal ends this wait");
    signals.next_end_request().await
}

fn print_unrecorded(reason: impl Display) {
    print_error(format_args!(
        "COMMAND succeeded, but no reply shows that this was recorded, so it may run again: {reason}"
    ));
}

/// Releases the lock of a COMMAND that is not done. Returns how leasehold ends.
async fn end_failed(job: StartedJob, guard: Guard, exit: Exit) -> Exit {
    let name = guard.name().to_owned();
    match timeout(RELEASE_TIMEOUT, job.end(guard, Outcome::Failure)).await {
        Ok(Ok(())) => exit,
        Ok(Err(error)) => {
            print_error(&error);
            if error.is_lost() { Exit::LOST } else { exit }
        }
        Err(_elapsed) => {
            print_error(no_reply_to_release(&name));
            exit
        }
    }
}

/// Reads the record of a lock; `None` if the store has no records. It is also `None` if the user
/// may not read this record: the lock is shown all the same, after a line that says so.
pub(crate) async fn record_of(locks: &Locks, name: &str) -> Result<Option<Record>, Error> {
    let record = locks.record(name).await;
    if let Err(error) = &record
        && error.is_denied()
    {
        print_error(error);
        return Ok(None);
    }
    let is_unsupported = record.as_ref().is_err_and(Error::is_unsupported);
    // A record that a later version wrote is an error, and no missing record.
    if is_unsupported && locks.list_records("", 1).await.is_err() {
        return Ok(None);
    }
    record.map(Some)
}

/// Formats a record as rows below a lock.
pub(crate) fn rows(record: &Record) -> String {
    let success = record.last_success().map(|last| ("completed", last));
    let failure = record.failure.as_ref().map(|last| ("failed", last));
    let rows = success.into_iter().chain(failure).map(|(word, last)| {
        let by = Escaped(&last.by);
        let id = shown_id(last);
        let age = whole_seconds(age(last, record));
        let at = time(last.ended_at);
        format!("  {word}{id}: {by}, {age} ago, at {at}\n")
    });
    rows.collect()
}

fn shown_id(completion: &Completion) -> String {
    match &*completion.id {
        "" => String::new(),
        id => format!(" {}", Escaped(id)),
    }
}

/// The time since the end of a completion, by the store's clock.
fn age(completion: &Completion, record: &Record) -> Duration {
    let age = record.read_at.duration_since(completion.ended_at);
    age.unwrap_or_default()
}

/// Whether no success has ended within this time. Prints a line if it is so.
pub(crate) fn is_missed(name: &str, record: &Record, within: Duration) -> bool {
    let last = record.last_success();
    if last.is_some_and(|last| age(last, record) <= within) {
        return false;
    }

    let name = Escaped(name);
    let within = whole_unit(within);
    let last = last.map_or_else(
        || "no completion is recorded".to_owned(),
        |last| format!("the last completion was at {}", time(last.ended_at)),
    );
    print_error(format_args!(
        "{name} was not completed within {within}: {last}"
    ));
    true
}

/// A completion as `show --help` documents it.
#[derive(Serialize)]
pub(crate) struct CompletionJson<'a> {
    id: Option<&'a str>,
    by: &'a str,
    token: String,
    started: Timestamp,
    ended: Timestamp,
    age_seconds: u64,
}

impl<'a> CompletionJson<'a> {
    fn new(completion: &'a Completion, record: &Record) -> Self {
        Self {
            id: Some(&*completion.id).filter(|id| !id.is_empty()),
            by: &completion.by,
            token: completion.token.to_string(),
            started: time(completion.started_at),
            ended: time(completion.ended_at),
            age_seconds: age(completion, record).as_secs(),
        }
    }
}

/// The record of a lock in JSON, as fields of the lock.
#[derive(Default, Serialize)]
pub(crate) struct RecordJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    last_success: Option<CompletionJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<CompletionJson<'a>>,
}

impl<'a> RecordJson<'a> {
    pub(crate) fn new(record: &'a Record) -> Self {
        let json = |completion| CompletionJson::new(completion, record);
        Self {
            last_success: record.last_success().map(json),
            last_failure: record.failure.as_ref().map(json),
        }
    }
}
