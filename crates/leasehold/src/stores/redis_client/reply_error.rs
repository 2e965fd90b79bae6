//! The errors of a Redis server, and the help for each.

use redis::{ErrorKind, RedisError};

use crate::Error;

/// A code in the server's error, the kind of error, its meaning, and the help.
type Row = (
    &'static str,
    fn(String) -> Error,
    &'static str,
    &'static str,
);

/// The order matters: the text of a script's error may contain a second code.
const ROWS: &[Row] = &[
    (
        "WRONGPASS",
        denied,
        "the server does not accept the user name and password",
        "check them in the URL, or in its password-file",
    ),
    (
        "NOAUTH",
        denied,
        "the server requires a password",
        "put it in the URL, or in a file named by password-file=",
    ),
    (
        "AUTH failed",
        denied,
        "the server does not accept the user name and password",
        "check them in the URL",
    ),
    (
        "AUTH",
        denied,
        "the server does not accept the user name and password",
        "check them in the URL",
    ),
    (
        "NOPERM",
        denied,
        "the user lacks a right on the server",
        "give it the rights that leasehold needs: docs/stores/redis.md has the ACL line",
    ),
    (
        "No permissions",
        denied,
        "the user lacks a right on the server",
        "give it the rights that leasehold needs: docs/stores/redis.md has the ACL line",
    ),
    (
        "can't run this command",
        denied,
        "the user lacks a right on the server",
        "give it the rights that leasehold needs: docs/stores/redis.md has the ACL line",
    ),
    (
        "WRONGTYPE",
        damaged,
        "a key of this lock is not of leasehold's type",
        "find out who wrote it; delete it, or use another name",
    ),
    (
        "FOREIGN",
        damaged,
        "the key of this lock was not written by leasehold",
        "find out who wrote it; delete it, or use another name",
    ),
    (
        "VERSION",
        unsupported,
        "the record of this lock has the layout of another version of leasehold",
        OTHER_VERSION,
    ),
    (
        "FUTURE",
        damaged,
        "the last token of this lock is more than ten years ahead of the server's clock",
        "correct the server's clock, or delete the lock's key while no client uses it",
    ),
    (
        "LATE",
        unavailable,
        "the request reached the server too late, or the server's clock has been set forward",
        "try again",
    ),
    (
        "HINT",
        invalid,
        "an earlier token of this name is more than a day ahead of the server's clock",
        "correct the server's clock, or use another name",
    ),
    (
        "LARGER",
        invalid,
        "a claim can give back a part of its share, but cannot take more",
        "release it and acquire the larger share",
    ),
    (
        "READONLY",
        unavailable,
        "the server is a read-only replica",
        "connect to its master",
    ),
    (
        "NOREPLICAS",
        unavailable,
        "the server has too few good replicas to write (min-replicas-to-write)",
        "bring the replicas back",
    ),
    (
        "OOM",
        unavailable,
        "the server has no memory left",
        "raise its maxmemory; locks that are held can still be renewed and released",
    ),
    (
        "MISCONF",
        unavailable,
        "the server cannot save its data to disk, and refuses writes",
        "check the server's disk and its log",
    ),
    (
        "LOADING",
        unavailable,
        "the server is still loading its data",
        "try again when it is done",
    ),
    (
        "BUSY",
        unavailable,
        "the server is busy with another script",
        "try again, or end the script with SCRIPT KILL",
    ),
    (
        "MASTERDOWN",
        unavailable,
        "the replica has lost its master",
        "connect to the master",
    ),
    (
        "CLUSTERDOWN",
        unavailable,
        "the cluster is down",
        "try again when it is up",
    ),
    (
        "TRYAGAIN",
        unavailable,
        "the cluster is moving this lock",
        "try again",
    ),
    (
        "MOVED",
        unsupported,
        "the server is a node of a cluster, and another node has this lock",
        "write redis+cluster://host1,host2,host3 with some of its nodes",
    ),
    (
        "CROSSSLOT",
        unsupported,
        "the server is a node of a cluster",
        "write redis+cluster://host1,host2,host3 with some of its nodes",
    ),
    (
        "cluster support disabled",
        unsupported,
        "the server is not a node of a cluster",
        "write redis://host:6379 for a single server",
    ),
    (
        "received fatal alert: CertificateRequired",
        denied,
        "the server requires a client certificate",
        "name its PEM files with cert=/path/to/cert.pem and key=/path/to/key.pem",
    ),
    (
        "received fatal alert",
        denied,
        "the server rejected the client certificate",
        "give one that the server trusts, with cert=/path/to/cert.pem and key=/path/to/key.pem",
    ),
    (
        "DB index is out of range",
        invalid,
        "the server has no such database",
        "use a smaller number after the slash",
    ),
    (
        "unknown command",
        unsupported,
        "the server does not know a command that leasehold needs",
        "leasehold needs Redis 6.2 or newer, without a proxy that hides commands",
    ),
];

