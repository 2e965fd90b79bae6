//! The limit: `SET NX PX` and a script that compares and deletes, over a blocking socket.
//!
//! It does not have a token or a queue.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use lab_servers::{Raw, request};

use super::Peer;
use super::bare::{self, Requests};
use crate::workload::Workload;

const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
    return redis.call('del', KEYS[1]) else return 0 end";
const OWNER: &str = "0123456789abcdef0123456789abcdef";
const CHANNEL: &str = "hop";

/// A peer with two connections, as a subscribed connection cannot send requests.
struct Limit {
    url: String,
    requests: Raw,
    pushes: Option<Raw>,
}

struct SetAndDelete {
    set: Vec<u8>,
    delete: Vec<u8>,
}

pub(super) fn connect(url: &str) -> Result<Box<dyn Peer>> {
    Ok(Box::new(Limit {
        url: url.to_owned(),
        requests: bare::connect(url)?,
        pushes: None,
    }))
}

impl Peer for Limit {
    fn run(&mut self, task: &Workload) -> Result<Option<Vec<u64>>> {
        match *task {
            Workload::Subscribe => self.subscribe().map(Some),
            Workload::Receive { count } => self.receive(count).map(Some),
            Workload::Publish { count, gap_micros } => self
                .publish(count, Duration::from_micros(gap_micros))
                .map(Some),
            Workload::Renew { names, batch } => self.renew(names, batch).map(Some),
            _ => bare::run::<SetAndDelete>(&mut self.requests, task),
        }
    }
}

impl Requests for SetAndDelete {
    fn of(raw: &mut Raw, name: &str) -> Result<Self> {
        let key = format!("raw:{name}");
        let hash = raw.request(&["SCRIPT", "LOAD", RELEASE])?.text().to_owned();
        let set = request(&["SET", &key, OWNER, "NX", "PX", "30000"]);
        Ok(Self {
            set,
            delete: request(&["EVALSHA", &hash, "1", &key, OWNER]),
        })
    }

    fn acquire(&mut self, requests: &mut Vec<u8>) {
        requests.extend_from_slice(&self.set);
    }

    fn release(&mut self, requests: &mut Vec<u8>) {
        requests.extend_from_slice(&self.delete);
    }

    fn is_granted(reply: &[u8]) -> bool {
        reply == b"+OK\r\n"
    }

    fn is_released(reply: &[u8]) -> bool {
        reply == b":1\r\n"
    }
}

impl Limit {
    fn subscribe(&mut self) -> Result<Vec<u64>> {
        if self.pushes.is_none() {
            let mut hears = bare::connect(&self.url)?;
            hears.request(&["SUBSCRIBE", CHANNEL])?;
            self.pushes = Some(hears);
        }
        Ok(Vec::new())
    }

    fn receive(&mut self, count: usize) -> Result<Vec<u64>> {
        let hears = self.pushes.as_mut().context("the peer is not subscribed")?;
        let mut came = Vec::with_capacity(count);
        for _ in 0..count {
            hears.receive_bytes()?;
            came.push(lab::now());
        }
        Ok(came)
    }

    fn publish(&mut self, count: usize, gap: Duration) -> Result<Vec<u64>> {
        let publish = request(&[
            "PUBLISH",
            CHANNEL,
            "H00000000000000001234567890123456789012",
        ]);
        let mut sent = Vec::with_capacity(count);
        for _ in 0..count {
            sent.push(lab::now());
            self.requests.request_bytes(&publish)?;
            sleep(gap);
        }
        Ok(sent)
    }

    /// Does the least that a renewal needs.
    ///
    /// It creates the keys, and sets a new time to live without any condition.
    fn renew(&mut self, names: usize, batch: usize) -> Result<Vec<u64>> {
        let requests = |first: usize, command: fn(String) -> Vec<u8>| {
            (first..names.min(first + batch))
                .flat_map(|name| command(format!("raw:h{name}")))
                .collect::<Vec<u8>>()
        };
        for command in [
            |key: String| request(&["SET", &key, OWNER, "NX", "PX", "30000"]),
            |key: String| request(&["PEXPIRE", &key, "30000"]),
        ] {
            for first in (0..names).step_by(batch) {
                self.requests.send(&requests(first, command))?;
                for _ in first..names.min(first + batch) {
                    self.requests.receive_bytes()?;
                }
            }
        }

        Ok(Vec::new())
    }
}
