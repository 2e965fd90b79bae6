//! One session with the server: a connection for requests, and one that proves the client.
//!
//! The second connection holds a random advisory lock, which the server releases when the
//! connection ends. Others can ask for that lock, and so see that the client is gone. The
//! connection carries renewals and notifications only, and so is never busy for long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::address::Address;
use super::claims::Claims;
use super::connection::{Connection, HELP, OnNotification};
use super::function::Function;
use super::reply_error::{column, store_error};
use super::schema;
use leasehold_core::internal::net::{
    self, AttemptLimit, Attempts, Connect, Connector, Pauses, State, Supervised, Target, Up,
    Watched,
};
use leasehold_core::internal::{BootInstant, without_panic};
use leasehold_core::{Error, Result};

/// A session that is up.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) requests: Connection,
    pub(super) listener: Connection,
    /// Counts the sessions of this client.
    pub(super) epoch: u32,
    pub(super) client: Uuid,
    /// Proves the client; `None` behind a pooler, which shares connections between clients.
    pub(super) proof: Option<Proof>,
    /// How long others wait for a client whose session is gone; `None` if that ends no hold of it.
    pub(super) grace: Option<Duration>,
    /// The server's identity and its timeline.
    pub(super) server: String,
    pub(super) schema: String,
    pub(super) functions: Functions,
    /// The server's clock in microseconds, and when it was read at the latest: a request is never
    /// given more time than its client waits.
    clock: Mutex<(i64, BootInstant)>,
    /// When a waiter near the front has last asked to listen, while the session listens.
    listening: tokio::sync::Mutex<Option<Instant>>,
    ended: Watched<()>,
}

/// What proves that a client is there, and what reaches it.
#[derive(Clone, Debug)]
pub(super) struct Proof {
    /// The advisory lock of the session.
    pub(super) link: i64,
    /// It is secret, and nothing that others can read follows from it: whoever knows it could send
    /// a grant.
    pub(super) channel: String,
}

/// The functions of a session, each on the connection that calls it.
#[derive(Debug)]
pub(super) struct Functions {
    pub(super) enter: Function,
    pub(super) leave: Function,
    pub(super) inspect: Function,
    pub(super) pins: Function,
    pub(super) end_pins: Function,
    pub(super) list: Function,
    pub(super) renew: Function,
    pub(super) held: Function,
    pub(super) bound_holds: Function,
    pub(super) revoke_ended: Function,
    pub(super) release_ended: Function,
    pub(super) records: Result<RecordFunctions, NoRecords>,
}

/// Why this client uses version 1 of the schema, which has no records of completed jobs.
#[derive(Clone, Copy, Debug)]
pub(super) enum NoRecords {
    OldSchema,
    /// It no longer serves clients of the versions between.
    NewSchema,
}

/// The functions for records of completed jobs, which the schema has since version 2.
#[derive(Debug)]
pub(super) struct RecordFunctions {
    pub(super) read: Function,
    pub(super) complete: Function,
    pub(super) list: Function,
}

