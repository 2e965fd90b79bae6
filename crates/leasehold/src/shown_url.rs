//! The part that errors show of a text that was given as the URL of a store.
//!
//! The text may be anything: a URL whose scheme is missing, or whose password has a character that
//! ends it too early. So an error shows only what cannot be a part of a user name or a password.

use leasehold_core::internal::is_host;

use crate::schemes::{Entry, SERVICES, alias, folder_of};

/// Replaces the text that is not shown.
const HIDDEN: &str = "…";
/// Replaces a user name and a password.
const HIDDEN_USER: &str = "…@";

/// Returns a text without user, password, settings and control characters, and without what may be
/// a part of them.
#[must_use]
pub fn redacted(text: &str) -> String {
    let Some(scheme) = scheme(text) else {
        let is_path = bare_path(text).is_some() && !may_have_user(text);
        let is_shown = is_path || is_host_and_port(text);
        let shown = if is_shown { location(text) } else { HIDDEN };
        return shown.replace(char::is_control, HIDDEN);
    };

    let rest = &text[scheme.len() + 1..];
    let is_local = Entry::of_scheme(scheme).is_some_and(Entry::is_local);
    let shown = if !is_local {
        servers(rest)
    } else if names_user(scheme, rest) {
        HIDDEN.to_owned()
    } else {
        location(rest).to_owned()
    };
    format!("{scheme}:{shown}").replace(char::is_control, HIDDEN)
}

/// Returns the scheme of a URL; `None` if it may be something else, such as a user name.
pub(crate) fn scheme(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once(':')?;
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    let is_word = scheme.chars().all(is_letter) && rest.starts_with("//");

    (is_known(scheme) || is_word && !may_have_user(text)).then_some(scheme)
}

/// Whether this word is the scheme of a store, of another program or of another service.
fn is_known(scheme: &str) -> bool {
    let meant = scheme.to_ascii_lowercase();
    let is_service = SERVICES.iter().any(|(word, _)| *word == meant);
    is_service || Entry::of_scheme(&meant).is_some() || alias(&meant).is_some()
}

/// Returns the path to write if the text is one, and not a URL.
pub(crate) fn bare_path(text: &str) -> Option<&str> {
    let begins = |prefix| text.starts_with(prefix);
    (begins("/") || begins("./") || begins("../") || begins("~/")).then(|| match text {
        absolute if absolute.starts_with('/') && !may_have_user(absolute) => absolute,
        _ => "/some/folder",
    })
}

pub(crate) fn is_host_and_port(text: &str) -> bool {
    let Some((name, port)) = text.split_once(':') else {
        return false;
    };
    let is_name = name == "localhost" || name.contains('.') && is_host(name);
    is_name && port.parse::<u16>().is_ok()
}

/// Whether what follows the scheme of a store without a server may have a user.
///
/// The path of a folder may contain `@`.
pub(crate) fn names_user(scheme: &str, rest: &str) -> bool {
    let path = location(rest);
    let settings = &rest[path.len()..];
    let is_folder = folder_of(&format!("{scheme}:{rest}")).is_some();

    may_have_user(settings) || !is_folder && may_have_user(path)
}

/// Returns what follows the scheme of a server, without user and password.
fn servers(rest: &str) -> String {
    let Some(location_and_settings) = rest.strip_prefix("//") else {
        return HIDDEN.to_owned();
    };
    let location = location(location_and_settings);
    let settings = &location_and_settings[location.len()..];
    let (authority, path) = location.split_at(location.find('/').unwrap_or(location.len()));
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((_, hosts)) => (HIDDEN_USER, hosts),
        None => ("", authority),
    };

    // A `/`, `?` or `#` in a password ends the authority too early, unless it is encoded.
    let is_cut = may_have_user(path) || may_have_user(settings);
    if is_cut || !hosts.split(',').all(is_host) {
        return format!("//{HIDDEN}");
    }
    format!("//{user}{hosts}{path}")
}

/// Returns a text without its settings.
fn location(text: &str) -> &str {
    text.split(['?', '#']).next().unwrap_or_default()
}

/// Whether a text has a character that ends a user name and a password, encoded or not.
fn may_have_user(text: &str) -> bool {
    text.contains('@') || text.contains("%40")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_shown_without_its_user() {
        for (text, shown) in [
            ("redis://me:secret@host/1", "redis://…@host/1"),
            ("redis://[::1]:1/2?db=x", "redis://[::1]:1/2"),
            ("redis+unix:///run/a.sock", "redis+unix:///run/a.sock"),
            ("redlock://me:secret@a,b:1,c", "redlock://…@a,b:1,c"),
            ("etcd://me:secret@host", "etcd://…@host"),
            ("ftp://host/path", "ftp://host/path"),
            ("file:/a@b", "file:/a@b"),
            ("file:///a@b?mode=0660", "file:///a@b"),
            ("system:", "system:"),
            ("file:/a\nb", "file:/a…b"),
            ("/var/lock/app", "/var/lock/app"),
            ("localhost:6379", "localhost:6379"),
        ] {
            assert_eq!(redacted(text), shown);
        }
    }

    #[test]
    fn possible_part_of_a_user_or_a_password_is_not_shown() {
        for (text, shown) in [
            ("me:secret@host:6379", "…"),
            ("secret", "…"),
            ("/me:secret@host", "…"),
            ("ftp://me:secret@host", "…"),
            ("redis:me:secret@host", "redis:…"),
            ("redis:/me:secret@host", "redis:…"),
            ("redis://me:secret", "redis://…"),
            ("redis://a@me:12/secret@host", "redis://…"),
            ("redis://me:12?secret@host", "redis://…"),
            ("redis+unix:///me:secret@/run/a.sock", "redis+unix://…"),
            ("redis://me%3Asecret%40host", "redis://…"),
            ("file:me:secret@host", "file:…"),
            ("file://me:secret@host/a", "file:…"),
        ] {
            assert_eq!(redacted(text), shown);
        }
    }
}
