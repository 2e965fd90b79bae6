//! One master: its links and its handshake.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::runtime::Handle;

use super::quarantine::{MasterSettings, Quarantine, RunIds, read_incarnation};
use crate::client;
use crate::client::{
    Address, DoHandshake, Endpoint, Handshake, Link, LinkConfig, Links, PushHandler, ServerClock,
    Session, State, no_reply,
};
use leasehold_core::Result;

#[derive(Debug)]
pub(super) struct Master {
    /// Its position among the masters of the store.
    pub(super) at: usize,
    pub(super) links: Links,
    pub(super) url: String,
    pub(super) clock: Arc<ServerClock>,
    pub(super) quarantine: Arc<Quarantine>,
    /// Set when the master misses a reply deadline, and cleared by its next reply. A round does not
    /// wait for a silent master unless a quorum needs it.
    pub(super) silent: AtomicBool,
}

/// What all masters of a store share.
#[derive(Clone)]
pub(super) struct MasterConfig {
    pub(super) settings: MasterSettings,
    pub(super) run_ids: Arc<RunIds>,
    pub(super) client: Arc<str>,
    pub(super) runtime: Option<Handle>,
}

impl Master {
    pub(super) fn spawn(
        at: usize,
        address: &Address,
        config: MasterConfig,
        on_push: PushHandler,
    ) -> Self {
        let url = address.to_string();
        let clock = Arc::<ServerClock>::default();
        let quarantine = Arc::new(Quarantine::new(
            url.clone(),
            config.settings,
            config.run_ids,
        ));
        let handshake = handshake(Arc::clone(&clock), Arc::clone(&quarantine));

        let endpoint = Endpoint::server(address.clone());
        let link = |channel: &str| LinkConfig {
            handshake: Arc::clone(&handshake),
            ..LinkConfig::new(
                endpoint.clone(),
                format!("leasehold:{channel}:{}", config.client),
            )
        };
        Self {
            at,
            links: Links {
                caller: Link::spawn(LinkConfig {
                    on_push,
                    runtime: config.runtime,
                    ..link("inbox")
                }),
                background: Link::spawn(link("far")),
            },
            url,
            clock,
            quarantine,
            silent: AtomicBool::new(false),
        }
    }

    /// Whether the store has other masters.
    pub(super) fn is_one_of_several(&self) -> bool {
        self.quarantine.settings.has_several_servers()
    }

    /// Returns the session for a request, as [`session_of`] does.
    pub(super) fn session(&self) -> Result<(Arc<Session>, Handshake)> {
        session_of(self.links.for_request())
    }

    /// Returns the session as [`session`](Self::session) does, and waits for it if necessary.
    pub(super) async fn connected(&self, wait: Duration) -> Result<(Arc<Session>, Handshake)> {
        let link = self.links.for_request();
        match session_of(link) {
            Err(_) if !wait.is_zero() => {
                link.session(wait).await?;
                session_of(link)
            }
            found => found,
        }
    }
}

/// Returns the session of a link, with the incarnation that its handshake found.
///
/// # Errors
/// The reason why the link is not connected.
pub(super) fn session_of(link: &Link) -> Result<(Arc<Session>, Handshake)> {
    link.with_state(|state| match state {
        State::Up(session, incarnation) if !session.is_closed() => {
            Ok((Arc::clone(session), incarnation.clone()))
        }
        State::Down(_, error) => Err(error.clone()),
        State::Connecting | State::Up(..) => Err(no_reply()),
    })
}

/// Returns the function that checks a master on each new connection.
fn handshake(clock: Arc<ServerClock>, quarantine: Arc<Quarantine>) -> DoHandshake {
    Arc::new(move |session: Arc<Session>| {
        let clock = Arc::clone(&clock);
        let quarantine = Arc::clone(&quarantine);
        Box::pin(async move {
            let report = client::Report::read(&session, &clock).await?;
            let run_id = report.run_id().to_owned();
            quarantine.check_role(report.role())?;
            report.check()?;

            quarantine.check_distinct(&run_id)?;
            let found = read_incarnation(&session, &run_id, &quarantine).await?;
            Ok(quarantine.learn(found))
        })
    })
}