impl Session {
    /// Tries the servers of the URL, the one of the last session first, and all within one limit, of
    /// which the first ones leave a share for the others. A refusal of one of them is the error only
    /// if no other server opens a session.
    pub(super) async fn open(context: &mut Context, epoch: u32) -> Result<Self> {
        let mut failures = Vec::new();
        let mut refusal = None;
        let until = Instant::now() + context.open_limit.get();
        let address = Arc::clone(&context.address);
        let count = address.targets.len();
        for tried in 0..count {
            let at = (context.last_target + tried) % count;
            let target = &address.targets[at];
            // Dropping the attempt closes its connections.
            let left = until.saturating_duration_since(Instant::now());
            let limit = left / u32::try_from(count - tried).unwrap_or(1);
            let opening = timeout(limit, Box::pin(Self::open_at(context, target, epoch)));
            let opened = opening.await.unwrap_or_else(|_elapsed| {
                context.had_too_little_time = true;
                let silent = format!("the server did not open a session within {limit:?}");
                Err(Error::unavailable(silent))
            });
            match opened {
                Ok(session) => {
                    context.last_target = at;
                    return Ok(session);
                }
                Err(error) if error.is_unavailable() => failures.push(error),
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let reasons: Vec<String> = failures.iter().map(ToString::to_string).collect();
        Err(match failures.len() {
            1 => failures.swap_remove(0),
            _ => Error::unavailable(format!("no server can be used: {}", reasons.join(", "))),
        })
    }

    async fn open_at(context: &Context, target: &Target, epoch: u32) -> Result<Self> {
        let address = &context.address;
        let channel = format!("{}_{}", address.schema, Uuid::new_v4().simple());
        let ended = Watched::new(());
        let listener = Connection::open(
            address,
            &context.connector,
            address.direct.as_ref().unwrap_or(target),
            &ended,
            on_notification(context, &channel),
        )
        .await?;
        let server = Greeting::read(&listener, address).await?;
        let read_at = BootInstant::now();
        context.check_timeline(&server.server)?;

        let proof = if listener.is_direct {
            let link = hold_link(&listener).await?;
            Some(Proof { link, channel })
        } else {
            tracing::warn!(
                store = %address,
                "there is a connection pooler: a crash is noticed when the lease ends, and waiters poll"
            );
            None
        };

        let requests = Connection::open(
            address,
            &context.connector,
            target,
            &ended,
            Box::new(|_| {}),
        )
        .await?;
        let other = Greeting::read(&requests, address).await?;
        if other.server != server.server {
            return Err(Error::unavailable("two connections reached two servers"));
        }
        let functions =
            Functions::prepare(&requests, &listener, &address.schema, other.no_records).await?;
        Ok(Self {
            requests,
            listener,
            epoch,
            client: context.client,
            grace: address.settings.crash_grace.filter(|_| proof.is_some()),
            proof,
            server: server.server,
            schema: address.schema.clone(),
            functions,
            clock: Mutex::new((server.clock, read_at)),
            listening: tokio::sync::Mutex::default(),
            ended,
        })
    }

    /// Returns the server's time at `moment` in microseconds, as this client knows it.
    pub(super) fn server_time(&self, moment: BootInstant) -> i64 {
        let (clock, read_at) = *self.clock.lock();
        let passed = moment.duration_since(read_at).as_micros();
        clock.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX))
    }

    /// Sets the server's clock, which a reply has just shown.
    pub(super) fn set_clock(&self, clock: i64) {
        *self.clock.lock() = (clock, BootInstant::now());
    }

    /// Begins to listen for notifications.
    ///
    /// Every listening session of a database wakes up with each notification, so a client listens
    /// only while one of its waiters is near the front of a queue. Returns whether it did not listen
    /// before: earlier notifications are lost.
    pub(super) async fn listen(&self) -> Result<bool> {
        let Some(proof) = &self.proof else {
            return Ok(false);
        };
        let mut listening = self.listening.lock().await;
        if let Some(last) = listening.as_mut() {
            *last = Instant::now();
            return Ok(false);
        }
        self.subscribe("LISTEN", proof).await?;
        *listening = Some(Instant::now());
        Ok(true)
    }

    /// Ends to listen if no waiter has been near the front for [`LISTEN_IDLE`].
    async fn stop_listening(&self, claims: &Claims) -> Result<()> {
        let Some(proof) = &self.proof else {
            return Ok(());
        };
        let mut listening = self.listening.lock().await;
        let is_idle = listening.is_some_and(|last| last.elapsed() >= LISTEN_IDLE);
        if is_idle && !claims.has_near_waiter() {
            self.subscribe("UNLISTEN", proof).await?;
            *listening = None;
        }
        Ok(())
    }

    async fn subscribe(&self, verb: &str, proof: &Proof) -> Result<()> {
        let statement = format!("{verb} \"{}\"", proof.channel);
        let subscribing = self.listener.client.batch_execute(&statement);
        let limit = self.listener_limit([]);
        let subscribed = self.reply(&self.listener, limit, subscribing).await?;
        subscribed.map_err(store_error)
    }

    /// Returns how long a request about claims with these leases waits for its reply on the listener,
    /// where no request waits for others for long.
    ///
    /// A dead connection must be replaced while the holds are still safe, and before the engine renews
    /// them again, after a third of the remaining time.
    pub(super) fn listener_limit(&self, leases: impl IntoIterator<Item = Duration>) -> Duration {
        let shortest = leases.into_iter().chain(self.grace).min();
        shortest.map_or(SILENCE_MAX, |shortest| {
            (shortest / 4).clamp(LISTENER_SILENCE_MIN, SILENCE_MAX)
        })
    }

