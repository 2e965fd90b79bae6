//! The address of a Redis server, from its URL.

mod address_map;
mod settings;
mod tls_settings;

use std::fmt;
use std::path::PathBuf;

use crate::runtime::background;
use crate::stores::url::{Host, StoreUrl, UrlForm, is_loopback, password_in};
use crate::{Error, Result};

pub(in crate::stores) use address_map::AddressMap;
pub(in crate::stores) use settings::{Settings, check_grace, longest_lease};
pub(in crate::stores) use tls_settings::{Tls, absolute_path};

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

pub(in crate::stores) const PORT: u16 = 6379;

static FORM: UrlForm = UrlForm {
    store: "Redis",
    schemes: &["redis", "rediss", "redis+unix"],
    example: "redis://host:6379",
    default_port: PORT,
    settings: &[
        "crash-grace",
        "replicas",
        "db",
        "protocol",
        "password-file",
        "ca",
        "cert",
        "key",
        "server-name",
    ],
};

impl Address {
    /// Parses the URL of a server with the settings of the store `redis`.
    pub(in crate::stores) fn parse(text: &str) -> Result<Self> {
        let url = FORM.parse(text)?;
        let mut address = Self::of_server(&url)?;
        address.settings = Settings::parse(&url)?;
        Ok(address)
    }

    /// Returns the only server of a URL with the scheme `redis`, `rediss` or `redis+unix`.
    pub(in crate::stores) fn of_server(url: &StoreUrl) -> Result<Self> {
        if url.scheme == "redis+unix" {
            return Self::of_target(url, socket(url)?, 0);
        }
        match url.servers()? {
            [host] => Self::of_target(url, tcp(host, url.scheme == "rediss"), path_database(url)?),
            _ => Err(Error::invalid("a redis:// URL must name exactly one host")
                .help("write redlock:// for several independent servers")),
        }
    }

    /// Returns the servers of a URL, in its order.
    pub(in crate::stores) fn of_hosts(url: &StoreUrl, is_tls: bool) -> Result<Vec<Self>> {
        let database = path_database(url)?;
        let hosts = url.servers()?.iter();
        hosts
            .map(|host| Self::of_target(url, tcp(host, is_tls), database))
            .collect()
    }

    pub(super) fn of_target(url: &StoreUrl, target: Target, database: i64) -> Result<Self> {
        let credentials = url.credentials.as_ref();
        let user = credentials.map(|found| found.user.clone());
        let password = credentials.and_then(|found| found.password.clone());
        let is_given = |text: &String| !text.is_empty();
        let mut address = Self {
            target,
            database,
            user: user.filter(is_given),
            password: password.filter(is_given),
            password_file: None,
            old_protocol: false,
            settings: Settings::default(),
        };

        for (name, value) in url.settings.iter() {
            address.set(name, value)?;
        }
        address.check_tls()?;
        Ok(address)
    }

    /// Returns whether others may read the connection: it leaves this machine without TLS.
    pub(in crate::stores) fn is_exposed(&self) -> bool {
        match &self.target {
            Target::Tcp { host, tls, .. } => tls.is_none() && !is_loopback(host),
            Target::Socket(_) => false,
        }
    }

    /// Returns the address with the password that its file has now.
    ///
    /// If the file cannot be read, the password stays as it was when the store was opened: a new
    /// file may be about to replace the old one.
    pub(in crate::stores) async fn with_current_password(&self) -> Self {
        let mut address = self.clone();
        let Some(path) = address.password_file.clone() else {
            return address;
        };

        let reading = background::handle().spawn_blocking(move || password_in(&path));
        let password = reading.await.map_err(|error| error.to_string());
        match password.and_then(|password| password.map_err(|error| error.to_string())) {
            Ok(password) => address.password = Some(password),
            Err(error) => tracing::warn!(
                server = %self,
                %error,
                "the password file cannot be read; connecting with the earlier password"
            ),
        }
        address
    }

    /// Replaces the host of a TCP address.
    pub(super) fn set_host(&mut self, to: Host) {
        if let Target::Tcp { host, port, .. } = &mut self.target {
            *host = to.name;
            *port = to.port;
        }
    }

    pub(in crate::stores) fn is_encrypted(&self) -> bool {
        matches!(self.target, Target::Tcp { tls: Some(_), .. })
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "db" => self.database = database(value)?,
            "protocol" => self.old_protocol = number(name, value)? == 2,
            "password-file" => {
                self.password = Some(password_in(value)?);
                self.password_file = Some(absolute_path(value));
            }
            name if Tls::SETTINGS.contains(&name) => self.tls(name)?.set(name, value),
            // The other settings are those of the store.
            _ => {}
        }
        Ok(())
    }

    fn tls(&mut self, setting: &str) -> Result<&mut Tls> {
        match &mut self.target {
            Target::Tcp { tls: Some(tls), .. } => Ok(tls),
            _ => Err(Error::invalid(format!(
                "{setting}= requires a scheme with TLS, such as rediss:// or redlocks://"
            ))),
        }
    }

    fn check_tls(&self) -> Result<()> {
        match &self.target {
            Target::Tcp { tls: Some(tls), .. } => tls.check(),
            _ => Ok(()),
        }
    }
}

pub(super) fn tcp(host: &Host, is_tls: bool) -> Target {
    Target::Tcp {
        host: host.name.clone(),
        port: host.port,
        tls: is_tls.then(Tls::default),
    }
}

fn socket(url: &StoreUrl) -> Result<Target> {
    if !url.hosts.is_empty() || url.path.len() < 2 {
        return Err(Error::invalid("the URL names no socket")
            .help("write redis+unix:///run/redis/redis.sock"));
    }
    Ok(Target::Socket(url.path.clone().into()))
}

/// Returns whether a setting is `on` or `off`.
pub(in crate::stores) fn switch(url: &StoreUrl, name: &str) -> Result<Option<bool>> {
    match url.settings.get(name) {
        None => Ok(None),
        Some("on") => Ok(Some(true)),
        Some("off") => Ok(Some(false)),
        Some(_) => Err(Error::invalid(format!("{name}= must be on or off"))),
    }
}

/// Returns the database that the path of a URL names.
fn path_database(url: &StoreUrl) -> Result<i64> {
    database(url.path.trim_matches('/'))
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
                    return Ok(());
                }
                write!(f, "/{}", self.database)
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
                    replicas: 2,
                    ..Settings::default()
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

    /// A plus sign is not decoded to a space, as in the URLs of the other stores.
    #[test]
    fn plus_sign_in_a_path_is_kept() {
        let address = Address::parse("rediss://h?ca=/etc/a+b.pem").expect("good");
        let authority = Some("/etc/a+b.pem".into());
        let target = Target::Tcp {
            host: "h".into(),
            port: PORT,
            tls: Some(Tls {
                authority,
                ..Tls::default()
            }),
        };
        assert_eq!(address.target, target);
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
            "redis://:secret@h?server-name=x",
            "rediss://:secret@h?cert=/x",
            "redis://:secret@h?password-file=/nowhere",
            "redis://:secret@h:99999",
            "redis://:secret@h,g",
            "redis://:secret@h?dialect=plain",
            "redis+unix://",
            "redis+unix://run/redis.sock",
        ] {
            let error = Address::parse(url).expect_err(url);
            assert!(
                error.is_invalid() && !format!("{error:?}").contains("secret"),
                "{url}: {error:?}"
            );
        }
    }
}
