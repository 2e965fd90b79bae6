//! White space and control characters in a text that selects a store or a lock.
//!
//! A secret that `echo` has made ends with a line feed, and an argument in a script with CRLF with a
//! carriage return. Nobody sees the character, and the text selects another folder, node or lock than
//! the text without it. So the clients of the two would not exclude each other.

use crate::name::is_invisible;
use crate::{Error, Result};

/// Refuses white space at the ends of a text, and control and format characters in it.
pub(crate) fn check(what: &str, text: &str) -> Result<()> {
    match stray_character(text) {
        Some(stray) => Err(Error::invalid(format!("{what} has {stray}")).help("remove it")),
        None => Ok(()),
    }
}

/// Describes white space at either end of a text, or a control or format character anywhere in it,
/// as in `a line feed (U+000A) at its end`; `None` if there is neither.
#[must_use]
pub fn stray_character(text: &str) -> Option<String> {
    let is_last = |at: usize, c: char| at + c.len_utf8() == text.len();
    let is_stray = |&(at, c): &(usize, char)| {
        c.is_control() || is_invisible(c) || is_blank(c) && (at == 0 || is_last(at, c))
    };
    let (at, character) = text.char_indices().rev().find(is_stray)?;

    let place = match at {
        at if is_last(at, character) => " at its end",
        0 => " at its beginning",
        _ => "",
    };
    Some(format!("{}{place}", described(character)))
}

/// Whether a character shows nothing: white space, a control or format character, a joiner, or a
/// letter that only fills a place.
pub(crate) fn is_blank(c: char) -> bool {
    const JOINERS_AND_FILLERS: &str = "\u{200c}\u{200d}\u{115f}\u{1160}\u{3164}\u{ffa0}\u{2800}";
    c.is_whitespace() || c.is_control() || is_invisible(c) || JOINERS_AND_FILLERS.contains(c)
}

pub(crate) fn described(character: char) -> String {
    let name = match character {
        ' ' => "a space",
        '\t' => "a tab",
        '\n' => "a line feed",
        '\r' => "a carriage return",
        _ => "an invisible character",
    };
    format!("{name} (U+{:04X})", u32::from(character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_at_the_ends_and_control_characters_are_described() {
        for (text, described) in [
            ("a\n", "a line feed (U+000A) at its end"),
            ("a\r\n", "a line feed (U+000A) at its end"),
            ("a\r", "a carriage return (U+000D) at its end"),
            (" a", "a space (U+0020) at its beginning"),
            ("\ta ", "a space (U+0020) at its end"),
            ("a\u{a0}", "an invisible character (U+00A0) at its end"),
            (
                "\u{feff}a",
                "an invisible character (U+FEFF) at its beginning",
            ),
            ("a\u{200d}", "an invisible character (U+200D) at its end"),
            (
                "\u{3164}a",
                "an invisible character (U+3164) at its beginning",
            ),
            ("a\u{202a}b", "an invisible character (U+202A)"),
            ("a\tb", "a tab (U+0009)"),
            ("a\u{1b}b", "an invisible character (U+001B)"),
            ("\0", "an invisible character (U+0000) at its end"),
        ] {
            assert_eq!(
                stray_character(text).as_deref(),
                Some(described),
                "{text:?}"
            );
        }
        for text in ["", "a", "a b", "数据 同步", "a\u{a0}b", "می\u{200c}خواهم"] {
            assert_eq!(stray_character(text), None, "{text:?}");
        }
    }
}
