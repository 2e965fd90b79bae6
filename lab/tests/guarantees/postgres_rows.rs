//! What acquisitions leave in the tables of PostgreSQL.
//!
//! `LAB_CYCLES` is how many there are without contention, and then with it.

use anyhow::{Context, Result, ensure};
use lab::{Testbed, WorkerConfig, until};
use lab_servers::Postgres;

use crate::WORKER;

const CYCLES: u64 = 800;
const CONTENDERS: u32 = 8;
/// The size of a page.
const PAGE: u64 = 8_192;
/// A statement that takes long, or the server's own ANALYZE, keeps some versions of the row for so
/// long that their page is full.
const PAGES_MAX: u64 = 16;

/// No index has a column that a grant changes, so each version of a row replaces an older one in its
/// page.
#[test]
fn acquisitions_of_one_name_update_their_row_in_its_page() -> Result<()> {
    let cycles = std::env::var("LAB_CYCLES").map_or(Ok(CYCLES), |cycles| cycles.parse())?;
    let server = Postgres::start();
    let url = format!("postgres://postgres@{}/postgres", server.address());
    let testbed = Testbed::at(WORKER, &url)?;
    let mut least = 0;
    for threads in [1, CONTENDERS] {
        let config = WorkerConfig {
            threads,
            cycles: cycles / u64::from(threads),
            ..WorkerConfig::default()
        };
        testbed.start(config)?.finish_within(lab::DEADLINE * 10)?;
        // Each acquisition updates the row twice at least.
        least += 2 * cycles;
        let (updates, elsewhere) = counted(&server, least)?;
        let size = server.run("SELECT pg_relation_size('leasehold_private.lock')");
        let pages = size[0].parse::<u64>()? / PAGE;
        println!("{threads} threads: {elsewhere} of {updates} updates elsewhere, {pages} pages");
        ensure!(elsewhere * 100 <= updates, "{elsewhere} of {updates}");
        ensure!(pages <= PAGES_MAX, "{pages} pages");
    }
    Ok(())
}

/// Returns the number of updates, and of those that were not heap-only, once the server has counted
/// so many.
fn counted(server: &Postgres, least: u64) -> Result<(u64, u64)> {
    until("the server to count the updates", || {
        let counted = server.run(
            "SELECT n_tup_upd, n_tup_upd - n_tup_hot_upd FROM pg_stat_user_tables \
             WHERE relid = 'leasehold_private.lock'::regclass",
        );
        let (updates, elsewhere) = counted[0].split_once('|').context("two numbers")?;
        let counts: (u64, u64) = (updates.parse()?, elsewhere.parse()?);
        Ok((counts.0 >= least).then_some(counts))
    })
}
