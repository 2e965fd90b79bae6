//! What the masters know of locks, for inspection.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::timeout;

use super::Voting;
use super::master::Master;
use super::record::{Holder, Inspected};
use crate::client;
use crate::client::{NO_TEXTS, READ_TIMEOUT, Scan, decode, no_reply, reply_timeout};
use leasehold_core::store::{Standing, replies};
use leasehold_core::{Entry, Error, LockState, Name, Result, ServerStatus, Token};

/// Inspects a lock on all masters. Returns the holder that a quorum of masters reports, the waiters
/// of this client, and the status of each of several masters.
///
/// # Errors
/// The reason why a quorum could not be inspected.
pub(super) async fn inspect(voting: &Voting, name: &Name) -> Result<LockState> {
    let observations = observe(voting, name).await?;
    let mut lock_state = replies::lock_state(name.clone());
    if let Some((holder, token)) = elected(&observations, voting.masters.quorum()) {
        lock_state.entries.push(entry(voting, holder, token));
        lock_state.last_token = Some(token);
    } else {
        lock_state.last_token = observations
            .iter()
            .filter_map(|seen| seen.status.last_token)
            .max();
    }

    lock_state.entries.extend(voting.claims.waiters(name));
    if voting.settings.has_several_servers() {
        let statuses = observations.into_iter().map(|seen| seen.status);
        lock_state.servers = statuses.collect();
    }
    Ok(lock_state)
}

/// Returns the names of which a quorum of masters holds a record.
///
/// Only a minority may have the first names, so the list is cut when the votes are counted.
pub(super) async fn list(voting: &Voting, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
    let masters = &voting.masters;
    let format = voting.format;
    let pattern = format.pattern(prefix);
    let scan = Scan {
        pattern: &pattern,
        key_type: "string",
        script: format.list_script(),
        count_max: if voting.settings.has_several_servers() {
            usize::MAX
        } else {
            count_max
        },
    };
    let listings = masters.all.iter().map(|master| {
        let link = &master.links.background;
        client::list(link, scan, |key: &str| format.name_of(key))
    });
    let listings = masters.replies(listings).await;

    let mut votes: BTreeMap<Name, usize> = BTreeMap::new();
    for name in masters.of_quorum(listings)?.into_iter().flatten() {
        *votes.entry(name).or_default() += 1;
    }
    let held = votes
        .into_iter()
        .filter(|(_, count)| *count >= masters.quorum());
    Ok(held.map(|(name, _)| name).take(count_max).collect())
}

/// Shows a holder.
pub(super) fn entry(voting: &Voting, holder: &Holder, token: Token) -> Entry {
    let standing = Standing::Held { token };
    // A key that does not expire is reported with the shortest time.
    let ends =
        !voting.settings.has_several_servers() && holder.remaining > Duration::from_millis(1);
    let mut entry = replies::entry(holder.id, holder.share, standing, holder.info.clone());
    entry.lease_left = ends.then_some(holder.remaining);
    entry
}

/// The status of one master, and the claim that has its vote.
struct Observation {
    status: ServerStatus,
    holder: Option<Holder>,
}

/// Returns the holder that has the votes of a quorum, and its token.
fn elected(observations: &[Observation], quorum: usize) -> Option<(&Holder, Token)> {
    let mut votes: BTreeMap<_, (usize, &Holder)> = BTreeMap::new();
    for holder in observations.iter().filter_map(|seen| seen.holder.as_ref()) {
        let vote = votes.entry((holder.token, holder.id));
        vote.or_insert((0, holder)).0 += 1;
    }

    let elected = votes.values().find(|(count, _)| *count >= quorum);
    let (_, holder) = elected?;
    Some((holder, Token::new(holder.token)?))
}

async fn observe(voting: &Voting, name: &Name) -> Result<Vec<Observation>> {
    let masters = &voting.masters;
    let key = voting.format.keys(name)?.lock;
    let limit = reply_timeout(READ_TIMEOUT) / 4;
    let replies = masters.all.iter().map(|master| {
        let inspecting = inspect_master(voting, master, &key);
        async move {
            let reply = timeout(limit, inspecting).await;
            reply.unwrap_or_else(|_| Err(no_reply()))
        }
    });
    let replies = masters.replies(replies).await;

    let observed = masters.all.iter().zip(&replies);
    let observations = observed
        .map(|(master, reply)| observation(master, reply))
        .collect();
    masters.of_quorum(replies).map(|_| observations)
}

async fn inspect_master(voting: &Voting, master: &Master, key: &str) -> Result<Inspected> {
    let (session, _) = master.session()?;
    let script = voting.format.inspect_script();
    let reply = script.run(&session, &[key], NO_TEXTS).await?;
    let (record, left_ms): (Vec<u8>, u64) = decode(reply)?;
    // Another library may have written an empty value.
    if record.is_empty() && left_ms == 0 {
        return Ok(Inspected {
            last_token: 0,
            holder: None,
        });
    }

    let inspected = voting.format.read(&record, Duration::from_millis(left_ms));
    inspected.ok_or_else(|| Error::damaged("the record of this lock was not written by leasehold"))
}

fn observation(master: &Master, reply: &Result<Inspected>) -> Observation {
    let mut status = replies::server_status(master.url.clone());
    if !master.quarantine.remaining().is_zero() {
        status.error = Some(master.quarantine.message());
    }
    match reply {
        Ok(inspected) => status.last_token = Token::new(inspected.last_token),
        Err(error) => status.error = Some(error.to_string()),
    }

    let holder = reply.as_ref().ok().and_then(|seen| seen.holder.clone());
    if let Some(holder) = &holder {
        status.holder = Token::new(holder.token).map(|token| (holder.id, token));
        status.remaining = holder.remaining;
    }
    Observation { status, holder }
}
