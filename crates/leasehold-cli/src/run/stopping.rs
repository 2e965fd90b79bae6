//! When and how a command is stopped before its lock is lost.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::{
    CrashRelease, Error, Guarantees, Locks, LossReason, MultiGuard, RenewalStatus, Result,
};
use tokio::time::{Instant, sleep};

use crate::commands::{LockOptions, OnLost, Run};
use crate::format::whole_unit;

/// The default time between TERM and KILL. `--kill-after` or a short lease changes it.
const KILL_AFTER: Duration = Duration::from_secs(5);
/// The longest margin: enough for a busy machine to end all processes of the group after KILL.
const MARGIN_MAX: Duration = Duration::from_millis(250);

/// How long KILL is repeated before processes are reported that still run. One that waits for a
/// dead disk cannot end.
pub(crate) const KILLED_MAX: Duration = Duration::from_secs(10);

/// The options that decide when and how the holder's processes are stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StopOptions<'a> {
    pub(crate) lock: &'a LockOptions,
    pub(crate) on_lost: OnLost,
    pub(crate) kill_after: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) struct Stopping {
    pub(crate) on_lost: OnLost,
    kill_after: Duration,
    /// How long KILL is sent before the end of the hold.
    pub(crate) margin: Duration,
    /// By the URL of the store, without its password.
    validity: HashMap<String, Validity>,
}

/// How long the store keeps a lock after the last confirmed renewal, and the setting that
/// determines it.
#[derive(Clone, Copy, Debug)]
struct Validity {
    setting: &'static str,
    lasts: Duration,
}

impl Stopping {
    /// Computes when to stop the command.
    ///
    /// The time from TERM to the end of the command must fit into half of the hold's shortest
    /// limit. By default it fits into the last fifth, so a short outage does not stop the command.
    pub(crate) fn new<'a>(
        options: StopOptions<'_>,
        stores: impl IntoIterator<Item = &'a Locks>,
    ) -> Result<Self> {
        let StopOptions { lock, on_lost, .. } = options;
        let validity: HashMap<_, _> = stores
            .into_iter()
            .filter_map(|store| Some((store.url().to_owned(), validity(lock, store.guarantees())?)))
            .collect();
        let certain = validity.values().map(|validity| validity.certain());
        let shortest = certain.chain(lock.max_hold).min();
        let margin = shortest.map_or(MARGIN_MAX, |shortest| MARGIN_MAX.min(shortest / 10));
        let default = shortest.map_or(KILL_AFTER, |shortest| KILL_AFTER.min(shortest / 10));
        let kill_after = options.kill_after.unwrap_or(default);

        if let Some(shortest) = shortest
            && on_lost == OnLost::Term
            && kill_after + margin > shortest / 2
        {
            let longest = (shortest / 2).saturating_sub(margin);
            return Err(kill_after_too_long(kill_after, shortest, longest));
        }
        Ok(Self {
            on_lost,
            kill_after,
            margin,
            validity,
        })
    }

    /// How much of the hold must remain when stopping begins.
    pub(crate) fn stop_margin(&self) -> Duration {
        match self.on_lost {
            OnLost::Term => self.kill_after + self.margin,
            OnLost::Kill => self.margin,
            OnLost::Ignore => Duration::ZERO,
        }
    }

    /// Returns how long the command may run while leasehold itself cannot stop it.
    ///
    /// This time ends between leasehold's own KILL and the end of the hold.
    pub(crate) fn unattended(&self, guard: &MultiGuard) -> Duration {
        guard.remaining().saturating_sub(self.margin / 2)
    }

    /// Returns whether the command must end with the hold and the hold has an expiry time.
    pub(crate) fn needs_watchdog(&self, guard: &MultiGuard) -> bool {
        self.on_lost != OnLost::Ignore && guard.remaining() != Duration::MAX
    }

    /// Returns why the lock is about to be lost, for the message that precedes TERM.
    pub(crate) fn cause(&self, guard: &MultiGuard) -> String {
        let weakest = guard.weakest();
        let store = weakest.store_url();
        let validity = self.validity.get(store);
        let Some(validity) = validity.filter(|_| weakest.renewal() == RenewalStatus::Late) else {
            return "its time is about to end".to_owned();
        };

        let remaining = weakest.remaining();
        let silence = validity.lasts.saturating_sub(remaining).as_secs_f32();
        let left = remaining.as_secs_f32();
        let setting = validity.setting;
        let lasts = validity.lasts.as_secs_f32();
        let error = weakest.outage_error();
        let reason = error.map_or("no reply".to_owned(), |error| error.reason().to_owned());
        format!(
            "{store} has confirmed nothing for {silence:.1} s ({reason}) and may grant the lock to \
             another client in {left:.1} s ({setting} {lasts} s)"
        )
    }

    /// Returns how long after TERM, sent now, KILL follows.
    pub(crate) fn time_to_kill(&self, guard: &MultiGuard) -> Duration {
        match guard.loss() {
            None => self
                .kill_after
                .min(guard.remaining().saturating_sub(self.margin)),
            // The operator who broke the lock accepted that the command still runs.
            Some(LossReason::Revoked) => self.kill_after,
            // leasehold noticed late, as after a suspension. The next holder may already work.
            Some(_) => Duration::ZERO,
        }
    }
}

