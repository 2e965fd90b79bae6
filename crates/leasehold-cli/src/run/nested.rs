//! A run inside a run of the same lock, which would wait for itself forever.

use std::process::Command;

use anyhow::Result;
use leasehold::store::{Share, check_same_kind, units};
use leasehold::{Error, Guard, Locks, MultiGuard, folder_of, kind_of};
use serde::{Deserialize, Serialize};

use super::exec_shim::become_command;
use crate::commands::Run;
use crate::exit::Exit;
use crate::format::Escaped;
use crate::guards::of_main_store;
use crate::release::{loss_of, why_lost};

/// The variable with all holds that a command runs under, outermost first, as JSON.
const HELD: &str = "LEASEHOLD_HELD";
/// The variable with the URL of the store.
pub(super) const STORE: &str = "LEASEHOLD_STORE";
/// The variable with the numbers of the slots that a command has.
pub(super) const SLOT: &str = "LEASEHOLD_SLOT";

/// The variable with the URL of the second store.
pub(super) const ALSO_STORE: &str = "LEASEHOLD_ALSO_STORE";

/// One hold that a command runs under.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EnclosingHold {
    pub(super) store: String,
    pub(super) name: String,
    token: u64,
    /// Empty if an older release of leasehold has set the environment.
    #[serde(default)]
    pub(super) claim: String,
    /// The numbers of the slots that it has.
    #[serde(default)]
    slots: Vec<u32>,
}

/// A hold that the store has confirmed, and its share.
pub(crate) struct Enclosing {
    hold: EnclosingHold,
    share: Share,
}

impl EnclosingHold {
    fn new(guard: &Guard) -> Self {
        Self {
            store: guard.store_url().to_owned(),
            name: guard.name().to_owned(),
            token: guard.token().get(),
            claim: guard.claim_id().to_string(),
            slots: guard.slots().to_vec(),
        }
    }
}

/// Returns the environment variables of a command that runs under `guards`.
pub(crate) fn environment(guards: &MultiGuard, args: &Run) -> Vec<(&'static str, String)> {
    let all: Vec<_> = guards.guards().iter().map(EnclosingHold::new).collect();
    let (own, also) = all.split_at(of_main_store(guards).len());

    let mut held = enclosing_holds();
    held.extend_from_slice(&all);
    let held = serde_json::to_string(&held).expect("texts and numbers are always JSON");

    let mut variables = own_environment(own, &args.store.url);
    if let (Some(also), Some(url)) = (also.first(), &args.also_store) {
        variables.push((ALSO_STORE, independent_of_folder(url, &also.store)));
    }
    variables.push((HELD, held));
    variables
}

