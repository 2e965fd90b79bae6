//! The address of a PostgreSQL database, parsed from a URL.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::internal::net::{Host, Login, Password, Target, Tls};
use leasehold_core::internal::{Setting, StoreUrl, Transport, UrlForm, with_setting};
use leasehold_core::{Error, Result};

use super::password_file;

/// A database, and how a client connects to it.
#[derive(Clone)]
pub(super) struct Address {
    /// Where the server is; one of them can be written.
    pub(super) targets: Vec<Target>,
    /// The server behind a pooler, for the connection that proves the client.
    pub(super) direct: Option<Target>,
    pub(super) database: String,
    pub(super) user: String,
    pub(super) password: Option<Password>,
    pub(super) schema: String,
    pub(super) settings: PostgresSettings,
    /// The URL without user, password and settings.
    shown_url: String,
}

/// The settings of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PostgresSettings {
    /// How long a client trusts a session that is gone; `None` without crash detection.
    pub(super) crash_grace: Option<Duration>,
    pub(super) pin_limit: PinLimit,
    /// How long a record is kept after its last use.
    pub(super) records: Duration,
}

/// For how long a waiter lets a transaction pin a grant whose hold is over, before it ends the
/// session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PinLimit {
    /// For the lease of the waiter.
    Lease,
    After(Duration),
    Never,
}

pub(super) static FORM: UrlForm = UrlForm {
    store: "PostgreSQL",
    schemes: &[("postgres", Transport::Tcp), ("postgresql", Transport::Tcp)],
    example: "postgres://user@host/database",
    default_port: PORT,
    settings: &[
        &[
            Setting::text("sslmode").documented(
                "disable",
                "allows a connection to another machine without encryption; or `verify-full`",
            ),
            CRASH_GRACE,
            PIN_LIMIT,
            Setting::RECORDS,
            Setting::text("schema").documented("leasehold", "the schema of the functions"),
            Setting::file("host").documented("/path", "the folder of the server's socket"),
            Setting::text("direct").documented("host:port", "the server itself behind a pooler"),
        ],
        Setting::PASSWORD,
        // `sslmode` decides whether they apply, and not the scheme.
        &[
            Setting::file("ca"),
            Setting::file("cert"),
            Setting::file("key"),
        ],
    ],
    dialect: None,
};
const CRASH_GRACE: Setting = Setting::duration(
    "crash-grace",
    Duration::from_millis(500)..=Duration::from_secs(3600),
    Duration::from_secs(10),
)
.or_off()
.documented(
    "10s",
    "how long the client trusts a connection that is gone; `off` turns crash detection off",
);
/// Its default is that of leases: without the setting, the lease of the waiter is the limit.
const PIN_LIMIT: Setting = Setting::duration(
    "pin-limit",
    Duration::from_millis(100)..=Duration::from_secs(86_400),
    Duration::from_secs(30),
)
.or_off()
.documented(
    "30s",
    "for how long a waiter lets a transaction [pin](leasehold_core::Guard::check_binds) a grant \
     that is over, before it ends its session; `off`: for ever; by default for the waiter's lease",
);

impl Address {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let url = FORM.parse(text)?;
        let database = url.path.trim_start_matches('/').to_owned();
        if database.is_empty() || database.contains('/') {
            return Err(Error::invalid("a PostgreSQL URL names one database")
                .help("write postgres://user@host/database"));
        }

        let login = Login::of_url(&url)?;
        let user = user(login.user)?;
        let schema = schema(url.settings.get("schema"))?;
        let mut shown_url = url.shown_with(&url.path);
        if let Some(folder) = url.settings.get("host").filter(|it| *it != SOCKET_FOLDER) {
            shown_url = with_setting(&shown_url, "host", folder);
        }
        if schema != SCHEMA {
            shown_url = with_setting(&shown_url, "schema", &schema);
        }
        Ok(Self {
            password: login.password.or_else(|| password(&url, &database, &user)),
            user,
            targets: targets(&url)?,
            direct: direct(&url)?,
            schema,
            settings: PostgresSettings {
                crash_grace: url.settings.duration_unless_off(&CRASH_GRACE),
                pin_limit: pin_limit(&url),
                records: url.settings.duration(&Setting::RECORDS),
            },
            shown_url,
            database,
        })
    }

    /// Whether a connection leaves this machine without TLS.
    pub(super) fn is_exposed(&self) -> bool {
        self.targets
            .iter()
            .chain(&self.direct)
            .any(Target::is_exposed)
    }
}

