//! The URL of a Redis server, or of sentinels, with `dialect=redisson`.

use std::time::Duration;

use async_trait::async_trait;

use super::class::Class;
use super::keys::KeyMapper;
use crate::builder::ServerAddress;
use crate::client;
use crate::client::groups::{
    ANNOUNCED, DATABASE, DIALECT, PASSWORD, REDISSON, SENTINEL, TLS, TLS_NAME, WATCHDOG,
};
use crate::client::{Address, Topology};
use crate::examination::Kind;
use leasehold_core::internal::{Password, UrlForm, with_setting};
use leasehold_core::{Error, Guarantees, Result};

/// A server, and the settings of the store on it.
#[derive(Clone, Debug)]
pub(crate) struct RedissonAddress {
    pub(super) topology: Topology,
    pub(super) mapper: KeyMapper,
    /// The lease of holds that are renewed, if it replaces that of the lock.
    pub(super) watchdog: Option<Duration>,
}

pub(crate) static FORM: UrlForm = UrlForm {
    store: "Redisson",
    schemes: client::SERVER_SCHEMES,
    example: "redis://host:6379?dialect=redisson",
    default_port: client::PORT,
    settings: &[DIALECT, REDISSON, DATABASE, PASSWORD, TLS, TLS_NAME],
    dialect: Some("redisson"),
};
pub(crate) static SENTINEL_FORM: UrlForm = UrlForm {
    store: "Redisson on Sentinel",
    schemes: client::SENTINEL_SCHEMES,
    example: "redis+sentinel://host1,host2,host3/mymaster?dialect=redisson",
    default_port: client::SENTINEL_PORT,
    settings: &[
        DIALECT, REDISSON, DATABASE, PASSWORD, SENTINEL, ANNOUNCED, TLS, TLS_NAME,
    ],
    dialect: Some("redisson"),
};

impl RedissonAddress {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let scheme = text.split_once("://").map_or(text, |(scheme, _)| scheme);
        check_topology(scheme)?;
        let is_sentinel = scheme.ends_with("+sentinel");
        let form = if is_sentinel { &SENTINEL_FORM } else { &FORM };
        let url = form.parse(text)?;
        let prefix = url.settings.get("prefix").unwrap_or_default();
        let is_stated = url.settings.get(WATCHDOG.name).is_some();
        Ok(Self {
            topology: Topology::of_url(&url)?,
            mapper: KeyMapper {
                prefix: prefix.to_owned(),
                class: url
                    .settings
                    .get("lock")
                    .map_or(Ok(Class::Lock), Class::parse)?,
            },
            watchdog: is_stated.then(|| url.settings.duration(&WATCHDOG)),
        })
    }
}

#[async_trait]
impl ServerAddress for RedissonAddress {
    fn shown_url(&self) -> String {
        let mut shown = with_setting(&self.topology.to_string(), "dialect", "redisson");
        if self.mapper.class != Class::Lock {
            shown = with_setting(&shown, "lock", self.mapper.class.name());
        }
        // The same server with another prefix has other locks.
        if !self.mapper.prefix.is_empty() {
            shown = with_setting(&shown, "prefix", &self.mapper.prefix);
        }
        shown
    }

    fn guarantees(&self) -> Guarantees {
        self.mapper.class.guarantees()
    }

    fn set_password(&mut self, password: Password) {
        self.topology.replace_password(password);
    }

    fn kind(&self) -> Kind {
        Kind::Redisson(self.mapper.class)
    }

    async fn to_examine(&self) -> Result<Vec<Address>> {
        self.topology.examined().await
    }
}

/// Refuses a cluster: there, Redisson publishes releases on the channels of shards.
fn check_topology(scheme: &str) -> Result<()> {
    if scheme.ends_with("+cluster") {
        let error = Error::unsupported("dialect=redisson does not work on a cluster");
        return Err(error.help(
            "share locks with Redisson through one server or sentinels; redis+cluster:// without \
             a dialect has locks of leasehold",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_names_all_settings() {
        UrlForm::assert_documented(&[&FORM, &SENTINEL_FORM], include_str!("../redisson.rs"));
    }

    #[test]
    fn settings_of_redisson_are_parsed() {
        let url = "redis://h/2?dialect=redisson&lock=fenced&watchdog=10s&prefix=app%3A";
        let address = RedissonAddress::parse(url).expect("good");
        assert_eq!(address.mapper.prefix, "app:");
        assert_eq!(address.mapper.class, Class::Fenced);
        assert_eq!(address.watchdog, Some(Duration::from_secs(10)));
        let shown = "redis://h:6379/2?dialect=redisson&lock=fenced&prefix=app%3A";
        assert_eq!(address.shown_url(), shown);
    }

    #[test]
    fn wrong_urls_are_refused_without_showing_the_password() {
        for (rest, reason) in [
            ("a", "dialect"),
            ("a?dialect=plain", "dialect"),
            ("a?dialect=redisson&lock=fast", "not a lock"),
            ("a?dialect=redisson&watchdog=30x", "watchdog"),
            ("a?dialect=redisson&watchdog=1ms", "watchdog"),
            ("a?dialect=redisson&crash-grace=5s", "not a setting"),
            ("a,b?dialect=redisson", "one host"),
            ("a?dialect=redisson&address-map=a:1=b:2", "not a setting"),
        ] {
            let error = RedissonAddress::parse(&format!("redis://:secret@{rest}"));
            let error = error.expect_err(rest);
            assert!(
                error.is_invalid() && error.to_string().contains(reason),
                "{rest}: {error}"
            );
            assert!(!format!("{error:?}").contains("secret"), "{rest}");
        }
    }

    /// Shows G-52.
    #[test]
    fn sentinels_are_parsed_and_clusters_are_refused() {
        let url = "redis+sentinel://:secret@a,b/main?dialect=redisson&lock=fenced&db=2";
        let address = RedissonAddress::parse(url).expect("good");
        let shown = "redis+sentinel://a:26379,b:26379/main?db=2&dialect=redisson&lock=fenced";
        assert_eq!(address.shown_url(), shown);

        let url = "redis+cluster://:secret@a,b?dialect=redisson";
        let error = RedissonAddress::parse(url).expect_err("refused");
        assert!(error.is_unsupported(), "{error}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}
