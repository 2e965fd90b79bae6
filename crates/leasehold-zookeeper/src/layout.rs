//! The names of the claims' nodes, in the layout of Curator or kazoo.
//!
//! A lock is a node, and each claim is an ephemeral sequential child of it. Curator and kazoo order
//! the children by their last ten digits. The text before the digits shows the kind of the claim.
//! Neither library recognises the other's children.

use std::fmt;

use leasehold_core::store::{Claim, Share, claim_id_from_bytes};
use leasehold_core::{ClaimId, Error, Result};

/// The library whose layout a store uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `_c_UUID-lock-0000000007`, `…-__READ__…`, `…-__WRIT__…`.
    Curator,
    /// `HEX__lock__0000000007`, `…__rlock__…`.
    Kazoo,
}

/// A child of a lock's node that is a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// The node's own name.
    pub(super) node: String,
    /// The number in its name, which orders the queue. A server whose counter has overflowed gives
    /// negative numbers.
    pub(super) sequence: i64,
    pub(super) share: Share,
    /// The id in its name. It is a claim id only if leasehold created the node.
    pub(super) id: Option<ClaimId>,
}

impl Dialect {
    /// Returns the name of a claim's node, up to its digits.
    pub(super) fn prefix(self, claim: &Claim) -> String {
        let share_mark = self.share_mark(claim.share);
        match self {
            Self::Curator => format!("_c_{}-{share_mark}", dashed(claim.id)),
            Self::Kazoo => format!("{}{share_mark}", claim.id),
        }
    }

    fn share_mark(self, share: Share) -> String {
        let weight = share.weight();
        let capacity = share.capacity();
        match (self, share) {
            (Self::Curator, Share::MUTEX) => "lock-".to_owned(),
            (Self::Curator, Share::WRITER) => WRITER.to_owned(),
            (Self::Curator, Share::READER) => READER.to_owned(),
            (Self::Curator, _) => format!("slots-{weight}-of-{capacity}-"),
            (Self::Kazoo, Share::MUTEX | Share::WRITER) => "__lock__".to_owned(),
            (Self::Kazoo, Share::READER) => "__rlock__".to_owned(),
            (Self::Kazoo, _) => format!("__slots_{weight}_of_{capacity}__"),
        }
    }

    /// Parses the name of a child.
    ///
    /// # Errors
    /// [`is_mismatch`](Error::is_mismatch), with help, if it is not of this layout.
    pub(super) fn member(self, node: &str) -> Result<Member> {
        self.read(node).ok_or_else(|| self.foreign(node))
    }

    /// Parses the name of a child; `None` if it is not of this layout.
    pub(super) fn read(self, node: &str) -> Option<Member> {
        let head = node.trim_end_matches(|c: char| c.is_ascii_digit());
        let number: i64 = node[head.len()..].parse().ok()?;
        let (head, sequence) = match node.len() - head.len() {
            DIGITS if self.share(head).is_some() => (head, number),
            // `%010d` pads a negative number to ten characters, its sign included.
            count if count == DIGITS || count == DIGITS - 1 => (head.strip_suffix('-')?, -number),
            _ => return None,
        };

        let share = self.share(head)?;
        Some(Member {
            node: node.to_owned(),
            sequence,
            share,
            id: self.id(head),
        })
    }

    fn share(self, head: &str) -> Option<Share> {
        let ends: &[(&str, Share)] = match self {
            Self::Curator => &[
                ("lock-", Share::MUTEX),
                (WRITER, Share::WRITER),
                (READER, Share::READER),
            ],
            // Neither of these texts is a suffix of the other.
            Self::Kazoo => &[("__rlock__", Share::READER), ("__lock__", Share::MUTEX)],
        };
        if let Some((_, share)) = ends.iter().find(|(end, _)| head.ends_with(end)) {
            return Some(*share);
        }

        let (weight, capacity) = match self {
            Self::Curator => {
                let (_, slots) = head.strip_suffix('-')?.rsplit_once("-slots-")?;
                slots.split_once("-of-")?
            }
            Self::Kazoo => {
                let (_, slots) = head.strip_suffix("__")?.rsplit_once("__slots_")?;
                slots.split_once("_of_")?
            }
        };
        Share::slots(weight.parse().ok()?, capacity.parse().ok()?).ok()
    }

    fn id(self, head: &str) -> Option<ClaimId> {
        let text = match self {
            Self::Curator => head.strip_prefix("_c_")?.get(..36)?,
            Self::Kazoo => head.get(..32)?,
        };
        let id = uuid::Uuid::try_parse(text).ok()?;
        Some(claim_id_from_bytes(id.into_bytes()))
    }

