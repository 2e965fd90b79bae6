//! One master: its links, and whether its votes count.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tokio::runtime::Handle;

use super::address::MasterSettings;
use super::record::{INCARNATION_KEY, SINCE, millis};
use super::scripts;
use crate::runtime::clock::BootInstant;
use crate::stores::redis_client::Address;
use crate::stores::redis_client::{self, ServerClock};
use crate::stores::redis_client::{DoHandshake, Handshake, Link, LinkConfig, State};
use crate::stores::redis_client::{PushHandler, Session};
use crate::{Error, Result};

#[derive(Debug)]
pub(super) struct Master {
    pub(super) caller_link: Link,
    pub(super) background_link: Link,
    pub(super) url: String,
    pub(super) clock: Arc<ServerClock>,
    pub(super) quarantine: Arc<Quarantine>,
    /// It has not answered in time, and nothing since: nobody waits for it but if it takes it to decide.
    pub(super) silent: AtomicBool,
}

/// What is known of a master's memory.
///
/// A master that was restarted or emptied may have forgotten whose vote it gave. For as long as a lease may last, its votes do not
/// count: until then whatever it has forgotten is over. It is told from one that remembers by its mark, a key that goes with all
/// the others and names the run of the server.
#[derive(Debug)]
pub(super) struct Quarantine {
    url: String,
    is_one_of_several: bool,
    run_ids: Arc<RunIds>,
    settings: MasterSettings,
    incarnation: Mutex<Option<Incarnation>>,
    is_duplicate: AtomicBool,
}

/// Which run of a server each master is, by its place.
pub(super) type RunIds = Mutex<HashMap<String, String>>;

#[derive(Clone, Debug)]
struct Incarnation {
    id: Handshake,
    /// From when on votes of a master with this mark count.
    counts_from: BootInstant,
}

impl Master {
    pub(super) fn spawn(
        address: &Address,
        settings: MasterSettings,
        run_ids: Arc<RunIds>,
        client: &str,
        on_push: PushHandler,
        runtime: Option<Handle>,
    ) -> Self {
        let clock = Arc::<ServerClock>::default();
        let is_one_of_several = settings.longest_lease < Duration::MAX;
        let (url, latest) = (address.to_string(), Mutex::default());
        let is_duplicate = AtomicBool::new(false);
        let quarantine = Arc::new(Quarantine {
            url,
            is_one_of_several,
            run_ids,
            settings,
            incarnation: latest,
            is_duplicate,
        });
        let handshake = handshake(Arc::clone(&clock), Arc::clone(&quarantine));
        let config = |channel: &str, on_push: PushHandler, runtime| LinkConfig {
            address: address.clone(),
            channel: format!("leasehold:{channel}:{client}"),
            on_push,
            handshake: Arc::clone(&handshake),
            runtime,
        };
        let caller_link = Link::spawn(config("inbox", on_push, runtime));
        let background_link = Link::spawn(config("far", Arc::new(|_, _| {}), None));
        Self {
            caller_link,
            background_link,
            url: address.to_string(),
            clock,
            quarantine,
            silent: AtomicBool::new(false),
        }
    }

    /// Waits until both links have been tried.
    pub(super) async fn first(&self) -> Result<()> {
        self.background_link.first().await?;
        self.caller_link.first().await
    }

    pub(super) fn link(&self, on_caller_link: bool) -> &Link {
        if on_caller_link {
            &self.caller_link
        } else {
            &self.background_link
        }
    }

    /// The session there is, with the mark it was greeted with; else why there is none.
    pub(super) fn session(&self, on_caller_link: bool) -> Result<(Arc<Session>, Handshake)> {
        self.link(on_caller_link).with_state(|state| match state {
            State::Up(session, incarnation) if !session.is_closed() => {
                Ok((Arc::clone(session), incarnation.clone()))
            }
            State::Down(_, error) => Err(error.clone()),
            State::Connecting | State::Up(..) => {
                Err(Error::unavailable("the server does not answer"))
            }
        })
    }
}

impl Master {
    /// Ends both connections: each is greeted anew.
    #[cold]
    pub(super) fn reconnect(&self) {
        for link in [&self.caller_link, &self.background_link] {
            link.with_state(|state| {
                if let State::Up(session, _) = state {
                    session.close();
                }
            });
        }
    }
}

impl Quarantine {
    /// Whether a vote counts that was given on a connection with this mark, and found it there or not.
    pub(super) fn counts(&self, incarnation: &Handshake, found: bool) -> bool {
        if !self.settings.quarantine {
            return true;
        }
        let latest = self.incarnation.lock();
        found
            && latest.as_ref().is_some_and(|latest| {
                latest.id == *incarnation && latest.counts_from <= BootInstant::now()
            })
    }

