//! Drawing a plan. Worst cases are drawn more often than a uniform choice would.

use std::time::Duration;

use fastrand::Rng;
use leasehold::CrashRelease;
use leasehold::store::replies;

use super::redis::{RedisPlan, RedisStore, STORES};
use super::{
    BackendPlan, Bound, ClientPlan, Ending, Fault, FaultKind, LockKind, Network, Operation,
    PERIODS, Plan, Profile, Target, Wait, Work,
};

/// Two clocks differ by at most 500 millionths, which the engine allows for.
const DRIFT_MAX: i64 = 245;

pub(super) fn plan(seed: u64) -> Plan {
    let mut rng = Rng::with_seed(seed);
    let profile = profile(&mut rng);
    let clients = (0..rng.usize(3..=4))
        .map(|_| client(&mut rng, &profile))
        .collect();
    let faults = (0..rng.usize(1..=2))
        .map(|_| fault(&mut rng, &profile))
        .collect();

    let mut plan = Plan {
        seed,
        profile,
        clients,
        faults,
    };
    form_cohorts(&mut plan);
    plan
}

pub(super) fn jobs(seed: u64) -> Plan {
    with_jobs(plan(seed))
}

/// Lets each operation run a job of a period, or of an earlier one.
fn with_jobs(mut plan: Plan) -> Plan {
    let seed = plan.seed;
    plan.profile.kind = LockKind::Mutex;
    plan.profile.names = 1;
    // A reply must find its hold valid, or hardly any job is ever completed.
    let slowest_max = plan.profile.hold_length() / 4;
    let network = &mut plan.profile.network;
    network.slowest = network.slowest.min(slowest_max);
    let mut rng = Rng::with_seed(seed ^ 0x0_0CE);
    for tasks in plan.clients.iter_mut().map(|client| &mut client.tasks) {
        for (operation, period) in tasks.iter_mut().flat_map(|task| task.iter_mut().zip(0..)) {
            operation.job = Some((period % PERIODS).saturating_sub(rng.u32(..3) / 2));
            operation.name = 0;
            operation.amount = 1;
            operation.cohort = None;
            operation.bound = Bound::None;
            if matches!(operation.wait, Wait::AtMost(_)) {
                operation.wait = Wait::Forever;
            }
            if matches!(operation.work, Work::Nested | Work::Downgrade) {
                operation.work = Work::Sleep;
            }
        }
    }
    plan
}

pub(super) fn scripts(seed: u64) -> Plan {
    let plan = on_redis(seed, STORES);
    match &plan.profile.backend {
        BackendPlan::Redis(redis) if redis.store.keeps_records && seed % 4 == 1 => with_jobs(plan),
        _ => plan,
    }
}

pub(super) fn script_jobs(seed: u64) -> Plan {
    let keeping = STORES.iter().filter(|store| store.keeps_records);
    with_jobs(on_redis(seed, &keeping.copied().collect::<Vec<_>>()))
}

/// Draws a plan with one of these stores. In half of the plans, each client has a shorter lease
/// than the client before it.
fn on_redis(seed: u64, stores: &[RedisStore]) -> Plan {
    let mut rng = Rng::with_seed(seed);
    let lease = Duration::from_millis([1_500, 4_000, 30_000][rng.usize(..3)]);
    let store = *rng.choice(stores).expect("a store");
    let profile = redis_profile(&mut rng, seed, store, lease);
    let clients = (0..rng.u32(3..=4))
        .map(|number| {
            let divisor = if seed.is_multiple_of(2) {
                1
            } else {
                1 + 3 * number
            };
            redis_client(&mut rng, &profile, lease / divisor)
        })
        .collect();

    let mut has_killed = false;
    let faults = (0..[0, 6][rng.usize(..2)])
        .map(|_| redis_fault(&mut rng, &profile, &mut has_killed))
        .collect();
    Plan {
        seed,
        profile,
        clients,
        faults,
    }
}

