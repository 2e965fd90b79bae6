//! Names of locks as names of files: reversible, and unable to leave the folder.

use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::Name;

/// A file system takes at most 255 bytes for one name, with the ending; longer ones go on in a folder.
const PIECE_MAX: usize = 200;
/// Ends the name of a folder that holds the rest of long names. It never stands in an encoded name.
const CONTINUED: char = '+';

/// The path of `name` below `folder`, with `ending` such as `.lock`.
///
/// Letters, digits, `-`, `_` and `.` stand for themselves, every other byte is `%XX`, and so is a dot at the beginning:
/// nothing is hidden, and there is no `..` and no `/`.
pub(crate) fn path_of(folder: &Path, name: &Name, ending: &str) -> PathBuf {
    let encoded = encode(name.as_str());
    let mut pieces = encoded
        .as_bytes()
        .chunks(PIECE_MAX)
        .map(|piece| String::from_utf8_lossy(piece))
        .peekable();
    let mut path = folder.to_owned();
    while let Some(piece) = pieces.next() {
        let last = pieces.peek().is_none();
        path.push(if last {
            format!("{piece}{ending}")
        } else {
            format!("{piece}{CONTINUED}")
        });
    }
    path
}

/// The text that an entry of a folder adds to a name, and whether more follows below it; `None` for other files.
pub(crate) fn piece_of<'a>(entry: &'a str, ending: &str) -> Option<(&'a str, bool)> {
    match entry.strip_suffix(CONTINUED) {
        Some(piece) => Some((piece, true)),
        None => entry.strip_suffix(ending).map(|piece| (piece, false)),
    }
}

/// What stands for itself.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

pub(crate) fn encode(name: &str) -> String {
    match name.strip_prefix('.') {
        Some(rest) => format!("%2E{}", utf8_percent_encode(rest, PLAIN)),
        None => utf8_percent_encode(name, PLAIN).to_string(),
    }
}

/// `None` if no name is encoded so.
pub(crate) fn decode(encoded: &str) -> Option<Name> {
    let name = Name::parse(&percent_decode_str(encoded).decode_utf8().ok()?).ok()?;
    (encode(name.as_str()) == encoded).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(name: &str) -> PathBuf {
        path_of(
            Path::new("/d"),
            &Name::parse(name).expect("a good name"),
            ".lock",
        )
    }

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
}
