//! The address of a ZooKeeper ensemble, parsed from a URL.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::super::url::{self, Credentials, Host, StoreUrl, UrlForm};
use super::layout::Dialect;
use crate::runtime::background;
use crate::{Error, Result};

/// The servers of an ensemble, and how a client connects to them.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) servers: Vec<Host>,
    /// The node below which the locks are kept; empty for the root.
    pub(super) base: String,
    pub(super) credentials: Option<Login>,
    pub(super) tls: Option<TlsFiles>,
    pub(super) settings: ZooKeeperSettings,
}

/// The user and the password of a client.
#[derive(Clone)]
pub(super) struct Login {
    user: String,
    password: String,
    /// The file with the password, if the password is not in the URL.
    password_file: Option<String>,
}

/// The files that TLS needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    /// The authority to trust; the authorities of the system if it is `None`.
    pub(super) authority: Option<PathBuf>,
    /// The client's own certificate, for servers that require one.
    pub(super) identity: Option<Identity>,
}

/// A certificate and its key, each a PEM file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// The settings of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ZooKeeperSettings {
    pub(super) session: Duration,
    pub(super) dialect: Dialect,
    /// Only clients with the same credentials may read and delete the nodes.
    pub(super) private: bool,
}

static FORM: UrlForm = UrlForm {
    store: "ZooKeeper",
    schemes: &["zookeeper", "zookeeper+tls"],
    example: "zookeeper://host1:2181,host2:2181/folder",
    default_port: 2181,
    settings: &[
        "session",
        "dialect",
        "acl",
        "password-file",
        "ca",
        "cert",
        "key",
    ],
};

impl Address {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let url = FORM.parse(text)?;
        let address = Self {
            servers: url.servers()?.to_vec(),
            base: base(&url.path)?,
            credentials: login(&url)?,
            tls: tls(&url)?,
            settings: ZooKeeperSettings::parse(&url.settings)?,
        };

        if address.settings.private && address.credentials.is_none() {
            let error = Error::invalid("acl=creator requires a user, and the URL has none");
            return Err(error.help("write zookeeper://user:password@host"));
        }
        Ok(address)
    }

    /// Returns the node below which the locks are kept; `/` for the root.
    pub(super) fn folder(&self) -> &str {
        if self.base.is_empty() {
            "/"
        } else {
            &self.base
        }
    }

    /// Returns the list of servers for the client library, with each server several times.
    ///
    /// The library doubles its pause after every pass through the list, without a maximum. After
    /// five passes through a single server it would pause for more than half of a session. Its
    /// pauses within one pass are short.
    pub(super) fn cluster(&self) -> String {
        let attempts = if self.settings.session <= LONG_SESSION {
            10
        } else {
            20
        };
        let rounds = usize::div_ceil(attempts, self.servers.len().max(1));

        let protocol = if self.tls.is_some() { "tcp+tls://" } else { "" };
        let servers = self.servers.iter();
        let servers: Vec<String> = servers
            .map(|server| format!("{protocol}{server}"))
            .collect();
        vec![servers.join(","); rounds].join(",")
    }
}

impl ZooKeeperSettings {
    fn parse(url: &url::Settings) -> Result<Self> {
        let mut settings = Self::default();
        for (name, value) in url.iter() {
            match name {
                "session" => settings.session = check_session(url::duration(value))?,
                "dialect" => settings.dialect = Dialect::parse(value)?,
                "acl" => settings.private = is_private(value)?,
                _ => {}
            }
        }
        Ok(settings)
    }
}

impl Default for ZooKeeperSettings {
    fn default() -> Self {
        Self {
            session: Duration::from_secs(10),
            dialect: Dialect::Curator,
            private: false,
        }
    }
}

/// Returns the node below which the locks are kept: `/leasehold` if the URL has no path.
fn base(path: &str) -> Result<String> {
    if path.is_empty() {
        return Ok(BASE.to_owned());
    }

    let path = path.trim_end_matches('/');
    let is_wrong = |part: &str| {
        part.is_empty() || part == "." || part == ".." || part.contains(char::is_control)
    };
    let is_reserved = path == "/zookeeper" || path.starts_with("/zookeeper/");

    if is_reserved || path.split('/').skip(1).any(is_wrong) {
        return Err(Error::invalid(format!(
            "locks cannot be kept at the ZooKeeper path {path:?}"
        )));
    }
    Ok(path.to_owned())
}

