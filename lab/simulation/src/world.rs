//! The state of a history.

use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use fastrand::Rng;
use leasehold::store::ClaimId;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::backend::Backend;
use crate::clock::{Clock, VirtualTime};
use crate::event::{Counts, Detail, Event, Violation, What};
use crate::hold::HoldRecord;
use crate::plan::{Plan, Profile};
use crate::process::Client;
use crate::server::Nanos;

/// A world with several clients and the servers of one store.
pub(crate) struct World {
    me: Weak<World>,
    pub(crate) virtual_time: VirtualTime,
    clocks: Vec<Clock>,
    pub(crate) profile: Profile,
    detail: Detail,
    state: Mutex<State>,
    /// Notified at each grant.
    pub(crate) granted: Notify,
    /// Notified when a task of a client ends.
    pub(crate) task_ended: Notify,
    /// Notified by the first violation.
    pub(crate) violated: Notify,
}

/// The changing part of a world.
pub(crate) struct State {
    pub(crate) backend: Backend,
    pub(crate) clients: Vec<Client>,
    pub(crate) holds: Vec<HoldRecord>,
    pub(crate) events: Vec<Event>,
    pub(crate) violation: Option<Violation>,
    pub(crate) counts: Counts,
    pub(crate) jobs: Jobs,
    /// Whether the clients have done everything that the plan contains.
    pub(crate) workers_have_ended: bool,
    /// The choices of the network.
    pub(crate) network_rng: Rng,
    task_rng: Rng,
    pub(crate) id_rng: Rng,
    pub(crate) next_task: u64,
}

/// The completions of jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// The claims that began to complete a job, with its id, while their guards were valid or not.
    pub(crate) completing: Vec<(u32, ClaimId)>,
    /// The jobs whose completion was confirmed.
    pub(crate) completed: Vec<u32>,
}

/// What a task does when it is polled.
pub(crate) enum Turn {
    Run,
    Deferred,
    Paused,
    Dead,
}

impl World {
    /// Creates the world of a plan; must be called inside a runtime with paused time.
    pub(crate) fn new(plan: &Plan, detail: Detail) -> Arc<Self> {
        let clients = plan.clients.iter().enumerate();
        let clocks = clients
            .map(|(number, client)| Clock::new(number, client.drift))
            .collect();
        let mut rng = Rng::with_seed(plan.seed ^ 0x5EED);

        let state = State {
            backend: Backend::start(&plan.profile),
            clients: plan.clients.iter().map(|_| Client::default()).collect(),
            holds: Vec::new(),
            events: Vec::new(),
            violation: None,
            counts: Counts::default(),
            jobs: Jobs::default(),
            workers_have_ended: false,
            network_rng: rng.fork(),
            task_rng: rng.fork(),
            id_rng: rng.fork(),
            next_task: 0,
        };
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            virtual_time: VirtualTime::begin(),
            clocks,
            profile: plan.profile.clone(),
            detail,
            state: Mutex::new(state),
            granted: Notify::new(),
            task_ended: Notify::new(),
            violated: Notify::new(),
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn shared(&self) -> Arc<Self> {
        self.me.upgrade().expect("the world exists while it runs")
    }

    /// Returns whether the timeline is printed.
    pub(crate) fn is_verbose(&self) -> bool {
        self.detail == Detail::Full
    }

    /// Returns the true time.
    pub(crate) fn time(&self) -> Nanos {
        self.virtual_time.now()
    }

    pub(crate) fn clock(&self, client: usize) -> Clock {
        self.clocks[client]
    }

    pub(crate) fn record(&self, client: usize, what: What) {
        let at = self.time();
        let mut state = self.state();
        state.events.push(Event { at, client, what });
        let is_long = state.events.len() > EVENTS_MAX;
        drop(state);

        if is_long {
            self.violate("a history ends", format!("after {EVENTS_MAX} events"));
        }
    }

    /// Decides what a task does that is polled.
    pub(crate) fn turn(&self, client: usize, number: u64, waker: &Waker) -> Turn {
        self.strike_at_poll(client);
        let mut state = self.state();
        let defer = state.task_rng.u8(..100) < self.profile.deferred;
        let client = &mut state.clients[client];

        if client.is_dead {
            return Turn::Dead;
        }
        let previous = client.keep_waker(number, waker);
        let is_paused = client.is_paused;
        drop(state);
        drop(previous);

        match (is_paused, defer) {
            (true, _) => Turn::Paused,
            (false, true) => Turn::Deferred,
            (false, false) => Turn::Run,
        }
    }

    pub(crate) fn task_ended(&self, client: usize, number: u64) {
        let mut state = self.state();
        let removed = state.clients[client].remove_task(number);
        drop(state);
        drop(removed);
        self.task_ended.notify_one();
    }

    /// Wakes every task of a client, which then reads whether the client is paused or dead.
    pub(crate) fn wake_all(&self, client: usize) {
        let state = self.state();
        let tasks = state.clients[client].tasks.values();
        let wakers: Vec<Waker> = tasks.filter_map(|(_, waker)| waker.clone()).collect();
        drop(state);

        for waker in wakers {
            waker.wake();
        }
    }

    /// Returns whether no task of any client exists.
    pub(crate) fn is_empty(&self) -> bool {
        self.state()
            .clients
            .iter()
            .all(|client| client.tasks.is_empty())
    }
}

/// A longer history repeats itself.
const EVENTS_MAX: usize = 100_000;

impl State {
    /// Returns the clients that wait for a lock, the first one first.
    pub(crate) fn waiting_clients(&self) -> Vec<usize> {
        if let Some(server) = self.backend.contract() {
            let entries = server.queues.values().flat_map(|queue| &queue.entries);
            let waiting = entries.filter(|entry| entry.token.is_none());
            return waiting.map(|entry| entry.claimed.client).collect();
        }
        let waits = |client: &usize| !self.clients[*client].acquiring.is_empty();
        (0..self.clients.len()).filter(waits).collect()
    }

    /// Counts a grant beside another valid guard.
    pub(crate) fn count_shared(
        &mut self,
        granted: &HoldRecord,
        is_valid: impl Fn(&HoldRecord) -> bool,
    ) {
        let others = self.holds.iter().filter(|hold| is_valid(hold));
        let leases: Vec<Duration> = others.map(|hold| hold.lease).collect();
        self.counts.shared_grants += u32::from(!leases.is_empty());
        self.counts.unlike_leases += u32::from(leases.iter().any(|other| *other != granted.lease));
    }

    /// Returns the records of a claim that the client still has.
    pub(crate) fn open_hold(&mut self, id: ClaimId) -> Option<&mut HoldRecord> {
        let mut holds = self.holds.iter_mut();
        holds.find(|hold| !hold.is_closed && hold.probe.claim_id() == id)
    }
}