/// Returns where the server is. A URL without a host means its socket on this machine.
fn targets(url: &StoreUrl) -> Result<Vec<Target>> {
    let folder = url.settings.get("host");
    if url.hosts.is_empty() {
        let path = socket(folder.unwrap_or(SOCKET_FOLDER), PORT);
        return Ok(vec![Target::Socket(path)]);
    }
    if folder.is_some() {
        return Err(Error::invalid("the URL has a host and host=")
            .help("for a socket, write postgres:///database?host=/var/run/postgresql"));
    }
    let targets = url.hosts.iter().map(|host| target(url, host.clone()));
    targets.collect()
}

fn target(url: &StoreUrl, host: Host) -> Result<Target> {
    let tls = encryption(url, &host)?;
    Ok(Target::Tcp { host, tls })
}

/// Returns the server behind the pooler that the URL names.
fn direct(url: &StoreUrl) -> Result<Option<Target>> {
    let Some(text) = url.settings.get("direct") else {
        return Ok(None);
    };
    if url.hosts.len() != 1 {
        return Err(Error::invalid("direct= names the server behind one pooler")
            .help("write one host, that of the pooler"));
    }
    target(url, url.form.host(text)?).map(Some)
}

/// Returns the path of the server's socket in a folder.
fn socket(folder: &str, port: u16) -> PathBuf {
    format!("{folder}/.s.PGSQL.{port}").into()
}

/// Only a connection that cannot leave the machine is without encryption by default.
fn encryption(url: &StoreUrl, host: &Host) -> Result<Option<Tls>> {
    let is_encrypted = match url.settings.get("sslmode") {
        Some("disable") => false,
        Some("verify-full") => true,
        None => !host.is_loopback(),
        Some(mode) => {
            let error = Error::invalid(format!(
                "sslmode={mode} may send the password to a server that is not verified"
            ));
            return Err(error.help(
                "write sslmode=verify-full, or sslmode=disable in a network that is trusted",
            ));
        }
    };
    if !is_encrypted {
        let names = ["ca", "cert", "key"];
        let stated = names
            .into_iter()
            .find(|name| url.settings.get(name).is_some());
        return match stated {
            Some(name) => Err(Error::invalid(format!(
                "{name}= requires sslmode=verify-full"
            ))),
            None => Ok(None),
        };
    }
    let url = StoreUrl {
        transport: Transport::Tls,
        ..url.clone()
    };
    Tls::of_url(&url, "sslmode=verify-full")
}

fn pin_limit(url: &StoreUrl) -> PinLimit {
    if url.settings.get(PIN_LIMIT.name).is_none() {
        return PinLimit::Lease;
    }
    let stated = url.settings.duration_unless_off(&PIN_LIMIT);
    stated.map_or(PinLimit::Never, PinLimit::After)
}

/// Of the variables of libpq only those count that cannot name another lock.
fn user(given: Option<String>) -> Result<String> {
    let named = ["PGUSER", "USER", "LOGNAME"]
        .into_iter()
        .find_map(|variable| std::env::var(variable).ok());
    given.or(named).ok_or_else(|| {
        Error::invalid("the URL names no user")
            .help("write postgres://user@host/database, or set PGUSER")
    })
}

