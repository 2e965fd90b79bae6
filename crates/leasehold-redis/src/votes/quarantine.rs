//! Whether the votes of a master count.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::record::{INCARNATION_KEY, millis};
use crate::client::{Handshake, Script, Session, decode, script};
use leasehold_core::internal::BootInstant;
use leasehold_core::{Error, Result};

/// What a client knows about what one master remembers.
///
/// A master that was restarted or emptied may have forgotten a vote. Its votes do not count until
/// the longest lease of any client has passed: by then each hold that it may have forgotten has
/// ended.
///
/// A key on the master shows whether it has forgotten votes. The key contains the run id of the
/// server, and is lost together with all other keys.
///
/// ```text
/// unknown ──handshake: key is older than the longest lease──► trusted
///    │                                                           ▲
///    └──handshake: no key, or of another run──► in quarantine ───┘ after the longest lease
///                                                    ▲
/// trusted ──restarted or emptied─────────────────────┘
/// ```
#[derive(Debug)]
pub(super) struct Quarantine {
    url: String,
    pub(super) settings: MasterSettings,
    run_ids: Arc<RunIds>,
    incarnation: Mutex<Option<Incarnation>>,
    is_duplicate: AtomicBool,
}

/// The settings that do not concern a Redis connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MasterSettings {
    /// The longest lease of all clients, and so the length of a quarantine.
    /// [`Duration::MAX`] for a single server.
    pub(crate) longest_lease: Duration,
    pub(crate) quarantine: bool,
}

impl MasterSettings {
    /// Whether the store has several servers.
    pub(super) fn has_several_servers(self) -> bool {
        self.longest_lease < Duration::MAX
    }
}

/// The run id of each master's server, by the master's URL.
pub(super) type RunIds = Mutex<HashMap<String, String>>;

/// An incarnation of a master, as a client has found it.
#[derive(Clone, Debug)]
pub(super) struct Incarnation {
    /// `None` if quarantine is off.
    id: Handshake,
    /// The moment from which votes of this incarnation count.
    counts_from: BootInstant,
}

/// The key of the time from which the age of an incarnation counts, if the incarnation is later
/// than the server's clock.
const SINCE_KEY: &str = "leasehold:redlock:mark:since";

static INCARNATION: Script = script!("lua/incarnation");

impl Quarantine {
    pub(super) fn new(url: String, settings: MasterSettings, run_ids: Arc<RunIds>) -> Self {
        Self {
            url,
            settings,
            run_ids,
            incarnation: Mutex::default(),
            is_duplicate: AtomicBool::new(false),
        }
    }

    /// Whether a vote counts.
    ///
    /// `incarnation` is the one that the connection found. `found` is true if the master still had
    /// it when it voted.
    ///
    /// Both are needed. The connection survives a FLUSHALL, which forgets the votes, so the script
    /// compares the incarnation in the step in which it votes. And the reply to a request on an
    /// earlier connection may arrive after the handshake of a later one, to a master that has
    /// restarted in between: it confirms the incarnation of a run whose votes are lost, so it
    /// counts only if that is still the latest one that this client knows.
    pub(super) fn counts(&self, incarnation: &Handshake, found: bool) -> bool {
        if !self.settings.quarantine {
            return true;
        }
        let latest = self.incarnation.lock();
        let is_trusted = |latest: &Incarnation| {
            latest.id == *incarnation && latest.counts_from <= BootInstant::now()
        };
        found && latest.as_ref().is_some_and(is_trusted)
    }

    /// Returns for how much longer the votes of this master do not count.
    pub(super) fn remaining(&self) -> Duration {
        if !self.settings.quarantine {
            return Duration::ZERO;
        }
        let latest = self.incarnation.lock();
        let counts_from = latest.as_ref().map(|latest| latest.counts_from);
        counts_from.map_or(Duration::ZERO, |from| {
            from.duration_since(BootInstant::now())
        })
    }

    /// Returns why the votes of this master do not count yet.
    pub(super) fn message(&self) -> String {
        format!(
            "started or emptied recently; its vote counts in {:.1} s",
            self.remaining().as_secs_f64()
        )
    }

    /// Whether a handshake with this master has ever succeeded.
    pub(super) fn is_known(&self) -> bool {
        self.incarnation.lock().is_some()
    }

    /// Whether this master is the same server as another one.
    pub(super) fn is_duplicate(&self) -> bool {
        self.is_duplicate.load(Ordering::Acquire)
    }

    /// Rejects a replica as one of several masters.
    pub(super) fn check_role(&self, role: &str) -> Result<()> {
        if !self.settings.has_several_servers() || role != "slave" {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{} is a replica, and a replica cannot vote independently",
            self.url
        ))
        .help("name servers that do not replicate each other"))
    }

    /// Rejects a server that the URL names twice.
    pub(super) fn check_distinct(&self, run_id: &str) -> Result<()> {
        let mut run_ids = self.run_ids.lock();
        let is_same = |(url, other): &(&String, &String)| {
            **url != self.url && !run_id.is_empty() && *other == run_id
        };
        if let Some((other, _)) = run_ids.iter().find(is_same) {
            self.is_duplicate.store(true, Ordering::Release);
            return Err(Error::invalid(format!(
                "{other} and {} are one and the same server",
                self.url
            ))
            .help("name each master once"));
        }
        run_ids.insert(self.url.clone(), run_id.to_owned());
        Ok(())
    }

    /// Records the incarnation that a handshake has found, and returns its id.
    ///
    /// A master that has kept its incarnation has forgotten nothing since the first handshake. It
    /// stays trusted even if its clock, and so the age of the incarnation, was set back.
    pub(super) fn learn(&self, found: Incarnation) -> Handshake {
        let mut latest = self.incarnation.lock();
        let earlier = latest
            .as_ref()
            .filter(|latest| latest.id == found.id)
            .map(|latest| latest.counts_from);

        let from = found.counts_from;
        let counts_from = earlier.map_or(from, |earlier| earlier.min(from));
        let id = found.id.clone();
        *latest = Some(Incarnation {
            id: found.id,
            counts_from,
        });
        id
    }
}

