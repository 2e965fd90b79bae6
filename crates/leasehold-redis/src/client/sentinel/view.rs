//! What the sentinels have replied.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::client::session::decode;
use crate::client::value::Value;
use leasehold_core::internal::Host;
use leasehold_core::{Error, Result};

/// For how long a sentinel that does not reply is followed against all others. After that, it must
/// have been replaced.
///
/// A failover takes much less, and the other sentinels of its group know of it then.
const SILENT_MAX: Duration = Duration::from_secs(60);

/// The last reply of each sentinel.
#[derive(Clone, Debug)]
pub(super) struct View(Vec<Replies>);

#[derive(Clone, Debug, Default)]
struct Replies {
    sighting: Option<Sighting>,
    /// The error of the last request, if it failed.
    error: Option<Error>,
    /// When a request first failed after the last reply.
    silent_since: Option<Instant>,
}

/// A master that a sentinel has named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// The number of the configuration. Each failover raises it.
    pub(super) epoch: u64,
    /// The address that the master announces.
    pub(super) host: Host,
}

impl View {
    pub(super) fn of(sentinels: usize) -> Self {
        Self(vec![Replies::default(); sentinels])
    }

    /// Notes the result of a request at `now`; `false` if it changes nothing.
    ///
    /// A sentinel that fails does not retract what it has replied: its reply may still be newer
    /// than those of the sentinels that are left.
    pub(super) fn note(&mut self, sentinel: usize, reply: Result<Sighting>, now: Instant) -> bool {
        let before = self.master().cloned();
        let Some(replies) = self.0.get_mut(sentinel) else {
            return false;
        };
        let failed_before = replies.error.is_some();

        match reply {
            Ok(sighting) => {
                *replies = Replies {
                    sighting: Some(sighting),
                    ..Replies::default()
                };
            }
            Err(error) => {
                replies.error = Some(error);
                replies.silent_since.get_or_insert(now);
            }
        }
        let fails = replies.error.is_some();
        self.forget_retired(now);
        before.as_ref() != self.master() || failed_before != fails
    }

    /// Forgets the master of sentinels that have been silent for long, if the others agree on one,
    /// and are at least half of all.
    ///
    /// A group that is set up again counts its configurations from zero. Until they reach the last
    /// configuration of a sentinel that is gone for good, that one would win.
    fn forget_retired(&mut self, now: Instant) {
        let others: Vec<&Replies> = self.0.iter().filter(|one| !one.is_retired(now)).collect();
        let mut masters = others.iter().map(|other| other.master());
        let Some(Some(first)) = masters.next() else {
            return;
        };
        let do_agree = masters.all(|master| master == Some(first));
        if !do_agree || others.len() * 2 < self.0.len() {
            return;
        }

        for retired in self.0.iter_mut().filter(|one| one.is_retired(now)) {
            retired.sighting = None;
        }
    }

    pub(super) fn master(&self) -> Option<&Sighting> {
        let sightings = self
            .0
            .iter()
            .filter_map(|replies| replies.sighting.as_ref());
        sightings.max_by_key(|sighting| sighting.epoch)
    }

    /// Whether the last request to each sentinel has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.0.iter().all(|replies| replies.error.is_some())
    }

    /// Returns the error that helps most: one that another try does not remove.
    pub(super) fn error(&self) -> Error {
        let errors = || self.0.iter().filter_map(|replies| replies.error.as_ref());
        let lasting = errors().find(|error| !error.is_unavailable());
        lasting.or_else(|| errors().next()).map_or_else(
            || Error::unavailable("no sentinel replies"),
            |error| {
                let message = format!("no sentinel names a master: {error}");
                if error.is_unavailable() {
                    return Error::unavailable(message)
                        .help("check the hosts and ports of the sentinels, and that they run");
                }
                error.clone()
            },
        )
    }
}

impl Replies {
    fn is_retired(&self, now: Instant) -> bool {
        self.silent_since
            .is_some_and(|since| now >= since + SILENT_MAX)
    }

    fn master(&self) -> Option<&Host> {
        self.sighting.as_ref().map(|sighting| &sighting.host)
    }
}