fn redis_profile(rng: &mut Rng, seed: u64, store: RedisStore, lease: Duration) -> Profile {
    let has_readers = store.has_readers && !seed.is_multiple_of(3);
    let network = Network {
        slowest: [lease / 1_000, lease / 100, lease / 12][rng.usize(..3)],
        lost: [0, 2, 10, 40][rng.usize(..4)],
        repeated: 0,
    };
    let redis = RedisPlan {
        store,
        url: store.url(lease),
        outage: lease.mul_f64([0.0, 0.3, 1.2][rng.usize(..3)]),
        has_server_faults: rng.bool(),
    };

    Profile {
        backend: BackendPlan::Redis(redis),
        lease,
        lease_expiry: true,
        crash: store
            .grace
            .map_or(CrashRelease::LeaseExpiry, replies::released_within),
        kind: if has_readers {
            LockKind::ReadWrite
        } else {
            LockKind::Mutex
        },
        names: 1,
        network,
        deferred: 0,
        request_timeout: Duration::from_secs(2),
    }
}

fn redis_client(rng: &mut Rng, profile: &Profile, lease: Duration) -> ClientPlan {
    let of_client = |operation| Operation { lease, ..operation };
    let operations = (0..OPERATIONS).map(|_| of_client(operation(rng, profile)));
    let tasks = vec![operations.collect()];
    ClientPlan {
        drift: rng.i64(-2 * DRIFT_MAX..=0),
        tasks,
    }
}

/// Draws a fault of clients. One of them is killed at most.
fn redis_fault(rng: &mut Rng, profile: &Profile, has_killed: &mut bool) -> Fault {
    let fault = fault(rng, profile);
    let time = profile.lease.mul_f64(1.5 * rng.f64());
    let is_kill = matches!(fault.kind, FaultKind::Kill | FaultKind::KillAtPoll(_));
    let kind = match fault.kind {
        FaultKind::Failover(_) | FaultKind::Evict => FaultKind::Pause(time),
        _ if is_kill && *has_killed => FaultKind::Pause(time),
        kind => kind,
    };
    *has_killed |= is_kill;
    let target = match fault.target {
        Target::Everyone if is_kill => Target::Holder,
        target => target,
    };
    Fault {
        target,
        kind,
        ..fault
    }
}

/// How often each client of a store on Redis acquires.
const OPERATIONS: u32 = 8;

/// Lets the tasks of some clients pass holds on. These clients have more tasks than others.
fn form_cohorts(plan: &mut Plan) {
    let mut rng = Rng::with_seed(plan.seed ^ 0xC0_0057);
    if plan.profile.kind != LockKind::Mutex || rng.u8(..3) == 0 {
        return;
    }

    for client in &mut plan.clients {
        if rng.bool() {
            continue;
        }
        let max = rng.u32(1..=3);
        let mut task = || (0..3).map(|_| operation(&mut rng, &plan.profile)).collect();
        client.tasks.extend([task(), task()]);

        for operation in client.tasks.iter_mut().flatten() {
            operation.cohort = Some(max);
            if matches!(operation.bound, Bound::NoRenewal | Bound::Both(_)) {
                operation.bound = Bound::None;
            }
        }
    }
}

fn profile(rng: &mut Rng) -> Profile {
    let lease = Duration::from_millis([200, 1_000, 4_000, 30_000][rng.usize(..4)]);
    let lease_expiry = rng.u8(..8) > 0;
    let crash = match rng.u8(..4) {
        _ if !lease_expiry => CrashRelease::Immediate,
        0 => CrashRelease::Immediate,
        1 => replies::released_within(lease.mul_f64(0.2 + rng.f64())),
        2 => replies::released_within(lease / 2),
        _ => CrashRelease::LeaseExpiry,
    };
    let kind = match rng.u8(..6) {
        0 => LockKind::Slots(rng.u32(2..=3)),
        1 => LockKind::ReadWrite,
        _ => LockKind::Mutex,
    };

    Profile {
        backend: BackendPlan::Contract,
        lease,
        lease_expiry,
        crash,
        kind,
        names: rng.u8(1..=2),
        network: network(rng, lease),
        deferred: [0, 10, 40][rng.usize(..3)],
        request_timeout: Duration::from_millis(rng.u64(100..2_000)),
    }
}

fn network(rng: &mut Rng, lease: Duration) -> Network {
    let slowest = match rng.u8(..4) {
        0 | 1 => lease / 200,
        2 => lease / 10,
        _ => lease.mul_f64(rng.f64()),
    };
    let lossy = rng.u8(..4) == 0;

    Network {
        slowest: slowest.max(Duration::from_micros(200)),
        lost: if lossy { rng.u16(1..200) } else { 0 },
        repeated: if rng.bool() { rng.u16(..200) } else { 0 },
    }
}

