//! Risks to locks on a ZooKeeper ensemble: sessions, servers, digests, round trips.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError};

use super::address::Address;
use super::lock_node::parent;
use super::reply_error::on_node;
use super::supervisor::Sessions;
use leasehold_core::internal::examination::{
    Check, ServerFacts, Service, danger, percentiles, version_numbers,
};
use leasehold_core::internal::{BootInstant, Host};
use leasehold_core::{Error, Examination, Result, RoundTrip};

static SERVICE: Service = Service {
    name: "ZooKeeper",
    oldest: "3.5.3",
    install: "install ZooKeeper 3.5.3 or newer",
    encrypt: "zookeeper+tls://",
    patience: "session=",
};

const SAMPLES: usize = 50;
const REPLY_MAX: u64 = 1 << 20;
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// The findings about an ensemble have this order.
const ENSEMBLE: &[Check<Ensemble>] = &[
    Check::warning("session-limit", other_session)
        .message("the servers set a session of {}")
        .remedy("change minSessionTimeout, maxSessionTimeout or tickTime, or session= in the URL"),
    Check::warning("one-server", |it: &Ensemble| {
        (it.servers == 1).then(String::new)
    })
    .message("the URL names one server: without it, locks cannot be acquired or renewed")
    .remedy(MORE_SERVERS),
    Check::warning("even-ensemble", even_number)
        .message("{}")
        .remedy(MORE_SERVERS),
];
const MORE_SERVERS: &str = "use three or five servers, and name all of them in the URL";

/// The findings about a server have this order.
const SERVER: &[Check<ServerReplies>] = &[
    Check::danger("server-missing", no_reply)
        .message("the server cannot be reached: {}")
        .remedy("start it again: with it, one more server may fail"),
    Check::warning("lost-writes", lost_writes)
        .message("servers of ZooKeeper {}: a lock may be granted twice")
        .remedy("install ZooKeeper 3.9.4 or newer"),
    Check::danger("digest-mismatch", digest_mismatches)
        .message("the server has found {} differences from its leader's data")
        .remedy("stop the server, delete its data and let it copy them from the leader"),
];

/// Examines the ensemble of a URL.
pub(crate) async fn examine(address: Arc<Address>) -> Result<Examination> {
    let requested = address.settings.session;
    let client = Sessions::of(Arc::clone(&address))
        .connect(requested)
        .await?;
    let ensemble = Ensemble {
        requested,
        agreed: client.session_timeout(),
        servers: address.servers.len(),
    };

    let mut examination = Examination::default();
    examination.check(ENSEMBLE, &ensemble, &*address);
    let common = ServerFacts {
        round_trip: round_trip(&client).await,
        grace: ensemble.agreed,
        ..ServerFacts::new(&SERVICE, &*address)
    };
    examination.findings.extend(common.findings());
    if let Some(error) = missing_right(&client, address.folder()).await {
        let finding = danger("right", error.reason(), error.hint().unwrap_or_default());
        examination.findings.push(finding.about(&*address));
    }
    let is_encrypted = address.tls.is_some();
    let servers = address.servers.iter();
    for server in join_all(servers.map(|host| ServerReplies::read(host, is_encrypted))).await {
        examination.check(SERVER, &server, &server.host);
        examination.unknown.extend(server.unknown());
        let common = server.common();
        examination.findings.extend(common.findings());
        examination.servers.push(common.examined());
    }
    Ok(examination)
}

/// What a client observes of an ensemble.
struct Ensemble {
    requested: Duration,
    agreed: Duration,
    servers: usize,
}

/// The servers limit the timeout of a session, by default to 2 to 20 of their ticks.
fn other_session(ensemble: &Ensemble) -> Option<String> {
    let Ensemble {
        requested, agreed, ..
    } = ensemble;
    let effect = match agreed.cmp(requested) {
        Ordering::Less => "a shorter outage ends the session and its holds",
        Ordering::Greater => "the lock of a crashed holder is free later",
        Ordering::Equal => return None,
    };
    Some(format!("{agreed:?}, not {requested:?}: {effect}"))
}