    /// Waits for the reply to a request, at most for `limit`. A connection on which nothing arrives is
    /// replaced, also if the caller waits no longer: see `Unanswered`.
    pub(super) async fn reply<T>(
        &self,
        on: &Connection,
        limit: Duration,
        reply: impl Future<Output = T>,
    ) -> Result<T> {
        let is_listener = std::ptr::eq(on, &raw const self.listener);
        let silence_min = if is_listener { limit } else { SILENCE_MIN };
        let _unanswered = on.unanswered(limit.max(silence_min));
        // The thread of a caller may be stopped while it sends, which must not hold up the listener.
        let replying = async {
            if is_listener {
                reply.await
            } else {
                on.send(reply).await
            }
        };
        let replied = timeout(limit, replying).await;
        replied.map_err(|_elapsed| {
            Error::unavailable(format!("PostgreSQL has sent no reply within {limit:?}"))
        })
    }

    /// Calls a function that needs no connection of its own, and is not repeated.
    pub(super) async fn call(
        &self,
        function: &Function,
        arguments: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        let calling = function.call(&self.requests.client, arguments);
        let rows = self.reply(&self.requests, SILENCE_MAX, calling).await?;
        rows.map_err(|error| self.failed(error))
    }

    /// Maps the error of a call of the schema's functions. If they are gone, the next session makes the
    /// schema again.
    pub(super) fn failed(&self, error: tokio_postgres::Error) -> Error {
        if schema::is_missing(&error) {
            net::Session::close(self);
            return schema::dropped(error);
        }
        store_error(error)
    }
}

impl net::Session for Session {
    type Checked = ();

    const SERVICE: &'static str = "postgres";
    const ENDED: &'static str = "the connection to PostgreSQL has ended";
    const ABSENT: &'static str = "there is no connection to PostgreSQL";

    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn is_closed(&self) -> bool {
        self.ended.is_closed()
    }

    /// Ends both connections, so that the next session is opened.
    fn close(&self) {
        self.ended.close();
        self.requests.close();
        self.listener.close();
    }

    fn outlasts_requests(error: &Error) -> bool {
        !error.is_unavailable()
    }
}

/// What a server says of itself.
struct Greeting {
    server: String,
    clock: i64,
    no_records: Option<NoRecords>,
}

impl Greeting {
    /// Reads it. Makes the schema if there is none, and upgrades an older one, which is used as it is if
    /// that fails.
    async fn read(connection: &Connection, address: &Address) -> Result<Self> {
        let client = &connection.client;
        if let Some(greeting) = Self::of_version(schema::VERSION, client, &address.schema).await? {
            return Ok(greeting);
        }

        let made = schema::create(client, &address.schema).await;
        // Another client may have upgraded it meanwhile.
        for version in [schema::VERSION, 1] {
            let greeting = Self::of_version(version, client, &address.schema).await?;
            let Some(mut greeting) = greeting else {
                continue;
            };
            if version == 1 {
                greeting.no_records = Some(match &made {
                    Err(error) if error.is_unsupported() => NoRecords::NewSchema,
                    _ => NoRecords::OldSchema,
                });
            }
            if let (1, Err(error)) = (version, &made) {
                tracing::warn!(store = %address, %error, "the schema was not upgraded");
            }
            return Ok(greeting);
        }
        Err(made.err().unwrap_or_else(|| {
            Error::unavailable("the schema of leasehold was dropped while it was made")
        }))
    }

    /// Returns `None` if the schema is missing or older.
    async fn of_version(version: i32, client: &Client, schema: &str) -> Result<Option<Self>> {
        let call = format!("SELECT * FROM leasehold.connect_{version}()");
        let statement = schema::named(schema, &call);
        let rows = match client.query_typed(&statement, &[]).await {
            Err(error) if schema::is_missing(&error) => return Ok(None),
            rows => rows.map_err(store_error)?,
        };
        let row = rows
            .first()
            .ok_or_else(|| Error::damaged("PostgreSQL: a reply has no row"))?;

        schema::check_version(schema, column(row, "schema_version")?)?;
        Ok(Some(Self {
            server: column(row, "server")?,
            clock: column(row, "clock")?,
            no_records: None,
        }))
    }
}

