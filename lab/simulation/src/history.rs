//! Running one history.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Locks, simulation};
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::client;
use crate::event::{Counts, Detail, Event, Violation};
use crate::fault;
use crate::plan::{BackendPlan, Plan};
use crate::process::TaskKind;
use crate::store::SimulatedStore;
use crate::task::{as_client, spawn};
use crate::world::World;

/// What a history did.
#[derive(Debug)]
pub struct Report {
    /// The first violation.
    pub violation: Option<Violation>,
    /// What the history did.
    pub counts: Counts,
    /// The events, in order.
    pub events: Vec<Event>,
}

impl Report {
    /// Returns a number that two runs of one plan have in common.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for event in &self.events {
            format!("{event:?}").hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Runs a history to its end or to its first violation.
#[must_use]
pub fn run(plan: &Plan, detail: Detail) -> Report {
    fastrand::seed(plan.seed);
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs no resources");

    runtime.block_on(async {
        let world = World::new(plan, detail);
        let _scope = simulation::enter(Arc::clone(&world) as Arc<dyn simulation::World>);

        tokio::select! {
            biased;
            () = world.violated.notified() => {}
            ended = timeout(LONGEST, live(&world, plan)) => if ended.is_err() {
                world.violate("no client starves", world.stuck());
            },
        }
        end(&world).await;
        report(&world)
    })
}

/// Lets the clients do what the plan contains, and then checks that all locks are free.
async fn live(world: &Arc<World>, plan: &Plan) {
    let mut faults: Vec<JoinHandle<()>> = plan
        .faults
        .iter()
        .map(|fault| tokio::spawn(fault::inject(Arc::clone(world), *fault)))
        .collect();
    if let BackendPlan::Redis(redis) = &plan.profile.backend
        && redis.has_server_faults
    {
        let disturbed = Arc::clone(world);
        let outage = redis.outage;
        faults.push(tokio::spawn(async move {
            disturbed.disturb_servers(outage).await;
        }));
    }
    let locks: Vec<Option<Locks>> = (0..plan.clients.len())
        .map(|client| open(world, client))
        .collect();

    for (number, client) in plan.clients.iter().enumerate() {
        for operations in &client.tasks {
            let shared = Arc::clone(world);
            let locks = locks[number].clone();
            let work = client::run(shared, number, locks, operations.clone());
            spawn(world, number, TaskKind::Worker, Box::pin(work));
        }
    }
    world.wait_for_workers().await;

    world.end_of_plan();
    for fault in faults {
        // A fault that panics is a bug of the simulation.
        fault.await.expect("a fault does not panic");
    }
    world.disarm();
    acquire_all(world, plan, &locks).await;
    world.wait_for_departures().await;
    // The last departure may have ended without a later step of its client.
    (0..locks.len()).for_each(|client| world.check(client));
}

/// Opens the store of a client, unless it needs a connection for it.
fn open(world: &Arc<World>, client: usize) -> Option<Locks> {
    if matches!(world.profile.backend, BackendPlan::Redis(_)) {
        return None;
    }
    let store = SimulatedStore::new(Arc::clone(world), client);
    let locks = as_client(client, || Locks::from_store(store, "simulated:"));
    world.state().clients[client].is_open = true;
    Some(locks.expect("a simulated timer is always created"))
}

/// Lets a surviving client run every job that is not done, and acquire every lock, at least ten
/// times in all.
async fn acquire_all(world: &Arc<World>, plan: &Plan, locks: &[Option<Locks>]) {
    let is_alive = |client: &usize| !world.state().clients[*client].is_dead;
    let Some(client) = (0..locks.len()).find(is_alive) else {
        return;
    };

    if plan.has_jobs() {
        let work = client::complete_all(Arc::clone(world), client, locks[client].clone());
        spawn(world, client, TaskKind::Worker, Box::pin(work));
        world.wait_for_workers().await;
    }
    for round in 0..GRANTS_MIN {
        let name = round % plan.profile.names;
        let has_enough = world.state().counts.grants >= u32::from(GRANTS_MIN);
        if round >= plan.profile.names && has_enough {
            break;
        }
        let work = client::acquire_once(Arc::clone(world), client, locks[client].clone(), name);
        spawn(world, client, TaskKind::Worker, Box::pin(work));
        world.wait_for_workers().await;
    }
    if matches!(plan.profile.backend, BackendPlan::Redis(_)) {
        let work = client::check_free(Arc::clone(world), locks[client].clone());
        spawn(world, client, TaskKind::Worker, Box::pin(work));
        world.wait_for_workers().await;
    }
}

/// Ends all clients. Nothing of them may run after this.
async fn end(world: &Arc<World>) {
    world.end();
    while !world.is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
}

fn report(world: &World) -> Report {
    let mut state = world.state();
    Report {
        violation: state.violation.take(),
        counts: state.counts,
        events: std::mem::take(&mut state.events),
    }
}

impl World {
    async fn wait_for_workers(&self) {
        while self.state().clients.iter().any(|client| client.workers > 0) {
            self.task_ended.notified().await;
        }
    }

    async fn wait_for_departures(&self) {
        let departs = |client: &crate::process::Client| client.background > 0 && !client.is_dead;
        while self.state().clients.iter().any(departs) {
            self.task_ended.notified().await;
        }
    }

    fn end_of_plan(&self) {
        self.state().workers_have_ended = true;
        self.granted.notify_waiters();
    }

    /// Describes what has not ended.
    fn stuck(&self) -> String {
        let state = self.state();
        let clients = state.clients.iter().enumerate().map(|(number, client)| {
            format!(
                "client {number}: {} acquires, {} releases, {} tasks, {} background tasks",
                client.acquiring.len(),
                client.releasing,
                client.workers,
                client.background
            )
        });
        clients.collect::<Vec<_>>().join("; ")
    }
}

/// The longest time of a history. Every wait in it is bounded by leases and outages.
const LONGEST: Duration = Duration::from_secs(3_600);
/// The least number of grants of a history.
const GRANTS_MIN: u8 = 10;
