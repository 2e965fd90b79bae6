//! Risks to locks in a database: lost writes, failover, poolers, connections, long transactions.

use std::collections::HashMap;
use std::time::Duration;

use tokio_postgres::{Client, SimpleQueryMessage};

use super::address::Address;
use super::claims::Claims;
use super::reply_error::store_error;
use super::schema;
use super::session::{Context, Session};
use leasehold_core::internal::BootInstant;
use leasehold_core::internal::examination::{Check, ServerFacts, Service, percentiles};
use leasehold_core::{Examination, Result, RoundTrip};

const SAMPLES: usize = 50;

/// One row of settings and counts. What the role may not see is null.
const FACTS: &str = "SELECT current_setting('server_version') AS version, \
    current_setting('fsync') AS fsync, \
    current_setting('full_page_writes') AS full_page_writes, \
    current_setting('synchronous_standby_names') AS synchronous_standbys, \
    current_setting('autovacuum') AS autovacuum, \
    current_setting('max_connections')::int AS connections_max, \
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections, \
    (SELECT count(*) FROM pg_stat_replication) AS replicas, \
    (SELECT string_agg(DISTINCT pubname, ', ') FROM pg_publication_tables \
        WHERE schemaname = 'leasehold_private') AS publications, \
    (SELECT extract(epoch FROM max(clock_timestamp() - xact_start))::bigint FROM pg_stat_activity \
        WHERE datname = current_database() \
        AND coalesce(backend_xid, backend_xmin) IS NOT NULL) AS longest_transaction, \
    pg_has_role('pg_read_all_stats', 'USAGE') AS sees_others, \
    (SELECT string_agg(gid, ', ') FROM pg_prepared_xacts \
        WHERE database = current_database() AND prepared < now() - interval '1 hour') AS prepared, \
    (pg_notification_queue_usage() * 100)::int AS notifications, \
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS clock";

/// The findings have this order.
const CHECKS: &[Check<Facts>] = &[
    Check::danger("no-persistence", |facts: &Facts| {
        facts.is_off("fsync").or(facts.is_off("full_page_writes"))
    })
    .message("{} is off: a crash of the machine may lose grants, which are then given again")
    .remedy("set it to on, and restart the server"),
    Check::warning("replicas-unused", |facts: &Facts| {
        let replicas = facts.number("replicas").filter(|count| *count > 0)?;
        (facts.text("synchronous_standbys")?.is_empty()).then(|| replicas.to_string())
    })
    .message("none of {} replicas is synchronous: a promotion loses the grants it has not received")
    .remedy("set synchronous_standby_names, or compare tokens at the resource"),
    Check::warning("pooler", |facts: &Facts| facts.is_pooled.then(String::new))
        .message(
            "there is a connection pooler: a crashed holder's lock is free only when its lease \
             ends, and waiters poll",
        )
        .remedy("add ?direct=HOST:PORT of the server itself, or name the server instead"),
    Check::warning("connections", |facts: &Facts| {
        let connections = facts.number("connections")?;
        let connections_max = facts.number("connections_max")?;
        let is_risk = connections * 5 > connections_max * 4;
        is_risk.then(|| format!("{connections} of {connections_max}"))
    })
    .message("{} connections are in use")
    .remedy("raise max_connections; leasehold uses two for each process"),
    Check::warning("publication", |facts: &Facts| facts.text("publications"))
        .message(
            "the publication {} contains the tables of leasehold: a subscriber gets stale locks",
        )
        .remedy("leave the schema leasehold_private out of the publication"),
    Check::warning("long-transaction", |facts: &Facts| {
        let seconds = facts.number("longest_transaction")?;
        (seconds > TRANSACTION_SECONDS_MAX).then(|| format!("{seconds} s"))
    })
    .message("a transaction is open for {}: until it ends, each grant makes later ones slower")
    .remedy("end it, and set idle_in_transaction_session_timeout for programs that forget"),
    Check::warning("prepared-transaction", |facts: &Facts| {
        facts.text("prepared")
    })
    .message("the prepared transaction {} is an hour old, and may pin grants")
    .remedy("COMMIT PREPARED or ROLLBACK PREPARED it"),
    Check::warning("notification-queue", |facts: &Facts| {
        let percent = facts.number("notifications")?;
        (percent > 50).then(|| format!("{percent} %"))
    })
    .message("{} of the queue of notifications is in use: once it is nearly full, waiters are not notified")
    .remedy("end the oldest transaction of a session that listens: pg_stat_activity shows it"),
    Check::warning("autovacuum", |facts: &Facts| facts.is_off("autovacuum"))
        .message("{} is off: the table of waiters grows")
        .remedy("turn it on"),
];

/// With it, each row of a lock that is in use keeps some thousand versions.
const TRANSACTION_SECONDS_MAX: i64 = 300;
/// The default lease, which matters without a crash grace.
const LEASE: Duration = Duration::from_secs(30);

