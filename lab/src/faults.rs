//! The faults: what each does, what it needs, how its effect is observed, and what a store
//! guarantees under it.

#[expect(clippy::unnecessary_wraps, reason = "all faults are of one form")]
mod clocks;
mod failovers;
mod files;
mod list;
mod names;
#[expect(clippy::unnecessary_wraps, reason = "all faults are of one form")]
mod network;
mod postgres_state;
mod processes;
#[expect(clippy::unnecessary_wraps, reason = "all faults are of one form")]
mod redis;
mod servers;

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use lab_servers::Postgres;

use crate::backends::{Backend, Capability};
use crate::fault_run::{Effect, FaultRun, Plan};
use crate::{Random, now};

pub use list::FAULTS;

/// A fault, and what a store guarantees under it.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The name in commands and tables.
    pub name: &'static str,
    /// A description of the fault.
    pub description: &'static str,
    /// The observation that shows an effect of the fault.
    pub evidence: &'static str,
    /// The capabilities that a store must have.
    pub needs: &'static [Capability],
    /// A store with one of these capabilities has no cell, because the fault alone meets the same
    /// code as on the store without it.
    pub left_out: &'static [Capability],
    /// The set-up with which the store must be started.
    pub requires: Requirement,
    /// What the fault disturbs.
    pub disturbs: Disturbed,
    /// How often the fault must have an effect in a run, however short.
    pub min_effects: usize,
    /// Whether workers run jobs once beside the others, if the store keeps records of them.
    pub meets_jobs: bool,
    /// What a store guarantees under the fault.
    pub guarantee: Guarantee,
    /// A store with one of these capabilities keeps exclusion all the same.
    pub exclusion_with: &'static [Capability],
    /// Within how many seconds each name is granted again, if the store does not need longer after
    /// every fault.
    pub recovery_seconds: u64,
    /// The seconds of stores with a capability that need longer.
    pub slower: &'static [(Capability, u64)],
    /// On a store with one of these capabilities, a hold must be lost if the fault lasts for a
    /// lease or longer. On the others the fault reaches too few servers, or holds do not end by
    /// time.
    pub losses: &'static [Capability],
    /// New clients can open a store with one of these capabilities while the fault lasts.
    pub opens: &'static [Capability],
    /// Injects the fault once and ends it. Returns `None` if it had no effect.
    pub inject: Inject,
    /// The same fault of a PostgreSQL server.
    pub on_postgres: Option<Inject>,
}

type Inject = fn(&mut FaultRun, &mut Random) -> Result<Option<Effect>>;

/// The set-up with which a store must be started.
///
/// A backend receives a variant only if it has the capability that the variant names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// The usual set-up.
    None,
    /// Servers keep their data over a restart. [`Capability::ServerProcess`].
    PersistentData,
    /// Servers have their own clocks. [`Capability::ServerClock`], [`Capability::Replica`].
    ServerClock,
    /// Workers have their own wall clocks. [`FaultRun`] does this, on every backend.
    WorkerClocks,
    /// Workers have their own user, with all rights. [`Capability::StateCommands`].
    DedicatedUser,
    /// The disk is small. [`Capability::SmallDisk`].
    SmallDisk,
    /// Servers keep their data and load it slowly. [`Capability::RedisServer`].
    SlowStart,
    /// The names of the locks have a meaning elsewhere. [`FaultRun`] does this, on every backend.
    HostileNames,
}

/// What a fault disturbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbed {
    /// One worker. Only it loses its position: a killed waiter is not granted, and a stopped one
    /// waits longer.
    OneWorker,
    /// Wires, which may deliver late bytes for a while after the end of the fault.
    Wires,
    /// The store, or many workers.
    Store,
}

/// What a store guarantees under a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// By the common clock, no two claims that exclude each other are held at once. Tokens rise.
    Exclusion,
    /// Tokens are unique and rise. Two claims may be held at once for a limited time: the loss is
    /// reported to the holder whose hold is wrong.
    TokensOnly,
    /// As exclusion, and requests are refused while the fault lasts.
    Refuses,
}

impl Guarantee {
    /// The letter in tables.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::Exclusion => 'E',
            Self::TokensOnly => 'T',
            Self::Refuses => 'R',
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.letter())
    }
}