/// Returns the length of the list of holds in the environment of a command.
pub(crate) fn len_of_holds(environment: &[(&'static str, String)]) -> usize {
    let held = environment.iter().find(|(variable, _)| *variable == HELD);
    held.map_or(0, |(_, holds)| holds.len())
}

/// Returns the variables of one or more holds. The first hold is the main one.
fn own_environment(holds: &[EnclosingHold], url: &str) -> Vec<(&'static str, String)> {
    let first = holds.first().expect("a command runs under at least one");
    let tokens: Vec<_> = holds.iter().map(|hold| hold.token).collect();

    let mut variables = vec![
        ("LEASEHOLD_NAME", first.name.clone()),
        ("LEASEHOLD_TOKEN", first.token.to_string()),
        ("LEASEHOLD_TOKENS", joined(&tokens)),
        ("LEASEHOLD_CLAIM", first.claim.clone()),
        (STORE, independent_of_folder(url, &first.store)),
    ];
    if !first.slots.is_empty() {
        variables.push((SLOT, joined(&first.slots)));
    }
    variables
}

/// Returns the URL of a store for COMMAND, which may change its working directory.
///
/// A relative path in the URL counts from that of leasehold. `opened` has the absolute path of the
/// folder with the locks.
fn independent_of_folder(url: &str, opened: &str) -> String {
    let settings = url.find('?').map_or("", |at| &url[at..]);
    match kind_of(url) {
        Some(kind) if kind.is_local() => format!("{opened}{settings}"),
        Some(kind) => kind.with_absolute_paths(url),
        None => url.to_owned(),
    }
}

/// Fails if the environment names a second store. For subcommands that hold in one store only.
pub(crate) fn check_one_store() -> leasehold::Result<()> {
    let Some(url) = std::env::var_os(ALSO_STORE) else {
        return Ok(());
    };

    // The variable was meant to name a store, or it would not be set.
    let problem = if url.is_empty() {
        "is empty (a missing secret?), and"
    } else {
        "is set, but"
    };
    Err(Error::invalid(format!(
        "{ALSO_STORE} {problem} only run holds a lock in two stores"
    ))
    .help("use run, or unset the variable to hold in one store only"))
}

/// Joins numbers with spaces, so that a shell can split them into words.
fn joined(numbers: &[impl ToString]) -> String {
    let numbers: Vec<_> = numbers.iter().map(ToString::to_string).collect();
    numbers.join(" ")
}

/// Returns the holds of `names` that this process runs under, in the order of the names.
///
/// Fails if it runs under only some of them. It would wait for the other names while it holds
/// these, in violation of the order of acquisition.
pub(crate) async fn enclosing_all(
    locks: &Locks,
    names: &[String],
) -> leasehold::Result<Option<Vec<Enclosing>>> {
    let mut outer = Vec::new();
    let mut first_held = None;
    for name in names {
        if let Some(hold) = enclosing(locks, name).await? {
            first_held.get_or_insert(name);
            outer.push(hold);
        }
    }

    match first_held {
        Some(held) if outer.len() < names.len() && names.len() > 1 => Err(partly_held(held)),
        Some(_) => Ok(Some(outer)),
        None => Ok(None),
    }
}

fn partly_held(name: &str) -> Error {
    let name = Escaped(name);
    Error::invalid(format!(
        "this runs inside a run that holds {name}, but not all names of this run"
    ))
    .help("let the outer run hold all names")
}

/// Returns the hold of `name` that this process runs under.
///
/// The store must confirm it, because an environment may outlive the hold that it names.
///
/// # Errors
/// [`is_lost`](Error::is_lost) if the store still has the hold, and `leasehold check` fails. Work
/// under that hold would go on without it, and a wait for its end may be one for this process.
async fn enclosing(locks: &Locks, name: &str) -> leasehold::Result<Option<Enclosing>> {
    let mut holds = enclosing_holds();
    holds.retain(|hold| hold.name == name && is_same_store(&hold.store, locks.url()));
    if holds.is_empty() {
        return Ok(None);
    }

    let lock_state = locks.inspect(name).await?;
    let found = lock_state.holders().find_map(|entry| {
        let token = entry.token()?;
        let id = entry.id.to_string();
        // Not every format has tokens that no other claim gets.
        let hold = holds
            .iter()
            .find(|hold| hold.token == token.get() && [&*id, ""].contains(&&*hold.claim))?;
        Some((entry, token, hold.clone()))
    });
    let Some((entry, token, mut hold)) = found else {
        return Ok(None);
    };
    // The process of a run cannot be asked.
    if let Some(reason) = why_lost(entry, None, loss_of(locks, name, token)) {
        return Err(not_reliable(name, &reason));
    }

    locks.url().clone_into(&mut hold.store);
    hold.claim = entry.id.to_string();
    let share = entry.share;
    Ok(Some(Enclosing { hold, share }))
}

fn not_reliable(name: &str, reason: &str) -> Error {
    let name = Escaped(name);
    Error::lost(format!(
        "this runs inside a run whose hold of {name} cannot be relied on: {reason}"
    ))
    .help("unset LEASEHOLD_HELD to wait for the lock, if no run waits for this one")
}

/// Compares the URLs of two stores. Several paths may lead to the same folder.
pub(crate) fn is_same_store(one: &str, other: &str) -> bool {
    let folder = |url: &str| std::fs::canonicalize(folder_of(url)?).ok();
    one == other || folder(one).is_some_and(|one| Some(one) == folder(other))
}

/// Returns the last holds in the environment: in that of a command, those of its own run.
pub(super) fn innermost_holds(count: usize) -> Vec<EnclosingHold> {
    let mut holds = enclosing_holds();
    holds.split_off(holds.len().saturating_sub(count))
}

/// Whether the environment names a hold.
pub(crate) fn is_enclosed() -> bool {
    !enclosing_holds().is_empty()
}

fn enclosing_holds() -> Vec<EnclosingHold> {
    let text = std::env::var(HELD).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Replaces leasehold with the command, under the outer holds of all names.
///
/// Fails without `--reentrant`, or if an outer hold has a smaller share than this run requests.
pub(crate) fn join(outer: Vec<Enclosing>, args: &Run) -> Result<Exit> {
    let mut holds = Vec::new();
    for enclosing in outer {
        check_share(&enclosing, args)?;
        holds.push(enclosing.hold);
    }

    let mut command = Command::new(&args.command[0]);
    command
        .args(&args.command[1..])
        // The numbers of a run in between are none of this hold.
        .env_remove(SLOT)
        .envs(own_environment(&holds, &args.store.url));
    Ok(become_command(&mut command))
}

fn check_share(outer: &Enclosing, args: &Run) -> leasehold::Result<()> {
    let name = &outer.hold.name;
    let requested = args.lock.share()?;
    if !args.reentrant {
        return Err(waits_for_itself(name).help("add --reentrant to run it under that hold"));
    }

    check_same_kind(requested, outer.share)?;
    if units(requested).0 > units(outer.share).0 {
        let name = Escaped(name);
        let held = outer.share;
        return Err(Error::invalid(format!(
            "{requested} requested inside a run of {name} that holds {held}"
        ))
        .help("let the outer run take as much as the inner runs need"));
    }
    Ok(())
}

fn waits_for_itself(name: &str) -> Error {
    let name = Escaped(name);
    Error::invalid(format!(
        "this runs inside a run that holds {name}, and would wait for itself"
    ))
}

/// Fails if this process runs under a hold of `name`. Used by subcommands that hold a lock without
/// a command.
pub(crate) async fn check_not_enclosed(locks: &Locks, name: &str) -> leasehold::Result<()> {
    match enclosing(locks, name).await? {
        Some(_) => Err(waits_for_itself(name).help("the command has the lock already")),
        None => Ok(()),
    }
}
