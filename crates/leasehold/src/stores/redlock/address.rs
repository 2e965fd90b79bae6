//! A URL that names several masters, or one lock format, taken apart.

use std::fmt;
use std::time::Duration;

use url::form_urlencoded;

use super::record::WireFormat;
use super::voting::quorum;
use crate::stores::redis_client::Address;
use crate::stores::url::duration;
use crate::{Error, Result};

/// The masters, and what holds for all of them.
#[derive(Clone, Debug)]
pub(super) struct Masters {
    pub(super) addresses: Vec<Address>,
    pub(super) format: WireFormat,
    pub(super) settings: MasterSettings,
}

/// What a store may be told about itself in its URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MasterSettings {
    /// The same for all clients: for as long a master that may have forgotten is not believed.
    pub(super) longest_lease: Duration,
    pub(super) quarantine: bool,
}

impl Default for MasterSettings {
    fn default() -> Self {
        Self {
            longest_lease: Duration::from_secs(60),
            quarantine: true,
        }
    }
}

impl Masters {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let (base_url, query) = text.split_once('?').unwrap_or((text, ""));
        let (scheme, rest) = base_url
            .split_once("://")
            .ok_or_else(|| Error::invalid("the URL has no ://"))?;
        let mut url_settings = UrlSettings::default();
        let passed_on = url_settings.take(query)?;
        let one = match scheme {
            "redlock" => "redis",
            "redlocks" => "rediss",
            _ => return url_settings.lock_master(&url(base_url, &passed_on)),
        };
        let hosts = split(rest)?;
        check_count(&hosts)?;
        let addresses = hosts
            .iter()
            .map(|host| master(&url(&format!("{one}://{host}"), &passed_on)));
        let (addresses, settings) = (
            addresses.collect::<Result<Vec<_>>>()?,
            url_settings.settings(),
        );
        check_distinct(&addresses)?;
        let format = match url_settings.dialect.as_deref() {
            None if url_settings.tokens.is_some() => {
                return Err(Error::invalid(
                    "tokens= goes with a dialect; redlock has them anyway",
                ));
            }
            None => WireFormat::Fenced,
            Some("classic") => WireFormat::Plain {
                tokens: url_settings.tokens == Some(true),
            },
            Some(other) => return Err(unknown(other, "redlock has the dialect classic")),
        };
        Ok(Self {
            addresses,
            format,
            settings,
        })
    }
}

#[derive(Debug, Default)]
struct UrlSettings {
    dialect: Option<String>,
    tokens: Option<bool>,
    longest_lease: Option<Duration>,
    quarantine: Option<bool>,
}

impl UrlSettings {
    /// Takes what is its own; the rest is each master's.
    fn take(&mut self, query: &str) -> Result<String> {
        let mut rest = form_urlencoded::Serializer::new(String::new());
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "dialect" => self.dialect = Some(value.into_owned()),
                "tokens" => self.tokens = Some(switch(&key, &value)?),
                "quarantine" => self.quarantine = Some(switch(&key, &value)?),
                "longest-lease" => self.longest_lease = Some(longest(duration(&value))?),
                "crash-grace" | "replicas" => {
                    return Err(Error::invalid(format!(
                        "{key}= goes with redis:// and its own format only"
                    )));
                }
                _ => drop(rest.append_pair(&key, &value)),
            }
        }
        Ok(rest.finish())
    }

    /// One server, with the format of the articles.
    fn lock_master(self, url: &str) -> Result<Masters> {
        match self.dialect.as_deref() {
            Some("plain") => {}
            Some(other) => {
                return Err(unknown(
                    other,
                    "a single Redis server has the dialect plain",
                ));
            }
            None => return Err(Error::invalid("the URL names no dialect")),
        }
        if self.longest_lease.is_some() || self.quarantine.is_some() {
            return Err(Error::invalid(
                "longest-lease= and quarantine= go with redlock:// only",
            ));
        }
        let settings = MasterSettings {
            longest_lease: Duration::MAX,
            quarantine: false,
        };
        let format = WireFormat::Plain {
            tokens: self.tokens == Some(true),
        };
        Ok(Masters {
            addresses: vec![master(url)?],
            format,
            settings,
        })
    }

    fn settings(&self) -> MasterSettings {
        // The foreign format has no place to remember by.
        let quarantine = self.quarantine.unwrap_or(self.dialect.is_none());
        MasterSettings {
            longest_lease: self
                .longest_lease
                .unwrap_or(MasterSettings::default().longest_lease),
            quarantine,
        }
    }
}

fn unknown(dialect: &str, remedy: &str) -> Error {
    Error::invalid(format!("no dialect here is called {dialect:?}")).help(remedy)
}

fn switch(key: &str, value: &str) -> Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Error::invalid(format!("{key} is on or off"))),
    }
}

pub(super) fn longest(lease: Duration) -> Result<Duration> {
    if lease >= Duration::from_millis(500) && lease <= Duration::from_secs(24 * 60 * 60) {
        return Ok(lease);
    }
    Err(
        Error::invalid("the longest lease is from 500ms to 24 hours")
            .help("write longest-lease=60s"),
    )
}

