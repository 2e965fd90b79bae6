//! `leasehold ls`: lists the locks that are held or waited for.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Result;
use leasehold::{Error, LockState};
use serde::Serialize;
use tokio::time::timeout;

use crate::commands::Ls;
use crate::exit::{Exit, print_error};
use crate::format::{Escaped, known_age, whole_seconds};
use crate::once::{self, RecordJson};
use crate::scan::{NAMES_MAX, scan, scan_records};
use crate::show::LockJson;
use crate::usage::Usage;

/// How long a server has to reply before a shell completes without the names of locks.
const COMPLETION_TIMEOUT: Duration = Duration::from_millis(300);

/// Prints names alone, for the completions of a shell: none of a store that does not reply soon.
pub(crate) async fn list_names(args: &Ls) -> Result<Exit> {
    let scanned = async {
        let locks = args.store.own.open().await?;
        scan(&locks, &args.prefix, |_| Ok(())).await
    };
    let Ok(Ok(found)) = timeout(COMPLETION_TIMEOUT, scanned).await else {
        return Ok(Exit::DONE);
    };

    let mut out = io::stdout().lock();
    for name in found.locks.keys() {
        if Escaped(name).to_string() == *name {
            writeln!(out, "{name}")?;
        }
    }
    Ok(Exit::DONE)
}

pub(crate) async fn list(args: &Ls) -> Result<Exit> {
    if args.once {
        return list_records(args).await;
    }
    let opened = args.store.open_all().await?;
    let has_formats = opened.len() > 1;
    let mut listed = Vec::new();
    let mut exit = Exit::DONE;
    for inspected in &opened {
        let found = scan(&inspected.locks, &args.prefix, |error| {
            skip(error, has_formats, &mut exit)
        });
        let found = found.await?;
        if !found.is_complete {
            print_error(format_args!(
                "there are more than {NAMES_MAX} locks; give a longer PREFIX to see the others"
            ));
        }

        let format = has_formats.then_some(inspected.format);
        listed.extend(found.locks.into_values().map(|state| (format, state)));
    }
    listed.sort_by(|one, other| one.1.name.cmp(&other.1.name));

    let mut out = io::stdout().lock();
    if args.json {
        let locks: Vec<LockJson<'_>> = listed
            .iter()
            .map(|(format, state)| LockJson::in_format(*format, state))
            .collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&locks)?)?;
    } else {
        // On standard error, because scripts read the table.
        print_error(args.store.describe(&opened));
        write!(out, "{}", table(&listed, has_formats))?;
    }
    Ok(exit)
}

#[derive(Serialize)]
struct NamedRecordJson<'a> {
    name: &'a str,
    #[serde(flatten)]
    record: RecordJson<'a>,
}

/// Lists the records of the store, for `ls --once`.
async fn list_records(args: &Ls) -> Result<Exit> {
    let locks = args.store.own.open().await?;
    let mut exit = Exit::DONE;
    let skip = |error| skip(error, false, &mut exit);
    let records = scan_records(&locks, &args.prefix, skip).await?;

    let mut out = io::stdout().lock();
    if args.json {
        let json = records.iter().map(|(name, record)| NamedRecordJson {
            name: name.as_str(),
            record: RecordJson::new(record),
        });
        let json: Vec<_> = json.collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&json)?)?;
        return Ok(exit);
    }
    for (name, record) in &records {
        write!(out, "{name}\n{}", once::rows(record))?;
    }
    Ok(exit)
}

/// Reports a lock or a record that is not listed. With several formats, the name of another format
/// looks damaged, and is not reported.
fn skip(error: Error, has_formats: bool, exit: &mut Exit) -> leasehold::Result<()> {
    match error {
        // A lock of another user does not make this user's listing fail.
        error if error.is_denied() => print_error(error),
        error if has_formats && (error.is_damaged() || error.is_mismatch()) => {}
        error if error.is_damaged() || error.is_unsupported() => {
            print_error(&error);
            *exit = Exit::by_error(&error.into());
        }
        error => return Err(error),
    }
    Ok(())
}

const COLUMNS: [&str; 7] = ["NAME", "FORMAT", "KIND", "HELD", "WAITERS", "AGE", "HOLDER"];

/// A lock with its format, if several formats are listed.
type Listed<'a> = (Option<&'a str>, LockState);

/// Formats locks with their formats. The column for these is left out unless there are several.
fn table(listed: &[Listed<'_>], has_formats: bool) -> String {
    let mut rows: Vec<Vec<String>> = vec![COLUMNS.map(str::to_owned).into()];
    rows.extend(listed.iter().map(|(format, state)| row(*format, state)));
    if !has_formats {
        for row in &mut rows {
            row.remove(1);
        }
    }

    let widths: Vec<_> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max())
        .collect();

    let padded = |row: &Vec<String>| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<0$}", width.unwrap_or(0)));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(padded).collect()
}

fn row(format: Option<&str>, lock_state: &LockState) -> Vec<String> {
    let usage = Usage::of(lock_state);
    let first = lock_state.holders().next();
    let flock = lock_state.external_holders.first();
    let flock = flock.map_or_else(String::new, |process| format!("{process} (flock)"));

    vec![
        lock_state.name.to_string(),
        format.unwrap_or_default().to_owned(),
        usage.map_or_else(String::new, |usage| usage.kind.name().to_owned()),
        usage.map_or_else(String::new, |usage| usage.to_string()),
        lock_state.waiters().count().to_string(),
        first
            .and_then(known_age)
            .map_or_else(String::new, whole_seconds),
        first.map_or(flock, |entry| entry.info.to_string()),
    ]
}
