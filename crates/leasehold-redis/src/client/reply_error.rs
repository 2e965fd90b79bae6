//! The errors of a Redis server, and the help for each.

use super::request::RequestError;
use super::value::ServerError;
use leasehold_core::Error;
use leasehold_core::internal::net::rejected_client;

/// An error of the server: its kind, its meaning, and the help.
struct Row {
    /// What the server's error has as its code, or contains.
    codes: &'static [&'static str],
    kind: fn(String) -> Error,
    meaning: &'static str,
    help: &'static str,
}

const fn row(codes: &'static [&'static str], kind: fn(String) -> Error) -> Row {
    Row {
        codes,
        kind,
        meaning: "",
        help: "",
    }
}

impl Row {
    const fn means(self, meaning: &'static str) -> Self {
        Self { meaning, ..self }
    }

    const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    fn error(&self, text: &str) -> Error {
        (self.kind)(format!("{} ({text})", self.meaning)).help(self.help)
    }
}

/// No reply within the limit.
pub(crate) const NO_REPLY: &str = "the server does not reply";

pub(crate) fn no_reply() -> Error {
    Error::unavailable(NO_REPLY)
}

/// The order matters: the text of a script's error may contain a second code.
const ROWS: &[Row] = &[
    row(&["WRONGPASS"], Error::denied)
        .means("the server does not accept the user name and password")
        .help("check them in the URL, or in its password-file"),
    row(&["NOAUTH"], Error::denied)
        .means("the server requires a password")
        .help("put it in the URL, or in a file named by password-file="),
    row(&["unknown command"], Error::unsupported)
        .means("the server does not know a command that leasehold needs")
        .help("leasehold needs Redis 6.2 or newer, without a proxy that hides commands"),
    row(&["AUTH"], Error::denied)
        .means("the server does not accept the user name and password")
        .help("check them in the URL"),
    row(
        &["NOPERM", "No permissions", "can't run this command"],
        Error::denied,
    )
    .means("the user lacks a right on the server")
    .help("give it the rights that leasehold needs: `leasehold doctor` prints the ACL line"),
    row(&["WRONGTYPE"], Error::damaged)
        .means("a key of this lock is not of leasehold's type")
        .help("find out who wrote it; delete it, or use another name"),
    row(&["FOREIGN"], Error::damaged)
        .means("the key of this lock was not written by leasehold")
        .help("find out who wrote it; delete it, or use another name"),
    row(&["VERSION"], Error::unsupported)
        .means("the record of this lock has the layout of another version of leasehold")
        .help(OTHER_VERSION),
    row(&["FUTURE"], Error::damaged)
        .means("the last token of this lock is more than ten years ahead of the server's clock")
        .help("correct the server's clock, or delete the lock's key while no client uses it"),
    row(&["LATE"], Error::unavailable)
        .means(
            "the request reached the server too late, or the server's clock has been set forward",
        )
        .help("try again"),
    row(&["HINT"], Error::invalid)
        .means("an earlier token of this name is more than a day ahead of the server's clock")
        .help("correct the server's clock, or use another name"),
    row(&["LARGER"], Error::invalid)
        .means("a claim can give back a part of its share, but cannot take more")
        .help("release it and acquire the larger share"),
    row(&["READONLY"], Error::unavailable)
        .means("the server is a read-only replica")
        .help("connect to its master"),
    row(&["NOREPLICAS"], Error::unavailable)
        .means("the server has too few good replicas to write (min-replicas-to-write)")
        .help("bring the replicas back"),
    row(&["OOM"], Error::unavailable)
        .means("the server has no memory left")
        .help("raise its maxmemory; locks that are held can still be renewed and released"),
    row(&["MISCONF"], Error::unavailable)
        .means("the server cannot save its data to disk, and refuses writes")
        .help("check the server's disk and its log"),
    row(&["LOADING"], Error::unavailable)
        .means("the server is still loading its data")
        .help("try again when it is done"),
    row(&["BUSY"], Error::unavailable)
        .means("the server is busy with another script")
        .help("try again, or end the script with SCRIPT KILL"),
    row(&["MASTERDOWN"], Error::unavailable)
        .means("the replica has lost its master")
        .help("connect to the master"),
    row(&["CLUSTERDOWN"], Error::unavailable)
        .means("the cluster is down")
        .help("try again when it is up"),
    row(&["TRYAGAIN"], Error::unavailable)
        .means("the cluster is moving this lock")
        .help("try again"),
    row(&["MOVED"], Error::unsupported)
        .means("the server is a node of a cluster, and another node has this lock")
        .help("write redis+cluster://host1,host2,host3 with some of its nodes"),
    row(&["CROSSSLOT"], Error::unsupported)
        .means("the server is a node of a cluster")
        .help("write redis+cluster://host1,host2,host3 with some of its nodes"),
    row(&["cluster support disabled"], Error::unsupported)
        .means("the server is not a node of a cluster")
        .help("write redis://host:6379 for a single server"),
    row(&["max number of clients"], Error::unavailable)
        .means("the server has no connection left")
        .help("raise its maxclients, or close connections of others"),
    row(&["DENIED"], Error::denied)
        .means("the server accepts clients of its own machine only")
        .help("set a password on the server, and put it in the URL"),
    row(&["DB index is out of range"], Error::invalid)
        .means("the server has no such database")
        .help("use a smaller number after the slash"),
];