fn url(base_url: &str, query: &str) -> String {
    if query.is_empty() {
        base_url.to_owned()
    } else {
        format!("{base_url}?{query}")
    }
}

/// `user:password@a,b,c/0` as one such text for each host.
fn split(rest: &str) -> Result<Vec<String>> {
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (user, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    if hosts.contains('#') || path.contains(['#', '@']) {
        return Err(Error::invalid("the URL has a # or a late @")
            .help("write %2F, %3F and %23 for /, ? and # in user and password"));
    }
    Ok(hosts
        .split(',')
        .map(|host| format!("{user}{host}{path}"))
        .collect())
}

/// A client has a connection to each, and masks of 32 bits for them.
const MASTERS_TOO_MANY: usize = 16;

fn check_count(hosts: &[String]) -> Result<()> {
    match hosts.len() {
        0..3 => Err(Error::invalid(
            "redlock needs three masters at least: of one or two none may fail",
        )
        .help("name three or five hosts, or use redis:// for one")),
        MASTERS_TOO_MANY.. => Err(Error::invalid(format!(
            "redlock takes {} masters at most",
            MASTERS_TOO_MANY - 1
        ))),
        // A majority of an even number bears no more failures than that of one less.
        even if even.is_multiple_of(2) => {
            let bears = even - quorum(even);
            tracing::warn!(
                "{even} masters bear the failure of {bears}, as {} do: use an odd number",
                even - 1
            );
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Two names of one server would be two votes of one.
/// A server whose clients are not judged by their connections.
fn master(url: &str) -> Result<Address> {
    let mut address = Address::parse(url)?;
    address.settings.crash_grace = None;
    Ok(address)
}

fn check_distinct(addresses: &[Address]) -> Result<()> {
    for (at, address) in addresses.iter().enumerate() {
        if addresses[..at]
            .iter()
            .any(|other| other.target == address.target)
        {
            return Err(
                Error::invalid(format!("{address} is named twice")).help("name each master once")
            );
        }
    }
    Ok(())
}

/// As a URL, without user, password and settings.
impl fmt::Display for Masters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [alone] = &self.addresses[..] {
            return write!(f, "{alone}?dialect=plain");
        }
        let all: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let tls = all.first().is_some_and(|first| first.starts_with("rediss"));
        let hosts: Vec<&str> = all
            .iter()
            .filter_map(|one| one.split_once("://"))
            .map(|(_, host)| host)
            .collect();
        write!(
            f,
            "{}://{}",
            if tls { "redlocks" } else { "redlock" },
            hosts.join(",")
        )?;
        if self.format == WireFormat::Fenced {
            Ok(())
        } else {
            f.write_str("?dialect=classic")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let masters =
            Masters::parse("redlock://me:a%2Cb@a:1,b,[::1]:3/2?longest-lease=10s").expect("good");
        assert_eq!(masters.to_string(), "redlock://a:1/2,b:6379/2,[::1]:3/2");
        assert!(
            masters
                .addresses
                .iter()
                .all(|one| one.password.as_deref() == Some("a,b") && one.database == 2)
        );
        assert_eq!(
            masters.settings,
            MasterSettings {
                longest_lease: Duration::from_secs(10),
                quarantine: true
            }
        );
        assert_eq!(masters.format, WireFormat::Fenced);
        let classic = Masters::parse("redlocks://a,b,c?dialect=classic&ca=/x").expect("good");
        assert_eq!(classic.format, WireFormat::Plain { tokens: false });
        assert_eq!(
            classic.to_string(),
            "redlocks://a:6379,b:6379,c:6379?dialect=classic"
        );
        let plain =
            Masters::parse("redis+unix:///run/s?dialect=plain&tokens=on&db=1").expect("good");
        assert_eq!(
            (plain.format, plain.addresses[0].database),
            (WireFormat::Plain { tokens: true }, 1)
        );
    }

    #[test]
    fn redlock_without_fault_tolerance_is_refused() {
        for (url, greeted) in [
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
                error.is_invalid() && error.to_string().contains(greeted),
                "{url}: {error}"
            );
        }
        assert_eq!(
            Masters::parse("redlock://a,b,c,d")
                .expect("said aloud, but allowed")
                .addresses
                .len(),
            4
        );
    }

    #[test]
    fn more_than_fifteen_masters_are_refused() {
        let url = |tally: usize| {
            let hosts: Vec<String> = (0..tally).map(|number| format!("host{number}")).collect();
            format!("redlock://{}", hosts.join(","))
        };
        for tally in [3, 5, 14, 15] {
            assert_eq!(
                Masters::parse(&url(tally))
                    .expect("few enough")
                    .addresses
                    .len(),
                tally
            );
        }
        for tally in [16, 17, 18, 31, 32, 33, 64] {
            let error = Masters::parse(&url(tally)).expect_err("too many");
            assert!(
                error.is_invalid() && error.to_string().contains("15 masters at most"),
                "{tally}: {error}"
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
