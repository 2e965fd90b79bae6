//! Many cycles on three servers, in peace and under each kind of fault. `LAB_CYCLES` says how many.

use std::ops::Deref;
use std::time::Duration;

use anyhow::Result;
use lab::{Orders, Site, Work};
use lab_servers::Ensemble;

use super::ensemble::{clean_within_two_sessions, ensemble};
use crate::storm::{FAULTS_MIN, Ground, Storm, check_all};

const CYCLES: u64 = 400;

/// Three servers, and takers for their locks.
struct EnsembleSite {
    // Before the servers, which it uses.
    site: Site,
    ensemble: Ensemble,
}

impl EnsembleSite {
    fn all_serve(&self) {
        (0..self.ensemble.count()).for_each(|number| self.ensemble.server(number).serves());
    }
}

impl Deref for EnsembleSite {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

impl Ground for EnsembleSite {
    fn check_clean(&self, last: &Orders) -> Result<()> {
        self.all_serve();
        for name in &last.names {
            self.start(Orders { names: vec![name.clone()], cycles: 1, ..last.clone() })?.finish()?;
        }
        clean_within_two_sessions(&self.ensemble, &self.site)?;
        self.check_empty(&last.names)
    }
}

fn storm(test: &str) -> Result<Storm<EnsembleSite>> {
    let cycles = std::env::var("LAB_CYCLES").map_or(Ok(CYCLES), |cycles| cycles.parse())?;
    let (ensemble, site) = ensemble()?;
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    let orders = Orders { names, work: Work::Nothing, ..Orders::default() };
    Storm::begin(test, EnsembleSite { site, ensemble }, cycles, orders)
}

#[test]
fn in_peace() -> Result<()> {
    check_all(&storm("in_peace")?.end()?)
}

/// Each kill keeps one name for a session.
#[test]
fn with_holders_killed() -> Result<()> {
    let mut storm = storm("with_holders_killed")?;
    storm.rage(Duration::from_secs(2), Storm::kill_holder)?;
    check_all(&storm.end()?)
}

/// Each of the three in turn is killed and comes back, the leader too. The first come so soon after each other that for a moment
/// there is no majority.
#[test]
fn with_servers_restarted() -> Result<()> {
    let mut storm = storm("with_servers_restarted")?;
    storm.rage(Duration::from_secs(1), |storm| {
        if storm.faults >= FAULTS_MIN {
            storm.site.all_serve();
        }
        let ensemble = &mut storm.site.ensemble;
        ensemble.server_mut(storm.faults % ensemble.count()).start_again();
        Ok(())
    })?;
    check_all(&storm.end()?)
}
