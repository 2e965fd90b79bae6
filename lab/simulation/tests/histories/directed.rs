//! Histories that once had a violation, each as a plan of its own.

use std::time::Duration;

use lab_simulation::plan::{
    BackendPlan, Bound, ClientPlan, Ending, Fault, FaultKind, LockKind, Network, Operation, Plan,
    Profile, Target, Wait, Work,
};
use lab_simulation::{Detail, run};
use leasehold::CrashRelease;
use leasehold::store::replies;

const LEASE: Duration = Duration::from_secs(4);

/// After a failed request, the holder slept for up to a second without watching its validity.
#[test]
fn loss_is_noticed_on_time_while_the_store_refuses_requests() {
    let plan = one_holder(FaultKind::Refused(LEASE * 5));

    assert_kept(&plan);
}

#[test]
fn loss_is_noticed_on_time_while_the_store_is_silent() {
    let plan = one_holder(FaultKind::Silent(LEASE * 5));

    assert_kept(&plan);
}

/// The renewals of an entry that a downgrade had made extended the hold that was gone.
#[test]
fn hold_that_is_gone_ends_before_its_downgrade_leaves() {
    let mut plan = one_holder(FaultKind::Evict);
    plan.profile.kind = LockKind::ReadWrite;
    plan.faults[0].delay = LEASE / 40;
    let operation = &mut plan.clients[0].tasks[0][0];
    operation.amount = 2;
    operation.hold = LEASE / 10;
    operation.work = Work::Downgrade;

    assert_kept(&plan);
}

/// The lease began before a request that took longer than the lease.
#[test]
fn fixed_lease_on_a_store_without_leases_begins_with_the_guard() {
    let mut plan = one_holder(FaultKind::Evict);
    plan.faults.clear();
    plan.profile.lease = Duration::from_millis(200);
    plan.clients[0].tasks[0][0].lease = plan.profile.lease;
    plan.profile.lease_expiry = false;
    plan.profile.crash = CrashRelease::Immediate;
    plan.profile.network.slowest = Duration::from_millis(900);
    plan.profile.request_timeout = Duration::from_secs(2);
    let operation = &mut plan.clients[0].tasks[0][0];
    operation.bound = Bound::NoRenewal;

    for seed in 0..20 {
        plan.seed = seed;
        assert_kept(&plan);
    }
}

/// The acquire took the outage that had ended for one that goes on.
#[test]
fn outage_that_has_ended_does_not_fail_an_acquire_at_its_deadline() {
    let mut plan = holder_and_waiter();
    plan.clients[0].tasks[0][0].hold = LEASE * 10;
    plan.clients[1].tasks[0][0].wait = Wait::AtMost(LEASE * 6);
    plan.faults[0].kind = FaultKind::Refused(LEASE / 2);

    assert_kept(&plan);
}

/// The hold was granted with half of its validity, and ended before its first renewal had a reply.
#[test]
fn outage_that_begins_with_a_pushed_grant_does_not_end_the_hold() {
    let mut plan = holder_and_waiter();
    plan.profile.crash = replies::released_within(LEASE / 2);
    plan.faults[0].after_grants = 2;
    plan.faults[0].delay = Duration::ZERO;
    plan.faults[0].target = Target::Holder;
    plan.faults[0].kind = FaultKind::Silent(LEASE * 27 / 100);

    for hundredths in 15..40 {
        plan.clients[0].tasks[0][0].hold = LEASE * hundredths / 100;
        assert_kept(&plan);
    }
}

fn assert_kept(plan: &Plan) {
    let report = run(plan, Detail::Full);

    if let Some(violation) = report.violation {
        report.events.iter().for_each(|event| println!("{event}"));
        panic!("{violation}");
    }
}

/// A client that waits for the loss of its lock, and a fault that it meets.
fn one_holder(kind: FaultKind) -> Plan {
    let operation = Operation {
        pause: Duration::ZERO,
        name: 0,
        amount: 1,
        wait: Wait::Forever,
        lease: LEASE,
        cohort: None,
        hold: LEASE * 3,
        bound: Bound::None,
        work: Work::WatchLoss,
        ending: Ending::Release,
        job: None,
    };
    Plan {
        seed: 1,
        profile: profile(),
        clients: vec![ClientPlan {
            drift: 0,
            tasks: vec![vec![operation]],
        }],
        faults: vec![Fault {
            after_grants: 1,
            delay: LEASE / 2,
            target: Target::Holder,
            kind,
        }],
    }
}

/// A holder that releases its lock, a client that waits for it, and a fault that this one meets.
fn holder_and_waiter() -> Plan {
    let mut plan = one_holder(FaultKind::Evict);
    let mut waiter = plan.clients[0].clone();
    waiter.tasks[0][0].pause = LEASE / 40;
    plan.clients.push(waiter);
    plan.faults[0].target = Target::Waiter;
    plan
}

fn profile() -> Profile {
    Profile {
        backend: BackendPlan::Contract,
        lease: LEASE,
        lease_expiry: true,
        crash: CrashRelease::LeaseExpiry,
        kind: LockKind::Mutex,
        names: 1,
        network: Network {
            slowest: Duration::from_millis(2),
            lost: 0,
            repeated: 0,
        },
        deferred: 0,
        request_timeout: Duration::from_secs(1),
    }
}
