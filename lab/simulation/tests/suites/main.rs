//! Suites of the stores on Redis in virtual time, with the real clients and scripts. The same suites
//! run once against real servers, in the tests of `leasehold`.

// Tests in virtual time compute all the time.
// xtask: threads 2

#![allow(missing_docs, clippy::wildcard_imports)]

#[path = "../../../../crates/leasehold/tests/shared/clients.rs"]
mod clients;
#[path = "../../../../crates/leasehold/tests/shared/crash_detection.rs"]
mod crash_detection;
mod formats;
#[path = "../../../../crates/leasehold/tests/shared/holds.rs"]
mod holds;
mod majority;
#[path = "../../../../crates/leasehold/tests/shared/outages.rs"]
mod outages;
mod processes;
mod survival;
mod votes;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lab_redis_model::{Cluster, Sentinels};
use lab_simulation::testbed::{Redis, Wire};
use leasehold::Result;
use leasehold::store::Store;
use leasehold_conformance::Service;
use tokio::runtime::Handle;

/// Makes the tests of each store.
macro_rules! stores {
    ($($store:ident: $service:expr;)*) => {
        $(mod $store {
            use super::*;
            leasehold_conformance::conformance_tests!(in virtual time, $service);
        })*
    };
}

stores! {
    redis: Servers::one("");
    redis_resp2: Servers::one("?protocol=2");
    redis_without_crash_detection: Servers::one("?crash-grace=off");
    redis_sentinel: Servers::sentinels();
    redis_cluster: Servers::cluster();
    plain: Servers::one("?dialect=plain");
    plain_counted: Servers::one("?dialect=plain&tokens=on");
    redisson: Servers::one("?dialect=redisson");
    redisson_fenced: Servers::one("?dialect=redisson&lock=fenced&prefix=app:&protocol=2");
    redisson_rw: Servers::one("?dialect=redisson&lock=rw");
    redisson_semaphore: Servers::one("?dialect=redisson&lock=semaphore&prefix=app:");
    redlock: Servers::five("?quarantine=off&longest-lease=120s");
    redlock_classic: Servers::five("?dialect=classic&longest-lease=120s");
}

/// How far a replica is behind its master.
const LAG: Duration = Duration::from_millis(500);

/// Servers for one test, and a connection for each client.
struct Servers {
    url: String,
}

impl Servers {
    fn one(settings: &str) -> Self {
        let url = format!("{}{settings}", Redis::start().url());
        Self { url }
    }

    fn sentinels() -> Self {
        let names = ["s1", "s2", "s3"];
        let group = Sentinels::start("main", &names, ["r1", "r2"], LAG);
        for name in names.iter().chain(&["r1", "r2"]) {
            group.host(name).map(|host| Redis::of(host, name));
        }
        let url = "redis+sentinel://s1,s2,s3/main".to_owned();
        Self { url }
    }

    fn cluster() -> Self {
        let pairs = [["a", "d"], ["b", "e"], ["c", "f"]];
        let group = Cluster::start(&pairs, LAG);
        for name in pairs.as_flattened() {
            group.host(name).map(|host| Redis::of(host, name));
        }
        let url = "redis+cluster://a,b,c".to_owned();
        Self { url }
    }

    fn five(settings: &str) -> Self {
        let hosts: Vec<String> = (0..5).map(|_| Redis::start().address()).collect();
        let url = format!("redlock://{}{settings}", hosts.join(","));
        Self { url }
    }
}

#[async_trait]
impl Service for Servers {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        let kind = leasehold::kind_of(&self.url).expect("the URL of a store");
        let unopened = (kind.prepare)(&self.url)?;
        unopened.open(Handle::try_current().ok()).await
    }
}

/// How many requests of clients the server has executed.
fn received(server: &Redis) -> u64 {
    server.received()
}
