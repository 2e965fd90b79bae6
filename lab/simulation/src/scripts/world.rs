//! The world of such a history: its clock, its servers and their connections.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fastrand::Rng;
use lab_redis_model::Wire;
use leasehold::simulation::{self, BackgroundTask, BootInstant, Connection, Probe};
use leasehold::{ClaimId, Guard, Record};
use parking_lot::Mutex;
use tokio::io::duplex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::servers::Servers;
use super::{ScriptPlan, ScriptReport};
use crate::clock::Clock;
use crate::server::nanos;
use crate::standstill::Standstill;
use crate::testbed::Process;
use crate::testbed::process::{current_clock, in_current};

pub(super) struct ScriptWorld {
    me: Weak<ScriptWorld>,
    pub(super) plan: ScriptPlan,
    pub(super) violated: Notify,
    /// One for each client.
    pub(super) processes: Vec<Process>,
    start: Instant,
    standstill: Standstill,
    state: Mutex<ScriptState>,
}

struct ScriptState {
    servers: Servers,
    rng: Rng,
    ids: Rng,
    /// Guards that may be valid.
    guards: Vec<Granted>,
    last_token: u64,
    /// The last token of a guard that was granted alone.
    last_alone: u64,
    /// The claims that began to complete a job, with its id, while their guards were valid or not.
    completing: Vec<(u32, ClaimId)>,
    /// The jobs whose completion was confirmed.
    completed: Vec<u32>,
    is_healed: bool,
    /// Until when no client can connect.
    down_until: Option<Instant>,
    report: ScriptReport,
}

impl ScriptState {
    /// Counts the grant to a reader, if it is beside another valid guard.
    fn count_shared(&mut self, granted: &Granted, world: &ScriptWorld) {
        let plan = &world.plan;
        let lease = plan.lease_of(granted.client);
        let others = self.guards.iter().filter(|guard| world.is_valid(guard));
        let leases: Vec<Duration> = others.map(|guard| plan.lease_of(guard.client)).collect();

        self.report.shared_grants += u32::from(!leases.is_empty());
        self.report.unlike_leases += u32::from(leases.iter().any(|other| *other != lease));
    }
}

/// What a client acquires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A mutex.
    Exclusive,
    Reader,
    Writer,
}

/// A guard of a client.
struct Granted {
    client: usize,
    token: u64,
    kind: Kind,
    probe: Probe,
}

