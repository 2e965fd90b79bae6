//! An uncontended pair with metrics, with spans, and with lines of text, beside one without.

use anyhow::Result;

use super::pairs::{Measured, measure};
use crate::cpus::{self, Cpus};
use crate::table::{Goal, Table};

const PAIRS: usize = 200;
/// The limit for metrics and spans, which the library makes itself. The subscriber writes the lines
/// of text.
const GOAL: Goal = Goal::AtMost(1.05);

pub(super) fn show() -> Result<()> {
    let mut table = Table::new("telemetry");
    for cpus in [Cpus::Split, Cpus::Same] {
        let server = cpus::server();
        let start = |name| Measured::start(name, name, cpus.client(), &server.url());
        let mut peers = [
            start("leasehold")?,
            start("leasehold_metered")?,
            start("leasehold_traced")?,
            start("leasehold_logged")?,
        ];
        let noise = measure(&mut peers, PAIRS)?;

        let [plain, observed @ ..] = &peers;
        let what = format!("p50, {} CPUs", cpus.name());
        table.add(&what, "leasehold", "µs", &plain.p50, None);
        for peer in observed {
            table.add_beside(
                (&what, &peer.name, "µs"),
                &peer.p50,
                ("leasehold", &plain.p50),
                (peer.name != "leasehold_logged").then_some(GOAL),
            );
        }
        noise.add_to(&mut table, &what, plain);
    }
    table.finish()
}
