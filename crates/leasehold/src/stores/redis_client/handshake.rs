//! The first words with a server: what it is, and whether locks are safe with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redis::Value;

use super::ids::fresh_client;
use super::link::Handshake;
use super::reply_error;
use super::script::{PROBE, SERVER_ID};
use super::session::Session;
use crate::runtime::clock::BootInstant;
use crate::{Error, Result};

/// The oldest Redis that has all it takes: `GETRANGE`, `PUBSUB` and `TIME` in scripts that write, RESP3, ACL channels.
const OLDEST: (u32, u32) = (6, 2);

/// The server's clock, as this client reads it.
#[derive(Debug, Default)]
pub(in crate::stores) struct ServerClock {
    /// Microseconds to add to this machine's.
    ahead: AtomicU64,
}

impl ServerClock {
    /// Never ahead of the server, but for what two clocks differ in rate since it was last asked.
    pub(in crate::stores) fn micros(&self) -> u64 {
        (BootInstant::now().as_nanos() / 1_000).wrapping_add(self.ahead.load(Ordering::Relaxed))
    }

    /// Takes note of what the server's clock said in a reply that was read at `read`.
    pub(in crate::stores) fn set(&self, server_micros: u64, read: BootInstant) {
        self.ahead.store(
            server_micros.wrapping_sub(read.as_nanos() / 1_000),
            Ordering::Relaxed,
        );
    }
}

/// What is asked of every server before it is trusted with locks.
pub(in crate::stores) async fn handshake(session: &Session, clock: &ServerClock) -> Result<()> {
    check_version(&info_section(session, "server").await?)?;
    check_memory(&info_section(session, "memory").await?)?;
    check_role(&info_section(session, "replication").await?)?;
    let time = session
        .send(&redis::cmd("TIME"))
        .await
        .map_err(reply_error::store_error)?;
    let read = BootInstant::now();
    let (seconds, micros): (u64, u64) =
        redis::from_redis_value(time).map_err(|_| reply_error::protocol_error())?;
    clock.set(seconds * 1_000_000 + micros, read);
    check_scripts(PROBE.run(session, &[PROBE_KEY], &[]).await)
}

/// The rights of every store's user cover it.
const PROBE_KEY: &str = "leasehold:redlock:{probe}";
/// What Redis and Valkey reply to the probe.
const PROBE_REPLY: &str = "false string 3 5 0000000000000042 ab";

/// Refuses a server on which the scripts would fail later, at the first contention.
fn check_scripts(reply: Result<Value>) -> Result<()> {
    let cause = match reply.map(redis::from_redis_value::<String>) {
        Ok(Ok(text)) if text == PROBE_REPLY => return Ok(()),
        Ok(_) => None,
        // Where the user may not ask, or a cluster has the probe elsewhere, each request is checked by itself.
        Err(error) if error.is_denied() || reply_error::detail(&error, "MOVED").is_some() => {
            return Ok(());
        }
        Err(error) if reply_error::detail(&error, "ERR").is_none() => return Err(error),
        Err(error) => Some(error),
    };

    let refused = Error::unsupported("the server does not run scripts as Redis does").help(
        "use Redis or Valkey, 6.2 or newer, without a proxy; others have another Lua or refuse undeclared keys",
    );
    Err(match cause {
        Some(cause) => refused.caused_by(cause),
        None => refused,
    })
}

/// A part of INFO; empty where it may not be asked for.
pub(in crate::stores) async fn info_section(session: &Session, section: &str) -> Result<String> {
    let mut request = redis::cmd("INFO");
    request.arg(section);
    match session.send(&request).await {
        Ok(Value::VerbatimString { text, .. }) => Ok(text),
        Ok(reply) => redis::from_redis_value(reply).map_err(|_| reply_error::protocol_error()),
        Err(error) => {
            let error = reply_error::store_error(error);
            if error.is_denied() || error.is_unsupported() {
                Ok(String::new())
            } else {
                Err(error)
            }
        }
    }
}

