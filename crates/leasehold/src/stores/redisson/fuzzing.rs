//! The parsers of this store, for random inputs.

use super::field;
use crate::Token;

/// Parses the field of a holder.
pub fn fields(bytes: &[u8]) {
    for counter in [None, Token::new(7)] {
        let entry = field::holder(bytes, "1", counter);
        let _shown = format!("{entry:?}");
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _token = field::token_in(text);
        let _error = field::foreign(text);
    }
}
