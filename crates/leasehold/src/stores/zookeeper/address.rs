//! A ZooKeeper URL, taken apart.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::super::settings::{decoded, duration, password_in};
use super::layout::Dialect;
use crate::{Error, Result};

/// Where the servers are, as whom to talk to them, and on which terms.
#[derive(Clone)]
pub(super) struct Address {
    /// `host:port`, as the URL had them.
    pub(super) servers: Vec<String>,
    /// The node below which all is kept; empty for the root.
    pub(super) base: String,
    /// `user:password`.
    pub(super) digest: Option<String>,
    pub(super) tls: Option<Tls>,
    pub(super) settings: Settings,
}

/// TLS: the authority to trust if not the system's, and a certificate of our own if the servers ask for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tls {
    pub(super) authority: Option<PathBuf>,
    pub(super) identity: Option<Identity>,
}

/// A certificate and its key, each a file of PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// What a store may be told about itself in its URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) session: Duration,
    pub(super) dialect: Dialect,
    /// Nodes are for those who show the same credentials.
    pub(super) private: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            session: Duration::from_secs(10),
            dialect: Dialect::Curator,
            private: false,
        }
    }
}

const PORT: u16 = 2181;
const BASE: &str = "/leasehold";

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| Error::invalid("the URL names no server"))?;
        let tls = match scheme {
            "zookeeper" => None,
            "zookeeper+tls" => Some(Tls::default()),
            other => {
                return Err(Error::invalid(format!(
                    "{other:?} is not a scheme of ZooKeeper"
                )));
            }
        };
        let (url, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = url.split_at(url.find('/').unwrap_or(url.len()));
        if settings.contains('@') || path.contains(['@', '#']) || authority.contains('#') {
            return Err(Error::invalid("the URL has a # or a late @")
                .help("write %2F, %3F, %40 and %23 for /, ?, @ and # in user and password"));
        }
        let (user, servers) = authority
            .rsplit_once('@')
            .map_or((None, authority), |(user, hosts)| (Some(user), hosts));
        let mut address = Self {
            servers: servers.split(',').map(server).collect::<Result<_>>()?,
            base: base(path)?,
            digest: None,
            tls,
            settings: Settings::default(),
        };
        let (mut password_file, mut certificate, mut key_file) = (None, None, None);
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            match key {
                "password-file" => password_file = Some(decoded(value)?),
                "cert" => certificate = Some(decoded(value)?),
                "key" => key_file = Some(decoded(value)?),
                _ => address.set(key, &decoded(value)?)?,
            }
        }
        address.identify(certificate, key_file)?;
        address.digest = digest(user, password_file.as_deref())?;
        if address.settings.private && address.digest.is_none() {
            return Err(
                Error::invalid("acl=creator is for a user, and the URL names none")
                    .help("write zookeeper://user:password@host"),
            );
        }
        Ok(address)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match (key, &mut self.tls) {
            ("session", _) => self.settings.session = check_session(duration(value))?,
            ("dialect", _) => self.settings.dialect = Dialect::parse(value)?,
            ("acl", _) => self.settings.private = private(value)?,
            ("ca", Some(tls)) => tls.authority = Some(value.into()),
            ("ca", None) => return Err(only_with_tls("ca")),
            _ => {
                return Err(
                    Error::invalid(format!("{key:?} is not a setting of a ZooKeeper URL"))
                        .help("there are session, dialect, acl, password-file, ca, cert and key"),
                );
            }
        }
        Ok(())
    }

    fn identify(&mut self, certificate: Option<String>, key: Option<String>) -> Result<()> {
        match (certificate, key, &mut self.tls) {
            (None, None, _) => {}
            (_, _, None) => return Err(only_with_tls("cert= and key")),
            (Some(certificate), Some(key), Some(tls)) => {
                tls.identity = Some(Identity {
                    certificate: certificate.into(),
                    key: key.into(),
                });
            }
            (..) => {
                return Err(Error::invalid("cert= and key= go together").help("give both, or none"));
            }
        }
        Ok(())
    }

    /// All servers, as the client library wants them.
    ///
    /// Each is named several times. The library doubles its pauses whenever it has tried the whole list, without a
    /// maximum: after five rounds through one server it would pause for longer than half of a session. Within a long
    /// list its pauses are short.
    pub(super) fn cluster(&self) -> String {
        let attempts = if self.settings.session <= LONG_SESSION {
            10
        } else {
            20
        };
        let rounds = usize::div_ceil(attempts, self.servers.len().max(1));
        let protocol = if self.tls.is_some() { "tcp+tls://" } else { "" };
        let servers: Vec<String> = self
            .servers
            .iter()
            .map(|server| format!("{protocol}{server}"))
            .collect();
        vec![servers.join(","); rounds].join(",")
    }
}

/// Longer sessions take a longer list of servers to try.
const LONG_SESSION: Duration = Duration::from_secs(20);

fn only_with_tls(setting: &str) -> Error {
    Error::invalid(format!("{setting}= goes with zookeeper+tls:// only"))
}

