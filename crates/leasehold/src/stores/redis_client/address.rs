//! The parser of Redis URLs.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use crate::runtime::background;
use crate::stores::url::{decoded, duration, password_in};
use crate::{Error, Result};

/// A server, and the user and database for its connections.
#[derive(Clone)]
pub(in crate::stores) struct Address {
    pub(in crate::stores) target: Target,
    pub(in crate::stores) database: i64,
    pub(in crate::stores) user: Option<String>,
    pub(in crate::stores) password: Option<String>,
    /// The file with the password, if the password is not in the URL.
    pub(in crate::stores) password_file: Option<String>,
    pub(in crate::stores) old_protocol: bool,
    pub(in crate::stores) settings: Settings,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::stores) enum Target {
    Tcp {
        host: String,
        port: u16,
        tls: Option<Tls>,
    },
    Socket(PathBuf),
}

/// TLS, with the authority to trust in place of the system's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::stores) struct Tls {
    pub(in crate::stores) authority: Option<PathBuf>,
}

/// The settings of a store in its URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stores) struct Settings {
    /// `None`: a crashed client's lock is free when its lease ends.
    pub(in crate::stores) crash_grace: Option<Duration>,
    pub(in crate::stores) replicas: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            crash_grace: Some(Duration::from_secs(10)),
            replicas: 0,
        }
    }
}

const PORT: u16 = 6379;

impl Address {
    pub(in crate::stores) fn parse(text: &str) -> Result<Self> {
        let url = Url::parse(text)
            .map_err(|error| Error::invalid(format!("the URL cannot be read: {error}")))?;
        check_end(&url)?;
        let (target, database) = match url.scheme() {
            "redis" | "rediss" => (tcp(&url)?, database(url.path().trim_matches('/'))?),
            "redis+unix" => (socket(&url)?, 0),
            other => {
                return Err(Error::invalid(format!(
                    "{other:?} is not a scheme of Redis"
                )));
            }
        };
        let mut address = Self {
            target,
            database,
            user: Some(decoded(url.username())?).filter(|user| !user.is_empty()),
            password: url.password().map(decoded).transpose()?,
            password_file: None,
            old_protocol: false,
            settings: Settings::default(),
        };
        for (key, value) in url.query_pairs() {
            address.set(&key, &value)?;
        }
        Ok(address)
    }

    /// Returns the address with the password that its file has now.
    ///
    /// If the file cannot be read, the password stays as it was when the store was opened: a new
    /// file may be about to replace the old one.
    pub(in crate::stores) async fn with_current_password(&self) -> Self {
        const STALE: &str =
            "the password file cannot be read; connecting with the password of the opening";
        let mut address = self.clone();
        let Some(path) = address.password_file.clone() else {
            return address;
        };

        match background::handle()
            .spawn_blocking(move || password_in(&path))
            .await
        {
            Ok(Ok(password)) => address.password = Some(password),
            Ok(Err(error)) => {
                tracing::warn!(server = %self, %error, "{STALE}");
            }
            Err(error) => {
                tracing::warn!(server = %self, %error, "{STALE}");
            }
        }
        address
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "crash-grace" => self.settings.crash_grace = grace(value)?,
            "replicas" => self.settings.replicas = number(key, value)?,
            "db" => self.database = database(value)?,
            "protocol" => self.old_protocol = number(key, value)? == 2,
            "password-file" => {
                self.password = Some(password_in(value)?);
                self.password_file = Some(value.to_owned());
            }
            "ca" => match &mut self.target {
                Target::Tcp { tls: Some(tls), .. } => tls.authority = Some(value.into()),
                _ => return Err(Error::invalid("ca= requires rediss://")),
            },
            _ => {
                return Err(
                    Error::invalid(format!("{key:?} is not a setting of a Redis URL")).help(
                        "there are crash-grace, replicas, db, protocol, password-file and ca",
                    ),
                );
            }
        }
        Ok(())
    }
}

/// Rejects a URL whose password contains an unencoded `/`, `?` or `#`.
///
/// Such a character ends the host too early. The rest of the password would be taken for a path or
/// a setting, and shown.
fn check_end(url: &Url) -> Result<()> {
    let is_path = |key: &str| key == "ca" || key == "password-file";
    let in_settings = url
        .query_pairs()
        .any(|(key, value)| key.contains('@') || value.contains('@') && !is_path(&key));
    let in_path = url.has_host() && url.path().contains('@');
    if in_settings || in_path || url.fragment().is_some() {
        return Err(Error::invalid("the URL has a # or an @ in a wrong place")
            .help("write %2F, %3F and %23 for /, ? and # in the user name and password"));
    }
    Ok(())
}

