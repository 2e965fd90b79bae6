//! One run of the matrix: ten workers on a store, an observer, an intruder, and a fault.

mod long_hold;
mod plan;
mod steady;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab_servers::{Clock, Wire};
use leasehold::{Guarantees, Slots};

use crate::backends::{Backend, Capability, keep_folder};
use crate::faults::{Fault, Guarantee, Requirement};
use crate::matrix::Cell;
use crate::observer::{Grants, Observed, Observer};
use crate::testbed::Route;
use crate::{
    Api, DEADLINE, Event, EventKind, HoldWork, LockKind, Observation, OnError, Process, Random,
    Testbed, WorkerConfig, check, hostile_names, now, until,
};

pub use long_hold::{LONG_NAME, LongHold};
pub use plan::{Plan, Target};

/// The workers that take the three short names. The long holder and its successor come after them.
const PROCESSES: usize = 8;
const NAMES: [&str; 3] = ["a", "b", "c"];
/// The index of the name that several workers may hold at once, where the store supports that. The
/// other names are mutexes.
const SHARED: usize = 2;
/// A fault without an effect so many times in a row is broken.
const MISSES_MAX: usize = 20;
/// The worker that acquires a lock again while it holds it.
const NESTS: usize = 2;
/// The workers with two threads.
const PAIRS: [usize; 2] = [3, 4];
/// The threads of a worker that pass holds on to each other.
const COHORT: u32 = 3;
/// The shortest and the longest pause between two injections.
const PAUSE_MILLIS: (u64, u64) = (100, 500);
/// Longer than a third of a lease, so that a loss is reported during the hold.
const LONG_HOLD_MICROS: u64 = 600_000;

/// How the workers wait and hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadProfile {
    /// Most workers wait without a limit.
    Unbounded,
    /// Most workers wait without a limit, and one holds long enough for a loss to be reported.
    LongHolds,
    /// Every worker waits for a limited time.
    Bounded,
}

/// What an injection did.
#[derive(Clone, Debug)]
pub struct Effect {
    /// When the fault was fully in effect.
    pub since: u64,
    /// When the fault ended.
    pub until: u64,
    /// When the store was complete again: restarted servers need a while to serve.
    pub recovered: u64,
    /// The observation that shows the effect.
    pub evidence: String,
}

/// One injection of a fault.
#[derive(Clone, Debug)]
pub struct Injection {
    /// When it began.
    pub at: u64,
    /// What it did; `None` if it had no effect.
    pub effect: Option<Effect>,
    /// How long after the end of the fault the last of the names was granted again.
    pub recovery: Duration,
}

impl Injection {
    /// The time from the injection until all names were granted again.
    #[must_use]
    pub fn disturbed(&self) -> check::Span {
        let over = self
            .effect
            .as_ref()
            .map_or(self.at, |effect| effect.recovered);
        let recovery = u64::try_from(self.recovery.as_nanos()).unwrap_or(u64::MAX);
        (self.at, over.saturating_add(recovery))
    }
}

/// A store, the workers on it, and the history so far.
#[derive(Debug)]
pub struct FaultRun {
    /// The kind of store.
    pub backend: &'static Backend,
    /// The store and its servers.
    pub testbed: Testbed,
    /// The running workers.
    pub workers: Vec<Process>,
    /// More workers, which no fault kills or pauses.
    pub steady: Vec<Process>,
    /// The configuration that all workers share.
    pub config: WorkerConfig,
    /// All injections so far.
    pub injections: Vec<Injection>,
    /// The plan of the present injection.
    pub plan: Plan,
    /// The wait limit of each thread that has one.
    pub wait_limits: HashMap<u32, Duration>,
    /// The wall clocks of the workers, if they have their own.
    pub clocks: Vec<Clock>,
    events: Vec<Event>,
    long_hold_micros: u64,
    stop_file: PathBuf,
    observer: Observer,
    long_hold: LongHold,
    /// The seed of all random choices.
    pub seed: u64,
    begun: u64,
}