/// `host`, `host:port` or `[address]:port`, with the port.
fn server(text: &str) -> Result<String> {
    let wrong = || {
        Error::invalid("the URL does not name a server where it should")
            .help("write zookeeper://host1:2181,host2:2181/folder")
    };
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| wrong())?),
        _ => (text, PORT),
    };
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let is_name = |host: &str| {
        host.bytes()
            .all(|c| c.is_ascii_alphanumeric() || b".-_".contains(&c))
    };
    let is_good = match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && is_name(host),
    };
    if is_good && port != 0 {
        Ok(format!("{host}:{port}"))
    } else {
        Err(wrong())
    }
}

/// Without a path there is a folder of our own; `/` is the root.
fn base(path: &str) -> Result<String> {
    if path.is_empty() {
        return Ok(BASE.to_owned());
    }
    let path = decoded(path)?;
    let path = path.trim_end_matches('/');
    let is_wrong = |part: &str| {
        part.is_empty() || part == "." || part == ".." || part.contains(char::is_control)
    };
    if path.split('/').skip(1).any(is_wrong)
        || path.starts_with("/zookeeper/")
        || path == "/zookeeper"
    {
        return Err(Error::invalid(format!(
            "{path:?} is no path of a ZooKeeper node that locks may be in"
        )));
    }
    Ok(path.to_owned())
}

fn digest(user: Option<&str>, password_file: Option<&str>) -> Result<Option<String>> {
    let Some(user) = user else {
        return if password_file.is_some() {
            Err(Error::invalid("password-file= goes with a user"))
        } else {
            Ok(None)
        };
    };
    let (user, password) = user
        .split_once(':')
        .map_or((user, None), |(user, password)| (user, Some(password)));
    let password = match (password, password_file) {
        (Some(password), None) => decoded(password)?,
        (None, Some(path)) => password_in(path)?,
        _ => {
            return Err(Error::invalid("a user of ZooKeeper has one password")
                .help("write zookeeper://user:password@host, or give password-file="));
        }
    };
    Ok(Some(format!("{}:{password}", decoded(user)?)))
}

fn private(value: &str) -> Result<bool> {
    match value {
        "creator" => Ok(true),
        "open" => Ok(false),
        _ => Err(Error::invalid("acl is creator or open")),
    }
}

/// Shorter ones would take a breath of the network for a death.
pub(super) fn check_session(timeout: Duration) -> Result<Duration> {
    if timeout >= Duration::from_secs(1) && timeout <= Duration::from_secs(3600) {
        return Ok(timeout);
    }
    Err(Error::invalid("a session lasts from 1 second to 1 hour").help("write session=10s"))
}

/// As a URL, without user, password and settings.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() {
            "zookeeper+tls"
        } else {
            "zookeeper"
        };
        let base = if self.base.is_empty() {
            "/"
        } else {
            &self.base
        };
        write!(f, "{scheme}://{}{base}", self.servers.join(","))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let address = Address::parse(
            "zookeeper://me:p%40s%3As@h1:1,h2,[::1]:3/a/b?session=4s&dialect=kazoo&acl=creator",
        );
        let address = address.expect("good");
        assert_eq!(address.servers, ["h1:1", "h2:2181", "[::1]:3"]);
        assert_eq!(
            (&*address.base, address.digest.as_deref()),
            ("/a/b", Some("me:p@s:s"))
        );
        let settings = Settings {
            session: Duration::from_secs(4),
            dialect: Dialect::Kazoo,
            private: true,
        };
        assert_eq!(address.settings, settings);
        assert_eq!(address.to_string(), "zookeeper://h1:1,h2:2181,[::1]:3/a/b");
    }

    #[test]
    fn url_without_path_uses_the_default_folder() {
        let base = |url| Address::parse(url).expect("good").base;
        assert_eq!(base("zookeeper://h"), "/leasehold");
        assert_eq!(base("zookeeper://h/"), "");
        assert_eq!(base("zookeeper+tls://h/locks/?ca=/x"), "/locks");
    }

    #[test]
    fn wrong_urls_are_refused_without_showing_the_password() {
        for url in [
            "zookeeper://",
            "zookeeper:h",
            "zookeeper://h:x",
            "zookeeper://h:0",
            "zookeeper://h,,g",
            "zookeeper://h//a",
            "zookeeper://h/../a",
            "zookeeper://h/zookeeper/a",
            "zookeeper://me@h",
            "zookeeper://h?acl=creator",
            "zookeeper://me:secret@h?acl=what",
            "zookeeper://me:secret@h?session=1ms",
            "zookeeper://me:secret@h?dialect=what",
            "zookeeper://me:secret@h?ca=/x",
            "zookeeper://me:secret@h?what=secret",
            "zookeeper://me:12/secret@h",
            "zookeeper://me:12?secret@h",
            "zookeeper://me:12#secret@h",
            "zookeeper://me:secret@h?password-file=/nowhere",
        ] {
            let error = Address::parse(url).expect_err(url);
            assert!(
                error.is_invalid() && !format!("{error:?}").contains("secret"),
                "{url}: {error:?}"
            );
        }
    }
}
