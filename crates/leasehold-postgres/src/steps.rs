//! The steps of a claim: one statement each, and what its reply says.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::claims::{Renewed, TrackedClaim, uuid_of};
use super::connection::Connection;
use super::function::Function;
use super::reply_error::{
    claim_error, column, has_done, is_in_the_way, is_queue_full, late_clock, not_understood,
    store_error,
};
use super::schema;
use super::session::{SILENCE_MAX, Session};
use leasehold_core::internal::BootInstant;
use leasehold_core::store::{Claim, Standing, write_words};
use leasehold_core::{Name, Result, Token};

/// How a request enters a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Queue,
    Try,
    Refresh,
    Look,
}

impl Mode {
    fn letter(self) -> i8 {
        let letter = match self {
            Self::Queue => b'Q',
            Self::Try => b'R',
            Self::Refresh => b'F',
            Self::Look => b'L',
        };
        i8::try_from(letter).expect("it is ASCII")
    }
}

/// The absence of a holder's client.
pub(super) type Absence = leasehold_core::internal::Absence<Uuid>;

/// A request to enter.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) claim: &'a Claim,
    pub(super) mode: Mode,
    pub(super) grace: Option<Duration>,
    /// The next token exceeds it.
    pub(super) hint: u64,
    /// The absences that have lasted for their grace.
    pub(super) ended: &'a [Absence],
}

/// The reply to a request to enter.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) standing: Standing,
    /// How many waiters are ahead.
    pub(super) place: u32,
    /// How long until the first lease of a holder ends.
    pub(super) next_end: Option<Duration>,
    /// For how long a hold is over that a transaction still pins.
    pub(super) pinned_for: Option<Duration>,
    pub(super) absences: Vec<Absence>,
}

impl Reply {
    /// Whether the session of a holder's client is gone.
    pub(super) fn has_absent_holder(&self) -> bool {
        !self.absences.is_empty()
    }

    fn parse(row: &Row) -> Result<Self> {
        let token: Option<i64> = column(row, "token")?;
        let token = token.and_then(|token| Token::new(u64::try_from(token).ok()?));
        let ahead = unsigned(column(row, "ahead")?);
        let standing = match letter(column(row, "standing")?) {
            'H' => Standing::Held {
                token: token.ok_or_else(not_understood)?,
            },
            'N' | 'Q' => Standing::Queued { ahead },
            'G' => Standing::Gone,
            _ => return Err(not_understood()),
        };
        let next_end: Option<i32> = column(row, "next_end")?;
        let texts: Option<Vec<String>> = column(row, "absences")?;
        Ok(Self {
            standing,
            place: unsigned(column(row, "place")?),
            pinned_for: next_end.map(|millis| !millis).and_then(from_millis),
            next_end: next_end.and_then(from_millis),
            absences: texts
                .unwrap_or_default()
                .iter()
                .filter_map(|text| parse_absence(text))
                .collect(),
        })
    }
}

/// Sends a request to enter. If its reply is missing, the claim may have been entered.
pub(super) async fn enter(
    session: &Session,
    request: Request<'_>,
    tracked: &TrackedClaim,
) -> Result<Reply> {
    let claim = request.claim;
    let limit = reply_timeout(claim.lease);
    let mut words = String::new();
    write_words(&claim.info, &mut words);
    // A claim without renewal lasts for its lease, whatever becomes of the session.
    let proof = session
        .proof
        .as_ref()
        .filter(|_| claim.auto_renew && request.grace.is_some());

    let name = stored(&claim.name);
    let letter = request.mode.letter();
    let id = uuid_of(claim.id);
    let weight = signed(claim.share.weight());
    let capacity = signed(claim.share.capacity());
    let lease = millis(claim.lease);
    let reserved = signed(claim.reserved);
    let epoch = signed(session.epoch);
    let link = proof.map(|proof| proof.link);
    let channel = session.proof.as_ref().map(|proof| proof.channel.as_str());
    let grace = millis(request.grace.unwrap_or_default());
    let info = words.trim_start();
    let hint = i64::try_from(request.hint).unwrap_or(i64::MAX);

    let nonces: Vec<Uuid> = request.ended.iter().map(|absence| absence.nonce).collect();

    let mut tries = 0;
    loop {
        tries += 1;
        let until = BootInstant::now().saturating_add(limit);
        let late_until = until.saturating_add(limit / 4);
        tracked.may_be_late(late_until);
        let late_at = session.server_time(until);
        let arguments: [&(dyn ToSql + Sync); 17] = [
            &name,
            &letter,
            &id,
            &weight,
            &capacity,
            &lease,
            &reserved,
            &session.client,
            &epoch,
            &link,
            &session.server,
            &channel,
            &grace,
            &info,
            &hint,
            &late_at,
            &nonces,
        ];
        let on = &session.requests;
        let sending = session.functions.enter.call(&on.client, &arguments);
        let replied = session.reply(on, limit, sending).await?;
        // Without a reply of the server the request may still be executed.
        let is_reply = |error: &tokio_postgres::Error| error.as_db_error().is_some();
        if replied.as_ref().err().is_none_or(is_reply) {
            tracked.is_answered(late_until);
        }
        match replied {
            Ok(rows) => {
                let row = rows.first().ok_or_else(not_understood)?;
                return Reply::parse(row);
            }
            Err(error) => {
                if let Some(about_claim) = claim_error(&error, claim.share) {
                    return Err(about_claim);
                } else if tries >= TRIES_MAX {
                    return Err(session.failed(error));
                } else if let Some(clock) = late_clock(&error) {
                    session.set_clock(clock);
                } else if is_queue_full(&error) {
                    be_quiet(session).await?;
                } else if !is_in_the_way(&error) {
                    return Err(session.failed(error));
                }
            }
        }
    }
}

