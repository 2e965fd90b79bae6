//! The handshake with a server. It checks that locks are safe on this server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join5;

use super::redirect::Redirect;
use super::reply_error;
use super::request::fresh_client;
use super::script::{NO_TEXTS, PROBE, SERVER_ID};
use super::server_info::{ServerClock, field, info_section, read_clock};
use super::session::{Handshake, Session, decode};
use super::value::Value;
use leasehold_core::{Error, Result};

/// The oldest Redis with all features that leasehold needs: `GETRANGE`, `PUBSUB` and `TIME` in
/// scripts that write, RESP3, and channels in ACLs.
const OLDEST: (u32, u32) = (6, 2);

/// Checks version, eviction policy, role, clock and scripts of a server.
pub(crate) async fn handshake(session: &Session, clock: &ServerClock) -> Result<()> {
    Report::read(session, clock).await?.check()
}

/// What a server replied about itself.
pub(crate) struct Report {
    server: String,
    memory: String,
    replication: String,
    clock: Result<()>,
    probe: Result<Value>,
}

impl Report {
    /// Sends all requests at once, so that the replies take one round trip.
    pub(crate) async fn read(session: &Session, clock: &ServerClock) -> Result<Self> {
        let (server, memory, replication, clock, probe) = join5(
            info_section(session, "server"),
            info_section(session, "memory"),
            info_section(session, "replication"),
            read_clock(session, clock),
            PROBE.send_text(session, &[PROBE_KEY], NO_TEXTS),
        )
        .await;

        Ok(Self {
            server: server?,
            memory: memory?,
            replication: replication?,
            clock,
            probe,
        })
    }

    /// Refuses a server on which locks would not be safe.
    pub(crate) fn check(self) -> Result<()> {
        check_mode(field(&self.server, "redis_mode"))?;
        check_version(&self.server)?;
        check_memory(&self.memory)?;
        check_role(&self.replication)?;
        self.clock?;
        check_scripts(self.probe)
    }

    pub(crate) fn role(&self) -> &str {
        field(&self.replication, "role").unwrap_or_default()
    }

    /// The id of the server's process.
    pub(crate) fn run_id(&self) -> &str {
        field(&self.server, "run_id").unwrap_or_default()
    }
}

/// A key that the users of all stores have the right to access.
const PROBE_KEY: &str = "leasehold:redlock:{probe}";
/// The reply of Redis and Valkey to the probe.
const PROBE_REPLY: &str = "false string 3 5 0000000000000042 ab";

/// Refuses a server on which the scripts would fail at the first contention.
fn check_scripts(reply: Result<Value>) -> Result<()> {
    let cause = match reply.map(decode::<String>) {
        Ok(Ok(text)) if text == PROBE_REPLY => return Ok(()),
        Ok(_) => None,
        Err(error) if reply_error::shows_wrong_server(&error) => return Err(error),
        // If the user may not run the probe, or another node of a cluster has its key, the errors
        // of later requests show the problem.
        Err(error) if error.is_denied() || Redirect::of(&error).is_some() => return Ok(()),
        Err(error) if reply_error::detail(&error, "ERR").is_none() => return Err(error),
        Err(error) => Some(error),
    };

    let refused = Error::unsupported("the server does not run scripts as Redis does").help(
        "use Redis or Valkey, 6.2 or newer, without a proxy; others have another Lua or refuse \
         undeclared keys",
    );
    Err(match cause {
        Some(cause) => refused.caused_by(cause),
        None => refused,
    })
}

/// Refuses a sentinel. `mode` is the `redis_mode` of the server.
pub(crate) fn check_mode(mode: Option<&str>) -> Result<()> {
    if mode != Some("sentinel") {
        return Ok(());
    }
    Err(
        Error::unsupported("this is a sentinel, which keeps no locks").help(
            "write redis+sentinel://host1,host2,host3/mymaster, with some of the sentinels and the \
         name of their master",
        ),
    )
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
        "leasehold needs 6.2 or newer, for channels in ACLs and scripts that read the time before \
         they write",
    ))
}

/// All keys of leasehold expire, so every policy but `noeviction` may delete locks.
fn check_memory(about: &str) -> Result<()> {
    let limited = field(about, "maxmemory").is_some_and(|limit| limit != "0");
    match field(about, "maxmemory_policy") {
        Some(policy) if limited && policy != "noeviction" => Err(Error::unsupported(format!(
            "the server evicts keys when its memory is full ({policy}), locks among them"
        ))
        .help("set its maxmemory-policy to noeviction, or use a separate server for locks")),
        _ => Ok(()),
    }
}

/// Refuses a server that is not the only master. A server that hides its role counts as a master.
fn check_role(about: &str) -> Result<()> {
    match field(about, "role") {
        None | Some("master") => Ok(()),
        Some("slave") => Err(reply_error::read_only()),
        Some(role) => Err(Error::unsupported(format!(
            "the server's role is {role}, and other servers write to its data"
        ))
        .help("use a server that is the only master of its data")),
    }
}

/// Reads the server's id if its scripts can detect a missing connection, and warns once if not.
#[derive(Debug, Default)]
pub(crate) struct ServerId {
    warned: AtomicBool,
}

impl ServerId {
    /// Returns the id of the server's history, if the server reports a subscriber of `channel` and
    /// none of an unused channel.
    pub(crate) async fn read(&self, session: &Arc<Session>, channel: &str) -> Result<Handshake> {
        let unused = format!("{channel}:{}", fresh_client());
        let arguments = [channel, &unused];
        let reply = match SERVER_ID.send_text(session, NO_TEXTS, &arguments).await {
            Err(error) if error.is_denied() => None,
            reply => decode::<(String, String, String)>(reply?).ok(),
        };

        let server = reply.and_then(|(here, nowhere, server)| {
            let is_reliable = here.parse().is_ok_and(|count: u64| count > 0) && nowhere == "0";
            is_reliable
                .then(|| server.get(..10).map(Arc::from))
                .flatten()
        });
        if server.is_none() && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a crashed holder is detected only when its lease ends: scripts may not use \
                 PUBSUB NUMSUB and INFO, or a proxy is between client and server"
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
