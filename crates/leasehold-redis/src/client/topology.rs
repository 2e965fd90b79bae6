//! The servers that a URL of a store on Redis names.

use std::fmt;

use super::address::{Address, PORT, SERVER_SCHEMES, Settings};
use super::endpoint::{Endpoint, Locate};
use super::groups::{ANNOUNCED, DATABASE, FAILOVER, PASSWORD, QUEUE, SENTINEL, TLS, TLS_NAME};
use super::seeds::{SENTINEL_EXAMPLE, Seeds, Sentinels};
use super::sentinel::{self, WatchedMaster};
use super::session::connector;
use leasehold_core::Result;
use leasehold_core::internal::{Password, StoreUrl, Transport, UrlForm};

#[derive(Clone, Debug)]
pub(crate) enum Topology {
    /// One server.
    Single(Address),
    /// The master that sentinels name.
    Sentinel(Sentinels),
    /// The masters of a cluster.
    Cluster(Seeds),
}

pub(crate) static SINGLE_URL: UrlForm = UrlForm {
    store: "Redis",
    schemes: SERVER_SCHEMES,
    example: "redis://host:6379",
    default_port: PORT,
    settings: &[QUEUE, DATABASE, PASSWORD, TLS, TLS_NAME],
    dialect: None,
};
pub(crate) static SENTINEL_URL: UrlForm = UrlForm {
    store: "Redis Sentinel",
    schemes: SENTINEL_SCHEMES,
    example: SENTINEL_EXAMPLE,
    default_port: sentinel::PORT,
    settings: &[
        QUEUE, FAILOVER, DATABASE, PASSWORD, SENTINEL, ANNOUNCED, TLS, TLS_NAME,
    ],
    dialect: None,
};
pub(crate) static CLUSTER_URL: UrlForm = UrlForm {
    store: "Redis Cluster",
    schemes: &[
        ("redis+cluster", Transport::Tcp),
        ("rediss+cluster", Transport::Tls),
    ],
    example: "redis+cluster://host1,host2,host3",
    default_port: PORT,
    settings: &[QUEUE, PASSWORD, ANNOUNCED, TLS, TLS_NAME],
    dialect: None,
};
pub(crate) const SENTINEL_SCHEMES: &[(&str, Transport)] = &[
    ("redis+sentinel", Transport::Tcp),
    ("rediss+sentinel", Transport::Tls),
];

impl Topology {
    /// Parses a URL of the store `redis`, with its settings.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let form = match text.split("://").next() {
            Some(scheme) if scheme.ends_with("+sentinel") => &SENTINEL_URL,
            Some(scheme) if scheme.ends_with("+cluster") => &CLUSTER_URL,
            _ => &SINGLE_URL,
        };
        let url = form.parse(text)?;
        let mut topology = Self::of_url(&url)?;
        *topology.settings_mut() = Settings::parse(&url)?;
        Ok(topology)
    }

    /// Returns the servers of the URL of any store, without the settings of the store `redis`.
    pub(crate) fn of_url(url: &StoreUrl) -> Result<Self> {
        if url.scheme.ends_with("+sentinel") {
            Sentinels::of_url(url).map(Self::Sentinel)
        } else if url.scheme.ends_with("+cluster") {
            Seeds::of_cluster(url).map(Self::Cluster)
        } else {
            Address::of_server(url).map(Self::Single)
        }
    }

    /// Returns what a link connects to, if one server at a time has all keys.
    pub(crate) fn endpoint(self) -> Option<Endpoint> {
        match self {
            Self::Single(address) => Some(Endpoint::server(address)),
            Self::Sentinel(sentinels) => Some(sentinel::endpoint(sentinels)),
            Self::Cluster(_) => None,
        }
    }

    /// Returns the servers whose risks to locks are examined: of a cluster, the nodes that the URL
    /// names and all masters.
    pub(crate) async fn examined(&self) -> Result<Vec<Address>> {
        match self {
            Self::Single(address) => Ok(vec![address.clone()]),
            Self::Sentinel(sentinels) => {
                let master = WatchedMaster::follow(sentinels.clone(), &connector());
                Ok(vec![master.locate().await?])
            }
            Self::Cluster(seeds) => Ok(super::cluster::nodes(seeds).await),
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        match self {
            Self::Single(address) => address.settings,
            Self::Sentinel(Sentinels { seeds, .. }) | Self::Cluster(seeds) => seeds.server.settings,
        }
    }

    /// Sets the password of the servers. That of sentinels stays.
    pub(crate) fn replace_password(&mut self, password: Password) {
        match self {
            Self::Single(address) => address.password = Some(password),
            Self::Sentinel(sentinels) => sentinels.seeds.server.password = Some(password),
            Self::Cluster(seeds) => {
                seeds.login.password = Some(password.clone());
                seeds.server.password = Some(password);
            }
        }
    }

    pub(crate) fn settings_mut(&mut self) -> &mut Settings {
        match self {
            Self::Single(address) => &mut address.settings,
            Self::Sentinel(Sentinels { seeds, .. }) | Self::Cluster(seeds) => {
                &mut seeds.server.settings
            }
        }
    }
}

