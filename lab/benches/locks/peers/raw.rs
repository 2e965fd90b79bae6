//! The limits on Redis, over a blocking socket: `SET NX PX` with a script that compares and
//! deletes, and the requests that leasehold sends.
//!
//! The first has neither a token nor a queue. The requests are built beforehand, so that the
//! measured time is the time that the server and the system need.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use lab_servers::request;
use tokio::runtime::Builder;

use super::{Peer, nanos};
use crate::workload::Workload;

const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
    return redis.call('del', KEYS[1]) else return 0 end";
const OWNER: &str = "0123456789abcdef0123456789abcdef";
const CHANNEL: &str = "hop";
/// A message as long as one of leasehold.
const MESSAGE: &str = "H00000000000000001234567890123456789012";

/// The lock whose requests by leasehold are repeated for other locks.
const TEMPLATE: &str = "template";
/// The word of its request to enter that is the last second in which the server may execute it.
const NOT_AFTER_AT: usize = 7;
/// The digits of a token, with which the record in a request to enter begins.
const TOKEN_LEN: usize = 16;

/// A peer with two connections, as a subscribed connection cannot send requests.
pub(super) struct Raw {
    url: String,
    requests: lab_servers::Raw,
    pushes: Option<lab_servers::Raw>,
    /// The words of leasehold's requests for [`TEMPLATE`], if the peer sends those.
    template: Option<[Vec<String>; 2]>,
}

/// The requests that acquire and release a lock.
struct Pair {
    acquire: Vec<u8>,
    release: Vec<u8>,
    /// Where the token that leasehold proposes is in `acquire`. It must grow.
    token_at: Option<usize>,
}

impl Peer for Raw {
    fn run(&mut self, task: &Workload) -> Result<Option<Vec<u64>>> {
        Ok(Some(match task {
            Workload::Pairs { name, count } => self.pairs(name, *count)?,
            Workload::Names { names, each } => self.many_names(*names, *each)?,
            Workload::Subscribe => self.subscribe()?,
            Workload::Receive { count } => self.receive(*count)?,
            Workload::Publish { count, gap_micros } => {
                self.publish(*count, Duration::from_micros(*gap_micros))?
            }
            Workload::Contend { .. } => return Ok(None),
        }))
    }
}

impl Raw {
    pub(super) fn connect(url: &str) -> Result<Self> {
        Ok(Self {
            url: url.to_owned(),
            requests: connect(url)?,
            pushes: None,
            template: None,
        })
    }

    /// Repeats the requests that leasehold sends for a pair.
    pub(super) fn of_leasehold(url: &str) -> Result<Self> {
        let template = Some(requests_of_leasehold(url)?);
        let raw = Self::connect(url)?;
        Ok(Self { template, ..raw })
    }

    fn pairs(&mut self, name: &str, count: usize) -> Result<Vec<u64>> {
        let mut pair = self.pair(name)?;
        let mut took = Vec::with_capacity(count);
        for _ in 0..count {
            pair.propose_token();
            let begun = Instant::now();
            let is_granted = is_granted(self.requests.request_bytes(&pair.acquire)?);
            let is_released = is_released(self.requests.request_bytes(&pair.release)?);
            took.push(nanos(begun.elapsed()));
            ensure!(is_granted && is_released, "the lock was not free");
        }
        Ok(took)
    }

    /// Acquires all names with one write. When all of them are granted, it releases all of them
    /// with another write.
    fn many_names(&mut self, names: usize, each: usize) -> Result<Vec<u64>> {
        let pair_of = |number| self.pair(&format!("n{number}"));
        let mut pairs = (0..names).map(pair_of).collect::<Result<Vec<_>>>()?;
        let release = pairs.iter().flat_map(|pair| &pair.release).copied();
        let release: Vec<u8> = release.collect();

        let begun = Instant::now();
        for _ in 0..each {
            pairs.iter_mut().for_each(Pair::propose_token);
            let acquire = pairs.iter().flat_map(|pair| &pair.acquire).copied();
            let acquire: Vec<u8> = acquire.collect();
            for (wave, is_done) in [
                (&acquire, is_granted as fn(&[u8]) -> bool),
                (&release, is_released),
            ] {
                self.requests.send(wave)?;
                for _ in 0..names {
                    let reply = self.requests.receive_bytes()?;
                    ensure!(is_done(reply), "a lock was not free");
                }
            }
        }
        Ok(vec![nanos(begun.elapsed())])
    }

    fn pair(&mut self, name: &str) -> Result<Pair> {
        if let Some(template) = &self.template {
            return Pair::of_leasehold(template, name);
        }
        let key = format!("raw:{name}");
        let loaded = self.requests.request(&["SCRIPT", "LOAD", RELEASE])?;
        Ok(Pair {
            acquire: request(&["SET", &key, OWNER, "NX", "PX", "30000"]),
            release: request(&["EVALSHA", loaded.text(), "1", &key, OWNER]),
            token_at: None,
        })
    }

    fn subscribe(&mut self) -> Result<Vec<u64>> {
        if self.pushes.is_none() {
            let mut pushes = connect(&self.url)?;
            pushes.request(&["SUBSCRIBE", CHANNEL])?;
            self.pushes = Some(pushes);
        }
        Ok(Vec::new())
    }

