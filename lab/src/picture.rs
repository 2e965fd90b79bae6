//! Pictures of rows with bars, as SVG.

use std::ops::Range;
use std::path::Path;

use anyhow::Result;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The width of a picture, the height of its caption, and the width of a letter, in pixels.
const WIDTH: u16 = 1_200;
const CAPTION: i32 = 32;
const LETTER: usize = 8;
/// The height of a row, in pixels.
pub const ROW: i32 = 28;

/// A bar in a row.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The number of the row, from the top.
    pub row: u16,
    /// The begin and end of the bar. The scale of the picture begins at 0.
    pub range: Range<f64>,
    /// Which pixels of the [`ROW`] the bar fills, from the top.
    pub height: Range<i32>,
    /// The colour.
    pub colour: RGBColor,
    /// The text that starts at the begin of the bar.
    pub text: String,
}

/// Draws bars over each other in their order, beside the labels of their rows.
///
/// # Errors
/// If the file cannot be written.
pub fn draw(file: &Path, caption: &str, labels: &[String], bars: &[Bar]) -> Result<()> {
    let rows = u16::try_from(labels.len())?;
    let bottom = CAPTION + ROW * i32::from(rows);
    let size = (u32::from(WIDTH), bottom.unsigned_abs());
    let area = SVGBackend::new(file, size).into_drawing_area();
    area.fill(&WHITE)?;
    write(&area, caption, (8, CAPTION / 2), HPos::Left)?;

    let longest = labels.iter().map(|label| label.chars().count()).max();
    let begin = i32::try_from(LETTER * longest.unwrap_or(0) + 24)?;
    let mut top = CAPTION;
    for label in labels {
        write(&area, label, (begin - 8, top + ROW / 2), HPos::Right)?;
        top += ROW;
    }

    let end = bars.iter().map(|bar| bar.range.end).fold(1e-9, f64::max);
    let scale = RangedCoordf64::from(0.0..end);
    for bar in bars {
        let x = |value: f64| scale.map(&value, (begin, i32::from(WIDTH) - 8));
        let y = CAPTION + ROW * i32::from(bar.row);
        let left = x(bar.range.start);
        let right = x(bar.range.end).max(left + 1);
        let corners = [(left, y + bar.height.start), (right, y + bar.height.end)];
        area.draw(&Rectangle::new(corners, bar.colour.filled()))?;
        if !bar.text.is_empty() {
            write(&area, &bar.text, (left + 4, y + ROW / 2), HPos::Left)?;
        }
    }

    Ok(area.present()?)
}

/// Writes a text whose left or right end is in the middle of a row.
fn write(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    text: &str,
    at: (i32, i32),
    end: HPos,
) -> Result<()> {
    let style = TextStyle::from(("sans-serif", 16)).pos(Pos::new(end, VPos::Center));
    Ok(area.draw_text(text, &style, at)?)
}
