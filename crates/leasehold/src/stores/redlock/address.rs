//! The URL of a store, which names several masters, or one server and a format.

use std::fmt;
use std::time::Duration;

use url::form_urlencoded;

use super::format::{Fenced, SingleKey, VoteFormat};
use super::master_set::MasterSet;
use super::voting::quorum;
use crate::stores::redis_client::Address;
use crate::stores::url::duration;
use crate::{Error, Result};

/// The masters, and the settings of all of them.
#[derive(Clone, Debug)]
pub(super) struct Masters {
    pub(super) addresses: Vec<Address>,
    pub(super) format: &'static dyn VoteFormat,
    pub(super) settings: MasterSettings,
}

/// The settings that are not those of a Redis connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MasterSettings {
    /// The longest lease of all clients, and so the length of a quarantine.
    /// [`Duration::MAX`] for a single server.
    pub(super) longest_lease: Duration,
    pub(super) quarantine: bool,
}

/// The fewest masters of which one may fail.
const MASTERS_MIN: usize = 3;
const LONGEST_LEASE: Duration = Duration::from_secs(60);
const LONGEST_LEASE_MIN: Duration = Duration::from_millis(500);
const LONGEST_LEASE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

impl MasterSettings {
    /// Whether the store has other servers beside this one.
    pub(super) fn is_one_of_several(self) -> bool {
        self.longest_lease < Duration::MAX
    }
}

impl Masters {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let (base_url, query) = text.split_once('?').unwrap_or((text, ""));
        let (scheme, rest) = base_url
            .split_once("://")
            .ok_or_else(|| Error::invalid("the URL has no ://"))?;

        let (settings, query) = UrlSettings::parse(query)?;
        let scheme = match scheme {
            "redlock" => "redis",
            "redlocks" => "rediss",
            _ => return settings.single_server(&with_query(base_url, &query)),
        };
        let hosts = split_hosts(rest)?;
        check_count(hosts.len())?;
        let addresses = hosts
            .iter()
            .map(|host| address(&with_query(&format!("{scheme}://{host}"), &query)))
            .collect::<Result<Vec<_>>>()?;
        check_distinct(&addresses)?;

        Ok(Self {
            addresses,
            format: settings.format_of_masters()?,
            settings: settings.master_settings(),
        })
    }
}

/// The URL without user, password and settings other than the dialect.
impl fmt::Display for Masters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [server] = &self.addresses[..] {
            return write!(f, "{server}?dialect=plain");
        }

        let urls: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let parts: Vec<_> = urls
            .iter()
            .filter_map(|url| url.split_once("://"))
            .collect();
        let is_tls = parts.first().is_some_and(|(scheme, _)| *scheme == "rediss");
        let scheme = if is_tls { "redlocks" } else { "redlock" };
        let hosts: Vec<&str> = parts.iter().map(|(_, host)| *host).collect();
        write!(f, "{scheme}://{}", hosts.join(","))?;

        if self.format.remembers_last_token() {
            return Ok(());
        }
        f.write_str("?dialect=classic")
    }
}

/// The settings of a URL that are not those of a Redis connection.
#[derive(Debug, Default)]
struct UrlSettings {
    dialect: Option<String>,
    tokens: Option<bool>,
    longest_lease: Option<Duration>,
    quarantine: Option<bool>,
}

