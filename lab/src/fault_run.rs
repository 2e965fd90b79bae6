//! Eight processes at work on a store, and somebody who is in their way.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::faults::{Fault, Requirement};
use crate::observer::{Observed, Observer};
use crate::testbed::{Backend, Testbed};
use crate::{
    Api, DEADLINE, Event, EventKind, HoldWork, LockKind, Observation, OnError, Process, Random,
    WorkerConfig, canary, check, hostile_names, now, until,
};

pub(crate) const PROCESSES: usize = 8;
const NAMES: [&str; 3] = ["a", "b", "c"];
/// The last is for several at once, where the store has that; the others are mutexes.
const SHARED: usize = 2;
/// A fault that has no effect so often in a row is none.
const MISSES_MAX: usize = 20;
/// Which of them acquires again what it holds, and which have two hands.
const NESTS: usize = 2;
const PAIRS: [usize; 2] = [3, 4];
/// Between two faults, at least and at most.
const PAUSE_MILLIS: (u64, u64) = (100, 500);

/// For longer than a third of a lease: who has lost it meanwhile hears of it.
const LONG_HOLD_MICROS: u64 = 600_000;

/// What the crew is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadProfile {
    /// Most wait for ever.
    Unbounded,
    /// As patient, and one holds for so long that it hears of what it has lost.
    LongHolds,
    /// Nobody waits for ever.
    Bounded,
}

/// What came of one fault.
#[derive(Clone, Debug)]
pub struct Effect {
    /// From when on it was there in full.
    pub since: u64,
    /// Until when it was.
    pub until: u64,
    /// When all was as before: servers need a while to serve again.
    pub recovered: u64,
    /// What showed that it had an effect.
    pub evidence: String,
}

/// A fault that was tried, and what came of it.
#[derive(Clone, Debug)]
pub struct Injection {
    /// When it began.
    pub at: u64,
    /// What came of it; `None` if it had no effect.
    pub effect: Option<Effect>,
    /// How long after its end the last of the names was granted again.
    pub recovery: Duration,
}

