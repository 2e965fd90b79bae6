use super::*;
use crate::test_inputs::altered_text;
use proptest::prelude::*;

#[test]
fn renewals_have_positions_of_waiters_only() {
    let queued = |position, absence| Renewed::Queued { position, absence };
    let expected = vec![
        Renewed::Held,
        queued(3, AbsenceSeen::New),
        Renewed::Gone,
        Renewed::Unusable,
        queued(12, AbsenceSeen::Noted),
        queued(1, AbsenceSeen::None),
    ];
    let reply = "id1A0!aQ000000030000001200000001";
    assert_eq!(parse_renewals(reply, "id", 6), Some(expected));

    for malformed in [
        "id1A0!aQ",
        "ix1",
        "id1A0!aQ0000000300000012",
        "id1?0000000",
        "id1110000000100000002",
    ] {
        assert_eq!(parse_renewals(malformed, "id", 6), None, "{malformed}");
    }
}

proptest! {
    #[test]
    fn any_reply_is_parsed_or_refused(
        text in altered_text(&["id1A0!aQ000000030000001200000001"]),
        count in 0..9_usize,
    ) {
        let _renewed = parse_renewals(&text, "id", count);
    }
}