fn even_number(ensemble: &Ensemble) -> Option<String> {
    let servers = ensemble.servers;
    let is_even = servers.is_multiple_of(2);
    is_even.then(|| {
        format!(
            "{servers} servers survive no more failures than {}",
            servers - 1
        )
    })
}

async fn round_trip(client: &Client) -> Option<RoundTrip> {
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let sent_at = BootInstant::now();
        client.check_stat("/").await.ok()?;
        samples.push(BootInstant::now().duration_since(sent_at));
    }
    percentiles(samples)
}

/// Returns the error of a user who may not create nodes in a folder or, if it is missing, in the one
/// above it. The last part of the transaction fails on every server, so no node is created.
async fn missing_right(client: &Client, mut folder: &str) -> Option<Error> {
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    loop {
        let node = format!("{}/leasehold-doctor", folder.trim_end_matches('/'));
        let mut writer = client.new_multi_writer();
        writer.add_create(&node, b"", &options).ok()?;
        writer.add_check_version(&node, i32::MAX).ok()?;

        match ZkError::from(writer.commit().await.err()?) {
            ZkError::NoNode if folder != "/" => folder = parent(folder),
            error => return Some(on_node("create", folder)(error)).filter(Error::is_denied),
        }
    }
}

/// What one server replies to its administrator's requests, which it may not permit.
struct ServerReplies {
    host: Host,
    is_encrypted: bool,
    /// The reply to `srvr`, or why there is none. A port with TLS waits for a handshake instead.
    status: std::io::Result<String>,
    /// The reply to `mntr`.
    counts: Option<String>,
}

impl ServerReplies {
    async fn read(host: &Host, is_encrypted: bool) -> Self {
        let mut server = Self {
            host: host.clone(),
            is_encrypted,
            status: request(host, if is_encrypted { "" } else { "srvr" }).await,
            counts: None,
        };
        if !is_encrypted && server.status.is_ok() {
            let reply = request(host, "mntr").await.ok();
            server.counts = reply.filter(|counts| counts.starts_with("zk_"));
        }
        server
    }

    /// Reads a line such as `Zookeeper version: 3.8.4-9316c2a7, built on …`.
    fn version(&self) -> Option<String> {
        let status = self.status.as_ref().ok().filter(|_| !self.is_encrypted)?;
        let mut lines = status.lines();
        let line = lines.find(|line| line.starts_with("Zookeeper version:"))?;
        line.split([' ', '-', ',']).nth(2).map(str::to_owned)
    }

    /// Returns what the risks of all services follow from.
    fn common(&self) -> ServerFacts {
        ServerFacts {
            version: self.version(),
            is_exposed: !self.is_encrypted && !self.host.is_loopback(),
            ..ServerFacts::new(&SERVICE, &self.host)
        }
    }

    fn unknown(&self) -> Option<String> {
        let is_known = self.version().is_some() && self.counts.is_some();
        (self.status.is_ok() && !is_known).then(|| {
            format!(
                "{}: version or digest mismatches: the server does not permit srvr and mntr \
                 (4lw.commands.whitelist), as on every port with TLS",
                self.host
            )
        })
    }
}

fn no_reply(server: &ServerReplies) -> Option<String> {
    server.status.as_ref().err().map(ToString::to_string)
}

/// Releases whose servers may forget a write after a change of the leader. A single server has no
/// other leader.
fn lost_writes(server: &ServerReplies) -> Option<String> {
    let version = server.version()?;
    let issue = match version_numbers(&version) {
        [3, 9, 3] => "ZOOKEEPER-4925",
        [3, 9, 0..=1] => "ZOOKEEPER-4785",
        numbers if numbers < [3, 8, 4] => "ZOOKEEPER-4785",
        _ => return None,
    };

    let status = server.status.as_ref().ok()?;
    (!status.contains("Mode: standalone"))
        .then(|| format!("{version} may forget a write after a change of their leader ({issue})"))
}

