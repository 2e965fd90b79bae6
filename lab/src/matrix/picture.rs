//! A timeline: the holds of each lock, the faults, and the losses.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use plotters::style::RGBColor;

use super::Cell;
use crate::fault_run::Outcome;
use crate::picture::{self, Bar, ROW};
use crate::{EventKind, check, holds};

/// Each thread has one of these colours.
const THREADS: [RGBColor; 8] = [
    RGBColor(0x4e, 0x79, 0xa7),
    RGBColor(0x59, 0xa1, 0x4f),
    RGBColor(0x9c, 0x75, 0x5f),
    RGBColor(0x76, 0xb7, 0xb2),
    RGBColor(0xb0, 0x7a, 0xa1),
    RGBColor(0xed, 0xc9, 0x48),
    RGBColor(0x86, 0xbc, 0xb6),
    RGBColor(0xa0, 0xcb, 0xe8),
];
const FAULT: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
const VIOLATION: RGBColor = RGBColor(0xe1, 0x57, 0x59);

/// Draws a run.
///
/// # Errors
/// If the events of a thread contradict each other, or the file cannot be written.
pub(super) fn draw(file: &Path, cell: &Cell, outcome: &Outcome) -> Result<()> {
    let mut holds = holds(&outcome.events)?;
    holds.sort_unstable_by_key(|hold| (hold.name, hold.granted));
    let lanes = holds.last().map_or(1, |last| last.name + 1);
    let (begin, end) = outcome.time;
    let seconds = |at: u64| Duration::from_nanos(at.saturating_sub(begin)).as_secs_f64();
    let bar = |row, from, until, height, colour| Bar {
        row,
        range: seconds(from)..seconds(until),
        height,
        colour,
        text: String::new(),
    };

    let mut bars = Vec::new();
    let effects = outcome
        .injections
        .iter()
        .filter_map(|injection| injection.effect.as_ref());
    for effect in effects {
        bars.extend((0..lanes).map(|lane| bar(lane, effect.since, effect.until, 0..ROW, FAULT)));
    }
    for hold in &holds {
        let colour = THREADS[usize::try_from(hold.thread)? % THREADS.len()];
        bars.push(bar(hold.name, hold.granted, hold.until, 6..ROW - 8, colour));
    }
    for one_name in holds.chunk_by(|one, other| one.name == other.name) {
        for (violation, time) in check::overlap_times(one_name) {
            let second = &violation.second;
            let until = second.granted + u64::try_from(time.as_nanos())?;
            bars.push(bar(
                second.name,
                second.granted,
                until,
                ROW - 8..ROW,
                VIOLATION,
            ));
        }
    }
    for event in &outcome.events {
        if matches!(event.kind, EventKind::Revoked | EventKind::Expired) {
            bars.push(bar(event.name, event.at, event.at, 0..6, VIOLATION));
        }
    }

    let name = cell.name();
    let fault = cell.fault.description;
    let caption = format!(
        "{name}: {fault} · bars: holds, by thread · grey: the fault · red ticks: losses · red \
         bars: overlaps · {:.1} s",
        seconds(end)
    );
    let names = (b'a'..).map(|letter| char::from(letter).to_string());
    let labels: Vec<String> = names.take(lanes.into()).collect();
    picture::draw(file, &caption, &labels, &bars)
}
