//! `leasehold ls`: the locks in use.

use std::io::{self, Write};

use anyhow::Result;
use leasehold::{Line, Locks};

use crate::commands::Store;
use crate::exit::{Exit, say};
use crate::show::Shown;
use crate::words::{time, who};

/// More than anybody reads, and few enough to fetch in seconds.
const NAMES_MAX: usize = 10_000;

pub(crate) async fn list(store: &Store, prefix: &str, json: bool) -> Result<Exit> {
    let (lines, exit) = look_at_all(&store.open().await?, prefix).await?;
    let mut out = io::stdout().lock();
    if json {
        let shown: Vec<Shown<'_>> = lines.iter().map(Shown::from).collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&shown)?)?;
    } else {
        write!(out, "{}", table(&lines))?;
    }
    Ok(exit)
}

/// What can be looked at; what is damaged is said, and shows in the exit code.
async fn look_at_all(locks: &Locks, prefix: &str) -> Result<(Vec<Line>, Exit)> {
    let mut names = locks.names(prefix, NAMES_MAX + 1).await?;
    if names.len() > NAMES_MAX {
        names.truncate(NAMES_MAX);
        say(format_args!("there are more than {NAMES_MAX} locks; give a longer PREFIX to see the others"));
    }
    let (mut lines, mut exit) = (Vec::new(), Exit::DONE);
    for name in &names {
        match locks.look(name.as_str()).await {
            // It may have become free since it was listed.
            Ok(line) if line.entries.is_empty() => {}
            Ok(line) => lines.push(line),
            Err(error) if error.is_damaged() => {
                say(&error);
                exit = Exit::INTERNAL;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((lines, exit))
}

fn table(lines: &[Line]) -> String {
    let head = ["NAME", "HOLDERS", "WAITERS", "SINCE", "HOLDER"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(lines.iter().map(row)).collect();
    let widths: Vec<_> = (0..5).map(|column| rows.iter().map(|row| row[column].chars().count()).max()).collect();
    let padded = |row: &[String; 5]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<0$}", width.unwrap_or(0)));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(padded).collect()
}

fn row(line: &Line) -> [String; 5] {
    let first = line.holders().next();
    [
        line.name.to_string(),
        line.holders().count().to_string(),
        line.waiters().count().to_string(),
        first.map_or_else(String::new, |entry| time(entry.note.since).to_string()),
        first.map_or_else(String::new, |entry| who(&entry.note)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lists_no_more_than_anybody_reads() {
        let locks = leasehold::open("memory:").await.unwrap();
        let mut guards = Vec::new();
        for number in 0..=NAMES_MAX {
            guards.push(locks.mutex(&format!("{number:05}")).acquire().await.unwrap());
        }
        let (lines, _) = look_at_all(&locks, "").await.unwrap();
        assert_eq!(lines.len(), NAMES_MAX);
        assert_eq!(lines[NAMES_MAX - 1].name.as_str(), "09999", "the first in order, and none beyond");
    }
}