    fn receive(&mut self, count: usize) -> Result<Vec<u64>> {
        let pushes = self.pushes.as_mut().context("the peer is not subscribed")?;
        let mut came = Vec::with_capacity(count);
        for _ in 0..count {
            pushes.receive_bytes()?;
            came.push(lab::now());
        }
        Ok(came)
    }

    fn publish(&mut self, count: usize, gap: Duration) -> Result<Vec<u64>> {
        let publish = request(&["PUBLISH", CHANNEL, MESSAGE]);
        let mut sent = Vec::with_capacity(count);
        for _ in 0..count {
            sent.push(lab::now());
            self.requests.request_bytes(&publish)?;
            sleep(gap);
        }
        Ok(sent)
    }
}

fn connect(url: &str) -> Result<lab_servers::Raw> {
    Ok(lab_servers::Raw::connect(
        url.trim_start_matches("redis://"),
    )?)
}

/// The limit of Redlock: the requests of a pair on several masters, which are sent to all of them
/// before the replies of a majority are read.
pub(super) struct Quorum(Vec<Raw>);

impl Quorum {
    pub(super) fn connect(urls: &str) -> Result<Self> {
        let urls = urls.trim_start_matches("redlock://").split(',');
        Ok(Self(urls.map(Raw::connect).collect::<Result<_>>()?))
    }
}

impl Peer for Quorum {
    fn run(&mut self, task: &Workload) -> Result<Option<Vec<u64>>> {
        let Workload::Pairs { name, count } = task else {
            return Ok(None);
        };
        let Pair {
            acquire, release, ..
        } = self.0[0].pair(name)?;
        for master in &mut self.0 {
            master.pair(name)?;
        }

        let majority = self.0.len() / 2 + 1;
        let (majority, others) = self.0.split_at_mut(majority);
        let mut took = Vec::with_capacity(*count);
        for _ in 0..*count {
            let begun = Instant::now();
            for (request, is_done) in [
                (&acquire, is_granted as fn(&[u8]) -> bool),
                (&release, is_released),
            ] {
                for master in majority.iter_mut().chain(others.iter_mut()) {
                    master.requests.send(request)?;
                }
                for master in majority.iter_mut() {
                    ensure!(is_done(master.requests.receive_bytes()?), "not free");
                }
            }
            took.push(nanos(begun.elapsed()));
            for master in others.iter_mut() {
                master.requests.receive_bytes()?;
                master.requests.receive_bytes()?;
            }
        }
        Ok(Some(took))
    }
}

impl Pair {
    fn of_leasehold(template: &[Vec<String>; 2], name: &str) -> Result<Self> {
        let key = format!("leasehold:{{{name}}}");
        let [acquire, release] = template.each_ref().map(|words| {
            let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
            words[3] = &key;
            request(&words)
        });
        // The record follows the key.
        let record = template[0][4].as_bytes();
        let mut places = acquire.windows(record.len());
        let token_at = places.position(|bytes| bytes == record);
        Ok(Self {
            token_at: Some(token_at.context("the request contains the record")?),
            acquire,
            release,
        })
    }

    fn propose_token(&mut self) {
        if let Some(at) = self.token_at {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            let token = format!("{:016}", since.unwrap_or_default().as_micros());
            self.acquire[at..at + TOKEN_LEN].copy_from_slice(token.as_bytes());
        }
    }
}

/// Whether a reply grants a lock: to `SET`, or to leasehold's request, with the token and an `H`.
fn is_granted(reply: &[u8]) -> bool {
    reply == b"+OK\r\n" || reply.starts_with(b"$39") && reply.get(5 + TOKEN_LEN) == Some(&b'H')
}

/// Whether a reply confirms a release: of the script above, or of leasehold's.
fn is_released(reply: &[u8]) -> bool {
    reply == b":1\r\n" || reply.starts_with(b"$23\r\n1")
}

/// Returns the requests that leasehold sends for a pair, as `MONITOR` shows them.
fn requests_of_leasehold(url: &str) -> Result<[Vec<String>; 2]> {
    let mut watch = connect(url)?;
    watch.request(&["MONITOR"])?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let locks = leasehold::open(url).await?;
        // The first pair loads the scripts.
        for _ in 0..2 {
            locks.mutex(TEMPLATE).acquire().await?.release().await?;
        }
        anyhow::Ok(())
    })?;
    connect(url)?.request(&["ECHO", "the end"])?;

    let mut requests = Vec::new();
    loop {
        let line = std::str::from_utf8(watch.receive_bytes()?)?;
        // No word of these requests has a quote or a backslash in it.
        let words = line.split('"').skip(1).step_by(2).map(str::to_owned);
        let words: Vec<String> = words.collect();
        match words.first().map(String::as_str) {
            Some("ECHO") => break,
            Some("EVALSHA") if words[3].contains(TEMPLATE) => requests.push(words),
            _ => {}
        }
    }
    let last = requests.len().saturating_sub(2);
    let last = requests.split_off(last).try_into().ok();
    let [mut acquire, release] = last.context("a pair is two requests")?;
    "9999999999".clone_into(&mut acquire[NOT_AFTER_AT]);
    Ok([acquire, release])
}
