//! Eight contenders of one lock: each holds it for 2 ms, and then does not need it for 10 ms.
//!
//! The figures are the share of the time in which a client holds the lock, and the longest wait.

use std::time::Duration;

use anyhow::Result;

use super::handover::{HOP, hops};
use super::{ROUNDS, count, float, micros, p50};
use crate::client::Client;
use crate::cpus::{self, Cpus};
use crate::holds::{Contest, HoldSpans};
use crate::peers;
use crate::table::{Goal, Rounds, Table};

const HOLD: Duration = Duration::from_millis(2);
const CONTEST: Contest = Contest {
    threads: 4,
    hold: HOLD,
    think: Duration::from_millis(10),
    lasts: Duration::from_secs(4),
};

struct Measured {
    name: String,
    clients: Vec<Client>,
    idle: Rounds,
    idle_p50: Rounds,
    used: Rounds,
    longest: Rounds,
}

pub(super) fn show() -> Result<()> {
    let server = cpus::server();
    let start = |name: String| {
        let clients = cpus::clients(&name, 2, Cpus::Split, &server.url())?;
        let [idle, idle_p50, used, longest] = Default::default();
        anyhow::Ok(Measured {
            name,
            clients,
            idle,
            idle_p50,
            used,
            longest,
        })
    };
    let mut peers = ["leasehold".to_owned()]
        .into_iter()
        .chain(peers::others()?)
        .map(start)
        .collect::<Result<Vec<_>>>()?;
    let mut raw = cpus::clients("raw", 2, Cpus::Split, &server.url())?;
    let mut hop = Rounds::default();
    for _ in 0..ROUNDS {
        hop.add(p50(hops(&mut raw)?));
        for peer in &mut peers {
            let hold_spans = CONTEST.run(&mut peer.clients)?;
            peer.footnote(&hold_spans);
        }
    }

    let mut table = Table::new("utilisation");
    table.add("message, p50", HOP, "µs", &hop, None);
    for peer in &peers {
        let goal = (peer.name == "leasehold").then_some(Goal::AtLeast(97.0));
        table.add(
            "time held, 8 contenders, 2 ms",
            &peer.name,
            "%",
            &peer.used,
            goal,
        );
        table.add(
            "nobody holds, per hand-over",
            &peer.name,
            "µs",
            &peer.idle,
            None,
        );
        let what = "nobody holds, per hand-over, p50";
        table.add_beside((what, &peer.name, "µs"), &peer.idle_p50, (HOP, &hop), None);
        table.add("longest wait", &peer.name, "ms", &peer.longest, None);
    }

    table.finish()
}

impl Measured {
    /// Adds the figures of one contest.
    ///
    /// Timers fire a little late, so a hold is longer than 2 ms. The share counts the configured
    /// 2 ms only.
    fn footnote(&mut self, hold_spans: &HoldSpans) {
        let idle = hold_spans.idle_times();
        let mean = float(idle.iter().sum()) / count(idle.len()) / 1e3;
        self.idle.add(mean);
        self.idle_p50.add(p50(idle));
        let hold = HOLD.as_secs_f64() * 1e6;
        self.used.add(100.0 * hold / (hold + mean));
        self.longest
            .add(micros(hold_spans.waits().into_iter().max().unwrap_or(0)) / 1e3);
    }
}
