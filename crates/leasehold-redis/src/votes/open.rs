//! How the links to the masters are opened.

use std::sync::Arc;

use async_trait::async_trait;
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
use crate::builder::ServerAddress;
use crate::client::{Address, fresh_client};
use crate::examination::Kind;
use crate::local_claims::LocalClaims;
use leasehold_core::internal::Password;
use leasehold_core::store::{draw_claim_id, replies};
use leasehold_core::{CrashRelease, Guarantees, Result};

/// The servers of a store, and its settings.
#[derive(Clone, Debug)]
pub(crate) struct VotingConfig {
    pub(super) addresses: Vec<Address>,
    pub(super) format: &'static dyn VoteFormat,
    pub(super) settings: MasterSettings,
    pub(super) kind: Kind,
    pub(super) shown_url: String,
}

#[async_trait]
impl ServerAddress for VotingConfig {
    fn shown_url(&self) -> String {
        self.shown_url.clone()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(self.format)
    }

    fn set_password(&mut self, password: Password) {
        for address in &mut self.addresses {
            address.password = Some(password.clone());
        }
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    async fn to_examine(&self) -> Result<Vec<Address>> {
        Ok(self.addresses.clone())
    }
}

/// Returns what a store of this format guarantees.
pub(super) fn guarantees(format: &dyn VoteFormat) -> Guarantees {
    let mut guarantees = replies::guarantees(CrashRelease::LeaseExpiry);
    guarantees.tokens = format.guarantees_tokens();
    guarantees.lease_expiry = true;
    guarantees
}

pub(super) async fn open(config: VotingConfig, runtime: Option<Handle>) -> Result<Voting> {
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
        token_digits: u16::from_be_bytes([high, low]).into(),
        format: config.format,
        settings: config.settings,
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
