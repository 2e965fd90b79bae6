//! A timeline: who held each lock when, what was done to the store meanwhile, and what was lost.

use std::fmt::Write;

use anyhow::Result;

use super::Cell;
use crate::storm::Passed;
use crate::{Event, Hold, What, check, holds};

const WIDTH: f64 = 1_200.0;
const LANE: f64 = 56.0;
const TOP: f64 = 48.0;
const LEFT: f64 = 40.0;
/// Holders have a colour each, by hand.
const COLOURS: [&str; 8] = ["#4e79a7", "#59a14f", "#9c755f", "#76b7b2", "#b07aa1", "#edc948", "#86bcb6", "#a0cbe8"];

/// An SVG of a run.
///
/// # Errors
/// If what was told makes no sense.
pub fn picture(cell: &Cell, passed: &Passed) -> Result<String> {
    let holds = holds(&passed.told)?;
    let scale = Scale::of(passed);
    let lanes = holds.iter().map(|hold| hold.name).max().map_or(1, |last| last + 1);
    let height = TOP + LANE * f64::from(lanes) + 24.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    writeln!(svg, "<text x=\"{LEFT}\" y=\"18\">{}: {}</text>", cell.name(), cell.fault.does)?;
    let legend = "bars: holds, by process · grey: the fault · red ticks: losses · red bars: two at once";
    writeln!(svg, "<text x=\"{LEFT}\" y=\"36\" fill=\"#666\">{legend} · {:.1} s</text>", scale.seconds())?;
    strikes(&mut svg, passed, &scale, height)?;
    for name in 0..lanes {
        writeln!(
            svg,
            "<text x=\"8\" y=\"{:.0}\">{}</text>",
            lane(name) + 24.0,
            char::from(b'a' + u8::try_from(name)?)
        )?;
    }
    holds.iter().try_for_each(|hold| bar(&mut svg, hold, &scale))?;
    let mut sorted = holds.clone();
    sorted.sort_unstable_by_key(|hold| (hold.name, hold.granted));
    for one_name in sorted.chunk_by(|one, other| one.name == other.name) {
        check::overlap_times(one_name).try_for_each(|(fault, time)| both(&mut svg, &fault.second, time, &scale))?;
    }
    passed
        .told
        .iter()
        .filter(|event| matches!(event.what, What::Gone | What::RanOut))
        .try_for_each(|event| loss(&mut svg, event, &scale))?;
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// From times to places.
struct Scale {
    begin: u64,
    end: u64,
}

impl Scale {
    fn of(passed: &Passed) -> Self {
        Self { begin: passed.time.0, end: passed.time.1.max(passed.time.0 + 1) }
    }

    fn seconds(&self) -> f64 {
        Self::micros(self.end - self.begin) / 1e6
    }

    fn x(&self, at: u64) -> f64 {
        let at = at.clamp(self.begin, self.end);
        LEFT + (WIDTH - LEFT - 8.0) * Self::micros(at - self.begin) / Self::micros(self.end - self.begin).max(1.0)
    }

    /// A run is an hour at most.
    fn micros(nanos: u64) -> f64 {
        f64::from(u32::try_from(nanos / 1_000).unwrap_or(u32::MAX))
    }
}

fn lane(name: u16) -> f64 {
    TOP + LANE * f64::from(name)
}

fn strikes(svg: &mut String, passed: &Passed, scale: &Scale, height: f64) -> Result<()> {
    for strike in &passed.strikes {
        let Some(struck) = &strike.struck else { continue };
        let (from, to) = (scale.x(struck.since), scale.x(struck.until));
        let (width, tall) = ((to - from).max(1.5), height - TOP - 16.0);
        let seen = struck.seen.replace('&', "&amp;").replace('<', "&lt;");
        writeln!(
            svg,
            "<rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{tall:.0}\" fill=\"#ddd\"><title>{seen}; \
             recovered in {:.0?}</title></rect>",
            strike.recovery
        )?;
    }
    Ok(())
}

fn bar(svg: &mut String, hold: &Hold, scale: &Scale) -> Result<()> {
    let (from, to) = (scale.x(hold.granted), scale.x(hold.until));
    let colour = COLOURS[usize::try_from(hold.hand)? % COLOURS.len()];
    let y = lane(hold.name) + 8.0;
    writeln!(
        svg,
        "<rect x=\"{from:.1}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"24\" fill=\"{colour}\"><title>hand {}, token \
         {}</title></rect>",
        (to - from).max(0.4),
        hold.hand,
        hold.token
    )?;
    Ok(())
}

fn both(svg: &mut String, second: &Hold, time: std::time::Duration, scale: &Scale) -> Result<()> {
    let until = second.granted + u64::try_from(time.as_nanos())?;
    let (from, to, y) = (scale.x(second.granted), scale.x(until), lane(second.name) + 34.0);
    let width = (to - from).max(2.0);
    writeln!(svg, "<rect x=\"{from:.1}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"8\" fill=\"#e15759\"/>")?;
    Ok(())
}

fn loss(svg: &mut String, event: &Event, scale: &Scale) -> Result<()> {
    let (x, y) = (scale.x(event.at), lane(event.name));
    writeln!(svg, "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y:.0}\" y2=\"{:.0}\" stroke=\"#e15759\"/>", y + 8.0)?;
    Ok(())
}
