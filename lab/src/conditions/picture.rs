//! The figures as a picture: a cell for each contender and condition, and a bar for the time from a
//! crash to the next holder.

use std::fmt::Write as _;

use super::verdict::{Cell, Verdict, cells};
use super::{NEVER_MILLIS, Row};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 300.0;
const ROW: f64 = 24.0;
const TOP: f64 = 78.0;
const CELL: f64 = 62.0;
/// The left end of the bars.
const BARS: f64 = LEFT + 6.0 * CELL + 20.0;
/// The length of the longest bar.
const LONGEST: f64 = WIDTH - BARS - 60.0;
const KEPT: &str = "#2a78b8";
const BROKEN: &str = "#c4542c";
const NEITHER: &str = "#d5d9de";

/// The columns that have a verdict: their index in the table, and their heading in two lines.
const SHOWN: [(usize, &str, &str); 6] = [
    (0, "exclu-", "sion"),
    (1, "no", "deadlock"),
    (2, "owner", "only"),
    (3, "fault", "tolerance"),
    (6, "updates,", "plain"),
    (7, "updates,", "fenced"),
];

/// Draws `docs/four-conditions.svg`.
#[must_use]
pub fn picture(rows: &[Row]) -> String {
    let height = TOP + ROW * f64::from(u32::try_from(rows.len()).unwrap_or(u32::MAX)) + 34.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"12\" y=\"22\" font-size=\"14\">\
         The four conditions, measured under the same faults</text>\n"
    );

    heads(&mut svg);
    let mut y = TOP;
    for row in rows {
        contender_row(&mut svg, row, y);
        y += ROW;
    }
    legend(&mut svg, height - 10.0);
    svg + "</svg>\n"
}

fn heads(svg: &mut String) {
    let mut x = LEFT;
    for (_, first, second) in SHOWN {
        let middle = x + CELL / 2.0;
        let upper = TOP - 24.0;
        let lower = TOP - 10.0;
        let _ = writeln!(
            svg,
            "<text x=\"{middle}\" y=\"{upper}\" text-anchor=\"middle\">{first}</text>\
             <text x=\"{middle}\" y=\"{lower}\" text-anchor=\"middle\">{second}</text>"
        );
        x += CELL;
    }

    let _ = writeln!(
        svg,
        "<text x=\"{BARS}\" y=\"{}\">next holder after a crash</text>",
        TOP - 10.0
    );
}

fn contender_row(svg: &mut String, row: &Row, y: f64) {
    let middle = y + 15.0;
    let weight = if row.contender.is_leasehold() {
        "bold"
    } else {
        "normal"
    };
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\" font-weight=\"{weight}\">{}</text>",
        LEFT - 10.0,
        row.contender.title()
    );

    let cells = cells(row);
    let mut x = LEFT;
    for (column, _, _) in SHOWN {
        cell(svg, &cells[column], x, y);
        x += CELL;
    }
    bar(svg, row.holder_killed.next_millis, y);
}

fn cell(svg: &mut String, cell: &Cell, x: f64, y: f64) {
    let (colour, word) = match cell.verdict {
        Verdict::Kept => (KEPT, "kept"),
        Verdict::Broken => (BROKEN, "broken"),
        Verdict::Neither => (NEITHER, "–"),
    };
    let ink = if cell.verdict == Verdict::Neither {
        "#444"
    } else {
        "#fff"
    };

    let left = x + 1.0;
    let width = CELL - 2.0;
    let centre = x + CELL / 2.0;
    let middle = y + 15.0;
    let _ = writeln!(
        svg,
        "<rect x=\"{left}\" y=\"{y}\" width=\"{width}\" height=\"22\" fill=\"{colour}\"/>\
         <text x=\"{centre}\" y=\"{middle}\" text-anchor=\"middle\" fill=\"{ink}\">{word}</text>"
    );
}

fn bar(svg: &mut String, next_millis: Option<u64>, y: f64) {
    let seconds = |millis: u64| f64::from(u32::try_from(millis).unwrap_or(u32::MAX)) / 1_000.0;
    let part = next_millis.map_or(1.0, |millis| seconds(millis) / seconds(NEVER_MILLIS));
    let width = (part * LONGEST).max(1.0);
    let top = y + 4.0;
    let middle = y + 15.0;

    let (colour, word) = match next_millis {
        Some(millis) => (KEPT, format!("{:.2} s", seconds(millis))),
        None => (BROKEN, "never".to_owned()),
    };
    let _ = writeln!(
        svg,
        "<rect x=\"{BARS}\" y=\"{top}\" width=\"{width:.1}\" height=\"14\" fill=\"{colour}\"/>\
         <text x=\"{:.1}\" y=\"{middle}\">{word}</text>",
        BARS + width + 6.0
    );
}

fn legend(svg: &mut String, y: f64) {
    let text = "updates: kept = none was lost · – : does not apply; the page says why";
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{y}\" fill=\"#444\">{text}</text>"
    );
}