impl Functions {
    async fn prepare(
        requests: &Connection,
        listener: &Connection,
        schema: &str,
        no_records: Option<NoRecords>,
    ) -> Result<Self> {
        let on_requests =
            async |name, types| Function::prepare(requests, (schema, name), types).await;
        let on_listener =
            async |name, types| Function::prepare(listener, (schema, name), types).await;
        let records = match no_records {
            Some(reason) => Err(reason),
            None => Ok(RecordFunctions {
                read: on_requests("leasehold.record_1", &[Type::TEXT, Type::INT8]).await?,
                complete: on_requests("leasehold.complete_1", COMPLETE).await?,
                list: on_requests("leasehold.list_records_1", LIST).await?,
            }),
        };
        Ok(Self {
            records,
            enter: on_requests("leasehold.enter_1", ENTER).await?,
            leave: on_requests("leasehold.leave_1", LEAVE).await?,
            inspect: on_requests("leasehold.inspect_1", &[Type::TEXT]).await?,
            pins: on_requests("leasehold.pins_1", &[Type::TEXT]).await?,
            end_pins: on_requests("leasehold.end_pins_1", &[Type::TEXT, Type::INT4]).await?,
            list: on_requests("leasehold.list_1", LIST).await?,
            renew: on_listener("leasehold.renew_1", RENEW).await?,
            held: on_listener("leasehold.held_1", &[Type::TEXT_ARRAY, Type::UUID_ARRAY]).await?,
            bound_holds: on_requests("leasehold.bound_holds_1", &[Type::TEXT]).await?,
            revoke_ended: on_requests("leasehold.revoke_ended_1", REVOKE_ENDED).await?,
            release_ended: on_requests("leasehold.release_ended_1", RELEASE_ENDED).await?,
        })
    }
}

const ENTER: &[Type] = &[
    Type::TEXT,
    Type::CHAR,
    Type::UUID,
    Type::INT4,
    Type::INT4,
    Type::INT4,
    Type::INT4,
    Type::UUID,
    Type::INT4,
    Type::INT8,
    Type::TEXT,
    Type::TEXT,
    Type::INT4,
    Type::TEXT,
    Type::INT8,
    Type::INT8,
    Type::UUID_ARRAY,
];
const REVOKE_ENDED: &[Type] = &[Type::TEXT, Type::UUID, Type::INT8, Type::TEXT, Type::TEXT];
const RELEASE_ENDED: &[Type] = &[Type::TEXT, Type::UUID];
const LIST: &[Type] = &[Type::TEXT, Type::INT4];
const COMPLETE: &[Type] = &[
    Type::TEXT,
    Type::UUID,
    Type::UUID,
    Type::TEXT,
    Type::TEXT,
    Type::INT8,
];
const LEAVE: &[Type] = &[Type::TEXT, Type::UUID, Type::UUID];
const RENEW: &[Type] = &[
    Type::TEXT_ARRAY,
    Type::UUID_ARRAY,
    Type::UUID,
    Type::INT4,
    Type::INT8,
    Type::TEXT,
    Type::TEXT,
    Type::INT4,
];

/// Takes an advisory lock that nobody else has. From then on the connection waits for no lock of others
/// for long, because each request proves the client, and waits for those before it.
async fn hold_link(listener: &Connection) -> Result<i64> {
    let (high, low) = Uuid::new_v4().as_u64_pair();
    // The sign bit stays clear: nothing depends on it, and such a number reads better in pg_locks.
    let link = i64::try_from((high ^ low) >> 1).expect("63 bits");
    let holding = format!("SELECT pg_advisory_lock({link}); SET lock_timeout = '100ms'");
    let client = &listener.client;
    client.batch_execute(&holding).await.map_err(store_error)?;
    Ok(link)
}

fn on_notification(context: &Context, channel: &str) -> OnNotification {
    let channel = channel.to_owned();
    let claims = Arc::clone(&context.claims);
    Box::new(move |notification| {
        if notification.channel() == channel {
            claims.push(notification.payload());
        }
    })
}

/// The sessions of one client, one after another.
pub(super) type Supervisor = Supervised<Session>;

/// Waits until there is another session than that of `epoch`.
pub(super) async fn other_than(supervisor: &Supervisor, epoch: u32) {
    let is_other = |state: &State<Session>| match state {
        State::Up(session, ()) if session.epoch != epoch => Some(()),
        _ => None,
    };
    if supervisor.states().wait_for(is_other).await.is_err() {
        // The supervisor ends with the store.
        std::future::pending::<()>().await;
    }
}

