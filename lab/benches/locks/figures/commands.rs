//! The number of commands that clients send for each acquisition while many want the same lock.
//!
//! The limit is two commands: one to enter the queue and one to release.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use lab_servers::{Raw, Redis};

use super::{ROUNDS, count};
use crate::client::{clients, server};
use crate::holds::Contest;
use crate::table::{Goal, Rounds, Table};

const WAITERS: [usize; 4] = [2, 16, 256, 2048];
const PROCESSES: usize = 2;
const LASTS: Duration = Duration::from_secs(1);

pub(super) fn show() -> Result<()> {
    let mut table = Table::new("commands");
    for waiters in WAITERS {
        let each = measure(waiters)?;
        let what = format!("commands per acquisition, {waiters} waiters");
        table.add((&what, "leasehold", ""), &each, Some(Goal::AtMost(2.05)));
    }
    table.finish()
}

fn measure(waiters: usize) -> Result<Rounds> {
    let server = server();
    let mut leasehold = clients("leasehold", PROCESSES, &server.url())?;
    let contest = Contest {
        threads: waiters / PROCESSES,
        lasts: LASTS,
    };
    // The first contest loads the scripts and performs the handshakes.
    // It does not count.
    Contest {
        threads: 1,
        lasts: LASTS / 10,
    }
    .run(&mut leasehold)?;

    let mut rounds = Rounds::default();
    for _ in 0..ROUNDS {
        let watch = Watch::begin(&server)?;
        let hold_spans = contest.run(&mut leasehold)?;
        rounds.add(count(watch.end(&server)?) / count(hold_spans.count()));
    }
    Ok(rounds)
}

/// Counts the commands that clients send, by `MONITOR`, but not the commands of scripts.
struct Watch {
    counting: JoinHandle<Result<usize>>,
}

const END: &str = "the end of the watch";

impl Watch {
    fn begin(server: &Redis) -> Result<Self> {
        let mut raw = server.connection();
        raw.request(&["MONITOR"])?;
        Ok(Self {
            counting: thread::spawn(move || watch(&mut raw)),
        })
    }

    fn end(self, server: &Redis) -> Result<usize> {
        server.command(&["ECHO", END]);
        self.counting
            .join()
            .map_err(|_| anyhow!("the watch panicked"))?
    }
}

fn watch(raw: &mut Raw) -> Result<usize> {
    let mut seen = 0;

    loop {
        // The line is `+TIME [DATABASE ADDRESS] "COMMAND" ...`; the address of a script is `lua`.
        let line = std::str::from_utf8(raw.receive_bytes()?)?;
        let (from, said) = line
            .split_once(']')
            .context("a line of MONITOR names the client")?;
        if said.contains(END) {
            return Ok(seen);
        }
        seen += usize::from(!from.ends_with(" lua"));
    }
}
