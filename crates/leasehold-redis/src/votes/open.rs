//! How the links to the masters are opened.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::VotingStore;
use super::events::Events;
use super::format::VoteFormat;
use super::master::{Master, MasterConfig};
use super::quorum_count::QuorumCount;
use super::record::Push;
use super::tracked_claim::ClaimVotes;
use crate::client::{Address, fresh_client};
use crate::examination;
use crate::examination::Kind;
use crate::local_claims::LocalClaims;
use leasehold_core::internal::{Password, background};
use leasehold_core::store::{draw_claim_id, replies};
use leasehold_core::{CrashRelease, Examination, Guarantees, Result};

/// How long opening a store waits for the last masters once a quorum is connected.
const STRAGGLERS_MAX: Duration = Duration::from_millis(50);
/// How long opening a store waits for masters that were busy or cut off at first.
const SECOND_CHANCE: Duration = Duration::from_secs(2);

/// The servers of a store, and its settings.
#[derive(Clone, Debug)]
pub struct VotingBuilder<const MASTERS_MIN: usize> {
    pub(crate) addresses: Vec<Address>,
    pub(crate) format: &'static dyn VoteFormat,
    pub(crate) settings: MasterSettings,
    pub(crate) kind: Kind,
    pub(crate) shown_url: String,
}

impl<const MASTERS_MIN: usize> VotingBuilder<MASTERS_MIN> {
    /// Sets a function that returns the password of each new connection, as
    /// [`RedisBuilder::password_from`](crate::RedisBuilder::password_from) does.
    #[must_use]
    pub fn password_from<E>(
        mut self,
        function: impl Fn() -> Result<String, E> + Send + Sync + 'static,
    ) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let password = Password::from_function(function);
        for address in &mut self.addresses {
            address.password = Some(password.clone());
        }
        self
    }

    /// Returns the URL without user, password and settings other than the dialect.
    #[must_use]
    pub fn url(&self) -> String {
        self.shown_url.clone()
    }

    /// Returns what the store guarantees.
    pub(crate) fn guarantees(&self) -> Guarantees {
        guarantees(self.format)
    }

    /// Examines risks to locks on the servers.
    pub(crate) async fn examine(&self) -> Result<Examination> {
        examination::examine(self.kind, &self.addresses).await
    }

    /// Connects. The store reconnects by itself after each broken connection.
    ///
    /// # Errors
    /// - [`is_unavailable`](leasehold_core::Error::is_unavailable) if fewer masters than a majority can be
    ///   reached, or the only server cannot be reached.
    /// - [`is_invalid`](leasehold_core::Error::is_invalid) if two masters are the same server, or one is a
    ///   replica.
    /// - [`is_denied`](leasehold_core::Error::is_denied) and
    ///   [`is_unsupported`](leasehold_core::Error::is_unsupported) as for
    ///   [`Redis`](crate::Redis).
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections that it has opened.
    pub async fn connect(self) -> Result<VotingStore<MASTERS_MIN>> {
        self.connect_on(Handle::try_current().ok()).await
    }

    /// `runtime` drives the caller links; the background thread drives them if it is `None`.
    pub(crate) async fn connect_on(
        self,
        runtime: Option<Handle>,
    ) -> Result<VotingStore<MASTERS_MIN>> {
        background::start()?;
        background::on_background(VotingStore::open(self, runtime)).await
    }
}

/// Returns what a store of this format guarantees.
pub(super) fn guarantees(format: &dyn VoteFormat) -> Guarantees {
    let mut guarantees = replies::guarantees(CrashRelease::LeaseExpiry);
    guarantees.tokens = format.guarantees_tokens();
    guarantees.lease_expiry = true;
    guarantees
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
    pub(super) fn is_one_of_several(self) -> bool {
        self.longest_lease < Duration::MAX
    }
}