/// The complete history of a run.
#[derive(Debug)]
pub struct Outcome {
    testbed: Testbed,
    /// The events of all workers.
    pub events: Vec<Event>,
    /// All injections.
    pub injections: Vec<Injection>,
    /// How many clients opened the store while a fault lasted.
    pub opened_during_faults: usize,
    /// The wait limit of each thread that has one.
    pub wait_limits: HashMap<u32, Duration>,
    /// The queues that the observer saw.
    pub observations: Vec<Observation>,
    /// How many times the intruder failed to renew and release another client's hold, as it should.
    pub intrusions: usize,
    /// What the store guarantees.
    pub guarantees: Guarantees,
    /// How many canaries were missing in the end.
    pub missing_canaries: usize,
    /// When the run began and ended.
    pub time: (u64, u64),
}

impl Outcome {
    /// Copies the folders of ZooKeeper servers, for the analysis of a failed run.
    ///
    /// # Errors
    /// If a folder cannot be copied.
    pub fn keep_servers(&self, to: &Path) -> Result<()> {
        self.testbed
            .zookeeper()
            .into_iter()
            .try_for_each(|server| keep_folder(server.folder(), to))
    }

    /// Returns the testbed, for another run.
    pub(crate) fn into_testbed(self) -> Testbed {
        self.testbed
    }
}

/// How many more descriptors and tasks a process may have at its end than when it was warm: some
/// servers may have been unreachable then.
///
/// A process has two connections to each server. Each is a descriptor and a task. In a folder it
/// keeps two files of each name open.
fn resource_slack(testbed: &Testbed, backend: &Backend, names: usize) -> usize {
    let connections = 2 * testbed.redis().len().max(testbed.wires.len());
    let files = if backend.has(Capability::Folder) {
        2 * names
    } else {
        0
    };

    2 + connections + files
}

impl FaultRun {
    /// Starts the workers and waits until all of them work.
    ///
    /// # Errors
    /// If a worker ends or does not start to work.
    pub fn begin(
        cell: &Cell,
        mut testbed: Testbed,
        seed: u64,
        on_error: OnError,
        profile: WorkloadProfile,
    ) -> Result<Self> {
        let backend = cell.backend;
        let stop_file = testbed.scratch_file();
        let lease = backend.requested_lease;
        let lease_of_store = backend.lease;
        let names = names(cell.fault.requires, seed);
        let resource_slack = resource_slack(&testbed, backend, names.len());
        let config = WorkerConfig {
            store: testbed.worker_url.clone(),
            lease_millis: Some(u64::try_from(lease.as_millis())?),
            names,
            cohort: backend.cohort,
            on_error,
            cycles: u64::MAX,
            stop_file: Some(stop_file.display().to_string()),
            wait_micros: (profile == WorkloadProfile::Bounded).then_some(700_000),
            resource_slack,
            ..WorkerConfig::default()
        };
        let long_hold_micros = if profile == WorkloadProfile::LongHolds {
            LONG_HOLD_MICROS
        } else {
            40_000
        };

        let grants = match cell.guarantee {
            Guarantee::TokensOnly => Grants::MayBeLost,
            Guarantee::Exclusion | Guarantee::Refuses => Grants::Kept,
        };
        (backend.plant)(&testbed)?;
        testbed.holder_route = Route::beside(&testbed.wires, &testbed.worker_url);
        let mut run = Self {
            backend,
            workers: Vec::new(),
            steady: Vec::new(),
            injections: Vec::new(),
            wait_limits: HashMap::new(),
            clocks: clocks(&testbed, cell.fault.requires)?,
            events: Vec::new(),
            long_hold_micros,
            stop_file,
            observer: Observer::begin(
                testbed.url(),
                long_hold::with_long_name(&config.names),
                grants,
            ),
            long_hold: LongHold::of(lease_of_store),
            plan: Plan::of(seed, 0, lease_of_store),
            testbed,
            config,
            seed,
            begun: now(),
        };
        run.config.kinds = run.kinds(0);

        for number in 0..PROCESSES + LongHold::WORKERS {
            let worker = run.start_worker(number)?;
            run.workers.push(worker);
        }
        run.wait_until_working()?;
        Ok(run)
    }

