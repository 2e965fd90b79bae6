//! A run inside a run: whoever waited there for a lock that he holds himself would wait for ever.

use std::process::Command;

use anyhow::Result;
use leasehold::store::Share;
use leasehold::{Entry, Error, Guard, Locks, Token};
use serde::{Deserialize, Serialize};

use super::exec_shim::become_command;
use crate::commands::Run;
use crate::exit::Exit;
use crate::format::Escaped;

/// All holds a command runs under, outermost first, as JSON.
const HELD: &str = "LEASEHOLD_HELD";

/// One hold that a command runs under.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hold {
    store: String,
    name: String,
    token: u64,
    /// Empty where a release without it has set the environment.
    #[serde(default)]
    claim: String,
}

impl Hold {
    pub(crate) fn new(position: &str, guard: &Guard) -> Self {
        let fencing = guard.fencing_token();
        Self {
            store: position.to_owned(),
            name: guard.name().to_owned(),
            token: fencing.token().get(),
            claim: fencing.claim().to_string(),
        }
    }
}

/// What a command that runs under this hold finds in its environment.
pub(crate) fn environment(hold: &Hold, url: &str) -> Vec<(&'static str, String)> {
    let mut chain = chain();
    chain.push(hold.clone());
    let chain = serde_json::to_string(&chain).expect("texts and numbers are always JSON");
    own_environment(hold, url)
        .into_iter()
        .chain([(HELD, chain)])
        .collect()
}

fn own_environment(hold: &Hold, url: &str) -> [(&'static str, String); 4] {
    // A folder may be named from where leasehold was started, and the command may be elsewhere.
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

/// The hold of `name` that we run under, if the store confirms it: an environment outlives what it tells of.
pub(crate) async fn enclosing(locks: &Locks, name: &str) -> leasehold::Result<Option<Entry>> {
    let holds = chain()
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

/// Many paths lead to one folder.
fn is_same_store(one: &str, other: &str) -> bool {
    let folder = |position: &str| std::fs::canonicalize(position.strip_prefix("file:")?).ok();
    one == other || folder(one).is_some_and(|one| Some(one) == folder(other))
}

fn chain() -> Vec<Hold> {
    let text = std::env::var(HELD).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Runs the command under the outer hold, in our place; refuses unless that is asked for and enough.
pub(crate) fn join(outer: &Entry, locks: &Locks, args: &Run) -> Result<Exit> {
    let asked = share(args)?;
    if !args.reentrant {
        return Err(inside(args)
            .help("add --reentrant to run it under that hold")
            .into());
    }
    asked.check_same_kind(outer.share)?;
    if asked.units().0 > outer.share.units().0 {
        let what = format!(
            "{asked} asked for inside a run of {} that holds {}",
            Escaped(&args.name),
            outer.share
        );
        return Err(Error::invalid(what)
            .help("let the outer run take as much as the inner ones need")
            .into());
    }
    let token = outer
        .token()
        .expect("the outer hold was found among the holders")
        .get();
    let is_outer =
        |hold: &Hold| hold.name == args.name && hold.token == token && !hold.claim.is_empty();
    let claim = chain()
        .into_iter()
        .find(is_outer)
        .map_or_else(|| outer.id.to_string(), |hold| hold.claim);
    let hold = Hold {
        store: locks.url().to_owned(),
        name: args.name.clone(),
        token,
        claim,
    };
    let mut command = Command::new(&args.command[0]);
    command
        .args(&args.command[1..])
        .envs(own_environment(&hold, &args.store.url));
    Ok(become_command(&mut command))
}

fn inside(args: &Run) -> Error {
    let name = Escaped(&args.name);
    Error::invalid(format!(
        "this runs inside a run that holds {name}, and would wait for itself"
    ))
}

fn share(args: &Run) -> leasehold::Result<Share> {
    match (args.slots, args.shared) {
        (Some(slots), _) => Share::slots(args.permits.unwrap_or(1), slots),
        (None, true) => Ok(Share::READER),
        (None, false) => Ok(Share::MUTEX),
    }
}
