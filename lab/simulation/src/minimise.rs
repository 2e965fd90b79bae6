//! Removing what a violation does not need.

use crate::event::Detail;
use crate::history::run;
use crate::plan::{BackendPlan, Bound, Plan, Wait, Work};

/// Returns the smallest plan that was found with a violation of the same rule.
///
/// It removes faults, clients, tasks and operations, as long as the violation remains.
#[must_use]
pub fn minimise(plan: &Plan) -> Plan {
    let Some(rule) = rule_of(plan) else {
        return plan.clone();
    };

    let mut smallest = plan.clone();
    loop {
        let smaller = smaller_plans(&smallest).into_iter();
        let mut failing = smaller.filter(|plan| rule_of(plan) == Some(rule));
        match failing.next() {
            Some(plan) => smallest = plan,
            None => return smallest,
        }
    }
}

fn rule_of(plan: &Plan) -> Option<&'static str> {
    run(plan, Detail::Brief)
        .violation
        .map(|violation| violation.rule)
}

fn smaller_plans(plan: &Plan) -> Vec<Plan> {
    let mut smaller = Vec::new();
    let mut add = |change: &dyn Fn(&mut Plan)| {
        let mut changed = plan.clone();
        change(&mut changed);
        smaller.push(changed);
    };

    for fault in 0..plan.faults.len() {
        add(&|plan| {
            plan.faults.remove(fault);
        });
    }
    for (client, tasks) in plan.clients.iter().enumerate() {
        if !tasks.tasks.is_empty() {
            add(&|plan| plan.clients[client].tasks.clear());
        }
        for (task, operations) in tasks.tasks.iter().enumerate() {
            for at in 0..operations.len() {
                add(&|plan| {
                    plan.clients[client].tasks[task].remove(at);
                });
            }
        }
    }
    add_simpler(plan, &mut add);
    smaller
}

/// Adds a changed plan.
type Add<'a> = dyn FnMut(&dyn Fn(&mut Plan)) + 'a;

/// Adds plans in which one property is simpler.
fn add_simpler(plan: &Plan, add: &mut Add<'_>) {
    if let BackendPlan::Redis(redis) = &plan.profile.backend
        && redis.has_server_faults
    {
        let mut calmer = redis.clone();
        calmer.has_server_faults = false;
        add(&|plan| plan.profile.backend = BackendPlan::Redis(calmer.clone()));
    }
    if plan.profile.deferred > 0 {
        add(&|plan| plan.profile.deferred = 0);
    }
    if plan.profile.network.lost > 0 {
        add(&|plan| plan.profile.network.lost = 0);
    }
    if plan.profile.network.repeated > 0 {
        add(&|plan| plan.profile.network.repeated = 0);
    }

    for (client, tasks) in plan.clients.iter().enumerate() {
        for (task, operations) in tasks.tasks.iter().enumerate() {
            for (at, operation) in operations.iter().enumerate() {
                if !matches!(operation.wait, Wait::Forever) {
                    add(&|plan| plan.clients[client].tasks[task][at].wait = Wait::Forever);
                }
                if !matches!(operation.bound, Bound::None) {
                    add(&|plan| plan.clients[client].tasks[task][at].bound = Bound::None);
                }
                if operation.work != Work::Sleep {
                    add(&|plan| plan.clients[client].tasks[task][at].work = Work::Sleep);
                }
            }
        }
    }
}
