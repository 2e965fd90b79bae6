//! Faults of the network.

use std::time::Duration;

use anyhow::Result;
use lab_servers::{Traffic, Wire};

use super::{ended_now, instant, millis, recovered_now, wait};
use crate::fault_run::{Effect, FaultRun, Plan};
use crate::{Random, now};

/// Switches a fault on for some wires, waits, and switches it off.
fn for_a_while(
    wires: &[&Wire],
    time: Duration,
    switch: impl Fn(&Wire, bool),
    evidence: impl Fn(&Wire, Traffic) -> Option<String>,
) -> Option<Effect> {
    let before: Vec<Traffic> = wires.iter().map(|wire| wire.traffic()).collect();
    for wire in wires {
        switch(wire, true);
    }

    let since = now();
    wait(time);
    let shows = wires
        .iter()
        .zip(before)
        .find_map(|(wire, before)| evidence(wire, before));
    let effect = shows.map(|evidence| ended_now(since, format!("{evidence}, {time:?}")));

    for wire in wires {
        switch(wire, false);
    }
    effect.map(recovered_now)
}

/// Disturbs the wires of the plan for its time.
fn disturb(
    run: &FaultRun,
    random: &mut Random,
    switch: impl Fn(&Wire, bool),
    evidence: impl Fn(&Wire, Traffic) -> Option<String>,
) -> Option<Effect> {
    let wires = run.disturbed_wires(random);
    for_a_while(&wires, run.plan.length, switch, evidence)
}

fn cut_off(wire: &Wire, on: bool) {
    wire.refuse(on);
    if on {
        wire.partition();
    }
}

fn refused(wire: &Wire, before: Traffic) -> Option<String> {
    let count = wire.traffic().refused - before.refused;
    (count > 0).then(|| format!("{count} connections refused"))
}

fn kept(wire: &Wire, _: Traffic) -> Option<String> {
    let Traffic {
        waiting_to_server,
        waiting_to_client,
        ..
    } = wire.traffic();
    let count = waiting_to_server + waiting_to_client;
    (count > 0).then(|| format!("{count} bytes kept"))
}

fn lost(wire: &Wire, before: Traffic) -> Option<String> {
    let count = wire.traffic().lost - before.lost;
    (count > 0).then(|| format!("{count} bytes lost"))
}

pub(super) fn partition(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    Ok(disturb(run, random, cut_off, refused))
}

pub(super) fn half_open(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    Ok(disturb(run, random, Wire::freeze, kept))
}

pub(super) fn partition_one_way(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let silent = |wire: &Wire, on: bool| {
        wire.lose_replies(on);
        if !on {
            wire.partition();
        }
    };
    Ok(disturb(run, random, silent, lost))
}

pub(super) fn replies_delayed(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    Ok(disturb(run, random, Wire::hold_replies, kept))
}

pub(super) fn slow(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let delay = millis(random, 1, 60);
    Ok(disturb(
        run,
        random,
        |wire, on| wire.delay(if on { delay } else { Duration::ZERO }),
        |wire, before| kept(wire, before).or_else(|| passed(wire, before, delay)),
    ))
}

fn passed(wire: &Wire, before: Traffic, delay: Duration) -> Option<String> {
    let count = wire.traffic().to_server - before.to_server;
    (count > 0).then(|| format!("{count} bytes by {delay:?}"))
}

pub(super) fn jitter(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let most = millis(random, 5, 80);
    let switch = |wire: &Wire, on: bool| {
        if on {
            wire.jitter(Duration::from_millis(1)..most);
        } else {
            wire.delay(Duration::ZERO);
        }
    };
    Ok(disturb(run, random, switch, |wire, before| {
        passed(wire, before, most)
    }))
}

/// The probability that a piece is lost.
const LOSS: f64 = 0.3;

pub(super) fn packet_loss(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let switch = |wire: &Wire, on: bool| {
        if on {
            wire.packet_loss(LOSS);
        } else {
            wire.delay(Duration::ZERO);
        }
    };
    Ok(disturb(run, random, switch, resent))
}

fn resent(wire: &Wire, before: Traffic) -> Option<String> {
    let count = wire.traffic().resent - before.resent;
    (count > 0).then(|| format!("{count} pieces sent again"))
}

pub(super) fn tiny_segments(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let dribbled = |wire: &Wire, before: Traffic| {
        let count = wire.traffic().to_server - before.to_server;
        (count > 0).then(|| format!("{count} bytes one after another"))
    };
    Ok(disturb(run, random, Wire::tiny_segments, dribbled))
}

/// Three replies are lost, each with the rest of its connection. New connections work.
pub(super) fn replies_lost(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let drops = |wire: &Wire, on: bool| wire.drop_replies(if on { 3 } else { 0 });
    Ok(disturb(run, random, drops, lost))
}

/// Resets all open connections once.
pub(super) fn reset(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let mut count = 0;
    for wire in run.disturbed_wires(random) {
        count += wire.traffic().present;
        wire.partition();
    }
    Ok((count > 0).then(|| instant(format!("{count} connections"))))
}

/// Five short faults, without recovery between them.
pub(super) fn network_chaos(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let since = now();
    let mut evidence = Vec::new();
    for _ in 0..5 {
        wait(millis(random, 0, 150));
        run.plan = Plan {
            length: millis(random, 100, 900),
            ..Plan::drawn(random, run.lease())
        };
        let effect = match random.below(6) {
            0 => reset(run, random)?,
            1 => silent_connections(run, random),
            2 => replies_lost(run, random)?,
            3 => slow(run, random)?,
            4 => half_open(run, random)?,
            _ => replies_delayed(run, random)?,
        };
        evidence.extend(effect.map(|effect| effect.evidence));
    }

    Ok((!evidence.is_empty()).then(|| ended_now(since, evidence.join("; "))))
}

/// Silences all open connections until they are closed.
fn silent_connections(run: &FaultRun, random: &mut Random) -> Option<Effect> {
    let mut count = 0;
    for wire in run.disturbed_wires(random) {
        count += wire.traffic().present;
        wire.drop_replies_silently();
    }
    (count > 0).then(|| instant(format!("{count} silent connections")))
}

pub(super) fn majority_partition(
    run: &mut FaultRun,
    random: &mut Random,
) -> Result<Option<Effect>> {
    let which = run.majority(random);
    let all = [&run.testbed.wires, &run.testbed.holder_route.wires];
    let wires: Vec<&Wire> = which
        .iter()
        .flat_map(|&number| all.map(|wires| &wires[number]))
        .collect();

    Ok(for_a_while(
        &wires,
        run.lease() + millis(random, 900, 1_500),
        cut_off,
        refused,
    ))
}
