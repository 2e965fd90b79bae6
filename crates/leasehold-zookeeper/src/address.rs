//! The address of a ZooKeeper ensemble, parsed from a URL.

use std::fmt;
use std::time::Duration;

use super::layout::Dialect;
use leasehold_core::internal::net::{Host, Login, Password, Tls};
use leasehold_core::internal::{Setting, StoreUrl, Transport, UrlForm, with_setting};
use leasehold_core::{Error, Result};

/// The servers of an ensemble, and how a client connects to them.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) servers: Vec<Host>,
    /// The node below which the locks are kept; empty for the root.
    pub(super) base: String,
    /// The node below which the records of jobs are kept.
    pub(super) record_folder: String,
    pub(super) credentials: Option<Login>,
    pub(super) tls: Option<Tls>,
    pub(super) settings: ZooKeeperSettings,
    /// The URL without user, password and settings.
    shown_url: String,
}

/// The settings of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ZooKeeperSettings {
    pub(super) session: Duration,
    pub(super) dialect: Dialect,
    /// Only clients with the same credentials may read and delete the nodes.
    pub(super) private: bool,
    /// How long a record of completed jobs is kept after its last use.
    pub(super) records: Duration,
}

pub(super) static FORM: UrlForm = UrlForm {
    store: "ZooKeeper",
    schemes: &[
        ("zookeeper", Transport::Tcp),
        ("zookeeper+tls", Transport::Tls),
    ],
    example: "zookeeper://host1:2181,host2:2181/folder",
    default_port: 2181,
    settings: &[
        &[
            SESSION,
            Setting::word("dialect", &["curator", "kazoo"])
                .of_format()
                .documented("kazoo", "uses kazoo's node names; the default is Curator's"),
            Setting::word("acl", &["creator", "open"]).documented(
                "creator",
                "only clients with the same user and password may use the nodes",
            ),
            Setting::RECORDS,
        ],
        Setting::PASSWORD,
        Setting::TLS,
    ],
    dialect: None,
};
/// With a shorter timeout, a short network delay looks like a crash.
pub(super) const SESSION: Setting = Setting::duration(
    "session",
    Duration::from_secs(1)..=Duration::from_secs(3600),
    Duration::from_secs(10),
)
.documented("10s", "see [`ZooKeeperBuilder::session`]");

impl Address {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let url = FORM.parse(text)?;
        let base = base(&url.path)?;
        let settings = ZooKeeperSettings::parse(&url);
        let mut shown_url = url.shown_with(folder(&base));
        if settings.dialect == Dialect::Kazoo {
            shown_url = with_setting(&shown_url, "dialect", "kazoo");
        }
        let address = Self {
            servers: url.servers()?.to_vec(),
            credentials: login(&url)?,
            tls: Tls::of_url(&url, "zookeeper+tls://")?,
            settings,
            shown_url,
            record_folder: format!("{base}/%records"),
            base,
        };

        if address.settings.private && address.credentials.is_none() {
            let error = Error::invalid("acl=creator requires a user, and the URL has none");
            return Err(error.help("write zookeeper://user:password@host"));
        }
        Ok(address)
    }

    /// Returns the node below which the locks are kept; `/` for the root.
    pub(super) fn folder(&self) -> &str {
        folder(&self.base)
    }

    /// Returns `user:password`, with the password that its file has now; `None` without a user.
    pub(super) async fn digest(&self) -> Result<Option<String>> {
        let Some(Login { user, password }) = &self.credentials else {
            return Ok(None);
        };
        let password = match password {
            Some(password) => Some(password.current(self).await?),
            None => None,
        };
        let user = user.as_deref().unwrap_or_default();
        let password = password.as_ref().map_or("", Password::as_str);
        Ok(Some(format!("{user}:{password}")))
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
        let servers: Vec<String> = self
            .servers
            .iter()
            .map(|server| format!("{protocol}{server}"))
            .collect();
        vec![servers.join(","); rounds].join(",")
    }
}

impl ZooKeeperSettings {
    fn parse(url: &StoreUrl) -> Self {
        Self {
            session: url.settings.duration(&SESSION),
            dialect: match url.settings.get("dialect") {
                Some("kazoo") => Dialect::Kazoo,
                _ => Dialect::Curator,
            },
            private: url.settings.get("acl") == Some("creator"),
            records: url.settings.duration(&Setting::RECORDS),
        }
    }
}

fn folder(base: &str) -> &str {
    if base.is_empty() { "/" } else { base }
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

/// Returns the user and the password, which are both given or both missing.
fn login(url: &StoreUrl) -> Result<Option<Login>> {
    let has_file = url.settings.get("password-file").is_some();
    match &url.credentials {
        None if has_file => Err(Error::invalid("password-file= requires a user")
            .help("write zookeeper://user@host?password-file=/path")),
        None => Ok(None),
        Some(credentials) if credentials.password.is_some() == has_file => Err(Error::invalid(
            "a ZooKeeper URL with a user needs exactly one password",
        )
        .help("write zookeeper://user:password@host, or give password-file=")),
        Some(_) => Login::of_url(url).map(Some),
    }
}

/// Formats the address as a URL without user, password and settings.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown_url)
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
    fn documentation_names_all_settings() {
        UrlForm::assert_documented(&[&FORM], include_str!("lib.rs"));
    }

    #[test]
    fn urls_are_parsed() {
        let address = Address::parse(
            "zookeeper://me:p%40s%3As@h1:1,h2,[::1]:3/a/b?session=4s&dialect=kazoo&acl=creator&records=2d",
        )
        .expect("good");
        let servers: Vec<String> = address.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["h1:1", "h2:2181", "[::1]:3"]);
        assert_eq!(address.base, "/a/b");
        let login = address.credentials.as_ref().expect("before the @");
        let password = login.password.as_ref().map(Password::as_str);
        assert_eq!(
            (login.user.as_deref(), password),
            (Some("me"), Some("p@s:s"))
        );
        let settings = ZooKeeperSettings {
            session: Duration::from_secs(4),
            dialect: Dialect::Kazoo,
            private: true,
            records: Duration::from_secs(2 * 24 * 3600),
        };
        assert_eq!(address.settings, settings);
        assert_eq!(
            address.to_string(),
            "zookeeper://h1:1,h2:2181,[::1]:3/a/b?dialect=kazoo"
        );
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
