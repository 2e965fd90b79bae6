//! What a claim's node is called: Curator's way, or kazoo's.
//!
//! A lock is a node; each claim is an ephemeral sequential child of it. Curator and kazoo both order the children by their
//! last ten digits, and tell kinds apart by what is before those; but neither sees the other's.

use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::{Claim, ClaimId, Error, Name, Result, Share};

/// Whose layout a store keeps to.
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
    /// Its place in line. Servers whose counter has run over give negative numbers.
    pub(super) sequence: i64,
    pub(super) share: Share,
    /// The id in its name, which is that of a claim if the claim is ours.
    pub(super) id: Option<ClaimId>,
}

/// Digits that a server puts behind the name of a sequential node.
const DIGITS: usize = 10;
const WRITER: &str = "__WRIT__";
const READER: &str = "__READ__";

impl Dialect {
    pub(super) fn parse(text: &str) -> Result<Self> {
        match text {
            "curator" => Ok(Self::Curator),
            "kazoo" => Ok(Self::Kazoo),
            _ => Err(Error::invalid("dialect is curator or kazoo")),
        }
    }

    /// The name of a claim's node, up to its digits.
    pub(super) fn prefix(self, claim: &Claim) -> String {
        let share_mark = self.share_mark(claim.share);
        match self {
            Self::Curator => format!("_c_{}-{share_mark}", dashed(claim.id)),
            Self::Kazoo => format!("{}{share_mark}", claim.id),
        }
    }

