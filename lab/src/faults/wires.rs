//! Faults of the network.

use std::time::Duration;

use anyhow::Result;
use lab_servers::{Traffic, Wire};

use super::{at_once, last, lasted, millis};
use crate::storm::{Storm, Struck};
use crate::{Random, now};

/// Switches something on for the wires to some of the servers, for so long, and off again.
fn for_a_while(
    storm: &Storm,
    which: &[usize],
    time: Duration,
    switch: impl Fn(&Wire, bool),
    seen: impl Fn(&Wire, Traffic) -> Option<String>,
) -> Option<Struck> {
    let wires: Vec<&Wire> = which.iter().map(|&number| &storm.ground.wires()[number]).collect();
    let before: Vec<Traffic> = wires.iter().map(|wire| wire.traffic()).collect();
    for wire in &wires {
        switch(wire, true);
    }
    let since = now();
    last(time);
    let shows = wires.iter().zip(before).find_map(|(wire, before)| seen(wire, before));
    let struck = shows.map(|seen| lasted(since, format!("{seen}, {time:?}")));
    for wire in &wires {
        switch(wire, false);
    }
    struck.map(|struck| Struck { over: now(), ..struck })
}

/// Wires to those that may fail.
fn trouble(
    storm: &Storm,
    random: &mut Random,
    switch: impl Fn(&Wire, bool),
    seen: impl Fn(&Wire, Traffic) -> Option<String>,
) -> Option<Struck> {
    let which = storm.some(random);
    for_a_while(storm, &which, millis(random, 100, 900), switch, seen)
}

fn cut_off(wire: &Wire, on: bool) {
    wire.refuse(on);
    if on {
        wire.cut();
    }
}

fn refused(wire: &Wire, before: Traffic) -> Option<String> {
    let count = wire.traffic().refused - before.refused;
    (count > 0).then(|| format!("{count} connections refused"))
}

fn kept(wire: &Wire, _: Traffic) -> Option<String> {
    let Traffic { waiting_to_server, waiting_to_client, .. } = wire.traffic();
    let count = waiting_to_server + waiting_to_client;
    (count > 0).then(|| format!("{count} bytes kept"))
}

fn lost(wire: &Wire, before: Traffic) -> Option<String> {
    let count = wire.traffic().lost - before.lost;
    (count > 0).then(|| format!("{count} bytes lost"))
}

pub(super) fn cut(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    Ok(trouble(storm, random, cut_off, refused))
}

pub(super) fn half_open(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    Ok(trouble(storm, random, Wire::freeze, kept))
}

pub(super) fn one_way(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let mute = |wire: &Wire, on: bool| {
        wire.lose_replies(on);
        if !on {
            wire.cut();
        }
    };
    Ok(trouble(storm, random, mute, lost))
}

pub(super) fn replies_late(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    Ok(trouble(storm, random, Wire::hold_replies, kept))
}

pub(super) fn slow(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let delay = millis(random, 1, 60);
    Ok(trouble(
        storm,
        random,
        |wire, on| wire.delay(if on { delay } else { Duration::ZERO }),
        |wire, before| kept(wire, before).or_else(|| passed(wire, before, delay)),
    ))
}

fn passed(wire: &Wire, before: Traffic, delay: Duration) -> Option<String> {
    let count = wire.traffic().to_server - before.to_server;
    (count > 0).then(|| format!("{count} bytes by {delay:?}"))
}

/// For longer than others: few pieces pass meanwhile.
fn weather(
    storm: &Storm,
    random: &mut Random,
    switch: impl Fn(&Wire, bool),
    seen: impl Fn(&Wire, Traffic) -> Option<String>,
) -> Option<Struck> {
    let which = storm.some(random);
    for_a_while(storm, &which, millis(random, 500, 2_000), switch, seen)
}

pub(super) fn jitter(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let most = millis(random, 5, 80);
    let switch = |wire: &Wire, on: bool| {
        if on { wire.jitter(Duration::from_millis(1)..most) } else { wire.delay(Duration::ZERO) }
    };
    Ok(weather(storm, random, switch, |wire, before| passed(wire, before, most)))
}

/// At which probability a piece is lost.
const LOSS: f64 = 0.3;

pub(super) fn lossy(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let switch = |wire: &Wire, on: bool| if on { wire.lossy(LOSS) } else { wire.delay(Duration::ZERO) };
    Ok(weather(storm, random, switch, resent))
}

fn resent(wire: &Wire, before: Traffic) -> Option<String> {
    let count = wire.traffic().resent - before.resent;
    (count > 0).then(|| format!("{count} pieces sent again"))
}

pub(super) fn dribble(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let dribbled = |wire: &Wire, before: Traffic| {
        let count = wire.traffic().to_server - before.to_server;
        (count > 0).then(|| format!("{count} bytes one after another"))
    };
    Ok(weather(storm, random, Wire::dribble, dribbled))
}

/// Three replies, each with what follows it on its connection; new connections hear.
pub(super) fn replies_lost(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let drops = |wire: &Wire, on: bool| wire.drop_replies(if on { 3 } else { 0 });
    Ok(trouble(storm, random, drops, lost))
}

/// All connections that are there, once.
pub(super) fn reset(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let mut count = 0;
    for number in storm.some(random) {
        let wire = &storm.ground.wires()[number];
        count += wire.traffic().present;
        wire.cut();
    }
    Ok((count > 0).then(|| at_once(format!("{count} connections"))))
}

/// Five troubles of one wire or of all, one after another.
pub(super) fn bad(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let (since, mut seen) = (now(), Vec::new());
    for _ in 0..5 {
        last(millis(random, 0, 150));
        let struck = match random.below(6) {
            0 => reset(storm, random)?,
            1 => deaf(storm, random),
            2 => replies_lost(storm, random)?,
            3 => slow(storm, random)?,
            4 => half_open(storm, random)?,
            _ => replies_late(storm, random)?,
        };
        seen.extend(struck.map(|struck| struck.seen));
    }
    Ok((!seen.is_empty()).then(|| lasted(since, seen.join("; "))))
}

/// All connections that are there, until they are closed.
fn deaf(storm: &Storm, random: &mut Random) -> Option<Struck> {
    for number in storm.some(random) {
        storm.ground.wires()[number].deafen();
    }
    Some(at_once("deaf connections"))
}

pub(super) fn majority_cut(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let which = storm.most(random);
    Ok(for_a_while(storm, &which, storm.lease() + millis(random, 900, 1_500), cut_off, refused))
}
