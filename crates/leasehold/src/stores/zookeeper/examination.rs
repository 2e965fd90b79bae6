//! Risks to locks on a ZooKeeper ensemble: sessions, servers, digests, round trips.

use std::cmp::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::address::Address;
use super::supervisor::connect;
use crate::Result;
use crate::examination::{Examination, ExaminedServer, Finding, RoundTrip};
use crate::runtime::clock::BootInstant;
use crate::stores::url::{Host, is_loopback};

/// Examines the ensemble of a URL.
pub(crate) async fn examine(url: &str) -> Result<Examination> {
    let address = Address::parse(url)?;
    let requested = address.settings.session;
    let client = connect(&address, requested).await?;

    let mut examination = Examination::default();
    let findings = &mut examination.findings;
    findings.extend(session(requested, client.session_timeout()));
    let trip = round_trip(&client).await;
    findings.extend(trip.and_then(|trip| slowness(trip, client.session_timeout())));
    findings.extend(size(address.servers.len()));
    for finding in findings {
        finding.server = address.to_string();
    }

    let is_encrypted = address.tls.is_some();
    let examined = address
        .servers
        .iter()
        .map(|host| server(host, is_encrypted));
    for examined in join_all(examined).await {
        examination.add(examined);
    }
    Ok(examination)
}

/// The servers limit the timeout of a session, by default to 2 to 20 of their ticks.
fn session(requested: Duration, agreed: Duration) -> Option<Finding> {
    let message = |effect: &str| {
        format!("the servers set a session of {agreed:?}, not {requested:?}: {effect}")
    };
    let remedy = "change minSessionTimeout, maxSessionTimeout or tickTime, or session= in the URL";
    let effect = match agreed.cmp(&requested) {
        Ordering::Less => "a shorter outage ends the session and its holds",
        Ordering::Greater => "the lock of a crashed holder is free later",
        Ordering::Equal => return None,
    };
    Some(Finding::warning("session-limit", message(effect), remedy))
}

fn size(servers: usize) -> Option<Finding> {
    let remedy = "use three or five servers, and name all of them in the URL";
    match servers {
        1 => Some(Finding::warning(
            "one-server",
            "the URL names one server: without it, locks cannot be acquired or renewed",
            remedy,
        )),
        even if even.is_multiple_of(2) => {
            let message = format!("{even} servers survive no more failures than {}", even - 1);
            Some(Finding::warning("even-ensemble", message, remedy))
        }
        _ => None,
    }
}

async fn round_trip(client: &zookeeper_client::Client) -> Option<RoundTrip> {
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let sent_at = BootInstant::now();
        client.check_stat("/").await.ok()?;
        samples.push(BootInstant::now().duration_since(sent_at));
    }
    RoundTrip::of(samples)
}

fn slowness(trip: RoundTrip, session: Duration) -> Option<Finding> {
    (trip.p99 > session / 20).then(|| {
        let message = format!("the 99th percentile of round trips is {:?}", trip.p99);
        let remedy = "use a longer session=, or find out what delays replies";
        Finding::warning("slow", message, remedy)
    })
}

/// Examines one server by its administrator's requests, which a server may not permit.
async fn server(host: &Host, is_encrypted: bool) -> Examination {
    let mut examination = Examination::default();
    let mut server = ExaminedServer::new(host.to_string());
    let mut findings = Vec::new();
    if !is_encrypted && !is_loopback(&host.name) {
        findings.push(Finding::warning(
            "no-tls",
            "the connection leaves this machine without TLS, and others may read or change it",
            "use zookeeper+tls://, or a network without other users",
        ));
    }

    match request(host, "srvr").await {
        Err(error) => findings.push(Finding::danger(
            "server-missing",
            format!("the server cannot be reached: {error}"),
            "start it again: with it, one more server may fail",
        )),
        // A port with TLS does not reply to these requests.
        Ok(_) if is_encrypted => {}
        Ok(status) => {
            server.version = version(&status).map(|version| format!("ZooKeeper {version}"));
            findings.extend(server.version.as_deref().and_then(old_version));
            findings.extend(lost_writes(&status));
            match request(host, "mntr").await {
                Ok(counts) if counts.starts_with("zk_") => findings.extend(digests(&counts)),
                _ => examination.unknown.push(format!(
                    "{host}: digest mismatches: the server does not permit mntr \
                     (4lw.commands.whitelist)"
                )),
            }
        }
    }

    for finding in &mut findings {
        finding.server = host.to_string();
    }
    examination.findings = findings;
    examination.servers.push(server);
    examination
}

