//! Risks to locks on Redis servers: settings, rights, clocks, round trips.

mod clocks;
mod replicas;
mod rights;
mod server_settings;

use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;

use super::redis_client::{Address, Session, field, store_error};
use crate::examination::{Examination, ExaminedServer, Finding};
use crate::{Error, Result};

use rights::Rights;

/// The store whose servers are examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Redis,
    Cluster,
    Plain,
    Redlock,
}

/// Examines the servers of a store.
pub(super) async fn examine(kind: Kind, addresses: &[Address]) -> Result<Examination> {
    let examined = addresses
        .iter()
        .map(|address| examine_server(kind, address));

    let mut examination = Examination::default();
    let mut unreachable = Vec::new();
    for (address, examined) in addresses.iter().zip(join_all(examined).await) {
        match examined {
            Ok(examined) => examination.add(examined),
            Err(error) if error.is_unavailable() => unreachable.push((address, error)),
            Err(error) => examination.findings.push(about(address, refused(&error))),
        }
    }

    if unreachable.len() * 2 >= addresses.len()
        && let Some((_, error)) = unreachable.pop()
    {
        return Err(error);
    }
    for (address, error) in unreachable {
        examination.findings.push(about(address, missing(&error)));
    }
    Ok(examination)
}

async fn examine_server(kind: Kind, address: &Address) -> Result<Examination> {
    let opening = Session::open_unsubscribed(address);
    let Ok(opened) = tokio::time::timeout(CONNECT_MAX, opening).await else {
        return Err(Error::unavailable(format!(
            "the server did not reply within {CONNECT_MAX:?}"
        )));
    };
    let session = opened?;
    // A user may lack the right to read the settings. What they are is then unknown.
    let facts = Facts::read(&session).await;
    let mut server = ExaminedServer::new(address.to_string());
    let mut examination = Examination {
        unknown: facts.unknown(address),
        ..Examination::default()
    };
    server.version = facts
        .info("redis_version")
        .map(|version| format!("Redis {version}"));

    let findings = &mut examination.findings;
    findings.extend(server_settings::findings(&facts));
    findings.extend(replicas::findings(&facts, kind, address));
    findings.extend(transport(address));
    match clocks::examine(&session, address, &mut server, findings).await {
        Err(error) if error.is_denied() => {
            let what = "clock and round trips: the user may not run TIME";
            examination.unknown.push(format!("{address}: {what}"));
        }
        examined => examined?,
    }
    let rights = Rights::of(kind, address);
    findings.extend(rights.examine(&session, address).await);
    for finding in findings {
        finding.server = address.to_string();
    }
    examination.servers.push(server);
    Ok(examination)
}

/// What a server reports of itself. A part is absent if the user may not read it.
pub(super) struct Facts {
    info: Option<String>,
    config: Option<Vec<(String, String)>>,
}

impl Facts {
    async fn read(session: &Session) -> Self {
        let mut info = redis::cmd("INFO");
        info.arg("everything");
        let mut config = redis::cmd("CONFIG");
        config.arg("GET").arg("*");

        let info = request(session, &info).await;
        let config = request(session, &config).await;
        Self {
            info: info.and_then(|reply| redis::from_redis_value(reply).ok()),
            config: config.and_then(|reply| redis::from_redis_value(reply).ok()),
        }
    }

    /// A field of INFO.
    pub(super) fn info(&self, name: &str) -> Option<&str> {
        field(self.info.as_deref()?, name)
    }

    /// A setting of the server.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        let settings = self.config.as_ref()?;
        let found = settings.iter().find(|(setting, _)| setting == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        let text = self.info(name).or_else(|| self.setting(name));
        text?.parse().ok()
    }

    fn unknown(&self, address: &Address) -> Vec<String> {
        let mut unknown = Vec::new();
        if self.info.is_none() {
            let what = "version, memory, persistence and replicas";
            unknown.push(format!("{address}: {what}: the user may not run INFO"));
        }
        if self.config.is_none() {
            let what = "appendfsync, timeout and tcp-keepalive";
            unknown.push(format!(
                "{address}: {what}: the user may not run CONFIG GET"
            ));
        }
        unknown
    }
}

async fn request(session: &Session, request: &redis::Cmd) -> Option<Value> {
    let sent = session.send(request);
    let reply = tokio::time::timeout(CONNECT_MAX, sent).await.ok()?;
    reply.ok()
}

fn transport(address: &Address) -> Option<Finding> {
    address.is_exposed().then(|| {
        Finding::warning(
            "no-tls",
            "the connection leaves this machine without TLS, and others may read or change it",
            "use rediss:// or redlocks://, or a network without other users",
        )
    })
}

fn refused(error: &Error) -> Finding {
    let remedy = error.hint().unwrap_or("check the URL");
    Finding::danger("refused", error.reason(), remedy)
}

fn missing(error: &Error) -> Finding {
    let remedy = "start the server again: with it, one more server may fail";
    Finding::danger("server-missing", error.reason(), remedy)
}

fn about(address: &Address, finding: Finding) -> Finding {
    Finding {
        server: address.to_string(),
        ..finding
    }
}

/// Turns an error of the server into one of this crate.
pub(super) fn error_of(error: redis::RedisError) -> Error {
    store_error(error)
}

const CONNECT_MAX: Duration = Duration::from_secs(5);