impl UrlSettings {
    /// Returns the settings of the store, and the query with the settings of each connection.
    fn parse(query: &str) -> Result<(Self, String)> {
        let mut settings = Self::default();
        let mut rest = form_urlencoded::Serializer::new(String::new());
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "dialect" => settings.dialect = Some(value.into_owned()),
                "tokens" => settings.tokens = Some(switch(&key, &value)?),
                "quarantine" => settings.quarantine = Some(switch(&key, &value)?),
                "longest-lease" => {
                    settings.longest_lease = Some(check_longest_lease(duration(&value))?);
                }
                "crash-grace" | "replicas" => {
                    return Err(Error::invalid(format!(
                        "{key}= is a setting of redis:// without a dialect"
                    )));
                }
                _ => drop(rest.append_pair(&key, &value)),
            }
        }
        Ok((settings, rest.finish()))
    }

    fn format_of_masters(&self) -> Result<&'static dyn VoteFormat> {
        match self.dialect.as_deref() {
            None if self.tokens.is_some() => Err(Error::invalid(
                "tokens= requires a dialect; redlock:// without one always has tokens",
            )),
            None => Ok(&Fenced),
            Some("classic") => Ok(self.single_key()),
            Some(other) => Err(unknown_dialect(other, "redlock:// has the dialect classic")),
        }
    }

    fn single_key(&self) -> &'static dyn VoteFormat {
        match self.tokens {
            Some(true) => &SingleKey {
                counts_tokens: true,
            },
            Some(false) | None => &SingleKey {
                counts_tokens: false,
            },
        }
    }

    /// Returns the store of a single server.
    fn single_server(self, url: &str) -> Result<Masters> {
        match self.dialect.as_deref() {
            Some("plain") => {}
            Some(other) => {
                let help = "a single Redis server has the dialect plain";
                return Err(unknown_dialect(other, help));
            }
            None => return Err(Error::invalid("the URL names no dialect")),
        }
        if self.longest_lease.is_some() || self.quarantine.is_some() {
            return Err(Error::invalid(
                "longest-lease= and quarantine= are settings of redlock://",
            ));
        }

        Ok(Masters {
            addresses: vec![address(url)?],
            format: self.single_key(),
            settings: MasterSettings {
                longest_lease: Duration::MAX,
                quarantine: false,
            },
        })
    }

    fn master_settings(&self) -> MasterSettings {
        // In the format of other libraries a master has no key for its incarnation.
        let quarantine = self.quarantine.unwrap_or(self.dialect.is_none());
        MasterSettings {
            longest_lease: self.longest_lease.unwrap_or(LONGEST_LEASE),
            quarantine,
        }
    }
}

/// Parses the address of a server, whose clients have no crash detection by connection here.
fn address(url: &str) -> Result<Address> {
    let mut address = Address::parse(url)?;
    address.settings.crash_grace = None;
    Ok(address)
}

fn with_query(base_url: &str, query: &str) -> String {
    if query.is_empty() {
        base_url.to_owned()
    } else {
        format!("{base_url}?{query}")
    }
}

/// Splits `user:password@a,b,c/0` into `user:password@a/0` and so on.
fn split_hosts(rest: &str) -> Result<Vec<String>> {
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (user, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    if hosts.contains('#') || path.contains(['#', '@']) {
        return Err(Error::invalid("the URL has a # or an @ in a wrong place")
            .help("write %2F, %3F and %23 for /, ? and # in the user name and password"));
    }

    let hosts = hosts.split(',');
    Ok(hosts.map(|host| format!("{user}{host}{path}")).collect())
}

fn check_count(masters: usize) -> Result<()> {
    if masters < MASTERS_MIN {
        return Err(Error::invalid(
            "redlock:// needs three masters at least: of one or two none may fail",
        )
        .help("name three or five hosts, or use redis:// for one"));
    }
    if masters > MasterSet::MAX {
        let max = MasterSet::MAX;
        return Err(Error::invalid(format!(
            "redlock:// takes {max} masters at most"
        )));
    }
    if masters.is_multiple_of(2) {
        tracing::warn!(
            "{masters} masters survive the failure of {}, as {} do: use an odd number",
            masters - quorum(masters),
            masters - 1
        );
    }
    Ok(())
}

/// Rejects a server that the URL names twice: it would have two votes.
fn check_distinct(addresses: &[Address]) -> Result<()> {
    for (at, address) in addresses.iter().enumerate() {
        let mut earlier = addresses[..at].iter();
        if earlier.any(|other| other.target == address.target) {
            let error = Error::invalid(format!("{address} is named twice"));
            return Err(error.help("name each master once"));
        }
    }
    Ok(())
}

fn check_longest_lease(lease: Duration) -> Result<Duration> {
    if (LONGEST_LEASE_MIN..=LONGEST_LEASE_MAX).contains(&lease) {
        return Ok(lease);
    }
    Err(
        Error::invalid("the longest lease is from 500ms to 24 hours")
            .help("write longest-lease=60s"),
    )
}

fn switch(key: &str, value: &str) -> Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Error::invalid(format!("{key}= is on or off"))),
    }
}