pub(in crate::stores) fn field<'a>(about: &'a str, name: &str) -> Option<&'a str> {
    about
        .lines()
        .find_map(|lock_state| lock_state.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

fn check_version(about: &str) -> Result<()> {
    let Some(version) = field(about, "redis_version") else {
        return Ok(());
    };
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= OLDEST {
        return Ok(());
    }
    Err(Error::unsupported(format!("the server is Redis {version}")).help(
        "leasehold needs 6.2 or newer, for channels in ACLs and scripts that may ask for the time before they write",
    ))
}

/// All keys of leasehold have an end, so every policy but one may throw locks away.
fn check_memory(about: &str) -> Result<()> {
    let limited = field(about, "maxmemory").is_some_and(|limit| limit != "0");
    match field(about, "maxmemory_policy") {
        Some(policy) if limited && policy != "noeviction" => Err(Error::unsupported(format!(
            "the server evicts keys when its memory is full ({policy}), locks among them"
        ))
        .help("set its maxmemory-policy to noeviction, or use a server of its own for locks")),
        _ => Ok(()),
    }
}

/// A server that is asked for its role and does not say is taken for a master.
fn check_role(about: &str) -> Result<()> {
    match field(about, "role") {
        None | Some("master") => Ok(()),
        Some("slave") => {
            Err(Error::unavailable("the server is a read-only replica")
                .help("connect to its master"))
        }
        Some(role) => Err(Error::unsupported(format!(
            "the server's role is {role}, and other servers write its data"
        ))
        .help("use a server that is the only master of its data")),
    }
}

/// Whether a connection that is gone can be told from one that is there; said once where it cannot.
#[derive(Debug, Default)]
pub(in crate::stores) struct ServerId {
    warned: AtomicBool,
}

impl ServerId {
    /// The server's history, if it shows `channel` with its subscriber and another without.
    pub(in crate::stores) async fn read(
        &self,
        session: &Arc<Session>,
        channel: &str,
    ) -> Result<Handshake> {
        let nobody = format!("{channel}:{}", fresh_client());
        let reply = match SERVER_ID.run(session, &[], &[channel, &nobody]).await {
            Err(error) if error.is_denied() => None,
            reply => redis::from_redis_value::<(String, String, String)>(reply?).ok(),
        };
        let server = reply.and_then(|(here, nowhere, server)| {
            let tells = here.parse().is_ok_and(|count: u64| count > 0) && nowhere == "0";
            tells.then(|| server.get(..10).map(Arc::from)).flatten()
        });
        if server.is_none() && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "crashed holders are noticed only when their lease ends: scripts may not use PUBSUB NUMSUB and INFO here, \
                 or something stands between client and server"
            );
        }
        Ok(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_versions_roles_and_policies_are_refused() {
        assert!(
            check_version("redis_version:6.0.16\r\n")
                .expect_err("too old")
                .is_unsupported()
        );
        for about in [
            "redis_version:6.2.0\r\n",
            "redis_version:7.0.15\r\n",
            "redis_version:10.1\r\n",
            "",
        ] {
            check_version(about).expect(about);
        }
        assert!(
            check_memory("maxmemory:100\r\nmaxmemory_policy:volatile-lru\r\n")
                .expect_err("evicts")
                .is_unsupported()
        );
        for about in [
            "maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n",
            "maxmemory:9\r\nmaxmemory_policy:noeviction\r\n",
        ] {
            check_memory(about).expect(about);
        }
        assert!(
            check_role("role:slave\r\n")
                .expect_err("a replica")
                .is_unavailable()
        );
        for about in ["role:master\r\n", ""] {
            check_role(about).expect(about);
        }
        for role in ["active-replica", "sentinel", "Master", "something-new"] {
            assert!(
                check_role(&format!("role:{role}\r\n"))
                    .expect_err(role)
                    .is_unsupported()
            );
        }
    }
}
