//! How the store is opened.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::Redlock;
use super::address::Masters;
use super::claims::Claims;
use super::events::Events;
use super::master::{Master, MasterConfig};
use super::quorum_count::QuorumCount;
use crate::Result;
use crate::runtime::background;
use crate::stores::redis_client::{PushHandler, fresh_client};

/// How long the opening waits for the last masters once a quorum is connected.
const STRAGGLERS_MAX: Duration = Duration::from_millis(50);
/// How long the opening waits for a connection to masters that were busy or cut off at first.
const SECOND_CHANCE: Duration = Duration::from_secs(2);

/// The servers of a store, and its settings.
#[derive(Clone, Debug)]
pub struct RedlockBuilder {
    masters: Masters,
}

impl RedlockBuilder {
    /// Returns the URL without user, password and settings.
    #[must_use]
    pub fn url(&self) -> String {
        self.masters.to_string()
    }

    /// Connects. The store reconnects by itself after each broken connection.
    ///
    /// # Errors
    /// - [`is_unavailable`](crate::Error::is_unavailable) if fewer masters than a majority can be
    ///   reached.
    /// - [`is_invalid`](crate::Error::is_invalid) if two masters are the same server, or one is a
    ///   replica.
    /// - [`is_denied`](crate::Error::is_denied) and
    ///   [`is_unsupported`](crate::Error::is_unsupported) as for
    ///   [`Redis`](crate::stores::Redis).
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections that it has opened.
    pub async fn connect(self) -> Result<Redlock> {
        self.connect_on(Handle::try_current().ok()).await
    }

    pub(crate) async fn connect_on(self, runtime: Option<Handle>) -> Result<Redlock> {
        background::start()?;
        background::on_background(Redlock::open(self.masters, runtime)).await
    }
}

impl Redlock {
    /// Parses a URL.
    ///
    /// `redlock://[user[:password]@]host[:port],host[:port],…[/database]` names three to fifteen
    /// masters; `redlocks://…` connects with TLS. `redis://…?dialect=plain` names one server.
    ///
    /// | setting | |
    /// |---|---|
    /// | `dialect=classic` | the format of redsync, node-redlock and others; no tokens |
    /// | `dialect=plain` | one `redis://` server; the format of redis-py and others |
    /// | `tokens=on` | with a dialect: a second key counts leasehold's tokens |
    /// | `longest-lease=60s` | the longest lease of any client; all clients set the same |
    /// | `quarantine=off` | for masters that never forget a vote (`appendfsync always`) |
    /// | `password-file`, `ca`, `db`, `protocol` | as with `redis://` |
    ///
    /// # Errors
    /// [`is_invalid`](crate::Error::is_invalid) if the URL cannot be parsed, names fewer than three
    /// masters, or names one of them twice.
    pub fn builder(url: &str) -> Result<RedlockBuilder> {
        let masters = Masters::parse(url)?;
        Ok(RedlockBuilder { masters })
    }

    async fn open(masters: Masters, runtime: Option<Handle>) -> Result<Self> {
        let client: Arc<str> = fresh_client().into();
        let claims = Arc::<Claims>::default();
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
            let on_push = push_handler(at, Arc::clone(&claims), events.clone());
            Master::spawn(address, config.clone(), on_push)
        });

        let store = Self {
            masters: spawned.collect(),
            claims,
            client,
            token_digits: uuid::Uuid::new_v4().as_u64_pair().1 % 1_000,
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
    /// A master that refuses does not end the opening unless the others are too few. The links of
    /// masters that refuse or are silent continue to connect; their votes count from then on.
    async fn wait_for_quorum(&self) -> Result<()> {
        let first = |master| async move { (master, Master::first(master).await) };
        let mut connecting: FuturesUnordered<_> = self.masters.iter().map(first).collect();
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
        let links = self.masters.iter().map(|master| &master.background_link);
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

/// Returns the function that receives the messages of a master.
fn push_handler(at: usize, claims: Arc<Claims>, events: Option<Arc<Events>>) -> PushHandler {
    Arc::new(move |channel, text| match &events {
        Some(events) if events.is_event(channel) => {
            if let Some(key) = events.freed(channel, text) {
                claims.freed(at, key);
            }
        }
        _ => claims.pushed(at, text),
    })
}
