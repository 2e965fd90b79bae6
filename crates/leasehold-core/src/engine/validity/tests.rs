//! When a validity ends, and what extends it.

use super::*;
use crate::store::claimant_here;
use crate::{Name, Share};

const HOUR: Duration = Duration::from_secs(3600);

fn validity(valid_until: BootInstant) -> Validity {
    let name = Name::parse("a").expect("a valid name");
    let info = claimant_here("").expect("a valid label");
    let claim = Claim::new(name, Share::MUTEX, info.into());
    Validity::held(Arc::new(claim), valid_until)
}

fn in_hours(hours: u32) -> BootInstant {
    BootInstant::now().saturating_add(HOUR * hours)
}

/// Shows S7.
#[test]
fn expired_validity_is_not_revived_by_a_late_reply() {
    let validity = validity(BootInstant::now());

    assert!(!validity.extend(in_hours(1)), "a late reply revived it");
    let lost = End::Lost(LossReason::RenewalTimedOut);
    assert_eq!(validity.ending(), Some(lost));
    assert!(validity.check().expect_err("it has ended").is_lost());
}

#[test]
fn extension_never_shortens_and_never_exceeds_the_limit() {
    let in_one = in_hours(1);
    let in_two = in_hours(2);
    let validity = validity(in_one).with_limit(Limit {
        at: in_two,
        reason: LossReason::LeaseExpired,
    });

    assert!(validity.extend(in_one.before(HOUR / 2)));
    assert_eq!(validity.valid_until(), Some(in_one));

    assert!(validity.extend(in_hours(9)));
    assert_eq!(validity.valid_until(), Some(in_two));
}

#[test]
fn expired_limit_gives_its_loss_reason() {
    for reason in [LossReason::MaxHoldExceeded, LossReason::LeaseExpired] {
        let at = BootInstant::now();
        let validity = validity(in_hours(1)).with_limit(Limit { at, reason });
        assert_eq!(validity.ending(), Some(End::Lost(reason)));
    }
}

#[test]
fn expired_lease_is_not_reported_as_revoked() {
    let at = BootInstant::now();
    let reason = LossReason::LeaseExpired;
    let validity = validity(in_hours(1)).with_limit(Limit { at, reason });

    validity.revoke();
    assert_eq!(validity.ending(), Some(End::Lost(reason)));
}

#[test]
fn first_end_of_validity_is_kept() {
    let validity = validity(BootInstant::FAR_FUTURE);
    assert!(validity.end(End::Left));
    assert!(!validity.revoke());

    assert_eq!(validity.ending(), Some(End::Left));
    assert_eq!(validity.valid_until(), None);
}

/// Shows G-01, S4.
#[test]
fn safe_duration_is_shorter_than_the_lease() {
    assert!(safe_duration(HOUR) + Duration::from_secs(1) < HOUR);
    assert_eq!(safe_duration(Duration::MAX), Duration::MAX);
    assert_eq!(safe_duration(Duration::from_millis(1)), Duration::ZERO);
}