fn client(rng: &mut Rng, profile: &Profile) -> ClientPlan {
    let tasks = 1 + usize::from(rng.u8(..4) == 0);
    let operations = 5 / tasks + 1;

    let mut task = || (0..operations).map(|_| operation(rng, profile)).collect();
    let tasks = (0..tasks).map(|_| task()).collect();
    ClientPlan {
        drift: rng.i64(-DRIFT_MAX..=DRIFT_MAX),
        tasks,
    }
}

fn operation(rng: &mut Rng, profile: &Profile) -> Operation {
    let lease = profile.lease;
    let amount = match profile.kind {
        LockKind::Mutex => 1,
        LockKind::Slots(slots) => rng.u32(1..=slots),
        LockKind::ReadWrite => rng.u32(1..=2),
    };
    let hold = match rng.u8(..8) {
        0..=3 => lease.mul_f64(rng.f64() / 10.0),
        4..=6 => lease.mul_f64(rng.f64()),
        _ => lease.mul_f64(1.0 + rng.f64() * 2.0),
    };

    Operation {
        pause: lease.mul_f64(rng.f64() / 20.0),
        name: rng.u8(..profile.names),
        amount,
        wait: wait(rng, lease),
        lease,
        cohort: None,
        hold,
        bound: bound(rng, lease),
        work: work(rng, profile.kind),
        ending: ending(rng),
        job: None,
    }
}

fn wait(rng: &mut Rng, lease: Duration) -> Wait {
    match rng.u8(..16) {
        0 => Wait::Never,
        1 | 2 => Wait::AtMost(lease.mul_f64(rng.f64())),
        3 => Wait::DroppedAfter(lease.mul_f64(rng.f64())),
        4 | 5 => Wait::DroppedAtPoll(rng.u32(..6)),
        _ => Wait::Forever,
    }
}

fn bound(rng: &mut Rng, lease: Duration) -> Bound {
    match rng.u8(..10) {
        0 => Bound::NoRenewal,
        1 => Bound::MaxHold(lease.mul_f64(0.1 + rng.f64())),
        2 => Bound::Both(lease.mul_f64(0.1 + rng.f64() * 2.0)),
        _ => Bound::None,
    }
}

fn work(rng: &mut Rng, kind: LockKind) -> Work {
    match rng.u8(..8) {
        0 | 1 => Work::Sleep,
        2 => Work::WhileHeld,
        3 | 4 if kind == LockKind::ReadWrite => Work::Downgrade,
        3 if kind == LockKind::Mutex => Work::Nested,
        _ => Work::WatchLoss,
    }
}

fn ending(rng: &mut Rng) -> Ending {
    match rng.u8(..8) {
        0..=4 => Ending::Release,
        5 | 6 => Ending::Drop,
        _ => Ending::ReleaseDroppedAtPoll(rng.u32(..4)),
    }
}

fn fault(rng: &mut Rng, profile: &Profile) -> Fault {
    Fault {
        after_grants: rng.u32(1..=8),
        delay: profile.lease.mul_f64(rng.f64() / 2.0),
        target: match rng.u8(..8) {
            0..=4 => Target::Holder,
            5 | 6 => Target::Waiter,
            _ => Target::Everyone,
        },
        kind: fault_kind(rng, profile),
    }
}

fn fault_kind(rng: &mut Rng, profile: &Profile) -> FaultKind {
    let length = profile.hold_length();
    let time = match rng.u8(..8) {
        0 => length.mul_f64(rng.f64() * 0.3),
        1..=3 => length.mul_f64(0.3 + rng.f64() * 0.25),
        4 | 5 => length.mul_f64(0.6 + rng.f64()),
        6 => length.mul_f64(1.0 + rng.f64() * 2.0),
        _ => Duration::from_secs(70),
    };

    match rng.u8(..16) {
        0 | 1 => FaultKind::Pause(time),
        2 | 3 => FaultKind::PauseAtPoll(rng.u32(1..20), time),
        4 => FaultKind::Kill,
        5 | 6 => FaultKind::KillAtPoll(rng.u32(1..20)),
        7..=9 => FaultKind::Refused(time),
        10..=12 => FaultKind::Silent(time),
        13 => FaultKind::Failover(time),
        _ => FaultKind::Evict,
    }
}
