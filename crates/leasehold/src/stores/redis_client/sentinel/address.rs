//! The URL of a master that sentinels name.

use std::fmt;
use std::sync::Arc;

use super::WatchedMaster;
use crate::stores::redis_client::address::{self, Address, AddressMap, Settings, absolute_path};
use crate::stores::redis_client::endpoint::Endpoint;
use crate::stores::url::{Host, StoreUrl, UrlForm, password_in};
use crate::{Error, Result};

/// The sentinels, the name of their master, and how to log in to it.
#[derive(Clone, Debug)]
pub(in crate::stores) struct SentinelAddress {
    pub(super) sentinels: Vec<Address>,
    /// The name of the master in the configuration of the sentinels.
    pub(super) master: String,
    /// The user, database and settings for the master. Its host is that of the first sentinel.
    pub(in crate::stores) server: Address,
    addresses: AddressMap,
    is_tls: bool,
}

/// The default port of a sentinel.
pub(in crate::stores) const PORT: u16 = 26379;

static FORM: UrlForm = UrlForm {
    store: "Redis Sentinel",
    schemes: &["redis+sentinel", "rediss+sentinel"],
    example: EXAMPLE,
    default_port: PORT,
    settings: &[
        "crash-grace",
        "replicas",
        "after-failover",
        "longest-lease",
        "db",
        "protocol",
        "password-file",
        "sentinel-user",
        "sentinel-password-file",
        "address-map",
        "ca",
        "cert",
        "key",
        "server-name",
    ],
};
const EXAMPLE: &str = "redis+sentinel://host1,host2,host3/mymaster";

impl SentinelAddress {
    pub(in crate::stores) fn parse(text: &str) -> Result<Self> {
        let url = FORM.parse(text)?;
        let mut address = Self::of_url(&url)?;
        address.server.settings = Settings::parse(&url)?;
        Ok(address)
    }

    /// Returns the sentinels and the master of a URL with the scheme `redis+sentinel` or
    /// `rediss+sentinel`.
    pub(in crate::stores) fn of_url(url: &StoreUrl) -> Result<Self> {
        let is_tls = url.scheme == "rediss+sentinel";
        let sentinels = url.servers()?.iter();
        let sentinels = sentinels.map(|host| sentinel(url, host, is_tls));
        Ok(Self {
            sentinels: sentinels.collect::<Result<_>>()?,
            master: master_name(url)?,
            server: Address::of_target(url, address::tcp(&url.servers()?[0], is_tls), 0)?,
            addresses: AddressMap::parse(url)?,
            is_tls,
        })
    }

    /// Returns the master as an endpoint. The tasks that follow it begin here.
    pub(in crate::stores) fn endpoint(self) -> Endpoint {
        Endpoint::Master(Arc::new(WatchedMaster::follow(self)))
    }

    /// Returns the address of a server that announces `host`.
    pub(super) fn server_at(&self, host: Host) -> Address {
        let reached = self.addresses.reached(host);
        let mut server = self.server.clone();
        server.set_host(reached);
        server
    }
}

/// Writes the URL without user, password and settings.
impl fmt::Display for SentinelAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "rediss" } else { "redis" };
        write!(f, "{scheme}+sentinel://")?;
        for (number, sentinel) in self.sentinels.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let url = sentinel.to_string();
            let host = url.split_once("://").map_or("", |(_, host)| host);
            write!(f, "{comma}{host}")?;
        }
        write!(f, "/{}", self.master)
    }
}

/// Returns the address of a sentinel. Its user and its password are not those of the servers.
fn sentinel(url: &StoreUrl, host: &Host, is_tls: bool) -> Result<Address> {
    let mut sentinel = Address::of_target(url, address::tcp(host, is_tls), 0)?;
    sentinel.database = 0;
    sentinel.user = url.settings.get("sentinel-user").map(str::to_owned);
    let file = url.settings.get("sentinel-password-file");
    sentinel.password = file.map(password_in).transpose()?;
    sentinel.password_file = file.map(absolute_path);
    Ok(sentinel)
}

fn master_name(url: &StoreUrl) -> Result<String> {
    match url.path.trim_matches('/') {
        "" => {
            Err(Error::invalid("the URL does not name the master").help(format!("write {EXAMPLE}")))
        }
        name => Ok(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_of_sentinels_is_parsed() {
        let url = "redis+sentinel://me:secret@a,b:7/main?db=2&address-map=x:1=y:2";
        let address = SentinelAddress::parse(url).expect("good");
        assert_eq!(
            address.to_string(),
            "redis+sentinel://a:26379,b:7/main",
            "no secret is shown"
        );
        assert_eq!(address.server.password.as_deref(), Some("secret"));
        assert_eq!(address.sentinels[0].password, None);

        let host = |name: &str, port| Host {
            name: name.to_owned(),
            port,
        };
        let shown = |host| address.server_at(host).to_string();
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
            ("a/m?after-failover=wait&longest-lease=5", "longest lease"),
            ("a/m?address-map=x=y", "address-map="),
            ("a/m?ca=/x", "TLS"),
            ("a/m?sentinel-password-file=/nowhere", "cannot be read"),
        ] {
            let error = SentinelAddress::parse(&format!("redis+sentinel://:secret@{rest}"))
                .expect_err(rest);
            assert!(error.is_invalid(), "{rest}: {error}");
            assert!(error.to_string().contains(reason), "{rest}: {error}");
            assert!(!format!("{error:?}").contains("secret"), "{rest}");
        }
    }
}
