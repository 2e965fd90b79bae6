//! A timeline: the holds of each lock, the faults, and the losses.

use std::fmt::Write;

use anyhow::Result;

use super::Cell;
use crate::fault_run::Outcome;
use crate::{Event, EventKind, Hold, check, holds};

const WIDTH: f64 = 1_200.0;
const ROW: f64 = 56.0;
const TOP: f64 = 48.0;
const LEFT: f64 = 40.0;
/// Each thread has one of these colours.
const COLOURS: [&str; 8] = [
    "#4e79a7", "#59a14f", "#9c755f", "#76b7b2", "#b07aa1", "#edc948", "#86bcb6", "#a0cbe8",
];

/// An SVG of a run.
///
/// # Errors
/// If the events of a thread contradict each other.
pub fn picture(cell: &Cell, outcome: &Outcome) -> Result<String> {
    let holds = holds(&outcome.events)?;
    let scale = Scale::of(outcome);
    let lanes = holds
        .iter()
        .map(|hold| hold.name)
        .max()
        .map_or(1, |last| last + 1);
    let height = TOP + ROW * f64::from(lanes) + 24.0;

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );

    writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"18\">{}: {}</text>",
        cell.name(),
        cell.fault.description
    )?;
    let legend =
        "bars: holds, by thread · grey: the fault · red ticks: losses · red bars: overlaps";
    writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"36\" fill=\"#666\">{legend} · {:.1} s</text>",
        scale.seconds()
    )?;
    injections(&mut svg, outcome, &scale, height)?;

    for name in 0..lanes {
        writeln!(
            svg,
            "<text x=\"8\" y=\"{:.0}\">{}</text>",
            row(name) + 24.0,
            char::from(b'a' + u8::try_from(name)?)
        )?;
    }
    holds
        .iter()
        .try_for_each(|hold| bar(&mut svg, hold, &scale))?;

    let mut sorted = holds.clone();
    sorted.sort_unstable_by_key(|hold| (hold.name, hold.granted));
    for one_name in sorted.chunk_by(|one, other| one.name == other.name) {
        check::overlap_times(one_name)
            .try_for_each(|(fault, time)| both(&mut svg, &fault.second, time, &scale))?;
    }
    outcome
        .events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Revoked | EventKind::Expired))
        .try_for_each(|event| loss(&mut svg, event, &scale))?;
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// Converts times to positions in the picture.
struct Scale {
    begin: u64,
    end: u64,
}

impl Scale {
    fn of(outcome: &Outcome) -> Self {
        Self {
            begin: outcome.time.0,
            end: outcome.time.1.max(outcome.time.0 + 1),
        }
    }

    fn seconds(&self) -> f64 {
        Self::micros(self.end - self.begin) / 1e6
    }

    fn x(&self, at: u64) -> f64 {
        let at = at.clamp(self.begin, self.end);
        LEFT + (WIDTH - LEFT - 8.0) * Self::micros(at - self.begin)
            / Self::micros(self.end - self.begin).max(1.0)
    }

    /// A run is an hour at most.
    fn micros(nanos: u64) -> f64 {
        f64::from(u32::try_from(nanos / 1_000).unwrap_or(u32::MAX))
    }
}

fn row(name: u16) -> f64 {
    TOP + ROW * f64::from(name)
}

fn injections(svg: &mut String, outcome: &Outcome, scale: &Scale, height: f64) -> Result<()> {
    for injection in &outcome.injections {
        let Some(effect) = &injection.effect else {
            continue;
        };
        let from = scale.x(effect.since);
        let width = (scale.x(effect.until) - from).max(1.5);
        let tall = height - TOP - 16.0;
        let seen = effect.evidence.replace('&', "&amp;").replace('<', "&lt;");
        writeln!(
            svg,
            "<rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{tall:.0}\" \
             fill=\"#ddd\"><title>{seen}; recovered in {:.0?}</title></rect>",
            injection.recovery
        )?;
    }

    Ok(())
}

fn bar(svg: &mut String, hold: &Hold, scale: &Scale) -> Result<()> {
    let from = scale.x(hold.granted);
    let width = (scale.x(hold.until) - from).max(0.4);
    let colour = COLOURS[usize::try_from(hold.thread)? % COLOURS.len()];
    let y = row(hold.name) + 8.0;
    writeln!(
        svg,
        "<rect x=\"{from:.1}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"24\" \
         fill=\"{colour}\"><title>thread {}, token {}</title></rect>",
        hold.thread, hold.token
    )?;
    Ok(())
}

fn both(svg: &mut String, second: &Hold, time: std::time::Duration, scale: &Scale) -> Result<()> {
    let until = second.granted + u64::try_from(time.as_nanos())?;
    let from = scale.x(second.granted);
    let width = (scale.x(until) - from).max(2.0);
    let y = row(second.name) + 34.0;
    writeln!(
        svg,
        "<rect x=\"{from:.1}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"8\" fill=\"#e15759\"/>"
    )?;
    Ok(())
}

fn loss(svg: &mut String, event: &Event, scale: &Scale) -> Result<()> {
    let x = scale.x(event.at);
    let y = row(event.name);
    writeln!(
        svg,
        "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y:.0}\" y2=\"{:.0}\" stroke=\"#e15759\"/>",
        y + 8.0
    )?;
    Ok(())
}
