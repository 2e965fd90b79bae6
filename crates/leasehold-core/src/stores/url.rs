//! The parser of store URLs: `scheme://user:password@host:port,host:port/path?setting=value`.
//!
//! Errors never repeat the part of a URL that may hold a password.

mod settings;

use std::net::Ipv6Addr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::net::host::Host;
use crate::stray_character::{self, described, is_blank};
use crate::{Error, Result};

pub use settings::Setting;
pub(crate) use settings::Settings;

/// The URLs that one store accepts.
#[derive(Debug)]
pub struct UrlForm {
    /// The store's name in error messages.
    pub store: &'static str,
    pub schemes: &'static [(&'static str, Transport)],
    /// A URL that error messages suggest.
    pub example: &'static str,
    pub default_port: u16,
    /// An error lists them in this order.
    pub settings: &'static [settings::Group],
    /// The dialect that a URL must name, if it must name one.
    pub dialect: Option<&'static str>,
}

/// How a client connects to the servers of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Tls,
    /// A Unix socket.
    Socket,
    /// None: the store is on this machine.
    Local,
}

/// A URL in its parts, decoded.
#[derive(Clone)]
pub struct StoreUrl {
    pub form: &'static UrlForm,
    pub scheme: &'static str,
    pub transport: Transport,
    pub credentials: Option<Credentials>,
    /// Empty for a URL such as `redis+unix:///path`.
    pub hosts: Vec<Host>,
    /// Starts with `/`, or is empty.
    pub path: String,
    pub settings: Settings,
}

/// The user and the password that precede `@`.
#[derive(Clone)]
pub struct Credentials {
    pub user: String,
    pub password: Option<String>,
}

impl UrlForm {
    pub fn parse(&'static self, text: &str) -> Result<StoreUrl> {
        check_blanks(text)?;
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| self.invalid("the URL has no ://"))?;
        let (scheme, transport) = self.scheme(scheme)?;
        let (location, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = location.split_at(location.find('/').unwrap_or(location.len()));
        self.check_end_of_password(rest, path, settings)?;

        let (user, hosts) = authority
            .rsplit_once('@')
            .map_or((None, authority), |(user, hosts)| (Some(user), hosts));
        let settings = Settings::parse(settings, self)?;
        self.check_dialect(&settings)?;
        Ok(StoreUrl {
            form: self,
            scheme,
            transport,
            credentials: user.map(Credentials::parse).transpose()?,
            hosts: self.hosts(hosts)?,
            path: decoded(path)?,
            settings,
        })
    }

    pub(crate) fn has_scheme(&self, scheme: &str) -> bool {
        self.schemes.iter().any(|(known, _)| *known == scheme)
    }

    fn check_dialect(&self, settings: &Settings) -> Result<()> {
        match self.dialect {
            Some(dialect) if settings.get("dialect") != Some(dialect) => {
                Err(self.invalid(format!("the URL does not name the dialect {dialect}")))
            }
            _ => Ok(()),
        }
    }

    fn scheme(&self, scheme: &str) -> Result<(&'static str, Transport)> {
        let known = self.schemes.iter().find(|(known, _)| *known == scheme);
        let store = self.store;
        known
            .copied()
            .ok_or_else(|| self.invalid(format!("the scheme is not one of a {store} URL")))
    }

    fn hosts(&self, text: &str) -> Result<Vec<Host>> {
        if text.is_empty() {
            return Ok(Vec::new());
        }
        text.split(',').map(|host| self.host(host)).collect()
    }

