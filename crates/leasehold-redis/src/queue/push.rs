//! Notifications of a queue's changes to a client's inbox.

use super::layout::grant;
use crate::client::id_from;
use leasehold_core::{ClaimId, Token};

/// A notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Push {
    /// The claim is granted.
    Held(Token),
    /// The claim is the first waiter.
    Next,
    /// The claim has left the queue.
    Gone,
}

impl Push {
    /// Parses a notification. Returns it with its claim, and with the key of a granted lock.
    pub(super) fn parse(text: &str) -> Option<(ClaimId, Self, &str)> {
        let push = match grant::KIND.read(text)? {
            "H" => Self::Held(Token::new(grant::TOKEN.read_number(text)?)?),
            "N" => Self::Next,
            "G" => Self::Gone,
            _ => return None,
        };
        let rest = match push {
            Self::Held(_) => text.get(grant::CLAIM.start..)?,
            Self::Next | Self::Gone => text.get(grant::KIND.end()..)?,
        };
        let (id, key) = rest.split_at_checked(grant::CLAIM.len)?;
        Some((id_from(id)?, push, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::id_text;
    use crate::test_inputs::altered_text;
    use leasehold_core::store::draw_claim_id;
    use proptest::prelude::*;

    #[test]
    fn malformed_push_is_ignored() {
        let id = draw_claim_id();
        let token = Token::new(5).expect("above zero");
        let granted = format!("H0000000000000005{}leasehold:{{a}}", id_text(id));
        assert_eq!(
            Push::parse(&granted),
            Some((id, Push::Held(token), "leasehold:{a}"))
        );

        let gone = format!("G{}", id_text(id));
        assert_eq!(Push::parse(&gone), Some((id, Push::Gone, "")));
        for malformed in ["", "H", "N", "Nü", "H000000000000000ü", "Xabc"] {
            assert_eq!(Push::parse(malformed), None);
        }
    }

    proptest! {
        #[test]
        fn any_notification_is_parsed_or_ignored(
            text in altered_text(&[
                "H0000000000000005AAAAAAAAAAAAAAAAAAAAAAleasehold:{a}",
                "GAAAAAAAAAAAAAAAAAAAAAA",
            ]),
        ) {
            let _push = Push::parse(&text);
        }
    }
}
