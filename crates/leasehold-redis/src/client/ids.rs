//! Identifiers as text in keys, channels and records.

use std::fmt;
use std::ops::Deref;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

use leasehold_core::ClaimId;
use leasehold_core::store::{claim_id_from_bytes, draw_claim_id};

/// All characters except those that are plain in keys, patterns and shells.
pub(crate) const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'/')
    .remove(b':')
    .remove(b'@');

/// Returns 64 new random bits, which cannot be guessed.
pub(crate) fn fresh_client() -> String {
    URL_SAFE_NO_PAD.encode(&draw_claim_id().to_bytes()[..8])
}

/// The text of a claim's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdText([u8; 22]);

pub(crate) fn id_text(id: ClaimId) -> IdText {
    let mut text = [0; 22];
    let encoded = URL_SAFE_NO_PAD.encode_slice(id.to_bytes(), &mut text);
    encoded.expect("the text has room for 16 bytes");
    IdText(text)
}

impl Deref for IdText {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.0).expect("base64 is ASCII")
    }
}

impl fmt::Display for IdText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

pub(crate) fn id_from(text: &str) -> Option<ClaimId> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    Some(claim_id_from_bytes(bytes.try_into().ok()?))
}
