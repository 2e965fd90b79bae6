//! The errors of ZooKeeper, mapped to the store's errors with help.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use zookeeper_client::Error as ZkError;

use leasehold_core::Error;
use leasehold_core::internal::net::store_closed;

/// Waits for the reply to a request that names a path, and refuses an empty path.
///
/// The client library panics at it. Its future holds no lock and is not used again.
pub(super) async fn without_panic<T, E: From<ZkError>>(
    reply: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let reply = AssertUnwindSafe(reply).catch_unwind().await;

    reply.unwrap_or_else(|_| Err(ZkError::UnexpectedError(INVALID_REPLY.to_owned()).into()))
}

const INVALID_REPLY: &str = "the server sent an invalid reply";

/// Maps an error of the client library.
pub(super) fn store_error(error: ZkError) -> Error {
    let mapped = match &error {
        ZkError::NoAuth => Error::denied("the user lacks a right on a node"),
        ZkError::AuthFailed => Error::denied("the server does not accept the credentials")
            .help("check the user name and password in the URL"),
        ZkError::InvalidAcl => {
            Error::denied("the server does not accept acl=creator from this user")
                .help("name a user and a password in the URL")
        }
        ZkError::Unimplemented => Error::unsupported("the server has no container nodes")
            .help("leasehold needs ZooKeeper 3.5.3 or newer"),
        ZkError::NoChildrenForEphemerals => {
            Error::mismatch("the node of this lock, or a folder above it, is ephemeral")
                .help("use another name, or another folder in the URL")
        }
        ZkError::QuotaExceeded => {
            Error::unavailable("a quota on the folder is used up").help("raise the quota")
        }
        ZkError::NotReadOnly => {
            Error::unavailable("the server has lost the other servers and is read-only")
        }
        ZkError::NoHosts | ZkError::Timeout => Error::unavailable("no server can be reached"),
        ZkError::ConnectionLoss => Error::unavailable("the connection broke"),
        // The client library has no other kind for the reason of a connection that broke.
        ZkError::Custom(reason) => Error::unavailable(format!("the connection broke: {reason}")),
        ZkError::SessionExpired => Error::unavailable("the session has ended"),
        ZkError::ClientClosed => store_closed(),
        ZkError::BadArguments(_) => Error::invalid(
            "the client library does not accept the servers or the folder in the URL",
        ),
        ZkError::UnexpectedError(text) if text == INVALID_REPLY => Error::damaged(INVALID_REPLY),
        other => Error::unavailable(format!("the server rejects the request: {other}")),
    };

    mapped.caused_by(error)
}

/// Maps an error of a request that needs a right on a node.
pub(super) fn on_node(right: &str, node: &str) -> impl FnOnce(ZkError) -> Error {
    move |error| match error {
        ZkError::NoAuth => Error::denied(format!(
            "the user lacks the right to {right} on the node {node}"
        ))
        .help(format!(
            "connect as a user who has it, or give it: `getAcl {node}` in zkCli.sh shows \
                     the rights, and `setAcl` changes them"
        ))
        .caused_by(error),
        error => store_error(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_zookeeper_error_has_a_kind() {
        assert!(store_error(ZkError::NoAuth).is_denied());
        assert!(store_error(ZkError::AuthFailed).is_denied());
        assert!(store_error(ZkError::Unimplemented).is_unsupported());
        assert!(store_error(ZkError::ConnectionLoss).is_unavailable());
        assert!(store_error(ZkError::Throttled).is_unavailable());
    }
}
