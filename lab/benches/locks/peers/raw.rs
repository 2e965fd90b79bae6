//! The limit: `SET NX PX` and a script that compares and deletes, over a blocking socket.
//!
//! It does not have a token or a queue. The requests are built beforehand, so that the measured
//! time is the time that the server and the system need.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab_servers::request;

use super::{Peer, nanos};
use crate::workload::Workload;

const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
    return redis.call('del', KEYS[1]) else return 0 end";
const OWNER: &str = "0123456789abcdef0123456789abcdef";
const CHANNEL: &str = "hop";
/// A message as long as one of leasehold.
const MESSAGE: &str = "H00000000000000001234567890123456789012";

/// A peer with two connections, as a subscribed connection cannot send requests.
pub(super) struct Raw {
    url: String,
    requests: lab_servers::Raw,
    pushes: Option<lab_servers::Raw>,
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
        })
    }

    fn pairs(&mut self, name: &str, count: usize) -> Result<Vec<u64>> {
        let [set, delete] = self.requests_of(name)?;
        let mut took = Vec::with_capacity(count);
        for _ in 0..count {
            let begun = Instant::now();
            let is_granted = self.requests.request_bytes(&set)? == b"+OK\r\n";
            let is_released = self.requests.request_bytes(&delete)? == b":1\r\n";
            took.push(nanos(begun.elapsed()));
            ensure!(is_granted && is_released, "the lock was not free");
        }
        Ok(took)
    }

    /// Acquires all names with one write. When all of them are granted, it releases all of them
    /// with another write.
    fn many_names(&mut self, names: usize, each: usize) -> Result<Vec<u64>> {
        let mut waves = [Vec::new(), Vec::new()];
        for name in 0..names {
            let requests = self.requests_of(&format!("n{name}"))?;
            for (wave, request) in waves.iter_mut().zip(requests) {
                wave.extend(request);
            }
        }

        let begun = Instant::now();
        for _ in 0..each {
            for (wave, done) in waves.iter().zip([&b"+OK\r\n"[..], b":1\r\n"]) {
                self.requests.send(wave)?;
                for _ in 0..names {
                    ensure!(
                        self.requests.receive_bytes()? == done,
                        "a lock was not free"
                    );
                }
            }
        }
        Ok(vec![nanos(begun.elapsed())])
    }

    /// Builds the requests that acquire and release a lock.
    fn requests_of(&mut self, name: &str) -> Result<[Vec<u8>; 2]> {
        let key = format!("raw:{name}");
        let loaded = self.requests.request(&["SCRIPT", "LOAD", RELEASE])?;
        Ok([
            request(&["SET", &key, OWNER, "NX", "PX", "30000"]),
            request(&["EVALSHA", loaded.text(), "1", &key, OWNER]),
        ])
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
