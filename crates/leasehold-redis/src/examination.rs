//! Risks to locks on Redis servers: settings, rights, clocks, round trips.

mod checks;
mod clocks;
mod rights;

use std::collections::HashSet;
use std::ops::RangeBounds;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::client::{
    Address, Command, FromReply, RequestError, Session, Value, cause, check_mode, command, decode,
    field,
};
use super::redisson::Class;
use checks::CHECKS;
use clocks::Clock;
use leasehold_core::internal::examination::{ServerFacts, Service, danger};
use leasehold_core::{Error, Examination, Result};

/// The store whose servers are examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Redis,
    Cluster,
    Plain,
    Redisson(Class),
    Redlock,
}

static SERVICE: Service = Service {
    name: "Redis",
    oldest: "6.2",
    install: "install Redis or Valkey, 6.2 or newer",
    encrypt: "rediss:// or redlocks://",
    patience: "crash-grace= and lease",
};
/// The default lease, which matters without a crash grace.
const LEASE: Duration = Duration::from_secs(30);
/// How long a server may take to reply.
const REPLY_MAX: Duration = Duration::from_secs(5);

/// Examines the servers of a store.
pub(super) async fn examine(kind: Kind, addresses: &[Address]) -> Result<Examination> {
    let examined = addresses
        .iter()
        .map(|address| examine_server(kind, address));

    let mut examination = Examination::default();
    let mut unreachable = Vec::new();
    let mut processes = HashSet::new();
    for (address, examined) in addresses.iter().zip(join_all(examined).await) {
        match examined {
            // A node of a cluster may have a second name.
            Ok((Some(process), _)) if !processes.insert(process.clone()) => {}
            Ok((_, examined)) => examination.add(examined),
            Err(error) if error.is_unavailable() => unreachable.push((address, error)),
            Err(error) => {
                let remedy = error.hint().unwrap_or("check the URL");
                let finding = danger("refused", error.reason(), remedy);
                examination.findings.push(finding.about(address));
            }
        }
    }

    if unreachable.len() * 2 >= addresses.len()
        && let Some((_, error)) = unreachable.pop()
    {
        return Err(error);
    }
    for (address, error) in unreachable {
        let remedy = "start the server again: with it, one more server may fail";
        let finding = danger("server-missing", error.reason(), remedy);
        examination.findings.push(finding.about(address));
    }
    Ok(examination)
}

/// Also returns the id of the server's process, if the user may read it.
async fn examine_server(kind: Kind, address: &Address) -> Result<(Option<String>, Examination)> {
    let mut session = open(address).await?;
    let facts = Facts::read(&mut session, kind, address).await?;

    let mut examination = Examination::default();
    examination.unknown = facts.unknown();
    examination.check(CHECKS, &facts, address);
    let common = facts.common();
    examination.findings.extend(common.findings());
    examination.servers.push(common.examined());
    let rights = rights::examine(kind, session, address).await?;
    examination.findings.extend(rights);
    Ok((facts.value("run_id"), examination))
}

async fn open(address: &Address) -> Result<Session> {
    let opening = Session::open_unsubscribed(address);
    let opened = timeout(REPLY_MAX, opening).await;
    opened.unwrap_or_else(|_| {
        let text = format!("the server did not reply within {REPLY_MAX:?}");
        Err(Error::unavailable(text))
    })
}

/// What a server reports of itself. A part is absent if the user may not read it.
struct Facts {
    kind: Kind,
    address: Address,
    info: Option<String>,
    config: Option<Vec<(String, String)>>,
    clock: Option<Clock>,
}

impl Facts {
    async fn read(session: &mut Session, kind: Kind, address: &Address) -> Result<Self> {
        let mut info = command("INFO");
        info.arg("everything");
        let mut config = command("CONFIG");
        config.arg("GET").arg("*");

        let info = reply(&info, session, address).await?;
        let mode = info.as_deref().and_then(|info| field(info, "redis_mode"));
        check_mode(mode)?;

        Ok(Self {
            kind,
            address: address.clone(),
            info,
            config: reply(&config, session, address).await?,
            clock: match Clock::read(session).await {
                Err(error) if error.is_denied() => None,
                // The examination of the rights shows whether TIME is the reason.
                Err(error) if cause(&error).is_some_and(RequestError::is_io_error) => {
                    *session = open(address).await?;
                    None
                }
                read => Some(read?),
            },
        })
    }

    /// Returns a field of INFO, or a setting of the server.
    fn value(&self, name: &str) -> Option<String> {
        let reported = self.info.as_deref().and_then(|info| field(info, name));
        if let Some(value) = reported {
            return Some(value.to_owned());
        }
        let mut settings = self.config.iter().flatten();
        let (_, value) = settings.find(|(setting, _)| setting == name)?;
        Some(value.clone())
    }

    /// Returns the value if it is another one.
    fn other_than(&self, expected: &str, name: &str) -> Option<String> {
        self.value(name).filter(|found| found != expected)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.value(name)?.parse().ok()
    }

    /// Returns the number if it is in the range.
    fn number_in(&self, range: impl RangeBounds<u64>, name: &str) -> Option<String> {
        let number = self.number(name)?;
        range.contains(&number).then(|| number.to_string())
    }

    /// Returns what the risks of all services follow from.
    fn common(&self) -> ServerFacts {
        let clock = self.clock.as_ref();
        ServerFacts {
            version: self.value("redis_version"),
            is_exposed: self.address.target.is_exposed(),
            round_trip: clock.map(|clock| clock.round_trip),
            grace: self.address.settings.crash_grace.unwrap_or(LEASE),
            clock_ahead_ms: clock.map(Clock::ahead_ms),
            clock_rate_ppm: clock.map(Clock::rate_ppm),
            ..ServerFacts::new(&SERVICE, &self.address)
        }
    }

    fn unknown(&self) -> Vec<String> {
        let parts = [
            (
                self.info.is_none(),
                "version, memory, persistence and replicas: INFO is refused",
            ),
            (
                self.config.is_none(),
                "appendfsync, timeout and tcp-keepalive: CONFIG GET is refused",
            ),
            (
                self.clock.is_none(),
                "clock and round trips: TIME is refused",
            ),
        ];
        let unknown = parts.into_iter().filter(|(is_unknown, _)| *is_unknown);
        unknown
            .map(|(_, what)| format!("{}: {what}", self.address))
            .collect()
    }
}

async fn reply<T: FromReply>(
    request: &Command,
    session: &mut Session,
    address: &Address,
) -> Result<Option<T>> {
    let Ok(sent) = timeout(REPLY_MAX, send(request, session, address)).await else {
        return Ok(None);
    };
    let reply = sent?.ok();
    Ok(reply.and_then(|reply| decode(reply).ok()))
}

/// Sends a request. If the connection breaks, the request is sent once more over a new one: only the
/// second break shows that it is this request at which the connection is closed.
async fn send(
    request: &Command,
    session: &mut Session,
    address: &Address,
) -> Result<std::result::Result<Value, RequestError>> {
    let breaks = |reply: &std::result::Result<_, RequestError>| {
        reply.as_ref().is_err_and(RequestError::is_io_error)
    };
    let mut reply = session.send(request).await;
    if breaks(&reply) {
        *session = open(address).await?;
        reply = session.send(request).await;
    }
    if breaks(&reply) {
        *session = open(address).await?;
    }
    Ok(reply)
}