fn digest_mismatches(server: &ServerReplies) -> Option<String> {
    let mut lines = server.counts.as_ref()?.lines();
    let count = lines.find_map(|line| line.strip_prefix("zk_digest_mismatches_count"))?;
    let mismatches: u64 = count.trim().parse().ok()?;
    (mismatches > 0).then(|| mismatches.to_string())
}

/// Returns the reply to a word; without a word, connects only.
async fn request(host: &Host, word: &str) -> std::io::Result<String> {
    let exchange = async {
        let addresses = host.addresses().await.map_err(std::io::Error::other)??;
        let mut stream = TcpStream::connect(&*addresses).await?;
        if word.is_empty() {
            return Ok(String::new());
        }
        stream.write_all(word.as_bytes()).await?;
        let mut reply = String::new();
        stream.take(REPLY_MAX).read_to_string(&mut reply).await?;
        Ok(reply)
    };
    timeout(REPLY_TIMEOUT, exchange).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(status: String, counts: Option<String>) -> ServerReplies {
        ServerReplies {
            host: Host {
                name: "localhost".to_owned(),
                port: 2181,
            },
            is_encrypted: false,
            status: Ok(status),
            counts,
        }
    }

    fn ensemble(servers: usize) -> Ensemble {
        Ensemble {
            requested: Duration::from_secs(10),
            agreed: Duration::from_secs(10),
            servers,
        }
    }

    fn codes<F>(checks: &[Check<F>], facts: &F) -> Vec<&'static str> {
        let findings = checks.iter().filter_map(|check| check.finding(facts));
        findings.map(|finding| finding.code).collect()
    }

    #[test]
    fn digest_mismatch_is_a_danger() {
        let found = |number| {
            let counts = format!("zk_version\t3.8\nzk_digest_mismatches_count\t{number}\n");
            codes(SERVER, &server(String::new(), Some(counts)))
        };
        assert!(found(0).is_empty());
        assert_eq!(found(2), ["digest-mismatch"]);
    }

    #[test]
    fn releases_that_lose_writes_are_warnings_unless_a_server_is_alone() {
        let found = |version: &str, mode: &str| {
            let status =
                format!("Zookeeper version: {version}-5a02a05e, built on x\nMode: {mode}\n");
            lost_writes(&server(status, None))
        };
        for (version, issue) in [
            ("3.6.3", 4785),
            ("3.8.3", 4785),
            ("3.9.1", 4785),
            ("3.9.3", 4925),
        ] {
            let message = found(version, "follower").expect("a finding");
            assert!(message.contains(&format!("ZOOKEEPER-{issue}")), "{message}");
            assert_eq!(found(version, "standalone"), None);
        }
        for version in ["3.8.4", "3.8.5", "3.9.2", "3.9.4", "3.10.0"] {
            assert_eq!(found(version, "leader"), None, "{version}");
        }
    }

    #[test]
    fn one_server_and_even_numbers_are_warnings() {
        let found = |servers| codes(ENSEMBLE, &ensemble(servers));
        assert_eq!(found(1), ["one-server"]);
        assert_eq!([found(2), found(4)], [["even-ensemble"]; 2]);
        assert!(found(3).is_empty() && found(5).is_empty());
    }

    #[test]
    fn version_is_read_from_the_status() {
        let of_version = |version| {
            let status =
                format!("Zookeeper version: {version}-5a02a05e, built on 2022-02-25\nMode: x\n");
            server(status, None)
        };
        assert_eq!(of_version("3.8.0").version(), Some("3.8.0".to_owned()));
        let found = |version| {
            let findings = of_version(version).common().findings().collect::<Vec<_>>();
            findings
                .iter()
                .map(|finding| finding.code)
                .collect::<Vec<_>>()
        };
        assert!(found("3.9.2").is_empty());
        assert_eq!(found("3.5.2"), ["version"]);
    }
}