impl Fault {
    /// What a store guarantees under this fault, and within what time it recovers. Returns `None`
    /// if the store lacks what the fault needs, or is left out.
    #[must_use]
    pub fn expectation(&self, backend: &Backend) -> Option<(Guarantee, Duration)> {
        if backend.has_any(self.left_out) {
            return None;
        }

        let guarantee = self.guarantee_on(backend)?;
        let slower = self.slower.iter().filter(|(has, _)| backend.has(*has));
        let seconds = slower
            .map(|(_, seconds)| *seconds)
            .fold(self.recovery_seconds, u64::max)
            .max(backend.recovery_seconds);
        Some((guarantee, Duration::from_secs(seconds)))
    }

    /// Injects the fault once and ends it. Returns `None` if it had no effect.
    pub(crate) fn inject(&self, run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
        let is_postgres = !run.testbed.servers_of::<Postgres>().is_empty();
        let inject = self.on_postgres.filter(|_| is_postgres);
        inject.unwrap_or(self.inject)(run, random)
    }

    /// What a store guarantees under this fault, also without a cell. Returns `None` if the store
    /// lacks what the fault needs.
    fn guarantee_on(&self, backend: &Backend) -> Option<Guarantee> {
        let is_possible = self.needs.iter().all(|need| backend.has(*need));
        let guarantee = if backend.has_any(self.exclusion_with) {
            Guarantee::Exclusion
        } else {
            self.guarantee
        };

        is_possible.then_some(guarantee)
    }
}

/// Injects three faults in a row, without recovery between them.
fn mixed(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let tolerated = tolerated(run.cell.backend);
    let since = now();
    let mut evidence = Vec::new();

    for _ in 0..3 {
        let fault = tolerated[usize::try_from(random.below(tolerated.len() as u64))?];
        run.plan = Plan::drawn(random, run.lease());
        let effect = fault.inject(run, &mut Random::seeded(random.below(u64::MAX)))?;
        evidence.extend(effect.map(|effect| format!("{}: {}", fault.name, effect.evidence)));
    }
    Ok((!evidence.is_empty()).then(|| ended_now(since, evidence.join("; "))))
}

/// The faults that need no set-up and under which the store guarantees exclusion. Those count too
/// that have no cell with the store, because a failover may meet a client that another fault has
/// killed or paused.
fn tolerated(backend: &Backend) -> Vec<&'static Fault> {
    FAULTS
        .iter()
        .filter(|fault| fault.guarantee_on(backend) == Some(Guarantee::Exclusion))
        .filter(|fault| fault.requires == Requirement::None && fault.name != "mixed")
        .collect()
}

/// The effect of a fault that ends as soon as it is injected.
fn instant(evidence: impl Into<String>) -> Effect {
    at_moment(now(), evidence)
}

/// The effect of a fault that ends now.
fn ended_now(since: u64, evidence: impl Into<String>) -> Effect {
    Effect {
        since,
        ..instant(evidence)
    }
}

/// The effect of a fault that lasts one moment.
fn at_moment(at: u64, evidence: impl Into<String>) -> Effect {
    Effect {
        since: at,
        until: at,
        recovered: at,
        evidence: evidence.into(),
    }
}

/// The effect of a fault from which the store recovers from now on.
fn recovered_now(effect: Effect) -> Effect {
    Effect {
        recovered: now(),
        ..effect
    }
}

/// The effect of a fault from which the store recovers once all servers serve and their replies
/// count.
fn whole(run: &FaultRun, effect: Effect) -> Result<Effect> {
    (run.cell.backend.wait_until_ready)(&run.testbed)?;
    Ok(recovered_now(effect))
}

/// Lets a fault last for this time.
fn wait(time: Duration) {
    std::thread::sleep(time);
}

fn millis(random: &mut Random, least: u64, most: u64) -> Duration {
    Duration::from_millis(least + random.below(most - least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::cell_named;

    #[test]
    fn mixed_faults_have_failovers_where_they_keep_exclusion() -> Result<()> {
        let faults_of = |store| {
            let cell = cell_named(store, "mixed")?;
            let names = tolerated(cell.backend).into_iter().map(|fault| fault.name);
            anyhow::Ok(names.collect::<Vec<_>>())
        };

        let on_sentinel = faults_of("sentinel-replicas")?;
        assert!(on_sentinel.contains(&"master-killed"), "{on_sentinel:?}");
        assert!(on_sentinel.contains(&"holder-paused"), "{on_sentinel:?}");
        assert!(
            !on_sentinel.contains(&"master-partition"),
            "{on_sentinel:?}"
        );

        let on_cluster = faults_of("cluster")?;
        assert!(on_cluster.contains(&"slot-moved"), "{on_cluster:?}");
        assert!(on_cluster.contains(&"holder-paused"), "{on_cluster:?}");
        assert!(!on_cluster.contains(&"master-killed"), "{on_cluster:?}");
        Ok(())
    }
}