/// Examines the database of a URL.
pub(crate) async fn examine(address: Address) -> Result<Examination> {
    let mut context = Context::new(address.clone().into(), Claims::default().into());
    let session = Session::open(&mut context, 0).await?;
    let facts = Facts::read(&session, &address).await?;

    let mut examination = Examination::default();
    examination.check(CHECKS, &facts, &address);
    examination.findings.extend(facts.common.findings());
    if facts.text("sees_others").as_deref() != Some("t") {
        examination.unknown.push(format!(
            "{address}: long transactions of other roles: GRANT pg_read_all_stats shows them"
        ));
    }
    examination.servers.push(facts.common.examined());
    Ok(examination)
}

static SERVICE: Service = Service {
    name: "PostgreSQL",
    oldest: "15",
    install: "install PostgreSQL 15 or newer",
    encrypt: "sslmode=verify-full",
    patience: "crash-grace= and lease",
};

/// What a client observes of a server.
struct Facts {
    common: ServerFacts,
    values: HashMap<String, String>,
    is_pooled: bool,
}

impl Facts {
    async fn read(session: &Session, address: &Address) -> Result<Self> {
        let client = &session.requests.client;
        let mut common = ServerFacts::new(&SERVICE, address);
        common.is_exposed = address.is_exposed();
        common.grace = address.settings.crash_grace.unwrap_or(LEASE);
        common.round_trip = round_trip(client).await;
        let mut facts = Self {
            common,
            values: HashMap::new(),
            is_pooled: session.proof.is_none(),
        };

        let asked_at = BootInstant::now();
        let own_before = own_clock_ms();
        let reply = client
            .simple_query(&schema::named(&address.schema, FACTS))
            .await
            .map_err(store_error)?;
        for message in reply {
            let SimpleQueryMessage::Row(row) = message else {
                continue;
            };
            for (at, column) in row.columns().iter().enumerate() {
                if let Some(value) = row.get(at) {
                    facts
                        .values
                        .insert(column.name().to_owned(), value.to_owned());
                }
            }
        }
        // The clock was read in between.
        let passed = BootInstant::now().duration_since(asked_at).as_millis();
        let middle = own_before + i64::try_from(passed / 2).unwrap_or(0);
        facts.common.clock_ahead_ms = facts.number("clock").map(|clock| clock - middle);
        facts.common.version = facts.text("version");
        Ok(facts)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.values.get(name).cloned()
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.values.get(name)?.parse().ok()
    }

    fn is_off(&self, name: &str) -> Option<String> {
        (self.values.get(name)? == "off").then(|| name.to_owned())
    }
}

fn own_clock_ms() -> i64 {
    let now = std::time::SystemTime::now();
    let passed = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(passed.as_millis()).unwrap_or(i64::MAX)
}

async fn round_trip(client: &Client) -> Option<RoundTrip> {
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let sent_at = BootInstant::now();
        client.batch_execute("").await.ok()?;
        samples.push(BootInstant::now().duration_since(sent_at));
    }
    percentiles(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(values: &[(&str, &str)]) -> Vec<&'static str> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let facts = Facts {
            common: ServerFacts::new(&SERVICE, "server"),
            values: values.iter().map(own).collect(),
            is_pooled: false,
        };
        let findings = CHECKS.iter().filter_map(|check| check.finding(&facts));
        findings.map(|finding| finding.code).collect()
    }

    #[test]
    fn each_risk_is_found_at_its_limit() {
        assert!(codes(&[]).is_empty());
        assert_eq!(codes(&[("fsync", "off")]), ["no-persistence"]);
        assert_eq!(codes(&[("full_page_writes", "off")]), ["no-persistence"]);
        assert!(codes(&[("fsync", "on"), ("full_page_writes", "on")]).is_empty());

        let replicas =
            |count, names| codes(&[("replicas", count), ("synchronous_standbys", names)]);
        assert_eq!(replicas("1", ""), ["replicas-unused"]);
        assert!(replicas("1", "FIRST 1 (b)").is_empty() && replicas("0", "").is_empty());

        let connections = |used| codes(&[("connections", used), ("connections_max", "100")]);
        assert!(connections("80").is_empty());
        assert_eq!(connections("81"), ["connections"]);

        let longest = |seconds| codes(&[("longest_transaction", seconds)]);
        assert!(longest("300").is_empty());
        assert_eq!(longest("301"), ["long-transaction"]);

        let notifications = |percent| codes(&[("notifications", percent)]);
        assert!(notifications("50").is_empty());
        assert_eq!(notifications("51"), ["notification-queue"]);

        assert_eq!(codes(&[("publications", "all")]), ["publication"]);
        assert_eq!(codes(&[("prepared", "tx1")]), ["prepared-transaction"]);
        assert_eq!(codes(&[("autovacuum", "off")]), ["autovacuum"]);
    }
}
