//! The Lua scripts, and how they are run.

use std::sync::OnceLock;

use redis::{Cmd, ServerErrorKind, Value};

use super::session::Session;
use crate::Result;

/// A script: asked for by its hash, and sent whole when the server does not know it.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    hash: OnceLock<String>,
}

macro_rules! script {
    ($($part:literal),+) => {
        Script { text: concat!($(include_str!(concat!("lua/", $part, ".lua")), "\n"),+), hash: OnceLock::new() }
    };
}

pub(super) static ENTER: Script = script!("enter", "queue", "enter_slow");
pub(super) static LEAVE: Script = script!("leave", "queue", "leave_slow");
pub(super) static RENEW: Script = script!("renew", "queue", "renew_slow");
pub(super) static POLL_INTERVAL: Script = script!("inspect", "queue", "inspect_slow");
pub(super) static NAMES: Script = script!("list");
pub(super) static PRESENCE: Script = script!("server_id");
pub(super) static PROBE: Script = script!("probe");

pub(super) static VOTE: Script = script!("redlock/vote");
pub(super) static VOTE_LEAVE: Script = script!("redlock/leave");
pub(super) static VOTE_LOOK: Script = script!("redlock/inspect");
pub(super) static VOTE_NAMES: Script = script!("redlock/list");
pub(super) static MARK: Script = script!("redlock/incarnation");
pub(super) static PLAIN: Script = script!("redlock/plain_vote");
pub(super) static PLAIN_LEAVE: Script = script!("redlock/plain_leave");
pub(super) static PLAIN_LOOK: Script = script!("redlock/plain_inspect");
pub(super) static PLAIN_NAMES: Script = script!("redlock/plain_list");

impl Script {
    fn hash(&self) -> &str {
        self.hash.get_or_init(|| {
            let mut sha = sha1_smol::Sha1::new();
            sha.update(self.text.as_bytes());
            sha.digest().to_string()
        })
    }

    /// Asks for it with these keys and arguments.
    pub(super) async fn run(
        &self,
        session: &Session,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<Value> {
        match session
            .send(&call("EVALSHA", self.hash(), keys, arguments))
            .await
        {
            Err(error) if error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript) => {}
            reply => return reply.map_err(super::reply_error::store_error),
        }
        // Nothing was run, so the same arguments may be sent again.
        session
            .send(&call("EVAL", self.text, keys, arguments))
            .await
            .map_err(super::reply_error::store_error)
    }
}

fn call(command: &str, script: &str, keys: &[&str], arguments: &[&str]) -> Cmd {
    let parts = keys.iter().chain(arguments);
    let len: usize = parts.clone().map(|part| part.len()).sum();
    let mut call = Cmd::with_capacity(
        3 + keys.len() + arguments.len(),
        command.len() + script.len() + 8 + len,
    );
    call.arg(command).arg(script).arg(keys.len());
    for argument in parts {
        call.arg(*argument);
    }
    call
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lab_servers::{Redis, Reply};

    use super::super::record::{self, CrashCheck, LivenessRef};
    use super::*;
    use crate::{Claim, ClaimId, ClaimantInfo, Name, Share};

    fn claim(share: Share) -> Claim {
        let (name, info) = (
            Name::parse("a").expect("a good name"),
            ClaimantInfo::here("").expect("a good label"),
        );
        let info = std::sync::Arc::new(info);
        Claim {
            name,
            id: ClaimId::draw(),
            share,
            lease: Duration::from_secs(30),
            auto_renew: true,
            info,
        }
    }

    /// The bond of a client whose connection is gone.
    fn broken(server: &Redis) -> LivenessRef {
        let about = server.info("replication");
        let id = about
            .lines()
            .find_map(|lock_state| lock_state.strip_prefix("master_replid:"))
            .expect("every server has one");
        let crash_check = CrashCheck {
            server: id[..10].into(),
            grace: Duration::from_secs(5),
        };
        LivenessRef {
            client: record::fresh_client().into(),
            epoch: 1,
            crash_check: Some(crash_check),
        }
    }

    fn enter(server: &Redis, claim: &Claim, liveness_ref: &LivenessRef, mode: char) -> Reply {
        let (key, text) = (
            record::key_of(&claim.name),
            record::record(claim, &record::id_text(claim.id), 0, liveness_ref),
        );
        let (life, settings) = (
            record::life(claim).to_string(),
            format!("{mode}{:016}{}", 0, record::fresh_client()),
        );
        server.command(&[
            "EVAL",
            ENTER.text,
            "1",
            &key,
            &text,
            &life,
            &settings,
            "9999999999",
        ])
    }

    /// Its connection may have just broken; it will be heard of again, or its absence found as that of any holder.
    #[test]
    fn requesting_claim_counts_as_alive() {
        let server = Redis::start();
        let (slot, liveness_ref) = (
            claim(Share::slots(1, 2).expect("in range")),
            broken(&server),
        );
        for mode in ['R', 'F', 'Q'] {
            assert_eq!(
                &enter(&server, &slot, &liveness_ref, mode).text()[16..17],
                "H",
                "asked with {mode}"
            );
        }
    }
}