fn login(url: &StoreUrl) -> Result<Option<Login>> {
    let file = url.settings.get("password-file");
    let Some(Credentials { user, password }) = &url.credentials else {
        return match file {
            Some(_) => Err(Error::invalid("password-file= requires a user")
                .help("write zookeeper://user@host?password-file=/path")),
            None => Ok(None),
        };
    };

    let password = match (password, file) {
        (Some(password), None) => password.clone(),
        (None, Some(path)) => url::password_in(path)?,
        _ => {
            return Err(
                Error::invalid("a ZooKeeper URL with a user needs exactly one password")
                    .help("write zookeeper://user:password@host, or give password-file="),
            );
        }
    };
    Ok(Some(Login {
        user: user.clone(),
        password,
        password_file: file.map(str::to_owned),
    }))
}

impl Login {
    /// Returns `user:password`, with the password that its file has now.
    ///
    /// If the file cannot be read, the password is the one of the opening: a new file may be about
    /// to replace the old one.
    pub(super) async fn digest(&self) -> String {
        const STALE: &str =
            "the password file cannot be read; connecting with the password of the opening";
        let user = &self.user;
        let Some(path) = self.password_file.clone() else {
            return format!("{user}:{}", self.password);
        };

        let reading = background::handle().spawn_blocking(move || url::password_in(&path));
        let password = reading.await.map_err(|error| error.to_string());
        match password.and_then(|password| password.map_err(|error| error.to_string())) {
            Ok(password) => format!("{user}:{password}"),
            Err(error) => {
                tracing::warn!(%error, "{STALE}");
                format!("{user}:{}", self.password)
            }
        }
    }
}

fn tls(url: &StoreUrl) -> Result<Option<TlsFiles>> {
    if url.scheme == "zookeeper" {
        let setting = ["ca", "cert", "key"]
            .into_iter()
            .find(|setting| url.settings.get(setting).is_some());
        return match setting {
            Some(setting) => Err(Error::invalid(format!(
                "{setting}= requires zookeeper+tls://"
            ))),
            None => Ok(None),
        };
    }

    let path = |setting| url.settings.get(setting).map(PathBuf::from);
    let identity = match (path("cert"), path("key")) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
        _ => {
            return Err(Error::invalid("the URL has only one of cert= and key=")
                .help("give both, or neither"));
        }
    };
    let authority = path("ca");
    Ok(Some(TlsFiles {
        authority,
        identity,
    }))
}

fn is_private(value: &str) -> Result<bool> {
    match value {
        "creator" => Ok(true),
        "open" => Ok(false),
        _ => Err(Error::invalid("acl= must be creator or open")),
    }
}

/// Checks the timeout of a session: with a shorter one, a short network delay looks like a crash.
pub(super) fn check_session(timeout: Duration) -> Result<Duration> {
    if timeout >= Duration::from_secs(1) && timeout <= Duration::from_secs(3600) {
        return Ok(timeout);
    }
    Err(
        Error::invalid("the session timeout must be from 1 second to 1 hour")
            .help("write session=10s"),
    )
}

/// Formats the address as a URL without user, password and settings.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() {
            "zookeeper+tls"
        } else {
            "zookeeper"
        };
        let servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        write!(f, "{scheme}://{}{}", servers.join(","), self.folder())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

const BASE: &str = "/leasehold";

/// A longer session needs a longer list of servers.
const LONG_SESSION: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let address = Address::parse(
            "zookeeper://me:p%40s%3As@h1:1,h2,[::1]:3/a/b?session=4s&dialect=kazoo&acl=creator",
        );
        let address = address.expect("good");
        let servers: Vec<String> = address.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["h1:1", "h2:2181", "[::1]:3"]);
        assert_eq!(address.base, "/a/b");
        let login = address.credentials.as_ref().expect("before the @");
        assert_eq!(
            (login.user.as_str(), login.password.as_str()),
            ("me", "p@s:s")
        );
        let settings = ZooKeeperSettings {
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
