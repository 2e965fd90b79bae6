//! Replies of a cluster that another node has a slot, or that no node has it yet.

use super::reply_error;
use leasehold_core::Error;
use leasehold_core::internal::Host;

/// Why a node did not execute a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// Another master has the slot. Its name is empty if it is that of the node that replied.
    Moved(u16, Host),
    /// The slot is being moved, and the next node may have all keys of the request.
    Ask(Host),
    /// The slot is being moved, or the cluster is completing a failover.
    Later,
}

impl Redirect {
    /// Returns why the request was not executed, if the error is such a reply.
    pub(super) fn of(error: &Error) -> Option<Self> {
        if let Some(detail) = reply_error::detail(error, "MOVED") {
            let (slot, host) = parse(&detail)?;
            return Some(Self::Moved(slot, host));
        }
        if let Some(detail) = reply_error::detail(error, "ASK") {
            return parse(&detail).map(|(_, host)| Self::Ask(host));
        }

        let later = ["TRYAGAIN", "CLUSTERDOWN", "LOADING"];
        later
            .iter()
            .any(|code| reply_error::detail(error, code).is_some())
            .then_some(Self::Later)
    }
}

/// Parses `SLOT HOST:PORT`. An IPv6 address has no brackets. The name is empty if the node does not
/// know it.
fn parse(detail: &str) -> Option<(u16, Host)> {
    let (slot, address) = detail.trim().split_once(' ')?;
    let (name, port) = address.rsplit_once(':')?;
    let name = if name == "?" { "" } else { name };
    let host = Host {
        name: name.to_owned(),
        port: port.parse().ok()?,
    };
    Some((slot.parse().ok()?, host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::reader::parse_reply;
    use crate::client::value::Value;
    use crate::test_inputs::altered;
    use proptest::prelude::*;

    #[test]
    fn addresses_of_redirects_are_parsed() {
        let (slot, host) = parse("3999 127.0.0.1:6381").expect("good");
        assert_eq!((slot, host.to_string().as_str()), (3999, "127.0.0.1:6381"));
        let (_, host) = parse("1 ::1:6381").expect("good");
        assert_eq!(host.to_string(), "[::1]:6381");
        for nameless in ["1 :6381", "1 ?:6381"] {
            let (_, host) = parse(nameless).expect("good");
            assert_eq!((host.name.as_str(), host.port), ("", 6381));
        }
        for wrong in ["", "1", "1 a", "x a:1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_error_is_shown_and_is_a_redirect_or_not(
            bytes in altered(&[
                "-MOVED 3999 127.0.0.1:6381\r\n",
                "-ASK 3999 ::1:6381\r\n",
                "-WRONGTYPE Operation against a key\r\n",
            ]),
        ) {
            if let Some(Value::Error(error)) = parse_reply(&bytes) {
                let error = reply_error::store_error(error.into());
                let _redirect = Redirect::of(&error);
                let _shown = format!("{error:?} {error}");
            }
        }
    }
}
