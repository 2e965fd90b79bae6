//! leasehold's own two requests, sent in the same way as the requests of the limit.
//!
//! The figure is the cost of the store's requests on the server, without the cost of the client.
//! The peer records the requests that leasehold sends, by `MONITOR`.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use lab_servers::{Raw, request};
use tokio::runtime::Builder;

use super::Peer;
use super::bare::{Bare, Requests};

const NAME: &str = "template";
const TOKEN_LEN: usize = 16;
/// The index of the argument of a request to enter that holds its deadline in seconds.
///
/// The server refuses the request after the deadline; `NEVER` is a deadline that does not pass.
const NOT_AFTER_AT: usize = 7;
const NEVER: &str = "9999999999";

pub(super) fn connect(url: &str) -> Result<Box<dyn Peer>> {
    Bare::<Scripts>::connect(url)
}

struct Scripts {
    enter: Vec<u8>,
    /// The offset of the proposed token in `enter`.
    token_at: usize,
    leave: Vec<u8>,
}

impl Requests for Scripts {
    fn of(raw: &mut Raw, name: &str) -> Result<Self> {
        let [mut enter, leave] =
            seen(raw.stream().peer_addr()?)?.map(|pushes| of_name(&pushes, name));
        NEVER.clone_into(&mut enter[NOT_AFTER_AT]);

        // The record follows the key, and begins with its token.
        let enter_bytes = request(&enter.iter().map(String::as_str).collect::<Vec<_>>());
        let record = enter[4].as_bytes();
        let token_at = enter_bytes
            .windows(record.len())
            .position(|bytes| bytes == record)
            .context("the request contains the record")?;
        let leave = request(&leave.iter().map(String::as_str).collect::<Vec<_>>());
        Ok(Self {
            enter: enter_bytes,
            token_at,
            leave,
        })
    }

    fn acquire(&mut self, requests: &mut Vec<u8>) {
        let token = format!("{:016}", micros());
        self.enter[self.token_at..self.token_at + TOKEN_LEN].copy_from_slice(token.as_bytes());
        requests.extend_from_slice(&self.enter);
    }

    fn release(&mut self, requests: &mut Vec<u8>) {
        requests.extend_from_slice(&self.leave);
    }

    fn is_granted(reply: &[u8]) -> bool {
        reply.starts_with(b"$39\r\n") && reply[5 + TOKEN_LEN] == b'H'
    }

    fn is_released(reply: &[u8]) -> bool {
        reply.starts_with(b"$23\r\n1")
    }
}

/// Returns the requests that leasehold sends for a pair, once the server has loaded the scripts.
fn seen(server: SocketAddr) -> Result<[Vec<String>; 2]> {
    let mut watch = Raw::connect(server)?;
    watch.request(&["MONITOR"])?;
    Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            let lock = leasehold::open(&format!("redis://{server}"))
                .await?
                .mutex(NAME);
            for _ in 0..2 {
                lock.acquire().await?.release().await?;
            }
            anyhow::Ok(())
        })?;
    Raw::connect(server)?.request(&["ECHO", "that is all"])?;
    let mut pair = Vec::new();
    loop {
        let line = String::from_utf8_lossy(watch.receive_bytes()?).into_owned();
        let pushes = words(&line);
        match pushes.first().map(String::as_str) {
            Some("ECHO") => break,
            Some("EVALSHA") if pushes.get(3).is_some_and(|key| key.contains(NAME)) => {
                pair.push(pushes);
            }
            _ => {}
        }
    }
    let first = pair
        .len()
        .checked_sub(2)
        .context("leasehold sends two requests for a pair")?;
    pair.split_off(first)
        .try_into()
        .ok()
        .context("a pair is two requests")
}

/// Returns the words of a line of MONITOR. leasehold's words do not contain quotes or backslashes.
fn words(line: &str) -> Vec<String> {
    line.split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// Returns the same request for another lock.
fn of_name(pushes: &[String], name: &str) -> Vec<String> {
    let key = format!("leasehold:{{{name}}}");
    pushes
        .iter()
        .enumerate()
        .map(|(at, push)| if at == 3 { key.clone() } else { push.clone() })
        .collect()
}

fn micros() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_micros()
}
