//! What ZooKeeper answers when it does not do what it was asked, and what to do about it.

use zookeeper_client::Error as Told;

use crate::Error;

pub(super) fn told(error: Told) -> Error {
    let mapped = match &error {
        Told::NoAuth => Error::denied("the user may not do this to the node of this lock")
            .remedy("connect as the user who made it, or have its ACL changed"),
        Told::AuthFailed => Error::denied("the server does not accept the credentials").remedy("check them in the URL"),
        Told::InvalidAcl => Error::denied("the server does not accept acl=creator from this user")
            .remedy("name a user and a password in the URL"),
        Told::Unimplemented => Error::unsupported("the server does not know container nodes")
            .remedy("leasehold needs ZooKeeper 3.5.3 or newer"),
        Told::NoChildrenForEphemerals => Error::mismatch("the node of this lock, or a folder above it, is ephemeral")
            .remedy("use another name, or another folder in the URL"),
        Told::QuotaExceeded => Error::unavailable("a quota on the folder is used up").remedy("raise it"),
        Told::NotReadOnly => Error::unavailable("the server has lost the others and is read-only"),
        Told::NoHosts | Told::Timeout => Error::unavailable("no server can be reached"),
        Told::ConnectionLoss => Error::unavailable("the connection broke"),
        Told::SessionExpired => Error::unavailable("the session has ended"),
        Told::ClientClosed => Error::unavailable("the store was closed"),
        Told::BadArguments(_) => Error::invalid("the servers or the folder in the URL cannot be understood"),
        other => Error::unavailable(format!("the server refuses: {other}")),
    };
    mapped.caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_kind() {
        assert!(told(Told::NoAuth).is_denied() && told(Told::AuthFailed).is_denied());
        assert!(told(Told::Unimplemented).is_unsupported());
        assert!(told(Told::ConnectionLoss).is_unavailable() && told(Told::Throttled).is_unavailable());
    }
}