fn tcp(url: &Url) -> Result<Target> {
    let host = url.host_str().filter(|host| !host.is_empty());
    let host = host
        .ok_or_else(|| Error::invalid("the URL names no host").help("write redis://host:6379"))?;
    let host = host.trim_matches(['[', ']']).to_owned();
    let tls = (url.scheme() == "rediss").then(Tls::default);
    Ok(Target::Tcp {
        host,
        port: url.port().unwrap_or(PORT),
        tls,
    })
}

fn socket(url: &Url) -> Result<Target> {
    let path = decoded(url.path())?;
    if path.len() < 2 {
        return Err(Error::invalid("the URL names no socket")
            .help("write redis+unix:///run/redis/redis.sock"));
    }
    Ok(Target::Socket(path.into()))
}

fn database(text: &str) -> Result<i64> {
    if text.is_empty() {
        Ok(0)
    } else {
        number("db", text).map(i64::from)
    }
}

fn number(key: &str, text: &str) -> Result<u32> {
    text.parse()
        .map_err(|_| Error::invalid(format!("{key} takes a whole number")))
}

fn grace(text: &str) -> Result<Option<Duration>> {
    if text == "off" {
        return Ok(None);
    }
    check_grace(duration(text)).map(Some)
}

/// Checks the range of a crash grace. A shorter one would treat a short network delay as a crash.
pub(in crate::stores) fn check_grace(grace: Duration) -> Result<Duration> {
    const MIN: Duration = Duration::from_millis(500);
    if grace >= MIN && grace <= Duration::from_secs(3600) {
        return Ok(grace);
    }
    Err(Error::invalid("the crash grace is from 500ms to 1 hour")
        .help("write crash-grace=10s, or crash-grace=off"))
}

/// Writes the URL without user, password and settings.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Target::Tcp { host, port, tls } => {
                let scheme = if tls.is_some() { "rediss" } else { "redis" };
                if host.contains(':') {
                    write!(f, "{scheme}://[{host}]:{port}")?;
                } else {
                    write!(f, "{scheme}://{host}:{port}")?;
                }
                if self.database == 0 {
                    Ok(())
                } else {
                    write!(f, "/{}", self.database)
                }
            }
            Target::Socket(path) => write!(f, "redis+unix://{}", path.display()),
        }
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
        let address = Address::parse("redis://me:p%40ss@host:1234/3?crash-grace=off&replicas=2")
            .expect("good");
        assert_eq!(
            address.target,
            Target::Tcp {
                host: "host".into(),
                port: 1234,
                tls: None
            }
        );
        assert_eq!(
            (address.user.as_deref(), address.password.as_deref()),
            (Some("me"), Some("p@ss"))
        );
        assert_eq!(
            (address.database, address.settings),
            (
                3,
                Settings {
                    crash_grace: None,
                    replicas: 2
                }
            )
        );
        assert_eq!(address.to_string(), "redis://host:1234/3");
    }

    #[test]
    fn socket_and_ipv6_urls_are_parsed() {
        let address = Address::parse("redis+unix:///run/a%20b.sock?db=1").expect("good");
        assert_eq!(
            (address.target, address.database),
            (Target::Socket("/run/a b.sock".into()), 1)
        );
        let address = Address::parse("rediss://[::1]").expect("good");
        let tls = Some(Tls::default());
        assert_eq!(
            address.target,
            Target::Tcp {
                host: "::1".into(),
                port: PORT,
                tls
            }
        );
        assert_eq!(address.to_string(), "rediss://[::1]:6379");
    }

    #[test]
    fn wrong_urls_are_refused_without_showing_the_password() {
        for url in [
            "redis://",
            "redis://:secret@/0",
            "redis://:secret@h/x",
            "redis://:secret@h?what=1",
            "redis://:secret@h?crash-grace=5",
            "redis://:secret@h?crash-grace=1ms",
            "redis://:secret@h?ca=/x",
            "redis://:secret@h?password-file=/nowhere",
            "redis://:secret@h:99999",
            "redis+unix://",
        ] {
            let error = Address::parse(url).expect_err(url);
            assert!(
                error.is_invalid() && !format!("{error:?}").contains("secret"),
                "{url}: {error:?}"
            );
        }
    }
}
