//! The Lua scripts of the queue store.

use crate::stores::redis_client::{Script, script};

pub(super) static ENTER: Script = script!("lua/enter/fast", "lua/queue", "lua/enter/slow");
pub(super) static LEAVE: Script = script!("lua/leave/fast", "lua/queue", "lua/leave/slow");
pub(super) static RENEW: Script = script!("lua/renew/fast", "lua/queue", "lua/renew/slow");
pub(super) static POLL_INTERVAL: Script = script!("lua/inspect/fast", "lua/queue", "lua/inspect/slow");
pub(super) static NAMES: Script = script!("lua/list");

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lab_servers::{Redis, Reply};

    use super::super::record::{self, CrashCheck, LivenessRef};
    use super::*;
    use crate::stores::redis_client;
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
            client: redis_client::fresh_client().into(),
            epoch: 1,
            crash_check: Some(crash_check),
        }
    }

    fn enter(server: &Redis, claim: &Claim, liveness_ref: &LivenessRef, mode: char) -> Reply {
        let (key, text) = (
            record::key_of(&claim.name),
            record::record(claim, &redis_client::id_text(claim.id), 0, liveness_ref),
        );
        let (life, settings) = (
            record::life(claim).to_string(),
            format!("{mode}{:016}{}", 0, redis_client::fresh_client()),
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
