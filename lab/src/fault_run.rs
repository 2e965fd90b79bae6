//! One run of the matrix: workers on a store, an observer, an intruder, and a fault.

mod long_hold;
mod plan;
mod quiet;
mod workload;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab_servers::{Clock, Wire};
use leasehold::Guarantees;

use crate::backends::{Backend, Capability, keep_folder};
use crate::faults::{Guarantee, Requirement};
use crate::matrix::Cell;
use crate::observer::{Grants, Observed, Observer};
use crate::testbed::Route;
use crate::{
    DEADLINE, Event, EventKind, Observation, OnError, Process, Random, ResourceUsage, Testbed,
    WorkerConfig, check, hostile_names, now, until,
};

pub use plan::{Plan, Target};
use workload::{
    JOB_WORKERS, NAMES, STEADY_WORKERS, WORKERS, WorkerSpec, all_names, with_long_name,
};
pub(crate) use workload::{JOBS, LONG};

/// A fault without an effect so many times in a row is broken.
const MISSES_MAX: usize = 20;
/// The shortest and the longest pause between two injections.
const PAUSE_MILLIS: (u64, u64) = (100, 500);
/// In microseconds: how long every worker waits where requests are refused.
const BOUNDED_WAIT: u64 = 700_000;

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
    /// The store and the fault.
    pub cell: Cell,
    /// The store's servers, and the client that inspects.
    pub testbed: Testbed,
    /// The workers in the order of their table, and then those that no fault kills or pauses.
    pub workers: Vec<Process>,
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
    /// When each new client had opened the store.
    opened: Vec<u64>,
    observer: Observer,
    /// The seed of all random choices.
    pub seed: u64,
    begun: u64,
}

/// The complete history of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The testbed, for another run.
    pub(crate) testbed: Testbed,
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
    /// When the last fault had no consequences any more, where the run went on without faults.
    pub settled: u64,
}

impl Outcome {
    /// The effects of the injections that had one.
    pub(crate) fn effects(&self) -> impl Iterator<Item = &Effect> {
        effects(&self.injections)
    }

    /// Copies the folders of the servers, for the analysis of a failed run.
    ///
    /// # Errors
    /// If a folder cannot be copied.
    pub fn keep_servers(&self, to: &Path) -> Result<()> {
        let servers = &self.testbed.servers;
        (0..servers.count()).try_for_each(|number| keep_folder(servers.server(number).folder(), to))
    }
}

fn effects(injections: &[Injection]) -> impl Iterator<Item = &Effect> {
    injections
        .iter()
        .filter_map(|injection| injection.effect.as_ref())
}

/// How much more a process may use at its end than when it was warm: some servers may have been
/// unreachable then.
///
/// A process has two connections to each server. Each is a descriptor and a task. In a folder it
/// keeps two files of each name open.
fn resource_slack(testbed: &Testbed, backend: &Backend, names: usize) -> ResourceUsage {
    let connections = 2 * testbed.servers.count();
    let files = if backend.has(Capability::Folder) {
        2 * names
    } else {
        0
    };

    ResourceUsage {
        descriptors: check::SLACK.descriptors + connections + files,
        tasks: check::SLACK.tasks + connections + files,
        ..check::SLACK
    }
}

impl FaultRun {
    /// Starts the workers and waits until all of them work.
    ///
    /// # Errors
    /// If a worker ends or does not start to work.
    pub fn begin(cell: &Cell, mut testbed: Testbed, seed: u64) -> Result<Self> {
        (cell.backend.plant)(&testbed)?;
        testbed.holder_route = Route::beside(&testbed.wires, &testbed.worker_url);
        let config = common_config(cell, &testbed, seed)?;
        let grants = match cell.guarantee {
            Guarantee::TokensOnly => Grants::MayBeLost,
            Guarantee::Exclusion | Guarantee::Refuses => Grants::Kept,
        };
        let watched = with_long_name(&config.names);

        let mut run = Self {
            cell: *cell,
            workers: Vec::new(),
            injections: Vec::new(),
            wait_limits: HashMap::new(),
            clocks: clocks(&testbed, cell.fault.requires)?,
            events: Vec::new(),
            opened: Vec::new(),
            observer: Observer::begin(testbed.url(), watched, grants),
            plan: Plan::of(seed, 0, cell.backend.lease),
            testbed,
            config,
            seed,
            begun: now(),
        };
        run.config.kinds = run.kinds_of_parts();

        run.start_workers(&WORKERS)?;
        let records = run.testbed.run(run.testbed.locks().list_records("", 1));
        let lacks_records = records
            .as_ref()
            .is_err_and(leasehold::Error::is_unsupported);
        if cell.fault.meets_jobs && !lacks_records {
            records?;
            run.start_workers(&JOB_WORKERS)?;
        }
        run.wait_until_working()?;
        Ok(run)
    }

    /// Starts the workers that live as long as the run, so that a leak adds up in them.
    ///
    /// # Errors
    /// If a worker cannot be started.
    pub(crate) fn start_steady_workers(&mut self) -> Result<()> {
        self.start_workers(&STEADY_WORKERS)
    }

