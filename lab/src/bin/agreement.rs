//! Kills the leader of three ZooKeeper servers repeatedly, and checks whether the servers agree.
//!
//! Usage: `agreement RELEASE [KILLS [SEED]]`.

use std::fs;

use anyhow::{Result, bail, ensure};
use lab::{Random, agreement, matrix, now};
use lab_servers::ZooKeeperRelease;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let release = match args.next().as_deref() {
        Some("installed") => ZooKeeperRelease::Installed,
        Some("newest") => ZooKeeperRelease::Newest,
        _ => bail!("usage: agreement installed|newest [KILLS [SEED]]"),
    };
    let kills = args.next().map_or(Ok(100), |kills| kills.parse())?;
    let seed = args
        .next()
        .map_or(Ok(now() % 1_000_000), |seed| seed.parse())?;

    let folder = matrix::folder()?.join(format!("agreement-{seed}"));
    fs::create_dir_all(&folder)?;
    println!("seed {seed}");
    let seen = agreement(release, kills, &mut Random::seeded(seed), &folder)?;
    ensure!(
        seen.broken == 0,
        "the servers of {} ensembles disagreed; their data are in {}",
        seen.broken,
        folder.display()
    );
    Ok(())
}