/// Removes a claim; returns whether it was there.
pub(super) async fn leave(session: &Session, claim: &Claim) -> Result<bool> {
    let name = stored(&claim.name);
    let id = uuid_of(claim.id);
    if claim.by_watchdog {
        return call_step(session, &session.functions.release_ended, &[&name, &id]).await;
    }
    let arguments: [&(dyn ToSql + Sync); 3] = [&name, &id, &session.client];
    call_step(session, &session.functions.leave, &arguments).await
}

/// Calls a step in which a claim leaves; returns what it replies.
pub(super) async fn call_step(
    session: &Session,
    function: &Function,
    arguments: &[&(dyn ToSql + Sync)],
) -> Result<bool> {
    let on = &session.requests;
    let rows = call(session, on, function, arguments, SILENCE_MAX).await?;
    has_done(&rows)
}

/// Calls a function, and again if another transaction was in its way.
async fn call(
    session: &Session,
    connection: &Connection,
    function: &Function,
    arguments: &[&(dyn ToSql + Sync)],
    limit: Duration,
) -> Result<Vec<Row>> {
    let mut tries = 0;
    loop {
        tries += 1;
        let calling = function.call(&connection.client, arguments);
        match session.reply(connection, limit, calling).await? {
            Ok(rows) => return Ok(rows),
            Err(error) if tries < TRIES_MAX && is_queue_full(&error) => be_quiet(session).await?,
            Err(error) if tries < TRIES_MAX && is_in_the_way(&error) => {}
            Err(error) => return Err(session.failed(error)),
        }
    }
}

/// Claims, and what this client knows of each.
pub(super) type Known<'a> = Vec<(&'a Claim, &'a TrackedClaim)>;

/// Renews claims together, or each alone if somebody keeps the queue of one of them locked. Returns
/// those that are not renewed, because of that or because it is later than `until`.
pub(super) async fn renew_unblocked<'a>(
    session: &Session,
    claims: &[(&'a Claim, &'a TrackedClaim)],
    grace: Option<Duration>,
    until: BootInstant,
) -> Result<Known<'a>> {
    if renew(session, claims, grace).await? {
        return Ok(Known::new());
    }

    let mut blocked = claims.to_vec();
    if claims.len() > 1 {
        // In any other order, a few locked queues could always take the time of all others.
        blocked.sort_by_cached_key(|_| Uuid::new_v4());
        for claim in std::mem::take(&mut blocked) {
            if BootInstant::now() >= until || !renew(session, &[claim], grace).await? {
                blocked.push(claim);
            }
        }
    }
    Ok(blocked)
}