/// What every session of a client needs.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) address: Arc<Address>,
    pub(super) claims: Arc<Claims>,
    pub(super) client: Uuid,
    connector: Connector,
    /// The timeline of the last session's server, after its identity.
    last_server: Arc<Mutex<String>>,
    /// How long an attempt to open a session takes, the schema included.
    open_limit: AttemptLimit,
    /// Whether a server was still opening a session when its share of that time was over.
    had_too_little_time: bool,
    /// The server of the last session.
    last_target: usize,
}

impl Context {
    pub(super) fn new(address: Arc<Address>, claims: Arc<Claims>) -> Self {
        let open_limit = AttemptLimit::new(OPEN_TIMEOUT, address.settings.crash_grace);
        Self {
            address,
            claims,
            client: Uuid::new_v4(),
            connector: Connector::new(&HELP),
            last_server: Arc::default(),
            open_limit,
            had_too_little_time: false,
            last_target: 0,
        }
    }

    /// Refuses a server that was replaced: another one was promoted, which gives grants now.
    fn check_timeline(&self, server: &str) -> Result<()> {
        let mut last = self.last_server.lock();
        let is_same =
            last.split_once('/').map(|(id, _)| id) == server.split_once('/').map(|(id, _)| id);
        // The timeline has a fixed number of hexadecimal digits.
        if is_same && server < last.as_str() {
            return Err(Error::unavailable(format!(
                "the server was replaced: its timeline is {server}, and {last} was seen"
            ))
            .help("stop the old primary, or let it follow the new one"));
        }
        server.clone_into(&mut last);
        Ok(())
    }
}

impl Connect<Session> for Context {
    fn attempts(&self) -> Attempts {
        Pauses::within_grace(BACKOFF_MIN, self.address.settings.crash_grace, rand_part).into()
    }

    async fn attempt(&mut self, epoch: u32, up: &mut Up<Session>) -> Result<()> {
        let begun = Instant::now();
        let opening = Box::pin(Session::open(self, epoch));
        let opened = without_panic(opening).await;
        let took = if std::mem::take(&mut self.had_too_little_time) {
            self.open_limit.get()
        } else {
            begun.elapsed()
        };
        self.open_limit.attempted(took, opened.is_ok());
        let session = Arc::new(opened?);
        up.publish(&session, &());
        self.claims.wake_all();
        keep(self, &session).await;
        Ok(())
    }

    fn interval_after(&self, _error: &Error) -> Option<Duration> {
        None
    }
}

/// Makes the schema or upgrades it, and lets the roles use it.
pub(super) async fn set_up(address: Address, roles: Vec<String>) -> Result<()> {
    let schema = address.schema.clone();
    let mut context = Context::new(Arc::new(address), Arc::default());
    let session = Session::open(&mut context, 0).await?;
    if session.functions.records.is_err() {
        // It fails for the reason for which this session uses an older schema, if that is still there.
        schema::create(&session.requests.client, &schema).await?;
    }
    for role in &roles {
        let grants = schema::grants(&schema, role);
        let granting = session.requests.client.batch_execute(&grants);
        granting.await.map_err(|error| match error.code() {
            Some(&SqlState::UNDEFINED_OBJECT) => {
                Error::invalid(format!("there is no role {role:?}"))
                    .help("create the role first")
                    .caused_by(error)
            }
            _ => store_error(error),
        })?;
    }
    Ok(())
}

/// Returns a number from 0 to 1, so that the clients of one server do not return together.
fn rand_part() -> f64 {
    f64::from(Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)
}

/// Waits until the session has ended, and keeps its subscription as it is needed.
async fn keep(context: &Context, session: &Arc<Session>) {
    while !session.ended.is_closed() {
        if let Err(error) = session.stop_listening(&context.claims).await {
            tracing::debug!(%error, "the subscription cannot be ended");
            return;
        }
        tokio::select! {
            () = session.ended.closed() => {}
            () = sleep(CHECK_INTERVAL) => {}
        }
    }
}

/// How long a client goes on listening without a waiter near the front.
const LISTEN_IDLE: Duration = Duration::from_secs(10);
/// A connection on which nothing arrives for so long after a request is dead: none waits for the lock
/// of a queue for more than two seconds.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(5);
/// The same for a request whose caller waits for a shorter time.
const SILENCE_MIN: Duration = Duration::from_millis(2_500);
/// On the listener none waits for more than a fifth of a second: `renew_1` waits for a tenth in
/// all, and then for at most one more lock.
const LISTENER_SILENCE_MIN: Duration = Duration::from_millis(250);
/// How long the servers of a URL have to open the first session, the schema included.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// How often a session looks whether it still has to listen.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
