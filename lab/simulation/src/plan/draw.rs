//! Drawing a plan. Worst cases are drawn more often than a uniform choice would.

use std::time::Duration;

use fastrand::Rng;
use leasehold::CrashRelease;
use leasehold::store::replies;

use super::{
    Bound, ClientPlan, Ending, Fault, FaultKind, LockKind, Network, Operation, PERIODS, Plan,
    Profile, Target, Wait, Work,
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

/// Lets each operation run a job of a period, or of an earlier one.
pub(super) fn jobs(seed: u64) -> Plan {
    let mut plan = plan(seed);
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
