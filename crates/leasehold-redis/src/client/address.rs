//! The address of a Redis server, from its URL.

mod address_map;
mod settings;

use std::fmt;

use leasehold_core::internal::net::{Host, Login, Password, Target, Tls, check_identity};
use leasehold_core::internal::{Setting, StoreUrl, Transport, with_setting};
use leasehold_core::{Error, Result};

pub(crate) use address_map::AddressMap;
pub(crate) use settings::Settings;

/// A server, and the user and database for its connections.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) target: Target,
    pub(crate) database: i64,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Password>,
    pub(crate) old_protocol: bool,
    /// Whether a sentinel or a node of a cluster has named the server, and not the URL.
    pub(crate) is_announced: bool,
    pub(crate) settings: Settings,
}

pub(crate) const PORT: u16 = 6379;
/// The schemes of a URL with one server.
pub(crate) const SERVER_SCHEMES: &[(&str, Transport)] = &[
    ("redis", Transport::Tcp),
    ("rediss", Transport::Tls),
    ("redis+unix", Transport::Socket),
];

impl Address {
    /// Returns the only server of a URL with one of [`SERVER_SCHEMES`].
    pub(crate) fn of_server(url: &StoreUrl) -> Result<Self> {
        if url.transport == Transport::Socket {
            return Self::of_target(url, socket(url)?, 0);
        }
        match url.servers()? {
            [host] => Self::of_host(url, host, path_database(url)?),
            _ => Err(Error::invalid("a redis:// URL must name exactly one host")
                .help("write redlock:// for several independent servers")),
        }
    }

    /// Returns the servers of a URL, in its order.
    pub(crate) fn of_hosts(url: &StoreUrl) -> Result<Vec<Self>> {
        let database = path_database(url)?;
        let hosts = url.servers()?.iter();
        hosts
            .map(|host| Self::of_host(url, host, database))
            .collect()
    }

    /// Returns a server at one of the hosts of a URL. `database` is that of the path.
    pub(super) fn of_host(url: &StoreUrl, host: &Host, database: i64) -> Result<Self> {
        let target = Target::Tcp {
            host: host.clone(),
            tls: tls(url)?,
        };
        Self::of_target(url, target, database)
    }

    fn of_target(url: &StoreUrl, target: Target, database: i64) -> Result<Self> {
        let stated = url.settings.number("db").map(i64::from);
        if stated.is_some() && database != 0 {
            return Err(Error::invalid("the URL has a database in its path and db=")
                .help("write one of the two"));
        }
        let Login { user, password } = Login::of_url(url)?;
        Ok(Self {
            target,
            database: stated.unwrap_or(database),
            user,
            password,
            old_protocol: url.settings.get("protocol") == Some("2"),
            is_announced: false,
            settings: Settings::default(),
        })
    }

    /// Returns the address with the password that its file or its function has now.
    pub(crate) async fn with_current_password(&self) -> Result<Self> {
        let mut address = self.clone();
        if let Some(password) = &self.password {
            address.password = Some(password.current(self).await?);
        }
        Ok(address)
    }

    /// Returns the address for a server without RESP3.
    pub(crate) fn with_old_protocol(self) -> Self {
        Self {
            old_protocol: true,
            ..self
        }
    }

    /// Returns the address with another host.
    pub(super) fn at(&self, host: Host) -> Self {
        let mut address = self.clone();
        if let Target::Tcp { host: replaced, .. } = &mut address.target {
            *replaced = host;
        }
        address
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.target.is_encrypted()
    }

    /// Returns the URL without its scheme, user, password and settings, but with the database.
    pub(crate) fn location(&self) -> String {
        let database = self.database;
        match &self.target {
            Target::Tcp { host, .. } if database == 0 => host.to_string(),
            Target::Tcp { host, .. } => format!("{host}/{database}"),
            Target::Socket(path) => self.with_database(&path.display().to_string()),
        }
    }

    /// Adds the database to a shown URL whose path names something else.
    pub(super) fn with_database(&self, shown_url: &str) -> String {
        match self.database {
            0 => shown_url.to_owned(),
            database => with_setting(shown_url, "db", &database.to_string()),
        }
    }
}

