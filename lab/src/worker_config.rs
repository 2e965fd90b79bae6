//! What a taker is told to do.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::check;

/// The one argument of the `taker` program, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerConfig {
    /// The URL of the store; empty is that of the site it is started at.
    pub store: String,
    /// The locks, taken in turn; events name them by index.
    pub names: Vec<String>,
    /// Which kind of lock.
    pub kind: LockKind,
    /// Those of the locks that are of another kind.
    pub kinds: HashMap<String, LockKind>,
    /// How many times at most it acquires again what it holds, by itself; it has the async face and mutexes then.
    pub max_nesting: u32,
    /// How it is called.
    pub api: Api,
    /// How many threads or tasks take locks.
    pub threads: u32,
    /// The number of the first of them.
    pub first_thread: u32,
    /// Whether they share one opening of the store.
    pub opens: StoreHandles,
    /// How many times each acquires and releases; `u64::MAX` until killed.
    pub cycles: u64,
    /// No cycle begins once this file is there.
    pub stop_file: Option<String>,
    /// Where a process ends or stops by itself; it has one hand of the async face then.
    pub crash_point: Option<CrashPoint>,
    /// When a cycle begins.
    pub start: Start,
    /// How many microseconds it waits for a grant, if not for ever.
    pub wait_micros: Option<u64>,
    /// How many milliseconds its lease lasts, if not as usual.
    pub lease_millis: Option<u64>,
    /// What is done about a store that cannot be reached, and about a lock that was lost.
    pub on_error: OnError,
    /// What is done while holding.
    pub work: HoldWork,
    /// What it tells of.
    pub recording: Recording,
    /// What its process is started with besides the usual: a clock of its own.
    pub environment: Vec<(String, String)>,
    /// So much more than at first may be in use in the end.
    pub resource_slack: usize,
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
        /// How many are taken.
        permits: u32,
        /// How many there are.
        slots: u32,
    },
}

/// A face of the library.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Api {
    /// Tasks of a runtime with two threads.
    Async,
    /// Plain threads.
    Blocking,
}

/// Openings of the store in one process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum StoreHandles {
    /// One for all hands.
    Shared,
    /// One for each hand.
    Each,
}

/// When a cycle begins.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Start {
    /// When the one before is done.
    Immediately,
    /// When a line arrives on stdin.
    OnSignal,
}

/// What is done about trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnError {
    /// The process ends with it.
    Abort,
    /// It is told, and the next cycle begins; only cycles that were granted count.
    Retry,
    /// So are refusals: rights, room, what is not ours in a lock's place.
    RetryAll,
}

/// A step of the protocol at which a process meets its fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashPoint {
    /// What is asked of the store.
    pub step: Step,
    /// On which side of it.
    pub side: Side,
    /// At which time of asking, counted from 1.
    pub nth: u32,
    /// Which fate.
    pub action: CrashAction,
}

/// What is asked of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Getting in line.
    Enter,
    /// Waiting in line.
    Changed,
    /// Keeping a claim alive.
    Renew,
    /// Giving back.
    Leave,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Enter, Self::Changed, Self::Renew, Self::Leave];
}

/// Before the store is asked, or after it has answered and before anybody hears of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// Before it is asked.
    Before,
    /// After it has answered.
    After,
}

/// What becomes of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CrashAction {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
}

/// What is done while holding.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum HoldWork {
    /// Nothing.
    Nothing,
    /// Something that takes so many microseconds.
    Sleep(u64),
    /// As long, with an eye on whether it still holds; it ends when it does not.
    CheckedSleep(u64),
    /// Waiting for a line on stdin.
    UntilSignal,
    /// The number in a file is read and, after so many microseconds, written back less one.
    CountDown {
        /// Path of the file.
        file: String,
        /// How long it takes.
        micros: u64,
    },
}

/// What a taker tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recording {
    /// Every event.
    All,
    /// Of no cycles, as telling takes time.
    Nothing,
}

impl Default for WorkerConfig {
    /// One thread takes the mutex `a` once.
    fn default() -> Self {
        Self {
            store: String::new(),
            names: vec!["a".to_owned()],
            kind: LockKind::Mutex,
            kinds: HashMap::new(),
            max_nesting: 0,
            api: Api::Blocking,
            threads: 1,
            first_thread: 0,
            opens: StoreHandles::Shared,
            cycles: 1,
            stop_file: None,
            crash_point: None,
            start: Start::Immediately,
            wait_micros: None,
            lease_millis: None,
            on_error: OnError::Abort,
            work: HoldWork::Nothing,
            recording: Recording::All,
            environment: Vec::new(),
            resource_slack: check::SPARE,
        }
    }
}

impl WorkerConfig {
    /// Whether another cycle begins, after so many.
    #[must_use]
    pub fn goes_on(&self, done: u64) -> bool {
        done < self.cycles
            && self
                .stop_file
                .as_ref()
                .is_none_or(|file| !Path::new(file).exists())
    }

    /// The index of the name that a hand takes in a cycle.
    ///
    /// # Panics
    /// If there are no names, or more than 65,536.
    #[must_use]
    pub fn name(&self, thread: u32, cycle: u64) -> u16 {
        let count = self.names.len() as u64;
        u16::try_from((u64::from(thread) + cycle) % count).expect("a test has few names")
    }

    /// Which kind of lock a name is.
    ///
    /// # Panics
    /// If there is no such name.
    #[must_use]
    pub fn kind_of(&self, name: u16) -> LockKind {
        self.kinds
            .get(&self.names[usize::from(name)])
            .copied()
            .unwrap_or(self.kind)
    }
}