    #[cold]
    fn foreign(self, node: &str) -> Error {
        let other = match self {
            Self::Curator => Self::Kazoo,
            Self::Kazoo => Self::Curator,
        };
        if other.read(node).is_some() {
            let dialect = other.name();
            let message =
                format!("the name is in use in the layout of {other}, by the node {node:?}");
            return Error::mismatch(message).help(format!(
                "add dialect={dialect} to the URL, or use another name or folder"
            ));
        }

        let what = match node {
            "locks" | "leases" => "by a semaphore of Curator",
            _ if node.contains("latch-") => "by a leader latch of Curator",
            _ => "for something that is not a lock",
        };
        let message = format!("the name is in use {what}, which has the node {node:?}");
        Error::mismatch(message).help("use another name, or another folder in the URL")
    }

    /// Whether other clients of the dialect rely on the continued existence of a lock's node.
    pub(super) fn leaves_nodes(self) -> bool {
        self == Self::Kazoo
    }

    fn name(self) -> &'static str {
        match self {
            Self::Curator => "curator",
            Self::Kazoo => "kazoo",
        }
    }
}

/// Formats the library's name as its users write it.
impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Curator {
            "Curator"
        } else {
            "kazoo"
        })
    }
}

fn dashed(id: ClaimId) -> String {
    uuid::Uuid::from_bytes(id.to_bytes())
        .hyphenated()
        .to_string()
}

/// The digits that a server appends to the name of a sequential node.
const DIGITS: usize = 10;
const WRITER: &str = "__WRIT__";
const READER: &str = "__READ__";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use leasehold_core::Name;
    use leasehold_core::store::claimant_here;
    use leasehold_core::store::units;

    fn claim(share: Share) -> Claim {
        let info = Arc::new(claimant_here("").expect("a label"));
        Claim::new(Name::parse("a").expect("a name"), share, info)
    }

    #[test]
    fn node_names_round_trip() {
        let slots = Share::slots(2, 30).expect("it fits");
        for dialect in [Dialect::Curator, Dialect::Kazoo] {
            for share in [Share::MUTEX, Share::READER, Share::WRITER, slots] {
                let claim = claim(share);
                let member = dialect
                    .member(&format!("{}0000000012", dialect.prefix(&claim)))
                    .expect("it is ours");
                assert_eq!((member.id, member.sequence), (Some(claim.id), 12));
                assert_eq!(units(member.share), units(share));
            }
        }
    }

    #[test]
    fn negative_numbers_are_read_as_servers_write_them() {
        let slots = Share::slots(2, 30).expect("it fits");
        for dialect in [Dialect::Curator, Dialect::Kazoo] {
            for share in [Share::MUTEX, Share::READER, Share::WRITER, slots] {
                for (number, digits) in [(-5, "-000000005"), (-2_147_483_648, "-2147483648")] {
                    let claim = claim(share);
                    let member = dialect
                        .member(&format!("{}{digits}", dialect.prefix(&claim)))
                        .expect("it is ours");
                    assert_eq!((member.id, member.sequence), (Some(claim.id), number));
                    assert_eq!(units(member.share), units(share));
                }
            }
        }
    }

    #[test]
    fn node_names_of_other_libraries_are_parsed() {
        let share = |dialect: Dialect, node: &str| dialect.member(node).expect("a claim").share;
        for (node, expected) in [
            (
                "_c_79e1da5a-36b5-4c33-8d0f-a0b1c2d3e4f5-lock-0000000003",
                Share::MUTEX,
            ),
            ("lock-0000000003", Share::MUTEX),
            (
                "_c_79e1da5a-36b5-4c33-8d0f-a0b1c2d3e4f5-__READ__0000000003",
                Share::READER,
            ),
        ] {
            assert_eq!(share(Dialect::Curator, node), expected);
        }
        let node = "79e1da5a36b54c338d0fa0b1c2d3e4f5__rlock__0000000003";
        assert_eq!(share(Dialect::Kazoo, node), Share::READER);
    }

    /// Shows G-06, G-23, S13.
    #[test]
    fn foreign_nodes_are_refused_with_help() {
        let error =
            |dialect: Dialect, node: &str| dialect.member(node).expect_err("foreign").to_string();
        assert!(error(Dialect::Curator, "0123__lock__0000000003").contains("dialect=kazoo"));
        assert!(error(Dialect::Kazoo, "_c_x-lock-0000000003").contains("dialect=curator"));
        assert!(error(Dialect::Curator, "leases").contains("semaphore of Curator"));
        for node in [
            "",
            "x",
            "ü000000000",
            "x-lock-+000000003",
            "x-lock-000000000a",
            "_c_x-latch-0000000003",
        ] {
            assert!(
                Dialect::Curator
                    .member(node)
                    .expect_err("foreign")
                    .is_mismatch(),
                "{node}"
            );
        }
    }
}
