//! The figures of all `target/bench/redis-*.json` as a picture: `target/bench/redis.svg`.

use std::fmt::Write as _;
use std::fs;

use anyhow::Result;

use crate::table::Table;

const WIDTH: f64 = 760.0;
/// The position where bars begin; below it, the length of a bar that equals the goal.
const LEFT: f64 = 330.0;
const GOAL: f64 = 220.0;
const LONGEST: f64 = WIDTH - LEFT - 70.0;
const ROW: f64 = 22.0;
const TOP: f64 = 44.0;
const MET: &str = "#2a78b8";
const MISSED: &str = "#c4542c";
const PEER: &str = "#b9bfc6";

/// One bar, as a part of the goal.
struct Bar {
    label: String,
    value: String,
    part: f64,
    colour: &'static str,
}

/// Draws each figure that has a goal, and below it the values that the peers reach.
pub(crate) fn draw(tables: &[Table]) -> Result<()> {
    let bars: Vec<Bar> = tables.iter().flat_map(bars).collect();
    fs::write(lab::report::folder()?.join("redis.svg"), svg(&bars))?;
    Ok(())
}

fn bars(table: &Table) -> Vec<Bar> {
    let mut bars = Vec::new();
    for row in table.rows() {
        let Some(goal) = table.goal_of(row) else {
            continue;
        };
        let value = row.verdict();
        let colour = match row.met {
            Some(true) => MET,
            Some(false) => MISSED,
            None => PEER,
        };
        let unit = if row.ratio.is_some() { "×" } else { &row.unit };
        let label = format!("{} · {}", row.what, row.who);
        bars.push(Bar {
            label,
            value: format!("{value:.2} {unit}"),
            part: goal.part(value),
            colour,
        });
    }

    bars
}

fn svg(bars: &[Bar]) -> String {
    let height = TOP + ROW * f64::from(u32::try_from(bars.len()).unwrap_or(u32::MAX)) + 12.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"12\" y=\"20\" font-size=\"14\">\
         leasehold on Redis, each figure beside its goal; shorter is better</text>\n\
         <line x1=\"{0}\" x2=\"{0}\" y1=\"30\" y2=\"{1}\" \
         stroke=\"#444\" stroke-dasharray=\"3 3\"/>\n\
         <text x=\"{0}\" y=\"27\" text-anchor=\"middle\">goal</text>\n",
        LEFT + GOAL,
        height - 8.0
    );
    let mut y = TOP;
    for bar in bars {
        draw_bar(&mut svg, bar, y);
        y += ROW;
    }

    svg + "</svg>\n"
}

fn draw_bar(svg: &mut String, bar: &Bar, y: f64) {
    let Bar {
        label,
        value,
        part,
        colour,
    } = bar;
    let width = (part * GOAL).min(LONGEST);

    let middle = y + 11.0;
    let right = LEFT + width + 6.0;
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{label}</text>\
         <rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"14\" fill=\"{colour}\"/>\
         <text x=\"{right:.1}\" y=\"{middle}\">{value}</text>",
        LEFT - 8.0
    );
}