fn unknown_dialect(dialect: &str, help: &str) -> Error {
    Error::invalid(format!("{dialect:?} is not a dialect of this store")).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let url = "redlock://me:a%2Cb@a:1,b,[::1]:3/2?longest-lease=10s";
        let masters = Masters::parse(url).expect("good");
        assert_eq!(masters.to_string(), "redlock://a:1/2,b:6379/2,[::1]:3/2");
        for address in &masters.addresses {
            assert_eq!(address.password.as_deref(), Some("a,b"));
            assert_eq!(address.database, 2);
        }
        assert_eq!(masters.settings.longest_lease, Duration::from_secs(10));
        assert!(masters.settings.quarantine);
        assert!(masters.format.remembers_last_token());
    }

    #[test]
    fn urls_with_a_dialect_are_parsed() {
        let classic = Masters::parse("redlocks://a,b,c?dialect=classic&ca=/x").expect("good");
        let url = "redlocks://a:6379,b:6379,c:6379?dialect=classic";
        assert_eq!(classic.to_string(), url);
        assert!(!classic.format.remembers_last_token());
        assert!(!classic.format.guarantees_tokens());

        let url = "redis+unix:///run/s?dialect=plain&tokens=on&db=1";
        let plain = Masters::parse(url).expect("good");
        assert_eq!(plain.addresses[0].database, 1);
        assert!(!plain.format.remembers_last_token());
        assert!(plain.format.guarantees_tokens());
    }

    #[test]
    fn redlock_without_fault_tolerance_is_refused() {
        for (url, reason) in [
            ("redlock://a", "three masters"),
            ("redlock://a,b", "three masters"),
            ("redlock://a,b,a", "redis://a:6379 is named twice"),
            ("redlock://a,b,a:6379", "named twice"),
            ("redlock://a,b,c?dialect=plain", "classic"),
            ("redis://a?dialect=classic", "plain"),
            ("redlock://a,b,c?replicas=1", "replicas"),
            ("redlock://a,b,c?longest-lease=5", "longest lease"),
            ("redlock://a,b,c?quarantine=maybe", "on or off"),
            ("redlock://a,b,c?what=1", "not a setting"),
            ("redis://a?dialect=plain&quarantine=off", "redlock://"),
            ("redlock://a,b,", "host"),
        ] {
            let error = Masters::parse(url).expect_err(url);
            assert!(
                error.is_invalid() && error.to_string().contains(reason),
                "{url}: {error}"
            );
        }
        let even = Masters::parse("redlock://a,b,c,d").expect("a warning only");
        assert_eq!(even.addresses.len(), 4);
    }

    #[test]
    fn more_than_fifteen_masters_are_refused() {
        let url = |count: usize| {
            let hosts: Vec<String> = (0..count).map(|number| format!("host{number}")).collect();
            format!("redlock://{}", hosts.join(","))
        };
        for count in [3, 5, 14, 15] {
            let masters = Masters::parse(&url(count)).expect("few enough");
            assert_eq!(masters.addresses.len(), count);
        }
        for count in [16, 17, 18, 31, 32, 33, 64] {
            let error = Masters::parse(&url(count)).expect_err("too many");
            assert!(
                error.is_invalid() && error.to_string().contains("15 masters at most"),
                "{count}: {error}"
            );
        }
    }

    #[test]
    fn errors_do_not_show_the_password() {
        for rest in [
            "secret@a,b",
            "secret#@a,b,c",
            "secret@a,b,c?what=1",
            "secret@a,b,a",
            "sec/secret@a,b,c",
            "secret",
        ] {
            let error = Masters::parse(&format!("redlock://me:{rest}")).expect_err(rest);
            assert!(
                !format!("{error:?}").contains("secret"),
                "{rest}: {error:?}"
            );
        }
    }
}