/// Polls until no process runs. Returns `false` if the deadline passes first.
pub(crate) async fn all_end_by(deadline: Instant, mut any_runs: impl FnMut() -> bool) -> bool {
    const POLL_MIN: Duration = Duration::from_millis(10);
    const POLL_MAX: Duration = Duration::from_millis(250);

    let begin = Instant::now();
    while any_runs() {
        if Instant::now() >= deadline {
            return false;
        }
        // Each poll reads all of `/proc`: less often for processes that take their time.
        sleep((begin.elapsed() / 16).clamp(POLL_MIN, POLL_MAX)).await;
    }
    true
}

/// The beginning of a message about processes that KILL does not end. No process is given if
/// `/proc` shows none.
pub(super) fn still_run(pids: &[i32]) -> String {
    let text = "processes of the command still run after KILL";
    if pids.is_empty() {
        text.to_owned()
    } else {
        format!("{text}: {}", list(pids))
    }
}

/// Formats process ids.
pub(super) fn list(pids: &[i32]) -> String {
    let pids: Vec<_> = pids.iter().map(i32::to_string).collect();
    pids.join(", ")
}

pub(crate) fn check_hold_at_least(args: &Run) -> Result<()> {
    match (args.hold_at_least, args.lock.max_hold) {
        (Some(least), Some(most)) if least >= most => {
            let least = whole_unit(least);
            let most = whole_unit(most);
            Err(Error::invalid(format!(
                "--hold-at-least ({least}) must be shorter than the longest possible hold ({most})"
            ))
            .help("shorten --hold-at-least, or lengthen --max-hold"))
        }
        _ => Ok(()),
    }
}

/// Returns how long a hold outlasts its last renewal, or `None` if it needs no renewal.
fn validity(lock: &LockOptions, guarantees: Guarantees) -> Option<Validity> {
    let lease = Validity {
        setting: "lease",
        lasts: lock.lease,
    };
    match (guarantees.lease_expiry, guarantees.crash_release) {
        (true, CrashRelease::Within { grace, .. }) if grace < lock.lease => Some(Validity {
            setting: "crash grace",
            lasts: grace,
        }),
        (true, _) => Some(lease),
        // A claim lives as long as its client's session. Its lease does not matter.
        (false, CrashRelease::Within { grace: session, .. }) => Some(Validity {
            setting: Validity::SESSION,
            lasts: session,
        }),
        (false, _) => None,
    }
}

impl Validity {
    const SESSION: &str = "session";

    /// Returns how much validity a renewal always leaves.
    ///
    /// For a session it is half, because a write confirms the heartbeat before that write.
    fn certain(self) -> Duration {
        if self.setting == Self::SESSION {
            self.lasts / 2
        } else {
            self.lasts
        }
    }
}

fn kill_after_too_long(kill_after: Duration, shortest: Duration, longest: Duration) -> Error {
    let kill_after = whole_unit(kill_after);
    let shortest = whole_unit(shortest);
    let longest = whole_unit(longest);

    Error::invalid(format!(
        "--kill-after ({kill_after}) does not fit into half of the shortest limit of the hold: \
         {shortest}, from the lease, crash grace, session or --max-hold"
    ))
    .help(format!("give a --kill-after of at most {longest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// leasehold may send TERM late, as after a suspension.
    #[tokio::test]
    async fn kill_comes_before_the_end_of_the_hold_however_late_term_is() {
        let locks = leasehold::open("memory:").await.expect("it opens");
        let stopping = Stopping {
            on_lost: OnLost::Term,
            kill_after: Duration::from_secs(20),
            margin: MARGIN_MAX,
            validity: HashMap::new(),
        };

        for left in [30_000, 15_000, 1_000, 100].map(Duration::from_millis) {
            let lock = locks.mutex("a").lease(Duration::from_secs(60));
            let guard = lock.max_hold(left).acquire().await.expect("granted");
            let guard = MultiGuard::new(vec![guard]);
            let earlier = guard.remaining();
            let time = stopping.time_to_kill(&guard);
            let later = guard.remaining();

            let before_end = |remaining: Duration| {
                let latest = remaining.saturating_sub(stopping.margin);
                stopping.kill_after.min(latest)
            };
            let range = before_end(later)..=before_end(earlier);
            assert!(range.contains(&time), "{left:?}: {time:?}");
            // A hold of 100 ms may be lost by now.
            let _ = guard.release().await;
        }
    }
}