impl Injection {
    /// From when on until all names were granted again.
    #[must_use]
    pub fn disturbed(&self) -> check::Span {
        let over = self
            .effect
            .as_ref()
            .map_or(self.at, |effect| effect.recovered);
        (
            self.at,
            over.saturating_add(u64::try_from(self.recovery.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

/// A store, a crew that works on it, and what has been told so far.
#[derive(Debug)]
pub struct FaultRun {
    /// What is treated badly.
    pub testbed: Testbed,
    /// Those who take locks.
    pub workers: Vec<Process>,
    /// On which terms.
    pub config: WorkerConfig,
    /// All that was tried.
    pub injections: Vec<Injection>,
    /// How long each hand waits at most, if not for ever.
    pub wait_limits: HashMap<u32, Duration>,
    events: Vec<Event>,
    /// How many microseconds the one who holds for long does so.
    long_hold_micros: u64,
    stop_file: PathBuf,
    observer: Observer,
    /// The seed of all choices.
    pub seed: u64,
    begun: u64,
}

/// Everything that is known in the end.
#[derive(Debug)]
pub struct Outcome {
    /// Where it happened.
    pub testbed: Testbed,
    /// What was told.
    pub events: Vec<Event>,
    /// What was tried.
    pub injections: Vec<Injection>,
    /// How long each hand waited at most, if not for ever.
    pub wait_limits: HashMap<u32, Duration>,
    /// Who was seen in line.
    pub observations: Vec<Observation>,
    /// How often somebody tried in vain to renew and release what is not his.
    pub intrusions: usize,
    /// How much was gone of what somebody else had beside the locks.
    pub missing_canaries: usize,
    /// From when to when.
    pub time: (u64, u64),
}

impl FaultRun {
    /// A crew at work.
    ///
    /// # Errors
    /// If it does not begin to work.
    pub fn begin(
        testbed: Testbed,
        seed: u64,
        on_error: OnError,
        profile: WorkloadProfile,
    ) -> Result<Self> {
        let end = testbed.scratch_file();
        let config = WorkerConfig {
            names: names(testbed.requires, seed),
            on_error,
            cycles: u64::MAX,
            stop_file: Some(end.display().to_string()),
            wait_micros: (profile == WorkloadProfile::Bounded).then_some(700_000),
            // Each connection to a server is a descriptor and a task, and there are two.
            resource_slack: 2 + 2 * testbed.count(),
            ..testbed.worker_config()
        };
        let longest = if profile == WorkloadProfile::LongHolds {
            LONG_HOLD_MICROS
        } else {
            40_000
        };
        canary::plant(&testbed)?;
        let observer = Observer::begin(testbed.url(), config.names.clone());
        let (workers, injections, wait_limits, events) = Default::default();
        let mut run = Self {
            testbed,
            workers,
            config,
            long_hold_micros: longest,
            injections,
            wait_limits,
            events,
            stop_file: end,
            observer,
            seed,
            begun: now(),
        };
        run.config.kinds = run.kinds(0);
        for number in 0..PROCESSES {
            let worker = run.start_worker(number)?;
            run.workers.push(worker);
        }
        run.wait_until_working()?;
        Ok(run)
    }

    /// Opening a store fails where the server cannot be reached; what is open endures it.
    fn wait_until_working(&mut self) -> Result<()> {
        let workers = &mut self.workers;
        until("the crew to be at work", || {
            for worker in workers.iter_mut() {
                ensure!(
                    !worker.has_ended()?,
                    "hand {} has ended",
                    worker.first_thread()
                );
                if !worker.has_recorded()? {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
    }

    /// Both faces of the library; one that holds for long, one that holds for no time, one that acquires again what it holds, two
    /// with two hands on one handle, and two that soon give up.
    fn start_worker(&mut self, number: usize) -> Result<Process> {
        let micros = match number {
            0 => self.long_hold_micros,
            7 => 0,
            _ => 1_000,
        };
        let config = WorkerConfig {
            api: if number.is_multiple_of(2) {
                Api::Async
            } else {
                Api::Blocking
            },
            work: if micros == 0 {
                HoldWork::Nothing
            } else {
                HoldWork::CheckedSleep(micros)
            },
            wait_micros: self
                .config
                .wait_micros
                .or((number == 5 || number == 6).then_some(25_000)),
            environment: self.testbed.environment(number),
            kinds: self.kinds(number),
            names: if number == NESTS {
                self.config.names[..SHARED].to_vec()
            } else {
                self.config.names.clone()
            },
            max_nesting: if number == NESTS { 3 } else { 0 },
            threads: if PAIRS.contains(&number) { 2 } else { 1 },
            ..self.config.clone()
        };
        let (wait_limits, threads) = (
            config.wait_micros.map(Duration::from_micros),
            config.threads,
        );
        let worker = self.testbed.start_recording(config)?;
        let threads = worker.first_thread()..worker.first_thread() + threads;
        self.wait_limits
            .extend(threads.filter_map(|thread| Some((thread, wait_limits?))));
        Ok(worker)
    }

    /// By the seed the last name is a reader-writer lock that one of four writes, or a semaphore with two slots, of which one of
    /// four takes both.
    fn kinds(&self, number: usize) -> HashMap<String, LockKind> {
        if !self.testbed.locks().guarantees().shares {
            return HashMap::new();
        }
        let is_whole = number % 4 == 1;
        let kind = match (self.seed.is_multiple_of(2), is_whole) {
            (true, true) => LockKind::Writer,
            (true, false) => LockKind::Reader,
            (false, _) => LockKind::Slots {
                permits: 1 + u32::from(is_whole),
                slots: 2,
            },
        };
        HashMap::from([(self.config.names[SHARED].clone(), kind)])
    }

    /// Does `fault` again and again, each time when all names have been granted again since the last; until the time is over
    /// and it has had an effect often enough.
    ///
    /// # Errors
    /// If a name is not granted again within `bound`, or the fault has no effect.
    pub fn run(&mut self, fault: &Fault, time: Duration, bound: Duration) -> Result<()> {
        let begun = Instant::now();
        let mut misses = 0;
        while begun.elapsed() < time || self.effects() < fault.min_effects {
            // Each draws of its own, so that one that took another course changes none that follow.
            let mut random = Random::seeded(self.seed ^ (self.injections.len() as u64 + 1) << 32);
            let (least, most) = PAUSE_MILLIS;
            // The pace of the faults; nothing is waited for.
            sleep(Duration::from_millis(least + random.below(most - least)));
            self.wait_until_working()?;
            let at = now();
            let effect = (fault.inject)(self, &mut random)?;
            let recovery = self.recovery(
                effect.as_ref().map_or_else(now, |effect| effect.recovered),
                bound,
            )?;
            misses = if effect.is_some() { 0 } else { misses + 1 };
            self.injections.push(Injection {
                at,
                effect,
                recovery,
            });
            ensure!(
                misses < MISSES_MAX,
                "{misses} times in a row the fault had no effect"
            );
        }
        Ok(())
    }

    fn effects(&self) -> usize {
        self.injections
            .iter()
            .filter(|injection| injection.effect.is_some())
            .count()
    }

    /// How long after `since` the last of the names was granted.
    fn recovery(&mut self, since: u64, bound: Duration) -> Result<Duration> {
        let mut recovery = check::Recovery::of(self.config.names.len(), since);
        for worker in &mut self.workers {
            // What was told before this was asked concerns it too.
            worker
                .all_events()?
                .iter()
                .for_each(|event| recovery.observe(event));
        }
        loop {
            if let Some(took) = recovery.duration() {
                return Ok(took);
            }
            let waited = Duration::from_nanos(now().saturating_sub(since));
            let missing = recovery
                .missing()
                .map(|name| &*self.config.names[name])
                .collect::<Vec<_>>();
            ensure!(
                waited < bound,
                "for {waited:.1?} after the fault {missing:?} was not granted"
            );
            sleep(Duration::from_millis(2));
            for worker in &mut self.workers {
                worker
                    .new_events()?
                    .iter()
                    .for_each(|event| recovery.observe(event));
            }
        }
    }

    /// The store's lease.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.testbed.backend.lease()
    }

    /// Some of the servers: a minority of the masters or the ensemble, or the only one.
    #[must_use]
    pub fn minority(&self, random: &mut Random) -> Vec<usize> {
        let (count, how_many) = match self.testbed.backend {
            Backend::Redlock => (5, 2),
            Backend::Ensemble => (3, 1),
            _ => (self.testbed.count(), 1),
        };
        pick(random, count, how_many)
    }

    /// A majority of the servers.
    #[must_use]
    pub fn majority(&self, random: &mut Random) -> Vec<usize> {
        let count = self.testbed.count();
        pick(random, count, count / 2 + 1)
    }

    /// Stops one of the crew whose last word says that it holds, or waits; which. It stands still then.
    ///
    /// # Errors
    /// As the system says.
    pub fn pause_in_state(
        &mut self,
        random: &mut Random,
        wanted: fn(&EventKind) -> bool,
    ) -> Result<Option<usize>> {
        for _ in 0..500 {
            let number = usize::try_from(random.below(PROCESSES as u64))?;
            self.workers[number].pause()?;
            let last = self.workers[number].last_event()?;
            if last.is_some_and(|event| wanted(&event.kind)) {
                return Ok(Some(number));
            }
            self.workers[number].resume()?;
            sleep(Duration::from_micros(200 + random.below(1_000)));
        }
        Ok(None)
    }

    /// Kills one of the crew, and puts another in its place; when that was.
    ///
    /// # Errors
    /// If it was dead.
    pub fn kill_and_replace(&mut self, number: usize) -> Result<u64> {
        let killed = self.workers[number].kill_now()?;
        let another = self.start_worker(number)?;
        let dead = std::mem::replace(&mut self.workers[number], another);
        self.events.extend(dead.end()?);
        Ok(killed)
    }

    /// Takes in what somebody told who is none of the crew.
    pub fn add_events(&mut self, events: Vec<Event>) {
        self.events.extend(events);
    }

    /// How often the crew has told something of this kind after `since`.
    ///
    /// # Errors
    /// If what they tell makes no sense.
    pub fn count_since(&mut self, since: u64, wanted: fn(&EventKind) -> bool) -> Result<usize> {
        let mut count = 0;
        for worker in &mut self.workers {
            count += worker
                .all_events()?
                .iter()
                .filter(|event| event.at > since && wanted(&event.kind))
                .count();
        }
        Ok(count)
    }

    /// All that is known, after everybody has ended well and left nothing behind.
    ///
    /// # Errors
    /// If somebody has not, or anything is left.
    pub fn stop_file(mut self) -> Result<Outcome> {
        self.testbed.is_whole()?;
        fs::write(&self.stop_file, "")?;
        let end = now();
        for worker in self.workers {
            let events = worker.finish_within(DEADLINE).context("in the end")?;
            check::resource_leaks_beyond(&events, self.config.resource_slack)?;
            self.events.extend(events);
        }
        let Observed {
            observations,
            intrusions,
        } = self.observer.end()?;
        let missing_canaries = canary::verify_and_remove(&self.testbed)?;
        let last = WorkerConfig {
            cycles: 1,
            stop_file: None,
            crash_point: None,
            wait_micros: None,
            ..self.config
        };
        self.testbed.check_clean(&last).context("in the end")?;
        let Self {
            testbed,
            events,
            injections,
            wait_limits,
            begun,
            ..
        } = self;
        Ok(Outcome {
            testbed,
            events,
            injections,
            wait_limits,
            observations,
            intrusions,
            missing_canaries,
            time: (begun, end),
        })
    }
}

fn names(needs: Requirement, seed: u64) -> Vec<String> {
    if needs == Requirement::HostileNames {
        hostile_names::three(seed)
    } else {
        NAMES.map(str::to_owned).to_vec()
    }
}

/// So many different numbers below `count`.
fn pick(random: &mut Random, count: usize, how_many: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..count).collect();
    let draw =
        |_| left.swap_remove(usize::try_from(random.below(left.len() as u64)).expect("a few"));
    (0..how_many.min(count)).map(draw).collect()
}
