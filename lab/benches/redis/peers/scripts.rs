//! leasehold's own two scripts, sent as the limit sends its requests: what the store asks of the server, without what the
//! client costs.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use lab_servers::{Raw, request};

use super::Peer;
use super::bare::{Bare, Requests};

macro_rules! script {
    ($($part:literal),+) => {
        concat!($(
            include_str!(concat!("../../../../crates/leasehold/src/stores/redis/lua/", $part, ".lua")), "\n"
        ),+)
    };
}

const ENTER: &str = script!("enter", "line", "enter_line");
const LEAVE: &str = script!("leave", "line", "leave_line");
/// 22, 11, 11, 8 and 10 letters: the claim, no nonce, the client, its connection, no server; see `record.rs`.
const CLAIM: &str = "0123456789abcdefghijkl";
const BOND: &str = "-----------0123456789a00000001----------";
const NOTE: &str = " 1 1 30000 1763731234567 12345 host.example program -";
/// A day and the lease.
const LIFE: &str = "86430000";
const TOKEN_LEN: usize = 16;

pub(super) fn connect(url: &str) -> Result<Box<dyn Peer>> {
    Bare::<Scripts>::connect(url)
}

struct Scripts {
    enter: Vec<u8>,
    /// Where in `enter` the proposed token is.
    token_at: usize,
    leave: Vec<u8>,
}

impl Requests for Scripts {
    fn of(raw: &mut Raw, name: &str) -> Result<Self> {
        let key = format!("leasehold:{{{name}}}");
        let [enter, leave] = [load(raw, ENTER)?, load(raw, LEAVE)?];
        let token = "T".repeat(TOKEN_LEN);
        let record = format!("{token}H{CLAIM}{BOND}{NOTE}");
        let how = format!("Q{:016}abcdefghijk", 0);
        let enter = request(&["EVALSHA", &enter, "1", &key, &record, LIFE, &how]);
        let token_at = enter.windows(TOKEN_LEN).position(|bytes| bytes == token.as_bytes()).expect("it is in there");
        let leave = request(&["EVALSHA", &leave, "1", &key, &format!("H{CLAIM}"), "0123456789a"]);
        Ok(Self { enter, token_at, leave })
    }

    fn acquire(&mut self, requests: &mut Vec<u8>) {
        let token = format!("{:016}", micros());
        self.enter[self.token_at..self.token_at + TOKEN_LEN].copy_from_slice(token.as_bytes());
        requests.extend_from_slice(&self.enter);
    }

    fn release(&mut self, requests: &mut Vec<u8>) {
        requests.extend_from_slice(&self.leave);
    }

    fn is_granted(answer: &[u8]) -> bool {
        answer.starts_with(b"$39\r\n") && answer[5 + TOKEN_LEN] == b'H'
    }

    fn is_released(answer: &[u8]) -> bool {
        answer.starts_with(b"$23\r\n1")
    }
}

fn load(raw: &mut Raw, script: &str) -> Result<String> {
    Ok(raw.ask(&["SCRIPT", "LOAD", script])?.text().to_owned())
}

fn micros() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros()
}