impl ScriptWorld {
    pub(super) fn new(plan: ScriptPlan) -> Arc<Self> {
        let mut rng = Rng::with_seed(plan.seed ^ 0x5C21);
        let state = ScriptState {
            servers: Servers::start(plan.store, plan.lease),
            ids: rng.fork(),
            rng,
            guards: Vec::new(),
            last_token: 0,
            last_alone: 0,
            completing: Vec::new(),
            completed: Vec::new(),
            is_healed: false,
            down_until: None,
            report: ScriptReport::default(),
        };
        let clocks = plan.drifts.iter().zip(1..);
        let processes = clocks
            .map(|(drift, number)| Process::with(Clock::new(number, *drift)))
            .collect();
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            processes,
            plan,
            violated: Notify::new(),
            start: Instant::now(),
            standstill: Standstill::default(),
            state: Mutex::new(state),
        })
    }

    pub(super) fn report(&self) -> ScriptReport {
        std::mem::take(&mut self.state.lock().report)
    }

    /// Records the first violation.
    pub(super) fn violate(&self, what: String) {
        self.event(&what);
        self.state.lock().report.violation.get_or_insert(what);
        self.violated.notify_one();
    }

    /// Lets no further connection break.
    pub(super) fn heal(&self) {
        let mut state = self.state.lock();
        state.is_healed = true;
        state.down_until = None;
    }

    pub(super) fn granted(&self, client: usize, kind: Kind, guard: &Guard, probe: Probe) {
        let token = guard.token().get();
        self.event(&format!("client {client} is granted token {token}"));
        let mut state = self.state.lock();
        state.report.grants += 1;
        // Readers that hold together may learn of their grants in any order.
        let last = if kind == Kind::Reader {
            state.last_alone
        } else {
            state.last_alone = state.last_alone.max(token);
            state.last_token
        };
        state.last_token = state.last_token.max(token);
        let granted = Granted {
            client,
            token,
            kind,
            probe,
        };
        if kind == Kind::Reader {
            state.count_shared(&granted, self);
        }
        state.guards.push(granted);
        drop(state);

        if token <= last && self.has_rising_tokens() {
            self.violate(format!("token {token} is granted after {last}"));
        }
        self.check();
    }

    /// Readers may be granted from now on, beside the guard of this client.
    pub(super) fn downgrades(&self, client: usize) {
        self.event(&format!("client {client} downgrades its guard"));
        let mut state = self.state.lock();
        for guard in state
            .guards
            .iter_mut()
            .filter(|guard| guard.client == client)
        {
            guard.kind = Kind::Reader;
        }
    }

    pub(super) fn downgraded(&self) {
        self.state.lock().report.downgrades += 1;
    }

    pub(super) fn lost(&self, client: usize) {
        self.event(&format!("client {client} notices a loss"));
    }

    /// No job starts after its completion was confirmed.
    pub(super) fn job_starts(&self, id: u32) {
        self.event(&format!("job {id} starts"));
        if self.state.lock().completed.contains(&id) {
            self.violate(format!("job {id} starts after its completion"));
        }
    }

    /// The claim begins to complete the job that it has started.
    pub(super) fn job_ends(&self, id: u32, claim: ClaimId) {
        self.state.lock().completing.push((id, claim));
    }

    pub(super) fn job_is_completed(&self, id: u32) {
        self.event(&format!("job {id} is completed"));
        let mut state = self.state.lock();
        let is_second = state.completed.contains(&id);
        state.completed.push(id);
        state.report.jobs[0] += 1;
        drop(state);
        if is_second {
            self.violate(format!("job {id} is completed twice"));
        }
    }

    /// A job is done only if a claim has begun to complete it.
    pub(super) fn job_is_done(&self, id: u32) {
        self.event(&format!("job {id} is done"));
        let mut state = self.state.lock();
        state.report.jobs[1] += 1;
        let has_end = state.completing.iter().any(|(ended, _)| *ended == id);
        drop(state);
        if !has_end {
            self.violate(format!("job {id} is done, and no claim has completed it"));
        }
    }

    /// Checks that each job is recorded once, by a claim that held, and that none is missing.
    pub(super) fn check_record(&self, record: &Record) {
        let state = self.state.lock();
        let recorded: Vec<(u32, ClaimId)> = record
            .completions
            .iter()
            .map(|one| (one.id.parse().expect("a number"), one.claim))
            .collect();
        let ids: BTreeSet<u32> = recorded.iter().map(|(id, _)| *id).collect();
        let is_right = ids.len() == recorded.len()
            && recorded.iter().all(|one| state.completing.contains(one))
            && state.completed.iter().all(|id| ids.contains(id));
        let details = format!(
            "{recorded:?} are recorded, {:?} ended, and {:?} were confirmed",
            state.completing, state.completed
        );
        drop(state);
        if !is_right {
            self.violate(format!("the record is wrong: {details}"));
        }
    }

    /// Checks after each step that the valid guards are one guard or readers.
    fn check(&self) {
        let mut state = self.state.lock();
        state.guards.retain(|guard| self.is_valid(guard));
        let is_alone = |guard: &Granted| guard.kind != Kind::Reader;
        let do_overlap = state.guards.len() > 1 && state.guards.iter().any(is_alone);
        let overlap = do_overlap.then(|| {
            let holders = state.guards.iter().map(|guard| {
                let Granted { client, token, .. } = guard;
                format!("client {client} with {token}")
            });
            holders.collect::<Vec<_>>().join(" and ")
        });
        drop(state);

        if let Some(holders) = overlap {
            self.violate(format!("two clients hold: {holders}"));
        }
    }

    /// Runs a task with a check after each step.
    pub(super) fn checked<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        task: F,
    ) -> impl Future<Output = ()> + Send + 'static {
        let world = Arc::clone(self);
        let mut task = Box::pin(task);
        poll_fn(move |context| {
            let polled = task.as_mut().poll(context);
            world.check();
            polled
        })
    }

    /// A format that does not remember the last token cannot promise that tokens rise.
    fn has_rising_tokens(&self) -> bool {
        self.plan.store.has_rising_tokens
    }

    pub(super) fn event(&self, what: &str) {
        let at = self.start.elapsed();
        let mut state = self.state.lock();
        state.report.events.push(format!("{at:>12.3?} {what}"));
    }

    /// Whether the client of a guard relies on it, by its clock.
    fn is_valid(&self, guard: &Granted) -> bool {
        match self.processes.get(guard.client) {
            Some(process) if process.is_dead() => false,
            Some(process) => guard.probe.expires_at() > process.clock().at(self.time()),
            // The client that looks whether the lock is free in the end.
            None => guard.probe.expires_at() > current_clock().at(self.time()),
        }
    }

    fn time(&self) -> u64 {
        nanos(self.start.elapsed())
    }

    /// Ends a task that works on without a pause: time would never pass again.
    fn check_pause(&self) {
        if self.standstill.lasts_at(self.time()) {
            self.violate("a task never pauses".to_owned());
            panic!("a task never pauses");
        }
    }

    /// Draws how long a message takes.
    fn delay(&self) -> Duration {
        if self.are_faults_over() {
            return Duration::from_micros(100);
        }
        let mut state = self.state.lock();
        let share = state.rng.f64();
        self.plan.slowest.mul_f64(share * share)
    }

    /// Draws whether a connection breaks now; an outage may begin then.
    fn breaks(&self) -> bool {
        let is_over = self.are_faults_over();
        let mut state = self.state.lock();
        if is_over || state.rng.u16(..1_000) >= self.plan.broken {
            return false;
        }

        if state.rng.u8(..6) == 0 {
            state.down_until = Some(Instant::now() + self.plan.outage);
        }
        state.report.breaks_with_hold += u32::from(!state.guards.is_empty());
        true
    }

    /// Lets servers restart and fail over, one after another, until the faults are over.
    pub(super) async fn disturb_servers(&self) {
        let mut rng = Rng::with_seed(self.plan.seed ^ 0x5E17);
        loop {
            sleep(self.plan.lease.mul_f64(1.0 + 5.0 * rng.f64())).await;
            if self.are_faults_over() {
                return std::future::pending().await;
            }

            let fault = self.state.lock().servers.begin_fault(&mut rng);
            self.event("a server stops, or the slot begins to move");
            sleep(self.plan.outage).await;
            self.state.lock().servers.end_fault(fault);
            self.event("the fault of a server ends");
            self.state.lock().report.server_faults += 1;
        }
    }

    /// Pauses one client after another for up to one and a half leases, and kills one of them.
    pub(super) async fn disturb_clients(&self) {
        let mut rng = Rng::with_seed(self.plan.seed ^ 0xC11E);
        let killed = rng.usize(..2 * self.plan.clients);
        loop {
            sleep(self.plan.lease.mul_f64(0.3 + 2.0 * rng.f64())).await;
            if self.are_faults_over() {
                return std::future::pending().await;
            }

            let client = rng.usize(..self.plan.clients);
            self.count_client_fault(client);
            let process = &self.processes[client];
            if client == killed {
                self.event(&format!("client {client} is killed"));
                process.kill();
            } else {
                self.event(&format!("client {client} is paused"));
                process.pause();
                sleep(self.plan.lease.mul_f64(1.5 * rng.f64())).await;
                process.resume();
                self.event(&format!("client {client} goes on"));
            }
        }
    }

    fn count_client_fault(&self, client: usize) {
        let mut state = self.state.lock();
        let mut guards = state.guards.iter();
        let holds = guards.any(|guard| guard.client == client && self.is_valid(guard));
        state.report.client_faults += u32::from(holds);
    }

    fn are_faults_over(&self) -> bool {
        self.state.lock().is_healed || self.start.elapsed() > FAULTS_MAX
    }

    fn is_down(&self) -> bool {
        let until = self.state.lock().down_until;
        until.is_some_and(|until| Instant::now() < until)
    }
}

