//! The error of a URL that no store has: the store that may have been meant, and the text to write.

use leasehold_core::internal::is_host;

use crate::Error;
use crate::schemes::{SCHEMES, Scheme};
use crate::shown_url;

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
    let Some(scheme) = shown_url::scheme(url) else {
        return Error::invalid("the URL begins with no scheme that leasehold knows").help(known());
    };

    let meant = scheme.to_ascii_lowercase();
    if let Some((_, service)) = SERVICES.iter().find(|(name, _)| *name == meant) {
        return Error::invalid(format!("leasehold cannot keep locks on {service}")).help(known());
    }
    let alias = ALIASES.iter().find(|(alias, _)| *alias == meant);
    let advice = match alias {
        Some((_, advice)) => (*advice).to_owned(),
        None if Scheme::named(&meant).is_some() => "write the scheme in lower case".to_owned(),
        None => known(),
    };
    Error::invalid(format!("the URL scheme {scheme:?} is unknown")).help(advice)
}

/// Returns how the URLs of all stores begin.
fn known() -> String {
    let beginnings: Vec<String> = SCHEMES.iter().flat_map(Scheme::beginnings).collect();
    format!("use {}", beginnings.join(", "))
}

/// Whether this word is the scheme of a store, of another program or of another service.
pub(crate) fn is_known(scheme: &str) -> bool {
    let meant = scheme.to_ascii_lowercase();
    let is_meant = |(word, _): &(&str, &str)| *word == meant;

    Scheme::named(&meant).is_some() || ALIASES.iter().any(is_meant) || SERVICES.iter().any(is_meant)
}

/// Returns the path to write if the text is one, and not a URL.
pub(crate) fn bare_path(text: &str) -> Option<&str> {
    let begins = |prefix| text.starts_with(prefix);
    (begins("/") || begins("./") || begins("../") || begins("~/")).then(|| match text {
        absolute if absolute.starts_with('/') && !absolute.contains('@') => absolute,
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

/// Schemes that other programs use for a service which leasehold supports.
const ALIASES: &[(&str, &str)] = &[
    ("sentinel", SENTINEL),
    ("redis-sentinel", SENTINEL),
    ("redis-cluster", CLUSTER),
    ("redis+tls", "write rediss://host"),
    ("redis+ssl", "write rediss://host"),
    ("redis-socket", "write redis+unix:///path/of/the.sock"),
    (
        "unix",
        "write redis+unix:///path/of/the.sock for the socket of a Redis server",
    ),
    (
        "valkey",
        "write redis://host: Valkey uses the protocol of Redis",
    ),
    (
        "valkeys",
        "write rediss://host: Valkey uses the protocol of Redis",
    ),
    ("pgsql", "write postgres://user@host/database"),
    ("zk", "write zookeeper://host"),
    ("zookeepers", "write zookeeper+tls://host"),
    ("redlock+tls", "write redlocks://host1,host2,host3"),
    (
        "flock",
        "write file:/some/folder: a file store shares its locks with flock(1)",
    ),
    ("dir", "write file:/some/folder"),
];

const SENTINEL: &str = "write redis+sentinel://host1,host2,host3/mymaster";
const CLUSTER: &str = "write redis+cluster://host1,host2,host3";

/// Services on which other lock programs keep locks.
const SERVICES: &[(&str, &str)] = &[
    ("consul", "Consul"),
    ("cassandra", "Cassandra"),
    ("cockroachdb", "CockroachDB"),
    ("dynamodb", "DynamoDB"),
    ("etcd", "etcd"),
    ("etcds", "etcd"),
    ("gcs", "Google Cloud Storage"),
    ("gs", "Google Cloud Storage"),
    ("hazelcast", "Hazelcast"),
    ("http", "a web server"),
    ("https", "a web server"),
    ("k8s", "Kubernetes"),
    ("kubernetes", "Kubernetes"),
    ("mariadb", "MariaDB"),
    ("memcache", "memcached"),
    ("memcached", "memcached"),
    ("mongodb", "MongoDB"),
    ("mongodb+srv", "MongoDB"),
    ("mssql", "SQL Server"),
    ("mysql", "MySQL"),
    ("nats", "NATS"),
    ("nfs", "NFS"),
    ("s3", "S3"),
    ("sqlite", "SQLite"),
    ("sqlserver", "SQL Server"),
];

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
                "\"ftp\" is unknown; use file:, system:, memory:, redis://, rediss://",
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
