//! The parsers of this store, for random inputs.

use super::field;
use crate::Token;

/// Parses the field of a holder.
pub fn fields(bytes: &[u8]) {
    for (kind, counter) in [("M", None), ("R", None), ("P", None), ("M", Token::new(7))] {
        let holder = field::RawHolder {
            field: bytes.to_vec(),
            acquires: "1".to_owned(),
            left: None,
            kind: kind.to_owned(),
        };
        let entry = field::holder(&holder, counter, 5);
        let _shown = format!("{entry:?}");
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _token = field::token_in(text);
        let _error = field::foreign(text);
    }
}
