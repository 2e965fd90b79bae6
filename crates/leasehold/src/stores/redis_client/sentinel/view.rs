//! What the sentinels have replied.

use std::collections::HashMap;

use crate::stores::url::Host;
use crate::{Error, Result};

/// The last reply of each sentinel.
#[derive(Clone, Debug)]
pub(super) struct View(Vec<Replies>);

#[derive(Clone, Debug, Default)]
struct Replies {
    sighting: Option<Sighting>,
    /// The error of the last request, if it failed.
    error: Option<Error>,
}

/// A master that a sentinel has named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::stores::redis_client) struct Sighting {
    /// The number of the configuration. Each failover raises it.
    pub(super) epoch: u64,
    /// The address that the master announces.
    pub(super) host: Host,
}

impl View {
    pub(super) fn of(sentinels: usize) -> Self {
        Self(vec![Replies::default(); sentinels])
    }

    /// Notes the result of a request; `false` if it changes nothing.
    ///
    /// A sentinel that fails does not retract what it has replied: its reply may still be newer
    /// than those of the sentinels that are left.
    pub(super) fn note(&mut self, sentinel: usize, reply: Result<Sighting>) -> bool {
        let Some(replies) = self.0.get_mut(sentinel) else {
            return false;
        };
        let before = replies.sighting.clone();
        let had_error = replies.error.is_some();

        match reply {
            Ok(sighting) => {
                replies.sighting = Some(sighting);
                replies.error = None;
            }
            Err(error) => replies.error = Some(error),
        }
        before != replies.sighting || had_error != replies.error.is_some()
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

impl Sighting {
    /// Parses the reply to `SENTINEL MASTER`.
    pub(in crate::stores::redis_client) fn parse(fields: &HashMap<String, String>) -> Option<Self> {
        Some(Self {
            epoch: fields.get("config-epoch")?.parse().ok()?,
            host: Host {
                name: fields.get("ip")?.clone(),
                port: fields.get("port")?.parse().ok()?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sighting(epoch: u64, port: u16) -> Sighting {
        let name = "a".to_owned();
        let host = Host { name, port };
        Sighting { epoch, host }
    }

    #[test]
    fn newest_configuration_names_the_master() {
        let mut view = View::of(3);
        assert!(view.note(0, Ok(sighting(4, 1))));
        assert!(view.note(1, Ok(sighting(5, 2))));
        assert_eq!(view.master(), Some(&sighting(5, 2)));

        // The sentinel with the newest configuration fails. The others do not know of it yet.
        assert!(view.note(1, Err(Error::unavailable("down"))));
        assert!(!view.note(0, Ok(sighting(4, 1))));
        assert_eq!(view.master(), Some(&sighting(5, 2)));
    }

    #[test]
    fn all_sentinels_must_fail_before_the_search_fails() {
        let mut view = View::of(2);
        view.note(0, Err(Error::unavailable("down")));
        assert!(!view.has_failed());

        view.note(1, Err(Error::denied("no password")));
        assert!(view.has_failed());
        assert!(view.error().is_denied());
    }
}