fn password(url: &StoreUrl, database: &str, user: &str) -> Option<Password> {
    if let Ok(text) = std::env::var("PGPASSWORD") {
        return Some(Password::new(text));
    }
    // Of several servers each would have a line of its own, with the same password.
    let host = url.hosts.first();
    let name = host.map_or("localhost", |host| &host.name);
    let port = host.map_or(PORT, |host| host.port).to_string();
    let place = [name, &port, database, user].map(str::to_owned);
    password_file::password(place)
}

/// The name becomes a part of statements and channels, so it is a plain word.
fn schema(name: Option<&str>) -> Result<String> {
    let name = name.unwrap_or(SCHEMA);
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if !starts_well || !name.chars().all(is_plain) || name.len() > SCHEMA_LEN_MAX {
        return Err(Error::invalid(format!(
            "schema= must be a word of a-z, 0-9 and _, of at most {SCHEMA_LEN_MAX} characters"
        )));
    }
    if name.starts_with("pg_") || RESERVED.split_whitespace().any(|word| word == name) {
        let message = format!("schema={name} is a name that PostgreSQL keeps for itself");
        return Err(Error::invalid(message).help(format!("write schema={SCHEMA}_{name}")));
    }
    Ok(name.to_owned())
}

/// Formats the address as a URL with the settings that select locks, and without user and password.
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

const PORT: u16 = 5432;
/// Where Debian and most packages put the server's socket.
const SOCKET_FOLDER: &str = "/var/run/postgresql";
const SCHEMA: &str = "leasehold";
/// PostgreSQL truncates a name to 63 bytes, and the private schema has a longer one.
const SCHEMA_LEN_MAX: usize = 40;
/// What `pg_get_keywords()` has as reserved in PostgreSQL 18, also if only as a type or a function.
const RESERVED: &str = "all analyse analyze and any array as asc asymmetric authorization binary \
    both case cast check collate collation column concurrently constraint create cross \
    current_catalog current_date current_role current_schema current_time current_timestamp \
    current_user default deferrable desc distinct do else end except false fetch for foreign \
    freeze from full grant group having ilike in initially inner intersect into is isnull join \
    lateral leading left like limit localtime localtimestamp natural not notnull null offset on \
    only or order outer overlaps placing primary references returning right select session_user \
    similar some symmetric system_user table tablesample then to trailing true union unique user \
    using variadic verbose when where window with";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_names_all_settings() {
        UrlForm::assert_documented(&[&FORM], include_str!("lib.rs"));
    }

    #[test]
    fn only_what_stays_on_this_machine_is_unencrypted_by_default() {
        for (rest, is_encrypted) in [
            ("db/d", true),
            ("192.0.2.1/d", true),
            ("[2001:db8::1]/d", true),
            ("db/d?sslmode=disable", false),
            ("localhost/d", false),
            ("127.0.0.2/d", false),
            ("[::1]/d", false),
            ("localhost/d?sslmode=verify-full", true),
            ("/d", false),
            ("/d?host=/srv", false),
        ] {
            let address = Address::parse(&format!("postgres://me@{rest}")).expect(rest);
            let has_tls = matches!(address.targets[..], [Target::Tcp { tls: Some(_), .. }]);
            assert_eq!(has_tls, is_encrypted, "{rest}");
        }
        let direct = Address::parse("postgres://me@localhost/d?direct=db").expect("a URL");
        let is_encrypted = matches!(direct.direct, Some(Target::Tcp { tls: Some(_), .. }));
        assert!(is_encrypted, "a server behind a pooler");
    }

    #[test]
    fn shown_url_names_what_selects_locks() {
        for (rest, shown) in [
            ("h/d?schema=leasehold&sslmode=disable", "h:5432/d"),
            ("h/d?schema=two&sslmode=disable", "h:5432/d?schema=two"),
            ("/d?host=/var/run/postgresql", "/d"),
            (
                "/d?host=/srv/a%20b&schema=two",
                "/d?host=/srv/a%20b&schema=two",
            ),
        ] {
            let address = Address::parse(&format!("postgres://me:secret@{rest}")).expect(rest);
            assert_eq!(address.to_string(), format!("postgres://{shown}"));
        }
    }
}