impl<const MASTERS_MIN: usize> VotingStore<MASTERS_MIN> {
    async fn open(masters: VotingBuilder<MASTERS_MIN>, runtime: Option<Handle>) -> Result<Self> {
        let client: Arc<str> = fresh_client().into();
        let claims = Arc::<LocalClaims<ClaimVotes>>::default();
        let events = match &masters.addresses[..] {
            [server] => Some(Arc::new(Events::of(server.database, &client))),
            _ => None,
        };

        let config = MasterConfig {
            settings: masters.settings,
            run_ids: Arc::default(),
            client: Arc::clone(&client),
            runtime: runtime.clone(),
        };
        let addresses = masters.addresses.iter().enumerate();
        let spawned = addresses.map(|(at, address)| {
            let inbox = VoteInbox {
                at,
                claims: Arc::clone(&claims),
                events: events.clone(),
                format: masters.format,
            };
            let on_push = Arc::new(move |channel: &str, text: &str| inbox.receive(channel, text));
            Arc::new(Master::spawn(at, address, config.clone(), on_push))
        });

        let [.., high, low] = draw_claim_id().to_bytes();
        let store = Self {
            masters: spawned.collect(),
            claims,
            client,
            token_digits: u64::from(u16::from_be_bytes([high, low])) % 1_000,
            runtime,
            format: masters.format,
            longest_lease: masters.settings.longest_lease,
            quorum_error: Mutex::default(),
            events,
        };
        store.wait_for_quorum().await?;
        Ok(store)
    }

    /// Waits until a quorum of masters is connected, and a moment longer for the others.
    ///
    /// A master that refuses fails the opening only if too few others remain. The links of masters
    /// that refuse or are silent continue to connect; once connected, their votes count.
    async fn wait_for_quorum(&self) -> Result<()> {
        let mut connecting: FuturesUnordered<_> = self
            .masters
            .iter()
            .map(|master| async move { (master, master.links.first().await) })
            .collect();
        let mut count = QuorumCount::of(self.masters.len());
        let mut until = None;

        while let Some((master, connected)) = next_until(&mut connecting, until).await {
            match connected {
                Ok(()) => count.succeed(),
                // This is a mistake in the URL, and not the failure of a minority.
                Err(error) if master.quarantine.is_duplicate() => return Err(error),
                Err(error) => {
                    let reason = error.to_string();
                    count.fail(&master.url, error)?;
                    tracing::warn!(
                        server = master.url,
                        error = reason,
                        "opening the store without this master for now"
                    );
                }
            }
            if count.is_reached() && until.is_none() {
                until = Some(Instant::now() + STRAGGLERS_MAX);
            }
        }

        tracing::debug!(?count, "masters");
        if count.is_reached() {
            return Ok(());
        }
        self.second_chance(count).await
    }

    /// Waits for masters that were busy or cut off for a moment.
    #[cold]
    async fn second_chance(&self, mut count: QuorumCount) -> Result<()> {
        let links = self.masters.iter().map(|master| &master.links.background);
        let sessions = join_all(links.map(|link| link.session(SECOND_CHANCE))).await;
        let connected = sessions.iter().filter(|session| session.is_ok());
        count.restart(connected.count());

        if count.is_reached() {
            return Ok(());
        }
        Err(count.error())
    }
}

async fn next_until<F: Future>(
    futures: &mut FuturesUnordered<F>,
    until: Option<Instant>,
) -> Option<F::Output> {
    match until {
        Some(until) => timeout_at(until, futures.next()).await.ok().flatten(),
        None => futures.next().await,
    }
}

/// Receives the messages of one master.
struct VoteInbox {
    at: usize,
    claims: Arc<LocalClaims<ClaimVotes>>,
    events: Option<Arc<Events>>,
    format: &'static dyn VoteFormat,
}

impl VoteInbox {
    fn receive(&self, channel: &str, text: &str) {
        match &self.events {
            Some(events) if events.is_event(channel) => {
                if let Some(key) = events.freed(channel, text) {
                    self.freed(key);
                }
            }
            _ => match Push::parse(text) {
                Some(Push::Free(key)) => self.freed(key),
                Some(Push::Gone(id)) => {
                    if let Some(tracked) = self.claims.get(id) {
                        tracked.broken_by_push(self.at);
                    }
                }
                None => {}
            },
        }
    }

    /// Notifies the first waiter of a key that this master has freed the lock.
    fn freed(&self, key: &str) {
        let name = self.format.name_of(key);
        if let Some(first) = name.and_then(|name| self.claims.first(&name)) {
            first.notified_by(self.at);
        }
    }
}
