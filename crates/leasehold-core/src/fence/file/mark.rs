//! The mark of a file: the highest token that it has received.

use crate::{FencingToken, Token};

/// The highest token that the file has received, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Version 1, without the claim of the token.
    Token(Token),
    Claim(FencingToken),
}

impl Mark {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.trim_end().split(' ').collect();
        match words[..] {
            [token] => Some(Self::Token(token.parse().ok()?)),
            [VERSION, token, claim] => Some(Self::Claim(FencingToken::new(
                token.parse().ok()?,
                claim.parse().ok()?,
            ))),
            _ => None,
        }
    }

    pub(super) fn text(self) -> String {
        match self {
            Self::Token(token) => format!("{token}\n"),
            Self::Claim(token) => format!("{VERSION} {} {}\n", token.token(), token.claim()),
        }
    }

    pub(super) fn token(self) -> Token {
        match self {
            Self::Token(token) => token,
            Self::Claim(token) => token.token(),
        }
    }

    pub(super) fn accepts(self, token: FencingToken) -> bool {
        match self {
            Self::Token(last_token) => token.token() > last_token,
            Self::Claim(last_token) => token.is_accepted_after(last_token),
        }
    }
}

/// Begins a mark with a claim id: `v2 TOKEN CLAIM`. Version 1 is the token alone, in decimal.
const VERSION: &str = "v2";
