//! The keys and channels of Redisson.

use std::sync::Arc;

use uuid::Uuid;

use super::class::Class;
use leasehold_core::{ClaimId, Error, Name, Result};

/// The keys of one lock.
#[derive(Clone, Debug)]
pub(super) struct RedissonKeys {
    pub(super) lock: Arc<str>,
    /// The counter of an `RFencedLock`.
    pub(super) tokens: Option<String>,
    /// The waiters of an `RFairLock` of this name.
    pub(super) fair_waiters: String,
    /// The beginning of the keys of readers, or the permits that are held.
    pub(super) details: Option<String>,
    /// The channel of releases.
    pub(super) channel: String,
}

/// How Redisson's `NameMapper` turns names into keys.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyMapper {
    pub(super) prefix: String,
    pub(super) class: Class,
}

/// Keys that Redisson and leasehold use beside those of locks.
const RESERVED: [&str; 2] = ["redisson_", "leasehold:"];
/// The end of the key with the permits that are held.
const PERMITS: &str = ":timeout";

impl KeyMapper {
    pub(super) fn keys(&self, name: &Name) -> Result<RedissonKeys> {
        let lock = format!("{}{}", self.prefix, name.as_str());
        if RESERVED.iter().any(|reserved| lock.starts_with(reserved)) {
            let what = "the name is the key in this format, and the prefixes \"redisson_\" and \
                        \"leasehold:\" are reserved";
            return Err(Error::invalid(what).help("use another name"));
        }

        let is_wrapped = lock.starts_with('{') && lock.ends_with('}');
        let is_of_permits = lock.contains('{') && lock.ends_with(PERMITS);
        if self.class == Class::Semaphore && (is_wrapped || is_of_permits) {
            let what = "Redisson uses the same key for the permits of another name";
            return Err(Error::invalid(what).help("use another name"));
        }

        let details = match self.class {
            Class::Lock | Class::Fenced => None,
            Class::ReadWrite => Some(tag(&lock)),
            Class::Semaphore => Some(tag(&lock) + PERMITS),
        };
        let is_fenced = self.class == Class::Fenced;
        Ok(RedissonKeys {
            tokens: is_fenced.then(|| with_prefix("redisson_lock_token", &lock)),
            fair_waiters: with_prefix("redisson_lock_queue", &lock),
            details,
            channel: with_prefix(self.channel_prefix(), &lock),
            lock: lock.into(),
        })
    }

    fn channel_prefix(&self) -> &'static str {
        match self.class {
            Class::Lock | Class::Fenced => "redisson_lock__channel",
            Class::ReadWrite => "redisson_rwlock",
            Class::Semaphore => "redisson_sc",
        }
    }

    /// Returns the beginning of the keys in which the holders of names with `prefix` are.
    ///
    /// The keys of permits begin with a brace for most names, so there it is empty.
    pub(super) fn listed_prefix(&self, prefix: &str) -> String {
        match self.class {
            Class::Semaphore => String::new(),
            _ => format!("{}{prefix}", self.prefix),
        }
    }

    /// Returns the name of the lock whose holders are in this key.
    pub(super) fn name_of(&self, key: &str) -> Option<Name> {
        let key = match self.class {
            Class::Semaphore => untagged(key.strip_suffix(PERMITS)?),
            _ => key,
        };
        if RESERVED.iter().any(|reserved| key.starts_with(reserved)) {
            return None;
        }
        Name::parse(key.strip_prefix(&self.prefix)?).ok()
    }
}

impl RedissonKeys {
    /// Returns the keys of a request to lock or to release, after the lock and its departed claim.
    pub(super) fn to_lock(&self) -> Vec<&str> {
        match &self.details {
            Some(details) => vec![details],
            None => std::iter::once(&*self.fair_waiters)
                .chain(self.tokens.as_deref())
                .collect(),
        }
    }

    /// Returns the keys of a renewal.
    pub(super) fn to_renew(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.lock).chain(self.details.as_deref())
    }

    /// Returns the keys of an inspection.
    pub(super) fn to_inspect(&self) -> Vec<&str> {
        let mut keys = vec![&*self.lock];
        keys.extend(self.to_lock());
        keys
    }

    /// The key that refuses late requests of a claim that has left.
    pub(super) fn departed(&self, id: ClaimId) -> String {
        with_prefix(&format!("leasehold:left:{id}"), &self.lock)
    }
}

/// Returns the key of an additional part of an object, as Redisson's `prefixName` does.
fn with_prefix(prefix: &str, name: &str) -> String {
    format!("{prefix}:{}", tag(name))
}

/// Returns the part of a key that decides its slot, as Redisson's `suffixName` does.
fn tag(name: &str) -> String {
    if name.contains('{') {
        name.to_owned()
    } else {
        format!("{{{name}}}")
    }
}

/// Returns the name in what [`tag`] returned.
fn untagged(tag: &str) -> &str {
    let inner = tag.strip_prefix('{').and_then(|tag| tag.strip_suffix('}'));
    inner.filter(|inner| !inner.contains('{')).unwrap_or(tag)
}

/// Returns a claim's id as the client id of Redisson.
pub(super) fn uuid_text(id: ClaimId) -> String {
    Uuid::from_bytes(id.to_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(class: Class, name: &str) -> Result<RedissonKeys> {
        let mapper = KeyMapper {
            prefix: "app:".into(),
            class,
        };
        mapper.keys(&Name::parse(name).expect("a valid name"))
    }

    /// Shows G-52.
    #[test]
    fn braces_in_a_name_are_its_hash_tag() {
        let plain = keys(Class::Fenced, "a").expect("a valid name");
        assert_eq!(&*plain.lock, "app:a");
        assert_eq!(plain.channel, "redisson_lock__channel:{app:a}");
        assert_eq!(plain.tokens.as_deref(), Some("redisson_lock_token:{app:a}"));

        let tagged = keys(Class::Lock, "x{a}y").expect("a valid name");
        assert_eq!(tagged.channel, "redisson_lock__channel:app:x{a}y");
        assert_eq!(tagged.tokens, None);
    }

    /// Shows G-52.
    #[test]
    fn keys_of_other_objects_are_not_names() {
        let mapper = KeyMapper::default();
        for key in ["redisson_lock_token:{a}", "leasehold:{a}"] {
            let refused = mapper.keys(&Name::parse(key).expect("a valid name"));
            assert!(refused.expect_err(key).is_invalid());
            assert_eq!(mapper.name_of(key), None);
        }
    }

    /// Shows G-55.
    #[test]
    fn permits_of_a_name_are_found_again() {
        let mapper = KeyMapper {
            prefix: "app:".into(),
            class: Class::Semaphore,
        };
        for name in ["a", "a}b", "x{a}y", "{", "a:timeout"] {
            let name = Name::parse(name).expect("a valid name");
            let keys = mapper.keys(&name).expect("a valid name");
            assert_eq!(mapper.name_of(&keys.details.expect("a key")), Some(name));
        }

        let plain = KeyMapper {
            class: Class::Semaphore,
            ..KeyMapper::default()
        };
        for same in ["{a}", "{a}:timeout", "x{a}y:timeout"] {
            let name = Name::parse(same).expect("a valid name");
            assert!(plain.keys(&name).expect_err(same).is_invalid());
        }
    }
}