    /// Parses `host`, `host:port` or `[address]:port`.
    pub fn host(&self, text: &str) -> Result<Host> {
        let wrong = || self.invalid("the URL has an invalid host or port");
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port),
            _ => (text, ""),
        };
        let port = match port {
            "" => self.default_port,
            port => port.parse().map_err(|_| wrong())?,
        };

        let name = host_name(name).ok_or_else(wrong)?;
        if port == 0 {
            return Err(wrong());
        }
        Ok(Host { name, port })
    }

    /// Rejects a URL whose password contains an unencoded `/`, `?` or `#`, or follows `:///`.
    ///
    /// Such a character ends the authority too early. The rest of the password would then be parsed
    /// as a path or a setting, and shown. The name of a setting has no encoded bytes.
    fn check_end_of_password(&self, rest: &str, path: &str, settings: &str) -> Result<()> {
        let is_late = |setting: &str| {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            name.contains(['@', '%']) || value.contains('@') && !self.is_path(name)
        };
        if rest.contains('#') || path.contains('@') || settings.split('&').any(is_late) {
            return Err(Error::invalid("the URL has a misplaced # or @").help(
                "write %2F, %3F, %40 and %23 for /, ?, @ and # in the user name and password, \
                     and %40 for @ in a path",
            ));
        }
        Ok(())
    }

    fn invalid(&self, what: impl Into<String>) -> Error {
        Error::invalid(what).help(format!("write {}", self.example))
    }
}

impl StoreUrl {
    /// Returns the hosts.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the URL has none.
    pub fn servers(&self) -> Result<&[Host]> {
        if self.hosts.is_empty() {
            return Err(self.form.invalid("the URL names no host"));
        }
        Ok(&self.hosts)
    }

    /// Returns the URL with this path, and without user, password and settings.
    pub fn shown_with(&self, path: &str) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        format!("{}://{}{path}", self.scheme, hosts.join(","))
    }
}

/// What a value of a shown setting keeps as it is.
const SHOWN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.');

/// Adds a setting to a shown URL, which identifies its store: one that selects other locks on the
/// same server.
#[must_use]
pub fn with_setting(shown_url: &str, name: &str, value: &str) -> String {
    let joint = if shown_url.contains('?') { '&' } else { '?' };
    let value = utf8_percent_encode(value, SHOWN);
    format!("{shown_url}{joint}{name}={value}")
}

impl Credentials {
    fn parse(text: &str) -> Result<Self> {
        let (user, password) = text
            .split_once(':')
            .map_or((text, None), |(user, password)| (user, Some(password)));
        Ok(Self {
            user: decoded(user)?,
            password: password.map(decoded).transpose()?,
        })
    }
}

/// Refuses white space at the ends of a URL, a control character in it, and a comment behind it.
///
/// White space inside is not refused, because the path of a folder may contain it.
pub fn check_characters(url: &str) -> Result<()> {
    stray_character::check("the URL", url)?;
    let mut pairs = url.chars().zip(url.chars().skip(1));
    if pairs.any(|(before, behind)| is_blank(before) && behind == '#') {
        let error = Error::invalid("the URL has a comment behind it");
        return Err(error.help("write the comment on a line of its own"));
    }
    Ok(())
}

/// Refuses all white space in a URL whose parts can be percent-encoded.
fn check_blanks(url: &str) -> Result<()> {
    check_characters(url)?;
    url.chars().find(|&c| is_blank(c)).map_or(Ok(()), |blank| {
        let error = Error::invalid(format!("the URL has {} in it", described(blank)));
        Err(error.help("remove it, or write %20 for a space that belongs there"))
    })
}

/// Checks the name of a host and removes the brackets of an IPv6 address.
fn host_name(text: &str) -> Option<String> {
    if let Some(text) = text.strip_prefix('[') {
        let address: Ipv6Addr = text.strip_suffix(']')?.parse().ok()?;
        return Some(address.to_string());
    }
    let is_allowed = |c: u8| c.is_ascii_alphanumeric() || b".-_".contains(&c);
    (!text.is_empty() && text.bytes().all(is_allowed)).then(|| text.to_owned())
}

/// Whether a text is a host, with or without a port.
pub fn is_host(text: &str) -> bool {
    let is_number = |port: &str| port.bytes().all(|digit| digit.is_ascii_digit());
    let name = match text.rsplit_once(':') {
        Some((name, port)) if is_number(port) => name,
        _ => text,
    };

    let address = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    match address {
        Some(address) => address
            .bytes()
            .all(|c| c.is_ascii_hexdigit() || b":.".contains(&c)),
        None => name
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b".-_".contains(&c)),
    }
}