/// Reads the incarnation of a master, or creates it.
pub(super) async fn read_incarnation(
    session: &Session,
    run_id: &str,
    quarantine: &Quarantine,
) -> Result<Incarnation> {
    let settings = quarantine.settings;
    if !settings.quarantine {
        return Ok(Incarnation {
            id: None,
            counts_from: BootInstant::now(),
        });
    }
    if run_id.is_empty() {
        return Err(
            Error::unsupported("the user may not read whether the master was restarted")
                .help("allow +info, or write quarantine=off if no master ever forgets a vote"),
        );
    }

    let longest = millis(settings.longest_lease);
    let keys = [INCARNATION_KEY, SINCE_KEY];
    let reply = INCARNATION
        .run(session, &keys, &[run_id, &longest.to_string()])
        .await?;
    let (id, age, of_others): (String, u64, u64) = decode(reply)?;
    check_longest_lease(longest, of_others)?;

    // One percent for the different rates of two clocks, and 10 ms for their resolution.
    let longest = settings.longest_lease.mul_f64(1.01) + Duration::from_millis(10);
    let wait = longest.saturating_sub(Duration::from_micros(age));
    Ok(Incarnation {
        id: Some(id.into()),
        counts_from: BootInstant::now().saturating_add(wait),
    })
}

fn check_longest_lease(longest: u64, of_others: u64) -> Result<()> {
    if longest == of_others {
        return Ok(());
    }
    Err(Error::mismatch(format!(
        "other clients use longest-lease={of_others}ms with this master, not {longest}ms"
    ))
    .help(format!(
        "use the same value in all URLs; to change it, stop all clients and delete \
         {INCARNATION_KEY} on every master"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_redis_model::{Reply, Server};
    use proptest::prelude::*;

    const SCRIPT: &str = include_str!("lua/incarnation.lua");

    /// Connects to a server at a time of its clock, and returns the age of its incarnation.
    fn age(server: &mut Server, now: i64) -> i64 {
        let keys = [INCARNATION_KEY, SINCE_KEY];
        let words = ["EVAL", SCRIPT, "2", keys[0], keys[1], "run", "60000"];
        let words: Vec<Vec<u8>> = words.map(|word| word.as_bytes().to_vec()).into();
        let Reply::List(parts) = server.execute(0, now, &words) else {
            panic!("the script replies with a list");
        };
        let Reply::Bytes(age) = &parts[1] else {
            panic!("the age is a text: {parts:?}");
        };
        let age = String::from_utf8_lossy(age).parse();
        age.expect("a number")
    }

    proptest! {
        /// The clock is set back again and again. An incarnation is never shown older than it is.
        /// It ages from the first handshake after that, until the clock has reached its creation.
        ///
        /// Shows G-34.
        #[test]
        fn incarnation_ages_after_its_clock_was_set_back(
            steps in prop::collection::vec((0i64..1_000, 0i64..3_000, any::<bool>()), 1..12),
        ) {
            let mut server = Server::new("0123456789");
            let created = 1_750_000_000_000_000;
            let mut clock = created;
            prop_assert_eq!(age(&mut server, clock), 0);
            let mut known_for = 0;
            let mut ages_for = 0;
            for (passed, back, is_set_back) in steps {
                clock += passed;
                known_for += passed;
                ages_for += passed;
                if is_set_back {
                    clock -= back;
                    ages_for = 0;
                }
                let age = age(&mut server, clock);
                prop_assert!(age >= 0 && age <= known_for, "{} of {}", age, known_for);
                let least = if clock < created { ages_for } else { ages_for.min(clock - created) };
                prop_assert!(age >= least, "{} is below {}", age, least);
            }
        }
    }

    /// Shows G-34.
    #[test]
    fn quarantine_lasts_until_the_master_has_been_known_for_a_lease() {
        let settings = MasterSettings {
            longest_lease: Duration::from_secs(60),
            quarantine: true,
        };
        let quarantine = Quarantine::new("redis://a".to_owned(), settings, Arc::default());
        let found = |id: &str, wait: u64| Incarnation {
            id: Some(id.into()),
            counts_from: BootInstant::now().saturating_add(Duration::from_secs(wait)),
        };
        assert!(!quarantine.is_known() && quarantine.remaining().is_zero());

        let young = quarantine.learn(found("one", 58));
        assert!(quarantine.is_known() && !quarantine.counts(&young, true));
        assert!(quarantine.remaining() > Duration::from_secs(50));
        let text = quarantine.message();
        assert!(text.contains("its vote counts in 5"), "{text}");

        let old = quarantine.learn(found("one", 0));
        assert!(quarantine.counts(&old, true) && !quarantine.counts(&old, false));
        // The same incarnation looks younger if the clock was set back.
        quarantine.learn(found("one", 60));
        assert!(quarantine.counts(&old, true) && quarantine.remaining().is_zero());

        let other = quarantine.learn(found("two", 60));
        assert!(!quarantine.counts(&other, true) && !quarantine.counts(&old, true));
        assert!(quarantine.remaining() > Duration::from_secs(50));
    }
}
