//! Reading a lock's state and listing names. Neither of them writes.

use std::collections::BTreeSet;

use super::{Redis, record, scripts};
use crate::stores::redis_client::{self, READ_TIMEOUT, Scan, ScanLimits, reply_timeout};
use crate::{LockState, Name, Result, Token};

impl Redis {
    pub(super) async fn read_lock_state(&self, name: &Name) -> Result<LockState> {
        let key = record::key_of(name);
        let value = self.run(&scripts::INSPECT, READ_TIMEOUT, &key, &[]).await?;
        let reply: Vec<String> =
            redis::from_redis_value(value).map_err(|_| redis_client::protocol_error())?;
        let (last_token, records) = reply
            .split_first()
            .ok_or_else(redis_client::protocol_error)?;

        let entries = (0..)
            .zip(records)
            .map(|(ahead, record)| record::entry(record, ahead))
            .collect::<Result<_>>()?;
        Ok(LockState {
            name: name.clone(),
            entries,
            last_token: last_token.parse().ok().and_then(Token::new),
            external_holders: Vec::new(),
            servers: Vec::new(),
        })
    }

    pub(super) async fn list_names(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let pattern = record::pattern_of(prefix);
        let mut limits = ScanLimits::new(reply_timeout(READ_TIMEOUT), count_max);
        if self.servers.is_cluster() {
            limits.batch = 1;
        }

        let mut names = BTreeSet::new();
        for server in self.servers.all() {
            let listed = redis_client::list(
                &server.background_link,
                Scan {
                    pattern: &pattern,
                    key_type: "string",
                },
                &scripts::LIST,
                limits,
                |key| record::name_of(key).filter(|name| name.as_str().starts_with(prefix)),
            );
            names.extend(listed.await?);
        }
        Ok(names.into_iter().take(count_max).collect())
    }
}