impl Sighting {
    /// Parses the replies to `SENTINEL MASTER` and `SENTINEL GET-MASTER-ADDR-BY-NAME`.
    pub(crate) fn parse(configuration: Value, address: Value) -> Option<Self> {
        let fields: HashMap<String, String> = decode(configuration).ok()?;
        let (name, port): (String, String) = decode(address).ok()?;
        let port = port.parse().ok()?;
        Some(Self {
            epoch: fields.get("config-epoch")?.parse().ok()?,
            host: Host { name, port },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::reader::parse_reply;
    use crate::test_inputs::altered;
    use proptest::prelude::*;

    fn sighting(epoch: u64, port: u16) -> Sighting {
        let name = "a".to_owned();
        let host = Host { name, port };
        Sighting { epoch, host }
    }

    fn silence() -> Result<Sighting> {
        Err(Error::unavailable("down"))
    }

    #[test]
    fn newest_configuration_names_the_master() {
        let mut view = View::of(3);
        let now = Instant::now();
        assert!(view.note(0, Ok(sighting(4, 1)), now));
        assert!(view.note(1, Ok(sighting(5, 2)), now));
        assert_eq!(view.master(), Some(&sighting(5, 2)));

        // The sentinel with the newest configuration fails. The others do not know of it yet.
        assert!(view.note(1, silence(), now));
        assert!(!view.note(0, Ok(sighting(4, 1)), now));
        assert_eq!(view.master(), Some(&sighting(5, 2)));
    }

    /// The group is set up again from an empty state, without one of its sentinels.
    ///
    /// Shows G-25.
    #[test]
    fn retired_sentinel_is_forgotten_when_the_others_agree() {
        let mut view = View::of(3);
        let begun = Instant::now();
        view.note(0, Ok(sighting(9, 1)), begun);
        for failed in [begun, begun + SILENT_MAX / 2] {
            view.note(0, silence(), failed);
        }
        let renewed = |view: &mut View, one: Sighting, other: Sighting, now: Instant| {
            view.note(1, Ok(one), now);
            view.note(2, Ok(other), now);
            view.master().cloned()
        };
        let early = begun + SILENT_MAX - Duration::from_secs(1);
        let late = begun + SILENT_MAX;

        let known = renewed(&mut view.clone(), sighting(1, 2), sighting(1, 2), early);
        assert_eq!(known, Some(sighting(9, 1)), "it may have seen a failover");
        let known = renewed(&mut view.clone(), sighting(1, 2), sighting(1, 3), late);
        assert_eq!(known, Some(sighting(9, 1)), "the others do not agree");
        let known = renewed(&mut view, sighting(0, 2), sighting(1, 2), late);
        assert_eq!(known, Some(sighting(1, 2)));

        view.note(0, Ok(sighting(9, 1)), late);
        assert_eq!(view.master(), Some(&sighting(9, 1)), "it was not replaced");
    }

    #[test]
    fn single_sentinel_does_not_overrule_two_silent_ones() {
        let mut view = View::of(3);
        let begun = Instant::now();
        for sentinel in [0, 1] {
            view.note(sentinel, Ok(sighting(9, 1)), begun);
            view.note(sentinel, silence(), begun);
        }

        view.note(2, Ok(sighting(1, 2)), begun + SILENT_MAX * 2);
        assert_eq!(view.master(), Some(&sighting(9, 1)));
    }

    /// A client that was stopped for a long time has seen no failed request meanwhile.
    #[test]
    fn stopped_client_forgets_no_sentinel() {
        let mut view = View::of(3);
        let begun = Instant::now();
        view.note(0, Ok(sighting(9, 1)), begun);

        let resumed = begun + SILENT_MAX * 2;
        view.note(0, silence(), resumed);
        view.note(1, Ok(sighting(1, 2)), resumed);
        view.note(2, Ok(sighting(1, 2)), resumed);
        assert_eq!(view.master(), Some(&sighting(9, 1)));
    }

    #[test]
    fn all_sentinels_must_fail_before_the_search_fails() {
        let mut view = View::of(2);
        let now = Instant::now();
        view.note(0, silence(), now);
        assert!(!view.has_failed());

        view.note(1, Err(Error::denied("no password")), now);
        assert!(view.has_failed());
        assert!(view.error().is_denied());
    }

    proptest! {
        #[test]
        fn any_reply_is_parsed_or_refused(
            bytes in altered(&[
                "*6\r\n$4\r\nname\r\n$6\r\nmaster\r\n$2\r\nip\r\n$1\r\nh\r\n$4\r\nport\r\n$4\r\n6379\r\n",
                "%3\r\n$12\r\nconfig-epoch\r\n$1\r\n3\r\n$2\r\nip\r\n$1\r\nh\r\n$4\r\nport\r\n$4\r\n6379\r\n",
            ]),
        ) {
            if let Some(reply) = parse_reply(&bytes) {
                let _master = Sighting::parse(reply.clone(), reply);
            }
        }
    }
}