/// After this time of a history, no connection breaks and no server fails. A client that still waits then is stuck.
const FAULTS_MAX: Duration = Duration::from_secs(120);

impl simulation::World for ScriptWorld {
    fn now(&self) -> BootInstant {
        self.check_pause();
        current_clock().at(self.time())
    }

    fn instant_of(&self, time: BootInstant) -> Instant {
        let passed = Duration::from_nanos(current_clock().time_of(time));
        // Both conversions round down, and the clock must show the time when the timer fires.
        self.start + passed + Duration::from_micros(1)
    }

    fn draw_id(&self) -> [u8; 16] {
        self.state.lock().ids.u128(..).to_be_bytes()
    }

    fn spawn(&self, task: BackgroundTask) -> AbortHandle {
        let me = self.me.upgrade().expect("the world exists while it runs");
        tokio::spawn(me.checked(in_current(task))).abort_handle()
    }

    fn connect(&self, host: &str, _port: u16) -> io::Result<Box<dyn Connection>> {
        if self.is_down() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let host = self.state.lock().servers.host(host);
        if !host.is_running() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }

        let (ours, theirs) = duplex(64 * 1024);
        let world = self.me.upgrade().expect("the world exists while it runs");
        tokio::spawn(async move { host.serve(theirs, BreakingWire(world)).await });
        Ok(Box::new(ours))
    }
}

struct BreakingWire(Arc<ScriptWorld>);

impl Wire for BreakingWire {
    async fn before(&mut self) -> io::Result<()> {
        sleep(self.0.delay()).await;
        if self.0.is_down() || self.0.breaks() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }

    async fn pass(&mut self, sent: &mut Vec<u8>) -> io::Result<()> {
        sleep(self.0.delay()).await;
        if self.0.is_down() || self.0.breaks() {
            let kept = self.0.state.lock().rng.usize(..=sent.len());
            sent.truncate(kept);
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}
