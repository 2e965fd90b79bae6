//! A run inside a run of the same lock, which would wait for itself forever.

use std::process::Command;

use anyhow::Result;
use leasehold::{Entry, Error, Guard, Locks, Token};
use serde::{Deserialize, Serialize};

use super::exec_shim::become_command;
use crate::commands::Run;
use crate::exit::Exit;
use crate::format::Escaped;

/// The variable with all holds that a command runs under, outermost first, as JSON.
const HELD: &str = "LEASEHOLD_HELD";

/// One hold that a command runs under.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hold {
    store: String,
    name: String,
    token: u64,
    /// Empty if an older release of leasehold has set the environment.
    #[serde(default)]
    claim: String,
}

impl Hold {
    pub(crate) fn new(store: &str, guard: &Guard) -> Self {
        let fencing = guard.fencing_token();

        Self {
            store: store.to_owned(),
            name: guard.name().to_owned(),
            token: fencing.token().get(),
            claim: fencing.claim().to_string(),
        }
    }
}

/// Returns the environment variables of a command that runs under `hold`.
pub(crate) fn environment(hold: &Hold, url: &str) -> Vec<(&'static str, String)> {
    let mut holds = enclosing_holds();
    holds.push(hold.clone());
    let holds = serde_json::to_string(&holds).expect("texts and numbers are always JSON");

    own_environment(hold, url)
        .into_iter()
        .chain([(HELD, holds)])
        .collect()
}

fn own_environment(hold: &Hold, url: &str) -> [(&'static str, String); 4] {
    // A relative folder in the URL counts from leasehold's working directory. COMMAND may change
    // its own, so it gets the absolute path.
    let settings = url.find('?').map_or("", |at| &url[at..]);
    let store = if url.starts_with("file:") {
        format!("{}{settings}", hold.store)
    } else {
        url.to_owned()
    };

    [
        ("LEASEHOLD_NAME", hold.name.clone()),
        ("LEASEHOLD_TOKEN", hold.token.to_string()),
        ("LEASEHOLD_CLAIM", hold.claim.clone()),
        ("LEASEHOLD_STORE", store),
    ]
}

/// Returns the hold of `name` that this process runs under.
///
/// The store must confirm it, because an environment may outlive the hold that it names.
pub(crate) async fn enclosing(locks: &Locks, name: &str) -> leasehold::Result<Option<Entry>> {
    let holds = enclosing_holds()
        .into_iter()
        .filter(|hold| hold.name == name && is_same_store(&hold.store, locks.url()));
    let tokens: Vec<_> = holds.filter_map(|hold| Token::new(hold.token)).collect();
    if tokens.is_empty() {
        return Ok(None);
    }

    let lock_state = locks.inspect(name).await?;
    Ok(lock_state
        .holders()
        .find(|entry| entry.token().is_some_and(|token| tokens.contains(&token)))
        .cloned())
}

/// Compares the URLs of two stores. Several paths may lead to the same folder.
fn is_same_store(one: &str, other: &str) -> bool {
    let folder = |url: &str| std::fs::canonicalize(url.strip_prefix("file:")?).ok();
    one == other || folder(one).is_some_and(|one| Some(one) == folder(other))
}

fn enclosing_holds() -> Vec<Hold> {
    let text = std::env::var(HELD).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Replaces leasehold by the command, under the outer hold.
///
/// Fails without `--reentrant`, and if the outer hold has a smaller share than this run requests.
pub(crate) fn join(outer: &Entry, locks: &Locks, args: &Run) -> Result<Exit> {
    check_share(outer, args)?;

    let hold = joined_hold(outer, locks, args);
    let mut command = Command::new(&args.command[0]);
    command
        .args(&args.command[1..])
        .envs(own_environment(&hold, &args.store.url));
    Ok(become_command(&mut command))
}

fn check_share(outer: &Entry, args: &Run) -> leasehold::Result<()> {
    let requested = args.share()?;
    let name = Escaped(&args.name);
    if !args.reentrant {
        return Err(Error::invalid(format!(
            "this runs inside a run that holds {name}, and would wait for itself"
        ))
        .help("add --reentrant to run it under that hold"));
    }

    requested.check_same_kind(outer.share)?;
    if requested.units().0 > outer.share.units().0 {
        let held = outer.share;
        return Err(Error::invalid(format!(
            "{requested} requested inside a run of {name} that holds {held}"
        ))
        .help("let the outer run take as much as the inner runs need"));
    }
    Ok(())
}

fn joined_hold(outer: &Entry, locks: &Locks, args: &Run) -> Hold {
    let token = outer
        .token()
        .expect("the outer hold was found among the holders")
        .get();
    let is_outer =
        |hold: &Hold| hold.name == args.name && hold.token == token && !hold.claim.is_empty();
    let claim = enclosing_holds()
        .into_iter()
        .find(is_outer)
        .map_or_else(|| outer.id.to_string(), |hold| hold.claim);

    Hold {
        store: locks.url().to_owned(),
        name: args.name.clone(),
        token,
        claim,
    }
}
