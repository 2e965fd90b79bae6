//! `leasehold ls`: lists the locks that are held or waited for.

use std::io::{self, Write};

use anyhow::Result;
use leasehold::{LockState, Locks};

use crate::commands::Ls;
use crate::exit::{Exit, print_error};
use crate::format::{claimant, known_age};
use crate::show::LockJson;
use crate::slots;
use crate::usage::Usage;

/// The most names that are listed: more than a user reads, but few enough to fetch in seconds.
const NAMES_MAX: usize = 10_000;

pub(crate) async fn list(args: &Ls) -> Result<Exit> {
    let opened = args.store.open_all().await?;
    let has_formats = opened.len() > 1;
    let mut listed = Vec::new();
    let mut exit = Exit::DONE;
    for inspected in &opened {
        let (lock_states, outcome) =
            inspect_all(&inspected.locks, &args.prefix, has_formats).await?;
        let format = has_formats.then_some(inspected.format);
        listed.extend(lock_states.into_iter().map(|state| (format, state)));
        exit = if exit == Exit::DONE { outcome } else { exit };
    }
    listed.sort_by(|one, other| one.1.name.cmp(&other.1.name));
    let listed = without_slot_numbers(&listed);

    let mut out = io::stdout().lock();
    if args.json {
        let json = |(format, lock_state)| LockJson::in_format(format, lock_state);
        let locks: Vec<LockJson<'_>> = listed
            .iter()
            .map(|(format, state)| json((*format, state)))
            .collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&locks)?)?;
    } else {
        write!(out, "{}", table(&listed, has_formats))?;
    }
    Ok(exit)
}

/// Returns the state of each lock in use. Forbidden and damaged locks are reported. Damaged ones
/// change the exit code, unless other formats are listed too.
async fn inspect_all(
    locks: &Locks,
    prefix: &str,
    has_formats: bool,
) -> Result<(Vec<LockState>, Exit)> {
    let mut names = locks.list(prefix, NAMES_MAX + 1).await?;
    if names.len() > NAMES_MAX {
        names.truncate(NAMES_MAX);
        print_error(format_args!(
            "there are more than {NAMES_MAX} locks; give a longer PREFIX to see the others"
        ));
    }

    let mut lock_states = Vec::new();
    let mut exit = Exit::DONE;
    for name in &names {
        match locks.inspect(name.as_str()).await {
            // The lock may have become free since the names were listed.
            Ok(lock_state) if lock_state.entries.is_empty() => {}
            Ok(lock_state) => lock_states.push(lock_state),
            // A lock of another user does not make this user's listing fail.
            Err(error) if error.is_denied() => print_error(&error),
            Err(error) if has_formats && (error.is_damaged() || error.is_mismatch()) => {}
            Err(error) if error.is_damaged() => {
                print_error(&error);
                exit = Exit::INTERNAL;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((lock_states, exit))
}

const COLUMNS: [&str; 7] = ["NAME", "FORMAT", "KIND", "HELD", "WAITERS", "AGE", "HOLDER"];

/// A lock with its format, if several formats are listed.
type Listed<'a> = (Option<&'a str>, LockState);

/// Leaves out the locks that number the slots of a listed semaphore.
fn without_slot_numbers<'a>(listed: &'a [Listed<'a>]) -> Vec<&'a Listed<'a>> {
    let find = |name: &str| {
        let mut states = listed.iter().map(|(_, state)| state);
        states.find(|state| state.name.as_str() == name)
    };
    listed
        .iter()
        .filter(|(_, state)| !slots::is_number(state, find))
        .collect()
}

/// Formats locks with their formats. The column for these is left out unless there are several.
fn table(listed: &[&Listed<'_>], has_formats: bool) -> String {
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

    vec![
        lock_state.name.to_string(),
        format.unwrap_or_default().to_owned(),
        usage.map_or_else(String::new, |usage| usage.kind.name().to_owned()),
        usage.map_or_else(String::new, |usage| usage.to_string()),
        lock_state.waiters().count().to_string(),
        first.map_or_else(String::new, known_age),
        first.map_or_else(String::new, |entry| claimant(&entry.info)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ls_lists_at_most_names_max_locks() {
        let locks = leasehold::open("memory:").await.unwrap();
        let mut guards = Vec::new();
        for number in 0..=NAMES_MAX {
            guards.push(locks.mutex(format!("{number:05}")).acquire().await.unwrap());
        }
        let (lock_states, _) = inspect_all(&locks, "", false).await.unwrap();
        assert_eq!(lock_states.len(), NAMES_MAX);
        assert_eq!(
            lock_states[NAMES_MAX - 1].name.as_str(),
            "09999",
            "the first 10,000 names in order are listed"
        );
    }
}