/// Returns the error of the request that failed.
pub(crate) fn cause(error: &Error) -> Option<&RequestError> {
    std::error::Error::source(error)?.downcast_ref()
}

/// Returns the text after `code`, if the server's error has this code.
pub(crate) fn detail(error: &Error, code: &str) -> Option<String> {
    let cause = cause(error)?;
    (cause.code() == Some(code)).then(|| cause.detail().unwrap_or_default().to_owned())
}

/// Whether the error shows that the connection leads to the wrong server: to a primary that was
/// demoted, or that is loading the data of another one.
pub(crate) fn is_of_wrong_server(error: &RequestError) -> bool {
    match error.code() {
        Some("READONLY" | "MASTERDOWN" | "LOADING") => true,
        // Redis 6.2 puts the error of a command into that of its script.
        _ => error.to_string().contains(": -READONLY "),
    }
}

/// Whether a request failed as [`is_of_wrong_server`] says.
pub(crate) fn shows_wrong_server(error: &Error) -> bool {
    cause(error).is_some_and(is_of_wrong_server)
}

/// Whether a request failed because the server is a replica, and not because it loads its data.
pub(crate) fn shows_replica(error: &Error) -> bool {
    shows_wrong_server(error) && detail(error, "LOADING").is_none()
}

/// The error for a server that says that it is a replica.
pub(crate) fn read_only() -> Error {
    store_error(ServerError::new(b"READONLY its role is slave").into())
}

pub(crate) fn store_error(error: RequestError) -> Error {
    let error = match error {
        RequestError::Refused(error) => RequestError::Refused(without_user(error)),
        error => error,
    };
    if let RequestError::Broken(broken) = &error
        && let Some(rejection) = rejected_client(broken)
    {
        return rejection.caused_by(error);
    }
    let text = error.to_string();

    let find = |is_code: &dyn Fn(&str) -> bool| {
        let mut rows = ROWS.iter();
        rows.find(|row| row.codes.iter().any(|code| is_code(code)))
    };
    let found = find(&|code| error.code() == Some(code));
    match found.or_else(|| find(&|code| text.contains(code))) {
        Some(row) => row.error(&text).caused_by(error),
        None if error.code().is_none() => {
            Error::unavailable(format!("the connection broke: {text}")).caused_by(error)
        }
        None => {
            Error::unavailable(format!("the server rejects the request: {text}")).caused_by(error)
        }
    }
}

/// Removes the name of the user, which Redis 7.2 includes in the error of a missing right.
fn without_user(error: ServerError) -> ServerError {
    let text = error.to_string();
    let parts = text
        .split_once("User ")
        .and_then(|(before, rest)| Some((before, rest.rsplit_once(" has no permissions")?.1)));
    match parts {
        Some((before, behind)) => {
            let text = format!("{before}this user has no permissions{behind}");
            ServerError::new(text.as_bytes())
        }
        None => error,
    }
}

/// The error for a reply that no script of leasehold gives.
pub(crate) fn protocol_error() -> Error {
    Error::unavailable("the reply belongs to another request; the connection was closed")
}

/// The help for a lock of another layout version.
pub(crate) const OTHER_VERSION: &str = "let all users of this lock use \
     releases of leasehold with one layout (CHANGELOG.md names it), or use another name";

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: &str, text: &str) -> Error {
        store_error(ServerError::new(format!("{code} {text}").as_bytes()).into())
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

        let loading = server("LOADING", "it loads its data");
        assert!(shows_wrong_server(&loading) && !shows_replica(&loading));
        let cut_off = server("MASTERDOWN", "Link with MASTER is down");
        assert!(shows_replica(&read_only()) && shows_replica(&cut_off));
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
