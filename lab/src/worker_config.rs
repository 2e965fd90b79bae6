//! The configuration of a worker.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{ResourceUsage, check};

/// The label of a claim that several threads share.
pub(crate) const COHORT_LABEL: &str = "cohort";

/// The only argument of the `worker` program, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerConfig {
    /// The URL of the store. If it is empty, the testbed fills in its own.
    pub store: String,
    /// The names of the locks, which each thread acquires in turn. Events refer to them by index.
    pub names: Vec<String>,
    /// The index of the only name that the threads acquire, if they do not acquire all in turn.
    pub only_name: Option<u16>,
    /// The kind of the locks.
    pub kind: LockKind,
    /// The kinds of the locks that differ.
    pub kinds: HashMap<String, LockKind>,
    /// How many times at most a thread acquires its lock again while it holds it. This requires the
    /// async API and mutexes.
    pub max_nesting: u32,
    /// The API of the library.
    pub api: Api,
    /// How many times the threads of the process pass a hold on. `None` if they do not.
    pub cohort: Option<u32>,
    /// The number of threads or tasks that acquire locks.
    pub threads: u32,
    /// The number of the first of them.
    pub first_thread: u32,
    /// How many times each acquires and releases; `u64::MAX` until the process is killed.
    pub cycles: u64,
    /// The path of a file that ends the worker: no cycle begins once the file exists.
    pub stop_file: Option<String>,
    /// The step at which the process kills or stops itself. This requires one thread and the async
    /// API.
    pub crash_point: Option<CrashPoint>,
    /// How long the process waits before it opens its store, in microseconds.
    pub open_after: u64,
    /// When a cycle begins.
    pub start: Start,
    /// The wait limit in microseconds, if there is one.
    pub wait_micros: Option<u64>,
    /// The lease in milliseconds, if it is not the default.
    pub lease_millis: Option<u64>,
    /// The behaviour after an error.
    pub on_error: OnError,
    /// The job that each cycle runs once, in place of its work. This requires the async API and
    /// mutexes.
    pub job: Option<Job>,
    /// The work during a hold.
    pub work: HoldWork,
    /// Additional environment variables, such as those of a wall clock.
    pub environment: Vec<(String, String)>,
    /// How much more than at first may be in use in the end.
    pub resource_slack: ResourceUsage,
}

/// A job that runs once.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Job {
    /// The job with this id.
    Id(u64),
    /// The job that is due, or one of the last few. One is due every 100 ms.
    Due,
}

/// A kind of lock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum LockKind {
    /// A mutex.
    Mutex,
    /// The shared side of a reader-writer lock.
    Reader,
    /// The exclusive side of a reader-writer lock.
    Writer,
    /// Slots of a semaphore.
    Slots {
        /// The number of slots to acquire.
        permits: u32,
        /// The number of slots that exist.
        slots: u32,
    },
}

/// An API of the library.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Api {
    /// Tasks on a runtime with two threads.
    Async,
    /// Threads that block.
    Blocking,
}

/// When a cycle begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Start {
    /// When the previous cycle has ended.
    Immediately,
    /// This number of microseconds after the previous cycle has ended.
    After(u64),
    /// When a line arrives on stdin.
    OnSignal,
}

/// The behaviour after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnError {
    /// The process ends with the error.
    Abort,
    /// The worker records the error and begins the next cycle. Only granted cycles count.
    Retry,
    /// As `Retry`, and refusals count as such errors: missing rights, lack of space, data of
    /// another application.
    RetryAll,
}

/// The point at which a process kills or stops itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashPoint {
    /// The request to the store.
    pub step: Step,
    /// Before or after the request.
    pub side: Side,
    /// The number of the request, counted from 1.
    pub nth: u32,
    /// The action at this point.
    pub action: CrashAction,
}

/// A request to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Joining the queue.
    Enter,
    /// Waiting in the queue.
    Changed,
    /// Renewing the lease.
    Renew,
    /// Leaving the queue, or releasing.
    Leave,
    /// Recording the completion of a job, and releasing.
    Complete,
}

impl Step {
    /// All steps of a lock.
    pub const ALL: [Self; 4] = [Self::Enter, Self::Changed, Self::Renew, Self::Leave];
}

/// Before the request is sent, or after its reply and before the engine receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// Before the request.
    Before,
    /// After the reply.
    After,
}

/// What a process does to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CrashAction {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
}

/// The work during a hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum HoldWork {
    /// No work.
    Nothing,
    /// A sleep, in microseconds.
    Sleep(u64),
    /// A sleep during which the hold is checked; a loss ends it.
    CheckedSleep(u64),
    /// Waiting for a line on stdin.
    UntilSignal,
    /// Reads the number in a file and writes back the next lower number after a pause.
    CountDown {
        /// The path of the file.
        file: String,
        /// The pause in microseconds.
        micros: u64,
    },
}

impl Default for WorkerConfig {
    /// One thread acquires the mutex `a` once.
    fn default() -> Self {
        Self {
            store: String::new(),
            names: vec!["a".to_owned()],
            only_name: None,
            kind: LockKind::Mutex,
            kinds: HashMap::new(),
            max_nesting: 0,
            cohort: None,
            api: Api::Blocking,
            threads: 1,
            first_thread: 0,
            cycles: 1,
            stop_file: None,
            crash_point: None,
            open_after: 0,
            start: Start::Immediately,
            wait_micros: None,
            lease_millis: None,
            on_error: OnError::Abort,
            job: None,
            work: HoldWork::Nothing,
            environment: Vec::new(),
            resource_slack: check::SLACK,
        }
    }
}

impl WorkerConfig {
    /// Whether another cycle begins after this number of cycles.
    #[must_use]
    pub fn goes_on(&self, done: u64) -> bool {
        done < self.cycles && !self.is_stopped()
    }

    /// Whether the file that ends the worker exists.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let file = self.stop_file.as_ref();
        file.is_some_and(|file| Path::new(file).exists())
    }

    /// The index of the name that a thread acquires in a cycle.
    ///
    /// # Panics
    /// If the list of names is empty or has more than 65,536 entries.
    #[must_use]
    pub fn name(&self, thread: u32, cycle: u64) -> u16 {
        if let Some(only) = self.only_name {
            return only;
        }

        let count = self.names.len() as u64;
        u16::try_from((u64::from(thread) + cycle) % count).expect("a test has few names")
    }

    /// The kind of the lock with this name.
    ///
    /// # Panics
    /// If the index is out of range.
    #[must_use]
    pub fn kind_of(&self, name: u16) -> LockKind {
        self.kinds
            .get(&self.names[usize::from(name)])
            .copied()
            .unwrap_or(self.kind)
    }

    /// The label of the claims of a thread. It is the thread's number, so that the observer can
    /// identify them. The claim of a cohort belongs to no single thread.
    #[must_use]
    pub fn label(&self, thread: u32) -> String {
        match self.cohort {
            None => thread.to_string(),
            Some(_) => COHORT_LABEL.to_owned(),
        }
    }
}
