//! Encodes lock names as file names. The encoding is reversible, and no encoded name leads out of
//! the folder.

use std::path::PathBuf;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rustix::fs::FileType;

use crate::Name;

/// The longest piece of a name. A file system accepts file names of at most 255 bytes, including
/// the ending. A longer name continues in a folder.
const PIECE_MAX: usize = 200;

/// The longest encoded name: three characters for each of 512 bytes.
pub(super) const ENCODED_MAX: usize = 3 * 512;

/// The most pieces of a name.
pub(super) const PIECES_MAX: usize = ENCODED_MAX.div_ceil(PIECE_MAX);

/// Ends the name of a folder that has the rest of long names. It does not occur in an encoded name.
pub(super) const CONTINUED: &str = "+";

/// The characters that are not encoded.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The prefix of the name, in `.members`, of a file that is still being made.
pub(crate) const PENDING: &str = "new-";

/// Returns the path of `name` in the folder, with an `ending` such as `.lock`.
///
/// Letters, digits, `-`, `_` and `.` are kept, and every other byte becomes `%XX`. A dot at the
/// beginning is encoded too. So no file is hidden, and no name adds a `..` or a `/` to a path.
pub(super) fn path_of(name: &Name, ending: &str) -> PathBuf {
    let encoded = encode(name.as_str());
    let mut rest = encoded.as_str();
    let mut path = PathBuf::new();
    while rest.len() > PIECE_MAX {
        let (piece, behind) = rest.split_at(PIECE_MAX);
        path.push(format!("{piece}{CONTINUED}"));
        rest = behind;
    }
    path.push(format!("{rest}{ending}"));
    path
}

fn encode(name: &str) -> String {
    match name.strip_prefix('.') {
        Some(rest) => format!("%2E{}", utf8_percent_encode(rest, PLAIN)),
        None => utf8_percent_encode(name, PLAIN).to_string(),
    }
}

/// Decodes a whole encoded name; `None` if no name has this encoding.
pub(crate) fn decode(encoded: &str) -> Option<Name> {
    let text = percent_decode_str(encoded).decode_utf8().ok()?;
    let name = Name::parse(&text).ok()?;
    (encode(name.as_str()) == encoded).then_some(name)
}

/// Whether leasehold makes entries with this name and type in `.members`.
pub(crate) fn is_member(name: &str, file_type: FileType) -> bool {
    let is_id = |text: &str| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match name.strip_prefix(PENDING) {
        Some(id) => is_id(id) && [FileType::Fifo, FileType::RegularFile].contains(&file_type),
        None => is_id(name) && file_type == FileType::Fifo,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::test_inputs::altered_text;
    use proptest::prelude::*;

    fn path(name: &str) -> PathBuf {
        let name = Name::parse(name).expect("a valid name");
        Path::new("/d").join(path_of(&name, ".lock"))
    }

    /// Shows G-17.
    #[test]
    fn hostile_names_stay_inside_the_folder() {
        assert_eq!(path("orders/42"), Path::new("/d/orders%2F42.lock"));
        assert_eq!(path(".."), Path::new("/d/%2E..lock"));
        assert_eq!(
            path("../../etc/passwd"),
            Path::new("/d/%2E.%2F..%2Fetc%2Fpasswd.lock")
        );
        assert_eq!(path("a\0b\n"), Path::new("/d/a%00b%0A.lock"));
        assert_eq!(path(".members"), Path::new("/d/%2Emembers.lock"));
        assert_eq!(path("a+"), Path::new("/d/a%2B.lock"));
    }

    #[test]
    fn long_names_are_split_into_folders() {
        let long = path(&"ä".repeat(256));
        assert!(long.components().all(|part| part.as_os_str().len() <= 255));
        assert_eq!(
            long.components().count(),
            2 + 1536_usize.div_ceil(PIECE_MAX)
        );
    }

    proptest! {
        #[test]
        fn every_name_round_trips(text in "\\PC{1,100}|[./%+a\0]{1,20}") {
            let name = Name::parse(&text).expect("1 to 400 bytes");
            prop_assert_eq!(decode(&encode(&text)), Some(name));
        }
    }

    proptest! {
        #[test]
        fn any_file_name_is_decoded_or_foreign(
            encoded in altered_text(&["orders%2F42", "%2Emembers"]),
        ) {
            let _name = decode(&encoded);
        }
    }
}
