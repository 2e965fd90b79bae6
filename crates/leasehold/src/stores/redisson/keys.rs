//! The keys and channels of Redisson.

use std::sync::Arc;

use uuid::Uuid;

use super::address::LockType;
use crate::{ClaimId, Error, Name, Result};

/// The keys of one lock.
#[derive(Clone, Debug)]
pub(super) struct RedissonKeys {
    pub(super) lock: Arc<str>,
    /// The counter of an `RFencedLock`.
    pub(super) tokens: Option<String>,
    /// The channel of releases.
    pub(super) channel: String,
}

/// How Redisson's `NameMapper` turns names into keys.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyMapper {
    pub(super) prefix: String,
    pub(super) lock_type: LockType,
}

/// Keys that Redisson and leasehold use beside those of locks.
const RESERVED: [&str; 2] = ["redisson_", "leasehold:"];

impl KeyMapper {
    pub(super) fn keys(&self, name: &Name) -> Result<RedissonKeys> {
        let lock = format!("{}{}", self.prefix, name.as_str());
        if RESERVED.iter().any(|reserved| lock.starts_with(reserved)) {
            let what = "the name is the key in this format, and the prefixes \"redisson_\" and \
                        \"leasehold:\" are reserved";
            return Err(Error::invalid(what).help("use another name"));
        }

        let is_fenced = self.lock_type == LockType::Fenced;
        Ok(RedissonKeys {
            tokens: is_fenced.then(|| with_prefix("redisson_lock_token", &lock)),
            channel: with_prefix("redisson_lock__channel", &lock),
            lock: lock.into(),
        })
    }

    pub(super) fn name_of(&self, key: &str) -> Option<Name> {
        if RESERVED.iter().any(|reserved| key.starts_with(reserved)) {
            return None;
        }
        Name::parse(key.strip_prefix(&self.prefix)?).ok()
    }
}

impl RedissonKeys {
    /// The key that refuses late requests of a claim that has left.
    pub(super) fn departed(&self, id: ClaimId) -> String {
        with_prefix(&format!("leasehold:left:{id}"), &self.lock)
    }
}

/// Returns the key of an additional part of an object, as Redisson's `prefixName` does.
fn with_prefix(prefix: &str, name: &str) -> String {
    if name.contains('{') {
        format!("{prefix}:{name}")
    } else {
        format!("{prefix}:{{{name}}}")
    }
}

/// Returns a claim's id as the client id of Redisson.
pub(super) fn uuid_text(id: ClaimId) -> String {
    Uuid::from_bytes(id.to_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(lock_type: LockType, name: &str) -> Result<RedissonKeys> {
        let mapper = KeyMapper {
            prefix: "app:".into(),
            lock_type,
        };
        mapper.keys(&Name::parse(name).expect("a valid name"))
    }

    #[test]
    fn braces_in_a_name_are_its_hash_tag() {
        let plain = keys(LockType::Fenced, "a").expect("a valid name");
        assert_eq!(&*plain.lock, "app:a");
        assert_eq!(plain.channel, "redisson_lock__channel:{app:a}");
        assert_eq!(plain.tokens.as_deref(), Some("redisson_lock_token:{app:a}"));

        let tagged = keys(LockType::Lock, "x{a}y").expect("a valid name");
        assert_eq!(tagged.channel, "redisson_lock__channel:app:x{a}y");
        assert_eq!(tagged.tokens, None);
    }

    #[test]
    fn keys_of_other_objects_are_not_names() {
        let mapper = KeyMapper::default();
        for key in ["redisson_lock_token:{a}", "leasehold:{a}"] {
            let refused = mapper.keys(&Name::parse(key).expect("a valid name"));
            assert!(refused.expect_err(key).is_invalid());
            assert_eq!(mapper.name_of(key), None);
        }
    }
}