fn denied(what: String) -> Error {
    Error::denied(what)
}
fn damaged(what: String) -> Error {
    Error::damaged(what)
}
fn invalid(what: String) -> Error {
    Error::invalid(what)
}
fn unavailable(what: String) -> Error {
    Error::unavailable(what)
}
fn unsupported(what: String) -> Error {
    Error::unsupported(what)
}

/// Returns the text after `code`, if the server's error has this code.
pub(in crate::stores) fn detail(error: &Error, code: &str) -> Option<String> {
    let push = std::error::Error::source(error)?.downcast_ref::<RedisError>()?;
    (push.code() == Some(code)).then(|| push.detail().unwrap_or_default().to_owned())
}

pub(in crate::stores) fn store_error(error: RedisError) -> Error {
    let error = without_user(error);
    let text = error.to_string();
    if error.kind() == ErrorKind::AuthenticationFailed {
        return row(&ROWS[0], &text).caused_by(error);
    }

    let found = ROWS.iter().find(|(code, ..)| error.code() == Some(code));
    match found.or_else(|| ROWS.iter().find(|(code, ..)| text.contains(code))) {
        Some(found) => row(found, &text).caused_by(error),
        None if error.is_io_error()
            || error.is_connection_dropped()
            || error.is_unrecoverable_error() =>
        {
            Error::unavailable(format!("the connection broke: {text}")).caused_by(error)
        }
        None => {
            Error::unavailable(format!("the server rejects the request: {text}")).caused_by(error)
        }
    }
}

/// Removes the name of the user, which Redis 7.2 includes in the error of a missing right.
fn without_user(error: RedisError) -> RedisError {
    let parts = error
        .detail()
        .and_then(|detail| detail.split_once("User "))
        .and_then(|(before, rest)| Some((before, rest.rsplit_once(" has no permissions")?.1)));
    let Some((before, behind)) = parts else {
        return error;
    };

    let detail = format!("{before}this user has no permissions{behind}");
    RedisError::from((error.kind(), "NOPERM", detail))
}

fn row((_, kind, what, remedy): &Row, text: &str) -> Error {
    kind(format!("{what} ({text})")).help(*remedy)
}

/// The error for a reply that no script of leasehold gives.
pub(in crate::stores) fn protocol_error() -> Error {
    Error::unavailable("the reply belongs to another request; the connection was closed")
}

/// The help for a lock of another layout version.
pub(in crate::stores) const OTHER_VERSION: &str = "let all users of this lock use \
     releases of leasehold with one layout (CHANGELOG.md names it), or use another name";

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: &'static str, text: &str) -> Error {
        store_error(RedisError::from((
            ErrorKind::Extension,
            code,
            text.to_owned(),
        )))
    }

    #[test]
    fn every_error_code_has_kind_and_help() {
        assert!(server("NOPERM", "this user has no permissions").is_denied());
        assert!(
            server(
                "x",
                "ERR Error running script: @user_script: 4: WRONGTYPE Operation against"
            )
            .is_damaged()
        );
        assert!(server("x", "OOM command not allowed").is_unavailable());
        assert!(
            server("x", "READONLY You can't write against a read only replica")
                .to_string()
                .contains("master")
        );
        assert!(server("x", "something new").is_unavailable());
    }

    /// Shows G-35.
    #[test]
    fn error_of_a_missing_right_does_not_name_the_user() {
        let command = "User quser has no permissions to run the 'get' command";
        let in_script = format!("ACL failure in script: {command}");
        for text in [command, &in_script] {
            let error = server("NOPERM", text);
            assert!(error.is_denied());
            let shown = format!("{error:?}");
            assert!(shown.contains("this user has no permissions to run the 'get' command"));
            assert!(!shown.contains("quser"), "{shown}");
        }
    }
}
