//! The error of a URL that no store has: the store that may have been meant, and the text to write.

use crate::Error;
use crate::schemes::{ENTRIES, Entry, SERVICES, alias};
use crate::shown_url::{bare_path, is_host_and_port, scheme};

/// Returns the error. It repeats only what cannot be a part of a user name or a password.
pub(crate) fn error(url: &str) -> Error {
    if url.is_empty() {
        return Error::invalid("the URL is empty").help(known());
    }
    if let Some(path) = bare_path(url) {
        return Error::invalid("a folder needs file: before its path")
            .help(format!("write file:{path}"));
    }

    if is_host_and_port(url) {
        return Error::invalid("a server needs a URL scheme before its name")
            .help(format!("write redis://{url} or zookeeper://{url}"));
    }
    let Some(scheme) = scheme(url) else {
        return Error::invalid("the URL begins with no scheme that leasehold knows").help(known());
    };

    let meant = scheme.to_ascii_lowercase();
    if let Some((_, service)) = SERVICES.iter().find(|(name, _)| *name == meant) {
        return Error::invalid(format!("leasehold cannot keep locks on {service}")).help(known());
    }
    let advice = match alias(&meant) {
        Some(advice) => advice.to_owned(),
        None if Entry::of_scheme(&meant).is_some() => "write the scheme in lower case".to_owned(),
        None => known(),
    };
    Error::invalid(format!("the URL scheme {scheme:?} is unknown")).help(advice)
}

/// Returns how the URLs of all stores begin.
fn known() -> String {
    let beginnings: Vec<String> = ENTRIES.iter().flat_map(Entry::beginnings).collect();
    format!("use {}", beginnings.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_unknown_url_says_what_to_write() {
        let cases = [
            ("", "the URL is empty"),
            ("file", "no scheme that leasehold knows; use file:"),
            ("/var/lock/app", "write file:/var/lock/app"),
            ("./locks", "write file:/some/folder"),
            ("~/locks", "write file:/some/folder"),
            ("localhost:6379", "write redis://localhost:6379"),
            ("etcd://host", "cannot keep locks on etcd; use file:"),
            ("consul://host", "cannot keep locks on Consul"),
            ("pgsql://host", "write postgres://user@host/database"),
            (
                "sentinel://host",
                "write redis+sentinel://host1,host2,host3/mymaster",
            ),
            ("REDIS://host", "lower case"),
            ("zk://host", "write zookeeper://host"),
            (
                "ftp://host",
                "\"ftp\" is unknown; use file:, system:, memory:, postgres://, postgresql://, redis://",
            ),
            ("nonsense", "no scheme that leasehold knows; use file:"),
            ("secret@host.example:6379", "no scheme that leasehold knows"),
            ("/me:secret@host", "write file:/some/folder"),
        ];
        for (url, part) in cases {
            let error = error(url);
            let text = error.to_string();
            assert!(error.is_invalid() && text.contains(part), "{url}: {text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }
}