/// Writes the URL without user, password and settings.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(address) => address.fmt(f),
            Self::Sentinel(Sentinels { seeds, .. }) | Self::Cluster(seeds) => seeds.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::internal::Host;

    #[test]
    fn documentation_names_all_settings() {
        let forms = [&SINGLE_URL, &SENTINEL_URL, &CLUSTER_URL];
        UrlForm::assert_documented(&forms, include_str!("../queue.rs"));
    }

    #[test]
    fn url_of_sentinels_is_parsed() {
        let url = "redis+sentinel://me:secret@a,b:7/main?db=2&address-map=x:1=y:2";
        let Topology::Sentinel(sentinels) = Topology::parse(url).expect("good") else {
            panic!("the URL names sentinels");
        };
        let seeds = &sentinels.seeds;
        assert_eq!(
            seeds.to_string(),
            "redis+sentinel://a:26379,b:7/main?db=2",
            "no secret is shown"
        );
        let password = seeds.server.password.as_ref().map(Password::as_str);
        assert_eq!(password, Some("secret"));
        assert!(seeds.login.password.is_none());

        let host = |name: &str, port| Host {
            name: name.to_owned(),
            port,
        };
        let shown = |host| seeds.server_at(host).to_string();
        assert_eq!(shown(host("x", 1)), "redis://y:2/2");
        assert_eq!(shown(host("x", 3)), "redis://x:3/2");
    }

    #[test]
    fn wrong_urls_are_refused_without_showing_the_password() {
        for (rest, reason) in [
            ("a,b", "does not name the master"),
            ("/main", "no host"),
            ("a/m?after-failover=hope", "wait or grant"),
            ("a/m?longest-lease=5s", "requires after-failover=wait"),
            ("a/m?after-failover=wait&longest-lease=5x", "longest lease"),
            ("a/m?address-map=x=y", "address-map="),
            ("a/m?ca=/x", "TLS"),
            ("a/m?sentinel-password-file=/nowhere", "cannot be read"),
        ] {
            let error =
                Topology::parse(&format!("redis+sentinel://:secret@{rest}")).expect_err(rest);
            assert!(error.is_invalid(), "{rest}: {error}");
            assert!(error.to_string().contains(reason), "{rest}: {error}");
            assert!(!format!("{error:?}").contains("secret"), "{rest}");
        }
    }

    #[test]
    fn password_is_set_for_all_servers() {
        for url in [
            "redis://a",
            "redis+sentinel://a/m",
            "redis+cluster://:old@a",
        ] {
            let mut topology = Topology::parse(url).expect("good");
            topology.replace_password(Password::new("new".to_owned()));
            let addresses = match &topology {
                Topology::Single(address) => vec![address],
                Topology::Sentinel(sentinels) => vec![&sentinels.seeds.server],
                Topology::Cluster(seeds) => vec![&seeds.login, &seeds.server],
            };
            for address in addresses {
                let password = address.password.as_ref().map(Password::as_str);
                assert_eq!(password, Some("new"), "{url}");
            }
        }
    }
}