    fn share_mark(self, share: Share) -> String {
        let (weight, capacity) = (share.weight(), share.capacity());
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

    /// What a child is in a line.
    ///
    /// # Errors
    /// Mismatch, with the cure, if it is not of this layout.
    pub(super) fn member(self, node: &str) -> Result<Member> {
        self.read(node).ok_or_else(|| self.foreign(node))
    }

    /// `None` if it is not of this layout.
    pub(super) fn read(self, node: &str) -> Option<Member> {
        let head = node.trim_end_matches(|c: char| c.is_ascii_digit());
        let number: i64 = node[head.len()..].parse().ok()?;
        let (head, sequence) = match node.len() - head.len() {
            DIGITS if self.share(head).is_some() => (head, number),
            // `%010d` fills a negative number to ten characters, its sign included.
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
        let (ends, slots): ([(&str, Share); 3], _) = match self {
            Self::Curator => {
                let ends = [
                    ("lock-", Share::MUTEX),
                    (WRITER, Share::WRITER),
                    (READER, Share::READER),
                ];
                (
                    ends,
                    head.strip_suffix('-')
                        .and_then(|head| head.rsplit_once("-slots-"))
                        .map(|(_, slots)| (slots, "-of-")),
                )
            }
            Self::Kazoo => {
                // Both marks end alike, so the longer one comes first.
                let ends = [
                    ("__rlock__", Share::READER),
                    ("__lock__", Share::MUTEX),
                    ("__lock__", Share::MUTEX),
                ];
                (
                    ends,
                    head.strip_suffix("__")
                        .and_then(|head| head.rsplit_once("__slots_"))
                        .map(|(_, slots)| (slots, "_of_")),
                )
            }
        };
        if let Some((_, share)) = ends.into_iter().find(|(end, _)| head.ends_with(end)) {
            return Some(share);
        }
        let (weight, capacity) = slots.and_then(|(slots, of)| slots.split_once(of))?;
        Share::slots(weight.parse().ok()?, capacity.parse().ok()?).ok()
    }

    fn id(self, head: &str) -> Option<ClaimId> {
        let text = match self {
            Self::Curator => head.strip_prefix("_c_")?.get(..36)?,
            Self::Kazoo => head.get(..32)?,
        };
        Some(ClaimId::from_bytes(
            uuid::Uuid::try_parse(text).ok()?.into_bytes(),
        ))
    }

    #[cold]
    fn foreign(self, node: &str) -> Error {
        let other = match self {
            Self::Curator => Self::Kazoo,
            Self::Kazoo => Self::Curator,
        };
        if other.read(node).is_some() {
            return Error::mismatch(format!(
                "the name is in use in the layout of {other}, by the node {node:?}"
            ))
            .help(format!(
                "add dialect={} to the URL, or use another name or folder",
                other.name()
            ));
        }
        let what = match node {
            "locks" | "leases" => "by a semaphore of Curator's",
            _ if node.contains("latch-") => "by a leader latch of Curator's",
            _ => "for something that is no lock",
        };
        Error::mismatch(format!(
            "the name is in use {what}, which has the node {node:?}"
        ))
        .help("use another name, or another folder in the URL")
    }

    /// Whether others count on the node of a lock to stay once they have seen it.
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

/// As its users write it.
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

/// All that may not be in the name of a node, and `%`; what is not ASCII is encoded anyway.
const SPECIAL: &AsciiSet = &CONTROLS.add(b'%').add(b'/');

/// The node of a lock, within its folder.
pub(super) fn node_of(name: &Name) -> String {
    let text = name.as_str();
    let encoded = utf8_percent_encode(text, SPECIAL).to_string();
    match &*encoded {
        // These mean something else.
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        "zookeeper" => "%7Aookeeper".to_owned(),
        _ => encoded,
    }
}

/// The name of the lock whose node this is; `None` if it cannot be one.
pub(super) fn name_of(node: &str) -> Option<Name> {
    let name = Name::parse(&percent_decode_str(node).decode_utf8().ok()?).ok()?;
    (node_of(&name) == node).then_some(name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::ClaimantInfo;

    fn claim(share: Share) -> Claim {
        let (name, info) = (
            Name::parse("a").expect("a name"),
            Arc::new(ClaimantInfo::here("").expect("a label")),
        );
        Claim {
            name,
            id: ClaimId::draw(),
            share,
            lease: Duration::from_secs(30),
            auto_renew: true,
            info,
        }
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
                assert_eq!(member.share.units(), share.units());
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
                    assert_eq!(member.share.units(), share.units());
                }
            }
        }
    }

    #[test]
    fn node_names_of_other_libraries_are_parsed() {
        let share =
            |dialect: Dialect, node: &str| dialect.member(node).map(|member| member.share).ok();
        let uuid = "79e1da5a-36b5-4c33-8d0f-a0b1c2d3e4f5";
        assert_eq!(
            share(Dialect::Curator, &format!("_c_{uuid}-lock-0000000003")),
            Some(Share::MUTEX)
        );
        assert_eq!(
            share(Dialect::Curator, "lock-0000000003"),
            Some(Share::MUTEX)
        );
        assert_eq!(
            share(Dialect::Curator, &format!("_c_{uuid}-__READ__0000000003")),
            Some(Share::READER)
        );
        assert_eq!(
            share(
                Dialect::Kazoo,
                &format!("{}__rlock__0000000003", uuid.replace('-', ""))
            ),
            Some(Share::READER)
        );
    }

    #[test]
    fn foreign_nodes_are_refused_with_help() {
        let error =
            |dialect: Dialect, node: &str| dialect.member(node).expect_err("foreign").to_string();
        assert!(error(Dialect::Curator, "0123__lock__0000000003").contains("dialect=kazoo"));
        assert!(error(Dialect::Kazoo, "_c_x-lock-0000000003").contains("dialect=curator"));
        assert!(error(Dialect::Curator, "leases").contains("semaphore of Curator's"));
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

    #[test]
    fn names_and_nodes_round_trip() {
        for name in [
            "orders/42",
            ".",
            "..",
            "zookeeper",
            "a b",
            "%2F",
            "\0\r\n",
            "ü",
            "\u{202e}",
        ] {
            let name = Name::parse(name).expect("a name");
            let node = node_of(&name);
            assert_eq!(name_of(&node), Some(name));
            assert!(node != "." && node != ".." && !node.contains('/') && node.is_ascii());
        }
        assert_eq!(
            node_of(&Name::parse("my lock:1").expect("a name")),
            "my lock:1"
        );
        assert_eq!(name_of("%"), None);
    }
}