/// Renews claims by an update of their records; returns whether nothing was in its way. Without a
/// grace they are not bound to the session.
async fn renew(
    session: &Session,
    claims: &[(&Claim, &TrackedClaim)],
    grace: Option<Duration>,
) -> Result<bool> {
    let (names, ids) = names_and_ids(claims);
    let proof = session.proof.as_ref().filter(|_| grace.is_some());
    let epoch = signed(session.epoch);
    let link = proof.map(|proof| proof.link);
    let channel = session.proof.as_ref().map(|proof| proof.channel.as_str());
    let grace = millis(grace.unwrap_or_default());
    let arguments: [&(dyn ToSql + Sync); 8] = [
        &names,
        &ids,
        &session.client,
        &epoch,
        &link,
        &session.server,
        &channel,
        &grace,
    ];
    let sent_at = BootInstant::now();
    let on = &session.listener;
    let function = &session.functions.renew;
    let limit = renewal_limit(session, claims);
    let calling = function.call(&on.client, &arguments);
    let rows = match session.reply(on, limit, calling).await? {
        Ok(rows) => rows,
        Err(error) if is_in_the_way(&error) => return Ok(false),
        Err(error) => {
            for (_, tracked) in claims {
                tracked.renewal_failed();
            }
            return Err(session.failed(error));
        }
    };

    for ((claim, tracked), row) in claims.iter().zip(&rows) {
        let standing = letter(column(row, "standing")?);
        let renewed = match standing {
            '1' => Renewed::Held,
            'Q' | 'A' => Renewed::Queued {
                place: unsigned(column(row, "place")?),
                should_look: standing == 'A',
                lease: claim.lease,
            },
            _ => Renewed::Gone,
        };
        tracked.apply_renewal(renewed, (sent_at, session.epoch));
    }
    Ok(true)
}

/// Looks whether claims are still held, on the connection that proves the client.
pub(super) async fn look_at_holds(
    session: &Session,
    claims: &[(&Claim, &TrackedClaim)],
) -> Result<()> {
    if claims.is_empty() {
        return Ok(());
    }
    let (names, ids) = names_and_ids(claims);
    let on = &session.listener;
    let function = &session.functions.held;
    let limit = renewal_limit(session, claims);
    let rows = call(session, on, function, &[&names, &ids], limit).await?;
    for ((_, tracked), row) in claims.iter().zip(&rows) {
        if !column::<bool>(row, 0)? {
            tracked.apply_renewal(Renewed::Gone, (BootInstant::now(), session.epoch));
        }
    }
    Ok(())
}

fn names_and_ids(claims: &[(&Claim, &TrackedClaim)]) -> (Vec<String>, Vec<Uuid>) {
    let both = |(claim, _): &(&Claim, &TrackedClaim)| (stored(&claim.name), uuid_of(claim.id));
    claims.iter().map(both).unzip()
}

/// Sends no notifications from now on: no transaction with one can commit. Waiters look instead.
/// Behind a pooler, the setting would be that of other clients.
async fn be_quiet(session: &Session) -> Result<()> {
    let on = &session.requests;
    if !on.is_direct {
        return Ok(());
    }
    tracing::warn!("the queue of notifications is full: waiters look from time to time instead");
    let statement = schema::named(&session.schema, "SET leasehold.quiet = on");
    let quiet = session.reply(on, SILENCE_MAX, on.client.batch_execute(&statement));
    quiet.await?.map_err(store_error)
}

fn parse_absence(text: &str) -> Option<Absence> {
    let mut words = text.split(' ');
    Some(Absence {
        claim: words.next()?.parse().ok()?,
        nonce: words.next()?.parse().ok()?,
        grace: Duration::from_millis(words.next()?.parse().ok()?),
    })
}

/// A name as the database has it: text without the character U+0000, which PostgreSQL has not.
pub(super) fn stored(name: &Name) -> String {
    stored_text(name.as_str())
}

pub(super) fn stored_text(text: &str) -> String {
    text.replace('\u{1}', "\u{1}1").replace('\0', "\u{1}0")
}

/// Reads a name from the database.
pub(super) fn name_of(stored: &str) -> Option<Name> {
    let text = stored.replace("\u{1}0", "\0").replace("\u{1}1", "\u{1}");
    Name::parse(&text).ok()
}

/// How long a request about a claim waits for its reply.
pub(super) fn reply_timeout(lease: Duration) -> Duration {
    (lease / 3).clamp(Duration::from_millis(250), Duration::from_secs(5))
}

fn renewal_limit(session: &Session, claims: &[(&Claim, &TrackedClaim)]) -> Duration {
    session.listener_limit(claims.iter().map(|(claim, _)| claim.lease))
}

fn letter(byte: i8) -> char {
    u8::try_from(byte).map_or('?', char::from)
}

fn unsigned(number: Option<i32>) -> u32 {
    number
        .and_then(|number| u32::try_from(number).ok())
        .unwrap_or(0)
}

fn signed(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Returns a number of milliseconds as a duration; `None` if it is negative.
fn from_millis(millis: i32) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

pub(super) fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// A deadlock or a conflict ends one of two statements, and the other one passes.
const TRIES_MAX: u32 = 4;
