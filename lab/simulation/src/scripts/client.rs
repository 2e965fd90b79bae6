//! What a client of a history does.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold::simulation::Probe;
use leasehold::{Guard, Lock, Locks, Result};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::world::{Kind, ScriptWorld};

/// How often each client acquires.
const ROUNDS: u32 = 4;

/// Runs all clients, and checks that the lock is free when they have ended.
pub(super) async fn run_all(world: &Arc<ScriptWorld>) {
    let clients: Vec<JoinHandle<Option<()>>> = (0..world.plan.clients)
        .map(|number| {
            let client = run(Arc::clone(world), number);
            world.processes[number].spawn(world.checked(client))
        })
        .collect();
    for client in clients {
        if client.await.is_err() {
            world.violate("a client panics".to_owned());
        }
    }

    world.heal();
    let last = open(world).await;
    if world.plan.has_jobs {
        match last.record("job").await {
            Ok(record) => world.check_record(&record),
            Err(error) => world.violate(format!("the record is not read: {error}")),
        }
    }
    let lock = lock_of(world, &last, 0, Kind::Exclusive);
    // The departures of dropped acquires end with their leases, at the latest. A failover that has
    // just begun takes an outage, and new masters grant nothing for a lease.
    let acquired = acquire(world, &lock, usize::MAX, Kind::Exclusive);
    match timeout(world.plan.lease * 6, acquired).await {
        Ok(Some(guard)) => {
            if let Err(error) = guard.release().await {
                world.violate(format!("the last release fails: {error}"));
            }
        }
        _ => world.violate("the lock is not free in the end".to_owned()),
    }
}

async fn run(world: Arc<ScriptWorld>, number: usize) {
    let mut rng = Rng::with_seed(world.plan.seed.wrapping_mul(31) + number as u64);
    let locks = open(&world).await;
    world.event(&format!("client {number} has opened the store"));

    for _ in 0..ROUNDS {
        if world.plan.has_jobs {
            run_job(&world, number, &locks, &mut rng).await;
            continue;
        }
        sleep(world.plan.lease.mul_f64(rng.f64() / 20.0)).await;
        let limit = limit(&world, &mut rng);
        let kind = kind(&world, &locks, &mut rng);
        let lock = lock_of(&world, &locks, number, kind);
        world.event(&format!(
            "client {number} acquires {kind:?} within {limit:?}"
        ));
        let Ok(Some(guard)) = timeout(limit, acquire(&world, &lock, number, kind)).await else {
            world.event(&format!("client {number} gives up"));
            continue;
        };

        let hold = world.plan.lease.mul_f64([0.02, 0.3, 1.5][rng.usize(..3)]);
        hold_for(&world, number, &guard, hold).await;
        if kind == Kind::Writer && rng.bool() {
            world.downgrades(number);
            // A guard whose downgrade failed is a writer's or a reader's.
            if guard.downgrade().await.is_ok() {
                world.downgraded();
            }
            hold_for(&world, number, &guard, hold).await;
        }
        world.event(&format!("client {number} releases"));
        if rng.u8(..4) == 0 {
            drop(guard);
        } else {
            // A hold that was lost cannot be released.
            let _ = guard.release().await;
        }
    }
}

/// Runs one of a few jobs, in any order of their ids.
async fn run_job(world: &ScriptWorld, number: usize, locks: &Locks, rng: &mut Rng) {
    sleep(world.plan.lease.mul_f64(rng.f64() / 20.0)).await;
    let id = rng.u32(..ROUNDS);
    let job = locks.once("job").id(id.to_string());
    let job = job.lease(world.plan.lease_of(number));
    let limit = limit(world, rng);
    world.event(&format!("client {number} begins job {id} within {limit:?}"));
    let guard = match timeout(limit, job.acquire()).await {
        Ok(Ok(Ok(guard))) => guard,
        Ok(Ok(Err(_))) => return world.job_is_done(id),
        Ok(Err(error)) if error.is_unavailable() || error.is_lost() => {
            return world.event(&format!("client {number}: {error}"));
        }
        Ok(Err(error)) => return world.violate(format!("a job fails: {error}")),
        Err(_) => return world.event(&format!("client {number} gives up")),
    };

    world.granted(number, Kind::Exclusive, &guard, Probe::of(&guard));
    world.job_starts(id);
    let hold = world.plan.lease.mul_f64([0.02, 0.3, 1.5][rng.usize(..3)]);
    hold_for(world, number, &guard, hold).await;
    if rng.u8(..4) == 0 {
        return drop(guard);
    }
    world.job_ends(id, guard.claim_id());
    match guard.complete().await {
        Ok(()) => world.job_is_completed(id),
        Err(error) => world.event(&format!(
            "client {number} has not completed job {id}: {error}"
        )),
    }
}

async fn hold_for(world: &ScriptWorld, number: usize, guard: &Guard, time: Duration) {
    tokio::select! {
        () = sleep(time) => {}
        _ = guard.lost() => world.lost(number),
    }
}

fn kind(world: &ScriptWorld, locks: &Locks, rng: &mut Rng) -> Kind {
    if !world.plan.has_readers || !locks.guarantees().rwlock {
        Kind::Exclusive
    } else if rng.bool() {
        Kind::Reader
    } else {
        Kind::Writer
    }
}

/// How long a client waits before it drops its acquire.
fn limit(world: &ScriptWorld, rng: &mut Rng) -> Duration {
    match rng.u8(..6) {
        0 => world.plan.lease.mul_f64(rng.f64() / 4.0),
        _ => world.plan.lease * 200,
    }
}

/// Acquires the lock; an outage only delays it.
async fn acquire(
    world: &Arc<ScriptWorld>,
    lock: &Lock,
    number: usize,
    kind: Kind,
) -> Option<Guard> {
    loop {
        match lock.acquire().await {
            Ok(guard) => {
                world.granted(number, kind, &guard, Probe::of(&guard));
                return Some(guard);
            }
            Err(error) if error.is_unavailable() => {
                world.event(&format!("client {number}: {error}"));
                sleep(world.plan.lease / 10).await;
            }
            Err(error) => {
                world.violate(format!("an acquire fails: {error}"));
                return None;
            }
        }
    }
}

async fn open(world: &Arc<ScriptWorld>) -> Locks {
    loop {
        let opened: Result<Locks> = leasehold::open(&world.plan.url).await;
        match opened {
            Ok(locks) => return locks,
            Err(error) if error.is_unavailable() => sleep(world.plan.lease / 10).await,
            Err(error) => {
                world.violate(format!("the store does not open: {error}"));
                std::future::pending::<()>().await;
            }
        }
    }
}

fn lock_of(world: &ScriptWorld, locks: &Locks, number: usize, kind: Kind) -> Lock {
    let lock = match kind {
        Kind::Exclusive => locks.mutex("job"),
        Kind::Reader => locks.rwlock("job").shared(),
        Kind::Writer => locks.rwlock("job").exclusive(),
    };
    lock.lease(world.plan.lease_of(number))
}