fn decoded(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded
        .map_err(|_| Error::invalid("the URL has percent-encoded bytes that are not UTF-8"))?;
    if decoded.contains('\0') {
        return Err(Error::invalid(
            "the URL has %00 in it, which no server or file accepts",
        ));
    }
    Ok(decoded.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    static FORM: UrlForm = UrlForm {
        store: "test",
        schemes: &[("test", Transport::Tcp), ("test+tls", Transport::Tls)],
        example: "test://host",
        default_port: 7,
        settings: &[Setting::TLS, &[Setting::text("session")]],
        dialect: None,
    };

    #[test]
    fn url_is_split_into_decoded_parts() {
        let text = "test+tls://me:p%40s%3As@h1:1,h2,[0::1]:3/a%20b?ca=/x@y&session=%32";
        let url = FORM.parse(text).expect("good");
        assert_eq!(url.transport, Transport::Tls);
        let credentials = url.credentials.expect("before the @");
        assert_eq!(credentials.user, "me");
        assert_eq!(credentials.password.as_deref(), Some("p@s:s"));
        let hosts: Vec<String> = url.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["h1:1", "h2:7", "[::1]:3"]);
        assert_eq!(url.path, "/a b");
        assert_eq!(url.settings.get("session"), Some("2"));
        assert_eq!(url.settings.get("ca"), Some("/x@y"));
    }

    #[test]
    fn url_without_authority_has_no_host() {
        let url = FORM.parse("test:///run/a%40b.sock").expect("good");
        assert_eq!(url.path, "/run/a@b.sock");
        assert!(url.credentials.is_none() && url.servers().is_err());
    }

    #[test]
    fn wrong_url_is_refused_without_showing_the_password() {
        for text in [
            "test:h",
            "other://h",
            "test://:secret",
            "test://me:secret@h:x",
            "test://me:secret@h:0",
            "test://me:secret@h:99999",
            "test://me:secret@h,,g",
            "test://me:secret@[::x]",
            "test://me:secret@a b",
            "test://me:12/secret@h",
            "test://me:12?secret@h",
            "test://me:12?session=secret@h",
            "test://me:12#secret@h",
            "test://me:12?secret%40h",
            "test:///me:secret@/run/a.sock",
            "test:secret://h",
            "test://me:secret@h?what=secret",
            "test://me:secret@h?session=%ff",
            "test://me%00:secret@h",
            "test://me:secret@h?session=1s&session=2s",
        ] {
            let error = FORM.parse(text).err().expect(text);
            assert!(error.is_invalid(), "{text}: {error:?}");
            assert!(
                !format!("{error:?}").contains("secret"),
                "{text}: {error:?}"
            );
        }
    }

    /// Shows G-35.
    #[test]
    fn white_space_is_refused_by_name_unless_it_is_encoded() {
        for (text, part) in [
            ("test://h\n", "a line feed (U+000A) at its end; remove it"),
            (" test://h", "a space (U+0020) at its beginning"),
            (
                "test://h/a b",
                "a space (U+0020) in it; remove it, or write %20",
            ),
            ("test://me:se cret@h", "a space (U+0020) in it"),
            ("test://h/a\tb", "a tab (U+0009)"),
            ("test://h/a\u{3000}b", "an invisible character (U+3000)"),
            ("test://h # of all machines", "a comment behind it"),
        ] {
            let error = FORM.parse(text).err().expect(text);
            let shown = format!("{error:?}");
            assert!(error.is_invalid() && shown.contains(part), "{shown}");
            assert!(!shown.contains("cret"), "{shown}");
        }

        let url = FORM.parse("test://me:a%20b@h/a%20b%20").expect("encoded");
        assert_eq!(url.path, "/a b ");
        assert_eq!(
            url.credentials.expect("given").password.as_deref(),
            Some("a b")
        );
    }

    #[test]
    fn unknown_setting_is_refused_with_the_list_of_settings() {
        let error = FORM.parse("test://h?what=1").err().expect("unknown");
        let text = error.to_string();
        assert!(text.contains("\"what\" is not a setting of a test URL"));
        assert!(text.contains("ca, cert, key, session"), "{text}");
    }
}