fn socket(url: &StoreUrl) -> Result<Target> {
    if !url.hosts.is_empty() || url.path.len() < 2 {
        return Err(Error::invalid("the URL names no socket")
            .help("write redis+unix:///run/redis/redis.sock"));
    }
    tls(url)?;
    Ok(Target::Socket(url.path.clone().into()))
}

fn tls(url: &StoreUrl) -> Result<Option<Tls>> {
    let tls = Tls::of_url(url, "a scheme with TLS, such as rediss:// or redlocks://")?;
    if let Some(tls) = &tls {
        check_identity(tls)?;
    }
    Ok(tls)
}

/// Returns the database that the path of a URL names.
fn path_database(url: &StoreUrl) -> Result<i64> {
    match url.path.trim_matches('/') {
        "" => Ok(0),
        text => Setting::whole_number("db", text).map(i64::from),
    }
}

/// Writes the URL without user, password and settings.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match &self.target {
            Target::Tcp { tls: None, .. } => "redis",
            Target::Tcp { tls: Some(_), .. } => "rediss",
            Target::Socket(_) => "redis+unix",
        };
        write!(f, "{scheme}://{}", self.location())
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
    use crate::client::Topology;

    fn parse(url: &str) -> Result<Address> {
        let Topology::Single(address) = Topology::parse(url)? else {
            panic!("the URL names one server");
        };
        Ok(address)
    }

    fn tcp(name: &str, port: u16, tls: Option<Tls>) -> Target {
        let name = name.to_owned();
        Target::Tcp {
            host: Host { name, port },
            tls,
        }
    }

    #[test]
    fn urls_are_parsed() {
        let address =
            parse("redis://me:p%40ss@host:1234/3?crash-grace=off&replicas=2").expect("good");
        assert_eq!(address.target, tcp("host", 1234, None));
        let password = address.password.as_ref().map(Password::as_str);
        assert_eq!(
            (address.user.as_deref(), password),
            (Some("me"), Some("p@ss"))
        );
        assert_eq!(
            (address.database, address.settings),
            (
                3,
                Settings {
                    crash_grace: None,
                    replicas: 2,
                    records: std::time::Duration::from_secs(40 * 24 * 60 * 60),
                    ..Settings::default()
                }
            )
        );
        assert_eq!(address.to_string(), "redis://host:1234/3");
    }

    #[test]
    fn socket_and_ipv6_urls_are_parsed() {
        let address = parse("redis+unix:///run/a%20b.sock?db=1").expect("good");
        assert_eq!(
            (address.target.clone(), address.database),
            (Target::Socket("/run/a b.sock".into()), 1)
        );
        assert_eq!(address.to_string(), "redis+unix:///run/a b.sock?db=1");
        let address = parse("rediss://[::1]").expect("good");
        assert_eq!(address.target, tcp("::1", PORT, Some(Tls::default())));
        assert_eq!(address.to_string(), "rediss://[::1]:6379");
    }

    /// A plus sign is not decoded to a space, as in the URLs of the other stores.
    #[test]
    fn plus_sign_in_a_path_is_kept() {
        let address = parse("rediss://h?ca=/etc/a+b.pem").expect("good");
        let tls = Tls {
            authority: Some("/etc/a+b.pem".into()),
            ..Tls::default()
        };
        assert_eq!(address.target, tcp("h", PORT, Some(tls)));
    }

    #[test]
    fn wrong_urls_are_refused_without_showing_the_password() {
        for url in [
            "redis://",
            "redis://:secret@/0",
            "redis://:secret@h/x",
            "redis://:secret@h?what=1",
            "redis://:secret@h?crash-grace=5x",
            "redis://:secret@h?crash-grace=1ms",
            "redis://:secret@h?ca=/x",
            "redis://:secret@h?server-name=x",
            "rediss://:secret@h?cert=/x",
            "redis://:secret@h?password-file=/nowhere",
            "redis://:secret@h:99999",
            "redis://:secret@h,g",
            "redis://:secret@h?dialect=plain",
            "redis://:secret@h?protocol=4",
            "redis://:secret@h/2?db=1",
            "redis+unix://",
            "redis+unix://run/redis.sock",
        ] {
            let error = parse(url).expect_err(url);
            assert!(
                error.is_invalid() && !format!("{error:?}").contains("secret"),
                "{url}: {error:?}"
            );
        }
    }
}
