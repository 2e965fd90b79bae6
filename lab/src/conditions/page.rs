//! The figures as a table, and as a picture.

use std::path::Path;

use anyhow::{Context, Result};
use plotters::style::{RGBColor, WHITE};

use super::cases::{Crash, Row};
use super::verdict::{COLUMNS, Verdict, after, cells};
use crate::picture::{self, Bar, ROW};

const KEPT: RGBColor = RGBColor(0x9e, 0xc9, 0xe8);
const BROKEN: RGBColor = RGBColor(0xf0, 0xa4, 0x8a);
const NEITHER: RGBColor = RGBColor(0xe4, 0xe7, 0xea);

/// The columns of the picture: their index in the table, and their heading.
const SHOWN: [(usize, &str); 6] = [
    (0, "exclusion"),
    (1, "no deadlock"),
    (2, "owner only"),
    (3, "fault tolerance"),
    (6, "no lost update"),
    (7, "…, fenced"),
];

/// Puts the figures into `docs/four-conditions.md`, in place of the table that it contains.
///
/// # Errors
/// If the page contains no table.
pub fn update(page: &str, rows: &[Row]) -> Result<String> {
    let begin = page.find("| lock |").context("the page has no table")?;
    let (head, table_and_tail) = page.split_at(begin);
    let (_, tail) = table_and_tail
        .split_once("|\n\n")
        .context("a paragraph follows the table")?;
    Ok(format!("{head}{}\n{tail}", table(rows)))
}

/// The figures as a table in Markdown.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut lines = vec![
        format!("| lock | {} |", COLUMNS.join(" | ")),
        format!("|---|{}", "---|".repeat(COLUMNS.len())),
    ];
    for row in rows {
        let cells = cells(row).map(|cell| match cell.verdict {
            Verdict::Broken => format!("**{}**", cell.text),
            Verdict::Kept | Verdict::Neither => cell.text,
        });
        lines.push(format!(
            "| {} | {} |",
            row.contender.title,
            cells.join(" | ")
        ));
    }
    lines.join("\n") + "\n"
}

/// Draws `docs/four-conditions.svg`: a cell for each lock and condition.
///
/// # Errors
/// If the file cannot be written.
pub fn draw(file: &Path, rows: &[Row]) -> Result<()> {
    let mut labels = vec![String::new()];
    let mut bars = Vec::new();
    for (column, (_, heading)) in SHOWN.iter().enumerate() {
        bars.push(cell(0, column, WHITE, heading));
    }
    bars.push(cell(0, SHOWN.len(), WHITE, "next after a crash"));

    for row in rows {
        let number = u16::try_from(labels.len())?;
        labels.push(row.contender.title.replace('*', ""));
        let cells = cells(row);
        for (column, (index, _)) in SHOWN.iter().enumerate() {
            let (colour, word) = match cells[*index].verdict {
                Verdict::Kept => (KEPT, "kept"),
                Verdict::Broken => (BROKEN, "broken"),
                Verdict::Neither => (NEITHER, "–"),
            };
            bars.push(cell(number, column, colour, word));
        }
        let colour = if row.holder_killed == Crash::Never {
            BROKEN
        } else {
            KEPT
        };
        bars.push(cell(number, SHOWN.len(), colour, &after(row.holder_killed)));
    }

    let caption = "The four conditions, measured under the same faults";
    picture::draw(file, caption, &labels, &bars)
}

fn cell(row: u16, column: usize, colour: RGBColor, text: &str) -> Bar {
    let left = f64::from(u32::try_from(column).unwrap_or(u32::MAX));
    Bar {
        row,
        range: left..left + 0.96,
        height: 2..ROW - 2,
        colour,
        text: text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::update;
    use crate::baselines::CONTENDERS;

    const PAGE: &str = include_str!("../../../docs/four-conditions.md");

    #[test]
    fn page_has_a_row_for_each_contender() {
        for contender in &CONTENDERS {
            assert!(PAGE.contains(&format!("\n| {} | ", contender.title)));
        }
    }

    #[test]
    fn only_the_table_is_replaced() -> anyhow::Result<()> {
        let updated = update(PAGE, &[])?;

        let rows = updated.lines().filter(|line| line.starts_with('|'));
        assert_eq!(rows.count(), 2);
        let prose = |page: &str| page.lines().filter(|line| !line.starts_with('|')).count();
        assert_eq!(prose(&updated), prose(PAGE));
        Ok(())
    }
}