    /// For how long its votes do not count yet.
    pub(super) fn remaining(&self) -> Duration {
        let latest = self.incarnation.lock();
        let from = latest
            .as_ref()
            .filter(|_| self.settings.quarantine)
            .map(|latest| latest.counts_from);
        from.map_or(Duration::ZERO, |from| {
            from.duration_since(BootInstant::now())
        })
    }

    /// No two masters may be one server.
    fn check_distinct(&self, run: &str) -> Result<()> {
        let mut run_ids = self.run_ids.lock();
        if let Some((other, _)) = run_ids
            .iter()
            .find(|(url, latest)| **url != self.url && !run.is_empty() && *latest == run)
        {
            self.is_duplicate.store(true, Ordering::Release);
            return Err(Error::invalid(format!(
                "{other} and {} are one and the same server",
                self.url
            ))
            .help("name each master once"));
        }
        run_ids.insert(self.url.clone(), run.to_owned());
        Ok(())
    }

    /// Whether it was refused for being a server that has another name here.
    pub(super) fn is_duplicate(&self) -> bool {
        self.is_duplicate.load(Ordering::Acquire)
    }

    /// Takes note of a mark, and from when on votes with it count. A master that has kept its mark has forgotten nothing
    /// since it was first trusted, whatever its clock says of the mark's age.
    fn learn(&self, incarnation: Handshake, from: BootInstant) {
        let mut latest = self.incarnation.lock();
        let earlier = latest
            .as_ref()
            .filter(|latest| latest.id == incarnation)
            .map(|latest| latest.counts_from);
        let from = earlier.map_or(from, |earlier| earlier.min(from));
        *latest = Some(Incarnation {
            id: incarnation,
            counts_from: from,
        });
    }

    /// Whether it has ever been greeted, and its clock asked.
    pub(super) fn is_known(&self) -> bool {
        self.incarnation.lock().is_some()
    }
}

fn handshake(clock: Arc<ServerClock>, quarantine: Arc<Quarantine>) -> DoHandshake {
    Arc::new(move |session: Arc<Session>| {
        let (clock, quarantine) = (Arc::clone(&clock), Arc::clone(&quarantine));
        Box::pin(async move {
            let role = redis_client::info_section(&session, "replication").await?;
            if quarantine.is_one_of_several && redis_client::field(&role, "role") == Some("slave") {
                return Err(Error::invalid(format!(
                    "{} is a replica, which has no vote of its own",
                    quarantine.url
                ))
                .help("name masters that know nothing of each other"));
            }
            redis_client::handshake(&session, &clock).await?;
            let about = redis_client::info_section(&session, "server").await?;
            let run = redis_client::field(&about, "run_id")
                .unwrap_or_default()
                .to_owned();
            quarantine.check_distinct(&run)?;
            let incarnation = if quarantine.settings.quarantine {
                Some(read_incarnation(&session, &run, &quarantine).await?)
            } else {
                None
            };
            let (incarnation, from) = incarnation
                .map_or((None, BootInstant::now()), |(incarnation, from)| {
                    (Some(incarnation), from)
                });
            quarantine.learn(incarnation.clone(), from);
            Ok(incarnation)
        })
    })
}

/// Reads the mark, or sets it; and from when on it says that nothing is forgotten.
async fn read_incarnation(
    session: &Session,
    run: &str,
    quarantine: &Quarantine,
) -> Result<(Arc<str>, BootInstant)> {
    if run.is_empty() {
        return Err(
            Error::unsupported("the user may not ask whether the master was restarted").help(
                "allow +info, or say quarantine=off if no master ever forgets what it has answered",
            ),
        );
    }
    let longest = millis(quarantine.settings.longest_lease);
    let reply = scripts::MARK
        .run(
            session,
            &[INCARNATION_KEY, SINCE],
            &[run, &longest.to_string()],
        )
        .await?;
    let (incarnation, age, theirs): (String, u64, u64) =
        redis::from_redis_value(reply).map_err(|_| redis_client::protocol_error())?;
    if theirs != longest {
        return Err(Error::mismatch(format!("others use longest-lease={theirs}ms with this master, not {longest}ms"))
            .help(format!(
                "use the same everywhere; to change it, stop all clients and delete {INCARNATION_KEY} on every master"
            )));
    }
    // What two clocks differ in rate, and a little for their grain.
    let wait = quarantine.settings.longest_lease.mul_f64(1.01) + Duration::from_millis(10);
    let from = BootInstant::now().saturating_add(wait.saturating_sub(Duration::from_micros(age)));
    Ok((incarnation.into(), from))
}

/// The text of an answer.
pub(super) fn text(reply: Value) -> Result<String> {
    redis::from_redis_value(reply).map_err(|_| redis_client::protocol_error())
}
