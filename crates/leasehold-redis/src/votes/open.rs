//! How the links to the masters are opened.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::Voting;
use super::departures::Departures;
use super::events::Events;
use super::format::VoteFormat;
use super::master::{Master, MasterConfig};
use super::masters::Masters;
use super::quarantine::MasterSettings;
use super::record::Push;
use super::tracked_claim::ClaimVotes;
use crate::client::{Address, fresh_client};
use crate::examination;
use crate::examination::Kind;
use crate::local_claims::LocalClaims;
use leasehold_core::internal::{Password, background};
use leasehold_core::store::{draw_claim_id, replies};
use leasehold_core::{CrashRelease, Examination, Guarantees, Result};

/// The servers of a store, and its settings.
pub struct VotingBuilder<S> {
    pub(super) config: VotingConfig,
    /// Makes the store when the masters are connected.
    pub(super) store: fn(Voting) -> S,
}

/// The servers of a store, and its settings.
#[derive(Clone, Debug)]
pub(super) struct VotingConfig {
    pub(super) addresses: Vec<Address>,
    pub(super) format: &'static dyn VoteFormat,
    pub(super) settings: MasterSettings,
    pub(super) kind: Kind,
    pub(super) shown_url: String,
}

impl<S> Clone for VotingBuilder<S> {
    fn clone(&self) -> Self {
        Self {
            config: self.config.clone(),
            store: self.store,
        }
    }
}

impl<S> fmt::Debug for VotingBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}

impl<S: Send + 'static> VotingBuilder<S> {
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
        for address in &mut self.config.addresses {
            address.password = Some(password.clone());
        }
        self
    }

    /// Returns the URL without user, password and settings other than the dialect.
    #[must_use]
    pub fn url(&self) -> String {
        self.config.shown_url.clone()
    }

    /// Returns what the store guarantees.
    pub(crate) fn guarantees(&self) -> Guarantees {
        guarantees(self.config.format)
    }

    /// Examines risks to locks on the servers.
    pub(crate) async fn examine(&self) -> Result<Examination> {
        examination::examine(self.config.kind, &self.config.addresses).await
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
    pub async fn connect(self) -> Result<S> {
        self.connect_on(Handle::try_current().ok()).await
    }

    /// `runtime` drives the caller links; the background thread drives them if it is `None`.
    pub(crate) async fn connect_on(self, runtime: Option<Handle>) -> Result<S> {
        background::start()?;
        let voting = background::on_background(open(self.config, runtime)).await?;
        Ok((self.store)(voting))
    }
}

/// Returns what a store of this format guarantees.
pub(super) fn guarantees(format: &dyn VoteFormat) -> Guarantees {
    let mut guarantees = replies::guarantees(CrashRelease::LeaseExpiry);
    guarantees.tokens = format.guarantees_tokens();
    guarantees.lease_expiry = true;
    guarantees
}

async fn open(config: VotingConfig, runtime: Option<Handle>) -> Result<Voting> {
    let client: Arc<str> = fresh_client().into();
    let claims = Arc::<LocalClaims<ClaimVotes>>::default();
    let events = match &config.addresses[..] {
        [server] => Some(Arc::new(Events::of(server.database, &client))),
        _ => None,
    };

    let shared = MasterConfig {
        settings: config.settings,
        run_ids: Arc::default(),
        client: Arc::clone(&client),
        runtime: runtime.clone(),
    };
    let addresses = config.addresses.iter().enumerate();
    let spawned = addresses.map(|(at, address)| {
        let inbox = VoteInbox {
            at,
            claims: Arc::clone(&claims),
            events: events.clone(),
            format: config.format,
        };
        let on_push = Arc::new(move |channel: &str, text: &str| inbox.receive(channel, text));
        Arc::new(Master::spawn(at, address, shared.clone(), on_push))
    });

    let masters = Masters {
        all: spawned.collect(),
        runtime,
    };
    masters.wait_for_quorum().await?;

    let [.., high, low] = draw_claim_id().to_bytes();
    Ok(Voting {
        departures: masters.all.iter().map(Departures::from).collect(),
        masters,
        claims,
        client,
        token_digits: u64::from(u16::from_be_bytes([high, low])) % 1_000,
        format: config.format,
        longest_lease: config.settings.longest_lease,
        quorum_error: Mutex::default(),
        events,
    })
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
