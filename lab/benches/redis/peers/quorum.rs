//! The limit of Redlock: the requests of `raw`, sent to all masters at once, over polled sockets.
//!
//! The peer continues when a quorum of masters has replied. It reads later replies while it waits
//! for the replies to the next request.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use lab_servers::request;
use rustix::event::{PollFd, PollFlags, poll};

use super::library::nanos;
use super::{Peer, bare};
use crate::workload::Workload;

const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
    return redis.call('del', KEYS[1]) else return 0 end";
const OWNER: &str = "0123456789abcdef0123456789abcdef";

struct Quorum {
    masters: Vec<Master>,
    release: Vec<u8>,
    set: Vec<u8>,
}

struct Master {
    stream: TcpStream,
    /// The number of replies that have not arrived yet.
    owed: usize,
}

pub(super) fn connect(urls: &str) -> Result<Box<dyn Peer>> {
    let mut masters = Vec::new();
    let mut hash = String::new();
    for url in urls.split(',') {
        bare::connect(url)?
            .request(&["SCRIPT", "LOAD", RELEASE])?
            .text()
            .clone_into(&mut hash);
        let stream = TcpStream::connect(url.trim_start_matches("redis://"))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        masters.push(Master { stream, owed: 0 });
    }

    let set = request(&["SET", "quorum:a", OWNER, "NX", "PX", "30000"]);
    let release = request(&["EVALSHA", &hash, "1", "quorum:a", OWNER]);
    Ok(Box::new(Quorum {
        masters,
        release,
        set,
    }))
}

impl Peer for Quorum {
    fn run(&mut self, task: &Workload) -> Result<Option<Vec<u64>>> {
        let Workload::Pairs { count, .. } = task else {
            return Ok(None);
        };
        let mut took = Vec::with_capacity(*count);
        for _ in 0..*count {
            let begun = Instant::now();
            let set = self.set.clone();
            let release = self.release.clone();
            self.send(&set)?;
            self.send(&release)?;
            took.push(nanos(begun.elapsed()));
        }

        Ok(Some(took))
    }
}

impl Quorum {
    /// Sends a request to all masters, and waits until three of five have replied to it.
    fn send(&mut self, request: &[u8]) -> Result<()> {
        for master in &mut self.masters {
            master.stream.write_all(request)?;
            master.owed += 1;
        }

        let quorum = self.masters.len() / 2 + 1;
        while self
            .masters
            .iter()
            .filter(|master| master.owed == 0)
            .count()
            < quorum
        {
            let mut ready: Vec<PollFd<'_>> = self
                .masters
                .iter()
                .filter(|master| master.owed > 0)
                .map(|master| PollFd::new(&master.stream, PollFlags::IN))
                .collect();
            poll(&mut ready, None)?;
            drop(ready);
            self.masters
                .iter_mut()
                .filter(|master| master.owed > 0)
                .try_for_each(Master::read)?;
        }

        Ok(())
    }
}

impl Master {
    /// Reads the replies that have arrived: `+OK` or `:1`, each on one line.
    fn read(&mut self) -> Result<()> {
        let mut bytes = [0; 256];

        match self.stream.read(&mut bytes) {
            Ok(count) => {
                let lines = bytes[..count].split(|byte| *byte == b'\n').count() - 1;
                ensure!(
                    count > 0 && !bytes.starts_with(b"-"),
                    "the request was refused"
                );
                self.owed = self
                    .owed
                    .checked_sub(lines)
                    .context("a master sends one reply per request")?;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
