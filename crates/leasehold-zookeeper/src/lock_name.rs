//! The names of locks as names of nodes, and back.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use leasehold_core::Name;

/// Returns the node of a lock, without its folder.
pub(super) fn node_of(name: &Name) -> String {
    let encoded = utf8_percent_encode(name.as_str(), SPECIAL).to_string();
    match &*encoded {
        // ZooKeeper reserves these names.
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        "zookeeper" => "%7Aookeeper".to_owned(),
        _ => encoded,
    }
}

/// Returns the name of the lock with this node; `None` if no lock has such a node.
pub(super) fn name_of(node: &str) -> Option<Name> {
    let text = percent_decode_str(node).decode_utf8().ok()?;
    let name = Name::parse(&text).ok()?;
    (node_of(&name) == node).then_some(name)
}

/// The characters that the name of a node cannot contain, and `%`. Characters outside ASCII are
/// encoded in any case.
const SPECIAL: &AsciiSet = &CONTROLS.add(b'%').add(b'/');

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows G-17.
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
            assert!(![".", "..", "zookeeper"].contains(&&*node), "{node}");
            assert!(!node.contains('/') && node.is_ascii());
        }
    }

    #[test]
    fn plain_name_is_its_own_node() {
        let name = Name::parse("my lock:1").expect("a name");
        assert_eq!(node_of(&name), "my lock:1");
    }

    #[test]
    fn broken_encoding_is_not_a_name() {
        assert_eq!(name_of("%"), None);
    }
}