    /// Waits until every worker has recorded an event. A worker cannot open the store while its
    /// servers are unreachable; once the store is open, the worker survives faults.
    fn wait_until_working(&mut self) -> Result<()> {
        let workers = &mut self.workers;
        until("all workers to work", || {
            for worker in workers.iter_mut() {
                let thread = worker.first_thread();
                ensure!(!worker.has_ended()?, "the worker of thread {thread} ended");
                if !worker.has_recorded()? {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
    }

    /// Starts the worker of a number. The numbers decide what a run mixes: both APIs, a long and an
    /// empty hold, one worker that nests, two with two threads, and two that time out soon.
    fn start_worker(&mut self, number: usize) -> Result<Process> {
        let config = self.config_of(number);
        let wait_limit = config.wait_micros.map(Duration::from_micros);
        let count = config.threads;

        let worker = self.testbed.start_recording(config)?;
        let threads = worker.first_thread()..worker.first_thread() + count;
        self.wait_limits
            .extend(threads.filter_map(|thread| Some((thread, wait_limit?))));
        Ok(worker)
    }

    fn config_of(&self, number: usize) -> WorkerConfig {
        match number.checked_sub(PROCESSES) {
            Some(role) => self.config_of_long_name(role, self.short_config_of(number)),
            None => self.short_config_of(number),
        }
    }

    fn short_config_of(&self, number: usize) -> WorkerConfig {
        let nests = number == NESTS;
        let names = &self.config.names;
        let environment = self.clocks.get(number).map(|clock| {
            let variables = clock.environment().into_iter();
            variables.map(|(key, value)| (key.to_owned(), value.display().to_string()))
        });

        WorkerConfig {
            api: if number.is_multiple_of(2) {
                Api::Async
            } else {
                Api::Blocking
            },
            work: match number {
                0 => HoldWork::CheckedSleep(self.long_hold_micros),
                7 => HoldWork::Nothing,
                _ => HoldWork::CheckedSleep(1_000),
            },
            wait_micros: self
                .config
                .wait_micros
                .or((number == 5 || number == 6).then_some(25_000)),
            environment: environment.into_iter().flatten().collect(),
            kinds: self.kinds(number),
            names: names[..if nests { SHARED } else { names.len() }].to_vec(),
            max_nesting: if nests { 3 } else { 0 },
            cohort: self.config.cohort.filter(|_| !nests),
            threads: self.threads_of(number),
            ..self.config.clone()
        }
    }

    fn threads_of(&self, number: usize) -> u32 {
        match (PAIRS.contains(&number), self.config.cohort) {
            (false, _) => 1,
            (true, None) => 2,
            (true, Some(_)) => COHORT,
        }
    }

    /// The last name is a reader-writer lock that one worker of four writes, or a semaphore with
    /// two slots, of which one worker of four takes both. Where a store has both, the seed decides.
    fn kinds(&self, number: usize) -> HashMap<String, LockKind> {
        if self.config.cohort.is_some() {
            return HashMap::new();
        }

        let is_whole = number % 4 == 1;
        let reader_or_writer = if is_whole {
            LockKind::Writer
        } else {
            LockKind::Reader
        };
        let slots = LockKind::Slots {
            permits: 1 + u32::from(is_whole),
            slots: 2,
        };

        let guarantees = self.testbed.locks().guarantees();
        let has_slots = guarantees.slots != Slots::Unsupported;
        let kind = match (guarantees.readers, has_slots) {
            (false, false) => return HashMap::new(),
            (true, true) if self.seed.is_multiple_of(2) => reader_or_writer,
            (true, false) => reader_or_writer,
            (_, true) => slots,
        };
        HashMap::from([(self.config.names[SHARED].clone(), kind)])
    }

    /// Injects `fault` repeatedly, each time after all names were granted again, until `time` is
    /// over and the fault had its least number of effects.
    ///
    /// # Errors
    /// If a name is not granted again within `bound`, or the fault never has an effect.
    pub fn run(&mut self, fault: &Fault, time: Duration, bound: Duration) -> Result<()> {
        let begun = Instant::now();
        let mut misses = 0;
        while begun.elapsed() < time || self.effects() < fault.min_effects {
            // Each injection has its own generator: the choices of one do not depend on what
            // happened during the injections before it.
            let mut random = Random::seeded(self.seed ^ (self.injections.len() as u64 + 1) << 32);
            let (least, most) = PAUSE_MILLIS;
            // The pace of the faults. The run does not wait for a condition here.
            sleep(Duration::from_millis(least + random.below(most - least)));
            self.wait_until_working()?;

            self.wait_for_long_hold(bound)?;
            self.plan = Plan::of(self.seed, self.effects(), self.lease());

            let newcomer = self.start_newcomer(&mut random)?;
            let at = now();
            let effect = (fault.inject)(self, &mut random)?;
            misses = if effect.is_some() { 0 } else { misses + 1 };
            let recovered = effect.as_ref().map_or_else(now, |effect| effect.recovered);
            let recovery = self.recovery(recovered, bound)?;
            self.add_newcomer(newcomer, bound)?;

            self.injections.push(Injection {
                at,
                effect,
                recovery,
            });
            ensure!(
                misses < MISSES_MAX,
                "the fault had no effect {misses} times in a row"
            );
        }
        Ok(())
    }

    fn effects(&self) -> usize {
        let injections = self.injections.iter();
        injections
            .filter(|injection| injection.effect.is_some())
            .count()
    }

    /// How long after `since` the last of the names was granted.
    fn recovery(&mut self, since: u64, bound: Duration) -> Result<Duration> {
        let mut recovery = check::Recovery::of(self.config.names.len(), since);
        for worker in &mut self.workers {
            // Events from before this call may have been recorded after `since`.
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
            let missing: Vec<&str> = recovery
                .missing()
                .map(|name| &*self.config.names[name])
                .collect();
            ensure!(
                waited < bound,
                "{missing:?} not granted for {waited:.1?} after the fault"
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
        self.backend.lease
    }

    /// The wires that the present injection disturbs.
    pub(crate) fn disturbed_wires(&self, random: &mut Random) -> Vec<&Wire> {
        let numbers = self.minority(random);
        let holder = &self.testbed.holder_route.wires;
        let others = &self.testbed.wires;

        let drawn = |number: &usize| &others[*number];
        match self.plan.target {
            Target::Holder => holder.iter().collect(),
            Target::Others => numbers.iter().map(drawn).collect(),
            Target::Everyone => numbers
                .iter()
                .flat_map(|&number| [&others[number], &holder[number]])
                .collect(),
        }
    }

    /// Draws servers of which the store tolerates the loss: a minority, or the only server.
    #[must_use]
    pub fn minority(&self, random: &mut Random) -> Vec<usize> {
        let count = self.testbed.wires.len();
        pick(random, count, (count.saturating_sub(1) / 2).max(1))
    }

    /// Draws three different servers of at least three.
    pub(crate) fn draw_servers(&self, random: &mut Random) -> [usize; 3] {
        let drawn = pick(random, self.testbed.wires.len(), 3);
        drawn.try_into().expect("there are at least three servers")
    }

    /// Draws a majority of the servers.
    #[must_use]
    pub fn majority(&self, random: &mut Random) -> Vec<usize> {
        let count = self.testbed.wires.len();
        pick(random, count, count / 2 + 1)
    }

    /// Draws a name.
    #[must_use]
    pub fn draw_name(&self, random: &mut Random) -> String {
        let names = long_hold::with_long_name(&self.config.names);
        let index = random.below(names.len() as u64);
        names[usize::try_from(index).expect("a run has few names")].clone()
    }

    /// Pauses a worker whose last event fits, and returns its number. The worker stays paused.
    ///
    /// # Errors
    /// If a worker cannot be paused.
    pub fn pause_in_state(
        &mut self,
        random: &mut Random,
        wanted: fn(&EventKind) -> bool,
    ) -> Result<Option<usize>> {
        for _ in 0..500 {
            let number = usize::try_from(random.below(self.workers.len() as u64))?;
            let worker = &mut self.workers[number];
            worker.pause()?;
            let last = worker.last_event()?;
            if last.is_some_and(|event| wanted(&event.kind)) {
                return Ok(Some(number));
            }
            worker.resume()?;
            sleep(Duration::from_micros(200 + random.below(1_000)));
        }

        Ok(None)
    }

    /// Kills a worker, starts another in its place, and returns when it was killed.
    ///
    /// # Errors
    /// If the worker had already ended.
    pub fn kill_and_replace(&mut self, number: usize) -> Result<u64> {
        let killed = self.workers[number].kill_now()?;
        let another = self.start_worker(number)?;
        let dead = std::mem::replace(&mut self.workers[number], another);
        self.events.extend(dead.end()?);
        Ok(killed)
    }

    /// Adds the events of a process that is not one of the eight workers.
    pub fn add_events(&mut self, events: Vec<Event>) {
        self.events.extend(events);
    }

    /// How many locks were granted after `since`.
    ///
    /// # Errors
    /// If the recorded events are invalid.
    pub fn grants_since(&mut self, since: u64) -> Result<usize> {
        let mut count = 0;
        for worker in &mut self.workers {
            let events = worker.all_events()?.iter();
            count += events
                .filter(|event| event.at > since && matches!(event.kind, EventKind::Granted { .. }))
                .count();
        }
        Ok(count)
    }

    /// Stops all workers, checks that they left nothing behind, and returns the history.
    ///
    /// # Errors
    /// If a worker fails, or something is left behind.
    pub fn finish(mut self) -> Result<Outcome> {
        (self.backend.wait_until_ready)(&self.testbed)?;
        fs::write(&self.stop_file, "")?;
        let end = now();
        let all_names = self.all_names();
        for worker in self.workers.into_iter().chain(self.steady) {
            let events = worker
                .finish_within(DEADLINE)
                .context("at the end of the run")?;
            check::resource_leaks_beyond(&events, self.config.resource_slack)?;
            self.events.extend(events);
        }
        let Observed {
            observations,
            intrusions,
        } = self.observer.end()?;

        let missing_canaries = (self.backend.verify_and_remove)(&self.testbed)?;
        let last = WorkerConfig {
            store: String::new(),
            names: all_names,
            cycles: 1,
            stop_file: None,
            wait_micros: None,
            ..self.config
        };
        (self.backend.check_clean)(self.backend, &self.testbed, &last)
            .context("at the end of the run")?;
        let guarantees = self.testbed.locks().guarantees();
        Ok(Outcome {
            testbed: self.testbed,
            events: self.events,
            opened_during_faults: self.long_hold.opened_during(&self.injections),
            injections: self.injections,
            wait_limits: self.wait_limits,
            observations,
            intrusions,
            missing_canaries,
            guarantees,
            time: (self.begun, end),
        })
    }
}

fn names(requires: Requirement, seed: u64) -> Vec<String> {
    if requires == Requirement::HostileNames {
        hostile_names::three(seed)
    } else {
        NAMES.map(str::to_owned).to_vec()
    }
}

/// A wall clock for each worker, if the fault sets them.
fn clocks(testbed: &Testbed, requires: Requirement) -> Result<Vec<Clock>> {
    if requires != Requirement::WorkerClocks {
        return Ok(Vec::new());
    }
    let folder = testbed.scratch_file();
    fs::create_dir(&folder)?;
    Ok(Clock::several(&folder, PROCESSES + LongHold::WORKERS))
}

/// Draws `how_many` different numbers below `count`.
fn pick(random: &mut Random, count: usize, how_many: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..count).collect();
    let draw =
        |_| left.swap_remove(usize::try_from(random.below(left.len() as u64)).expect("a few"));
    (0..how_many.min(count)).map(draw).collect()
}