/// Reads a line such as `Zookeeper version: 3.8.4-9316c2a7, built on …`.
fn version(status: &str) -> Option<&str> {
    let line = status
        .lines()
        .find(|line| line.starts_with("Zookeeper version:"))?;
    line.split([' ', '-', ',']).nth(2)
}

fn numbers(version: &str) -> (u32, u32, u32) {
    let mut numbers = version
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);

    (next(), next(), next())
}

fn old_version(product: &str) -> Option<Finding> {
    let version = product.split(' ').nth(1)?;
    (numbers(version) < (3, 5, 3)).then(|| {
        let message = format!("the server is {product}, and leasehold needs 3.5.3");
        Finding::danger("version", message, "install ZooKeeper 3.5.3 or newer")
    })
}

/// Releases whose servers may forget a write after a change of the leader. A single server has no
/// other leader.
fn lost_writes(status: &str) -> Option<Finding> {
    if status.contains("Mode: standalone") {
        return None;
    }
    let version = version(status)?;
    let issue = match numbers(version) {
        (3, 9, 3) => "ZOOKEEPER-4925",
        (3, 9, 0..=1) => "ZOOKEEPER-4785",
        number if number < (3, 8, 4) => "ZOOKEEPER-4785",
        _ => return None,
    };

    let message = format!(
        "servers of ZooKeeper {version} may forget a write after a change of their leader \
         ({issue}): a lock may be granted twice"
    );
    let remedy = "install ZooKeeper 3.9.4 or newer";
    Some(Finding::warning("lost-writes", message, remedy))
}

fn digests(counts: &str) -> Option<Finding> {
    let line = counts
        .lines()
        .find_map(|line| line.strip_prefix("zk_digest_mismatches_count"))?;
    let mismatches: u64 = line.trim().parse().ok()?;
    (mismatches > 0).then(|| {
        let message =
            format!("the server has found {mismatches} differences from its leader's data");
        let remedy = "stop the server, delete its data and let it copy them from the leader";
        Finding::danger("digest-mismatch", message, remedy)
    })
}

async fn request(host: &Host, word: &str) -> std::io::Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect((host.name.as_str(), host.port)).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut reply = String::new();
        stream.take(REPLY_MAX).read_to_string(&mut reply).await?;
        Ok(reply)
    };
    timeout(REPLY_TIMEOUT, exchange).await?
}

const SAMPLES: usize = 50;
const REPLY_MAX: u64 = 1 << 20;
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_mismatch_is_a_danger() {
        let counts = |number| format!("zk_version\t3.8\nzk_digest_mismatches_count\t{number}\n");
        assert_eq!(digests(&counts(0)), None);
        let found = digests(&counts(2)).expect("a finding");
        assert_eq!(found.code, "digest-mismatch");
    }

    #[test]
    fn releases_that_lose_writes_are_warnings_unless_a_server_is_alone() {
        let found = |version: &str, mode: &str| {
            let status =
                format!("Zookeeper version: {version}-5a02a05e, built on x\nMode: {mode}\n");
            lost_writes(&status).map(|finding| finding.message)
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
        let code = |servers| size(servers).map(|finding| finding.code);
        assert_eq!(code(1), Some("one-server"));
        assert_eq!([code(2), code(4)], [Some("even-ensemble"); 2]);
        assert_eq!([code(3), code(5)], [None; 2]);
    }

    #[test]
    fn slow_replies_are_judged_by_the_session() {
        let slow = |millis| {
            let trip = RoundTrip::of(vec![Duration::from_millis(millis)]).expect("a sample");
            slowness(trip, Duration::from_secs(10)).is_some()
        };
        assert!(!slow(499) && slow(501));
    }

    #[test]
    fn version_is_read_from_the_status() {
        let status = "Zookeeper version: 3.8.0-5a02a05e, built on 2022-02-25 08:49 UTC\nMode: x\n";
        assert_eq!(version(status), Some("3.8.0"));
        assert!(old_version("ZooKeeper 3.5.2").is_some());
        assert_eq!(old_version("ZooKeeper 3.8.0"), None);
    }
}
