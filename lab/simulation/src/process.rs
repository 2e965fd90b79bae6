//! One client: a process with its tasks and its connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use leasehold::store::{ClaimId, Standing};
use tokio::sync::Notify;

use crate::server::{Nanos, Push};

/// One process.
#[derive(Default)]
pub(crate) struct Client {
    /// Whether its store is open. A task that was spawned before runs as long as the client.
    pub(crate) is_open: bool,
    pub(crate) is_dead: bool,
    pub(crate) is_paused: bool,
    /// When it last ran after a pause.
    pub(crate) resumed_at: Nanos,
    /// The acquires that have not returned.
    pub(crate) acquiring: BTreeMap<u64, Acquiring>,
    /// The number of releases under way.
    pub(crate) releasing: u32,
    /// Since when it has no acquire, no release and no guard.
    pub(crate) unwanted_since: Option<Nanos>,
    /// When each claim that leaves sent its first request to leave.
    pub(crate) leaving_since: BTreeMap<ClaimId, Nanos>,
    /// When it received that a claim is gone, by a reply or a notification.
    pub(crate) gone_since: BTreeMap<ClaimId, Nanos>,
    /// The tasks that the engine has spawned after its start: departures, among others.
    pub(crate) background: usize,
    /// The tasks of the test that have not ended.
    pub(crate) workers: usize,
    pub(crate) link: Link,
    pub(crate) inbox: Inbox,
    pub(crate) requests: u32,
    pub(crate) poll_fault: Option<PollFault>,
    pub(crate) tasks: BTreeMap<u64, (TaskKind, Option<Waker>)>,
}

/// An acquire that has not returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acquiring {
    pub(crate) since: Nanos,
    pub(crate) is_in_cohort: bool,
}

/// The purpose of a task of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskKind {
    /// The renewal task.
    Service,
    Background,
    Worker,
}

impl Client {
    pub(crate) fn add_task(&mut self, number: u64, kind: TaskKind) {
        self.tasks.insert(number, (kind, None));
        self.count(kind, 1);
    }

    #[must_use]
    pub(crate) fn remove_task(&mut self, number: u64) -> Option<Waker> {
        let (kind, waker) = self.tasks.remove(&number)?;
        self.count(kind, -1);
        waker
    }

    /// Returns whether it could not reach the store at some time since a claim left.
    pub(crate) fn was_away_since_leaving(&self, id: ClaimId) -> bool {
        let since = self.leaving_since.get(&id).copied().unwrap_or_default();
        self.was_away_since(since)
    }

    /// Returns whether it could not reach the store at some time since `since`.
    pub(crate) fn was_away_since(&self, since: Nanos) -> bool {
        let last_outage = self.link.last_outage;
        last_outage.is_some_and(|(_, end)| end >= since)
    }

    fn count(&mut self, kind: TaskKind, change: isize) {
        match kind {
            TaskKind::Service => {}
            TaskKind::Background => {
                self.background = self.background.saturating_add_signed(change);
            }
            TaskKind::Worker => self.workers = self.workers.saturating_add_signed(change),
        }
    }

    /// Keeps how to wake a task; returns the previous waker, which is dropped without the mutex.
    #[must_use]
    pub(crate) fn keep_waker(&mut self, number: u64, waker: &Waker) -> Option<Waker> {
        let (_, kept) = self.tasks.get_mut(&number)?;
        match kept {
            Some(kept) if kept.will_wake(waker) => None,
            _ => kept.replace(waker.clone()),
        }
    }
}

/// The connection of one client.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// The number of its disconnections. A message of an earlier epoch is lost.
    pub(crate) epoch: u64,
    pub(crate) outage: Option<Outage>,
    /// When it was last away, for the rules that need an undisturbed client.
    pub(crate) last_outage: Option<(Nanos, Nanos)>,
}

/// How a client notices that the server is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// Requests fail at once.
    Refused,
    /// Requests have no reply.
    Silent,
}

/// The notifications that a client has received.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    standings: BTreeMap<ClaimId, (u64, Standing)>,
    /// The entry of each claim, from the reply to its request to enter.
    entries: BTreeMap<ClaimId, u64>,
    pub(crate) arrived: Arc<Notify>,
}

impl Inbox {
    /// Keeps a notification, unless a later one has overtaken it.
    pub(crate) fn put(&mut self, push: Push) {
        let arrived = (push.entry, push.standing);
        let kept = self.standings.entry(push.id).or_insert(arrived);
        if (push.entry, rank(push.standing)) >= (kept.0, rank(kept.1)) {
            *kept = arrived;
        }
        self.arrived.notify_waiters();
    }

    pub(crate) fn get(&self, id: ClaimId) -> Option<Standing> {
        let (entry, standing) = self.standings.get(&id).copied()?;
        (self.entries.get(&id) == Some(&entry)).then_some(standing)
    }

    /// Notes the entry of a claim. Notifications about an earlier entry no longer count.
    pub(crate) fn entered(&mut self, id: ClaimId, entry: u64) {
        self.entries.insert(id, entry);
    }

    pub(crate) fn forget(&mut self, id: ClaimId) {
        self.standings.remove(&id);
        self.entries.remove(&id);
    }
}

/// A claim waits, then holds, and is then gone; it never goes back.
pub(crate) fn rank(standing: Standing) -> u8 {
    match standing {
        Standing::Queued { .. } => 0,
        Standing::Held { .. } => 1,
        _ => 2,
    }
}

/// A fault that waits for a poll of its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollFault {
    pub(crate) polls_left: u32,
    /// `None` to kill the client.
    pub(crate) pause: Option<Duration>,
}