    /// The workers that no fault kills or pauses.
    pub(crate) fn steady_workers(&self) -> &[Process] {
        &self.workers[self.workers.len() - STEADY_WORKERS.len()..]
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

    fn start_workers(&mut self, specs: &[WorkerSpec]) -> Result<()> {
        for spec in specs {
            let worker = self.start_worker(self.workers.len(), spec)?;
            self.workers.push(worker);
        }
        Ok(())
    }

    fn start_worker(&mut self, number: usize, spec: &WorkerSpec) -> Result<Process> {
        let config = self.config_of(number, spec);
        let wait_limit = config.wait_micros.map(Duration::from_micros);
        let count = config.threads;

        let worker = self.testbed.start(config)?;
        let threads = worker.first_thread()..worker.first_thread() + count;
        self.wait_limits
            .extend(threads.filter_map(|thread| Some((thread, wait_limit?))));
        Ok(worker)
    }

    /// Injects the fault repeatedly, each time after all names were granted again, until `time` is
    /// over and the fault had its least number of effects.
    ///
    /// # Errors
    /// If a name is not granted again in time, or the fault never has an effect.
    pub fn run(&mut self, time: Duration) -> Result<()> {
        let fault = self.cell.fault;
        let begun = Instant::now();
        let mut misses = 0;
        while begun.elapsed() < time || effects(&self.injections).count() < fault.min_effects {
            // Each injection has its own generator: the choices of one do not depend on what
            // happened during the injections before it.
            let mut random = Random::seeded(self.seed ^ (self.injections.len() as u64 + 1) << 32);
            let (least, most) = PAUSE_MILLIS;
            // The pace of the faults. The run does not wait for a condition here.
            sleep(Duration::from_millis(least + random.below(most - least)));
            self.wait_until_working()?;

            self.wait_for_long_hold()?;
            self.plan = Plan::of(self.seed, effects(&self.injections).count(), self.lease());

            let newcomer = self.start_newcomer(&mut random)?;
            let at = now();
            let effect = fault.inject(self, &mut random)?;
            misses = if effect.is_some() { 0 } else { misses + 1 };
            let recovered = effect.as_ref().map_or_else(now, |effect| effect.recovered);
            let recovery = self.recovery(recovered)?;
            self.add_newcomer(newcomer)?;

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

    /// How long after `since` the last of the names was granted.
    fn recovery(&mut self, since: u64) -> Result<Duration> {
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
                waited < self.cell.bound,
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
        self.cell.backend.lease
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
        let names = with_long_name(&self.config.names);
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
            let number = usize::try_from(random.below(WORKERS.len() as u64))?;
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
        let another = self.start_worker(number, &WORKERS[number])?;
        let dead = std::mem::replace(&mut self.workers[number], another);
        self.events.extend(dead.end()?);
        Ok(killed)
    }

    /// Adds the events of a process that is not one of the workers.
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

    /// Lets the workers go on without faults for a while, stops them, checks that they left nothing behind, and returns the history.
    ///
    /// # Errors
    /// If a worker fails, or something is left behind.
    pub fn finish(mut self) -> Result<Outcome> {
        let backend = self.cell.backend;
        (backend.wait_until_ready)(&self.testbed)?;
        let settled = self.run_without_faults()?;
        let stop_file = self.config.stop_file.as_ref();
        fs::write(stop_file.context("a file stops the workers")?, "")?;
        let end = now();
        for worker in self.workers {
            let events = worker
                .finish_within(DEADLINE)
                .context("at the end of the run")?;
            check::resource_leaks_beyond(&events, &self.config.resource_slack)?;
            self.events.extend(events);
        }
        let Observed {
            observations,
            intrusions,
        } = self.observer.end()?;

        let missing_canaries = (backend.verify_and_remove)(&self.testbed)?;
        let last = WorkerConfig {
            store: String::new(),
            names: all_names(&self.config.names),
            cycles: 1,
            stop_file: None,
            wait_micros: None,
            ..self.config
        };
        (backend.check_clean)(backend, &self.testbed, &last).context("at the end of the run")?;
        let guarantees = self.testbed.locks().guarantees();
        Ok(Outcome {
            testbed: self.testbed,
            events: self.events,
            opened_during_faults: long_hold::opened_during(&self.opened, &self.injections),
            injections: self.injections,
            wait_limits: self.wait_limits,
            observations,
            intrusions,
            missing_canaries,
            guarantees,
            time: (self.begun, end),
            settled,
        })
    }
}

/// The configuration that all workers share.
fn common_config(cell: &Cell, testbed: &Testbed, seed: u64) -> Result<WorkerConfig> {
    let backend = cell.backend;
    let names = names(cell.fault.requires, seed);

    Ok(WorkerConfig {
        store: testbed.worker_url.clone(),
        lease_millis: Some(u64::try_from(backend.requested_lease.as_millis())?),
        cohort: backend.cohort,
        on_error: match cell.guarantee {
            Guarantee::Exclusion => OnError::Retry,
            Guarantee::TokensOnly | Guarantee::Refuses => OnError::RetryAll,
        },
        cycles: u64::MAX,
        stop_file: Some(testbed.scratch_file().display().to_string()),
        wait_micros: (cell.guarantee == Guarantee::Refuses).then_some(BOUNDED_WAIT),
        resource_slack: resource_slack(testbed, backend, names.len()),
        names,
        ..WorkerConfig::default()
    })
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
    Ok(Clock::several(&folder, WORKERS.len()))
}

/// Draws `how_many` different numbers below `count`.
fn pick(random: &mut Random, count: usize, how_many: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..count).collect();
    let draw =
        |_| left.swap_remove(usize::try_from(random.below(left.len() as u64)).expect("a few"));
    (0..how_many.min(count)).map(draw).collect()
}
