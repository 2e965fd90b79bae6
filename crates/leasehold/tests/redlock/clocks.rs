//! Masters whose clocks are ahead, and are corrected.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lab_servers::{Redis, Wire};
use leasehold::{Guard, Locks};

use super::{DEADLINE, SHORT, open, wait_until_all_vote};

const TWO_DAYS: i64 = 2 * 24 * 60 * 60;

/// Starts five masters whose clocks are `ahead` seconds ahead of the machine's.
fn five_with_clocks(ahead: i64) -> (Vec<Redis>, Vec<String>) {
    let masters: Vec<Redis> = (0..5).map(|_| Redis::setup().own_clock().start()).collect();
    let hosts = masters.iter().map(Redis::address).collect();
    for master in &masters {
        master.set_clock(ahead);
    }
    (masters, hosts)
}

/// Acquires the lock, and waits until the quarantine of new masters is over.
async fn granted(locks: &Locks) -> Guard {
    let begun = Instant::now();
    loop {
        match locks
            .mutex("a")
            .lease(Duration::from_millis(500))
            .acquire()
            .await
        {
            Ok(held) => return held,
            Err(error) => assert!(
                error.is_unavailable() && begun.elapsed() < DEADLINE,
                "{error}"
            ),
        }
    }
}

/// Acquires the lock with and without contention. One client has seen the earlier tokens, the other
/// has not.
async fn clocks_set_right(ahead: i64, settings: &str) {
    let (masters, hosts) = five_with_clocks(ahead);
    let old = open(&hosts, settings).await.expect("five");
    let first = granted(&old).await;
    let mut last = first.token();
    first.release().await.expect("released");
    for master in &masters {
        master.set_clock(0);
    }

    let new = open(&hosts, settings).await.expect("five");
    for (holder, waiter) in [(&new, &old), (&old, &new)] {
        let held = granted(holder).await;
        assert!(held.token() > last, "{} after {last}", held.token());
        let lock = waiter.mutex("a").lease(Duration::from_millis(500));
        let waiting = tokio::spawn(async move { lock.acquire().await });
        while waiter.inspect("a").await.expect("looked").waiters().count() == 0 {
            assert!(
                !waiting.is_finished(),
                "{:?}",
                waiting.await.expect("it runs")
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        last = held.token();
        held.release().await.expect("released");
        let next = waiting.await.expect("it runs").expect("granted");
        assert!(next.token() > last, "{} after {last}", next.token());
        last = next.token();
        next.release().await.expect("released");
    }
}

/// Shows G-04.
#[tokio::test]
async fn clocks_set_back_by_two_days_refuse_no_client() {
    for settings in [SHORT, "dialect=classic&tokens=on"] {
        clocks_set_right(TWO_DAYS, settings).await;
    }
}

/// Shows G-04.
#[tokio::test]
async fn clocks_set_forward_by_two_days_refuse_no_client() {
    for settings in [SHORT, "dialect=classic&tokens=on"] {
        clocks_set_right(-TWO_DAYS, settings).await;
    }
}

/// Shows G-04.
#[tokio::test]
async fn one_clock_that_is_ahead_raises_no_token() {
    let (masters, hosts) = five_with_clocks(0);
    masters[0].set_clock(TWO_DAYS);
    let locks = open(&hosts, "quarantine=off").await.expect("five");
    let held = locks.mutex("a").acquire().await.expect("granted");
    let later = SystemTime::now() + Duration::from_secs(3_600);
    let nanos = later.duration_since(UNIX_EPOCH).expect("it is later");
    assert!(u128::from(held.token().get()) < nanos.as_nanos());
}

/// The first votes of a claim do not arrive, and the clocks are set back before it votes again.
///
/// Shows G-04.
#[tokio::test]
async fn clocks_set_back_during_an_acquire_do_not_refuse_it() {
    let (masters, hosts) = five_with_clocks(TWO_DAYS);
    let wires: Vec<Wire> = hosts.iter().map(|host| Wire::to(host.clone())).collect();
    let hosts: Vec<String> = wires.iter().map(Wire::address).collect();
    let settings = format!("{SHORT}&reply-timeout=10s");
    let locks = open(&hosts, &settings).await.expect("five");
    wait_until_all_vote(&locks).await;
    for wire in &wires {
        wire.freeze(true);
    }

    let lock = locks.mutex("a").lease(Duration::from_millis(500));
    let mut acquiring = std::pin::pin!(lock.acquire());
    let early = tokio::time::timeout(Duration::from_millis(200), &mut acquiring).await;
    assert!(early.is_err(), "{early:?}");
    for (master, wire) in masters.iter().zip(&wires) {
        master.set_clock(0);
        wire.partition();
        wire.freeze(false);
    }

    let held = acquiring.await.expect("granted");
    held.release().await.expect("released");
}

/// A master that kept its incarnation has forgotten nothing, even if its clock was set back.
///
/// Shows G-04, G-34.
#[tokio::test]
async fn known_masters_stay_trusted_after_their_clocks_are_set_back() {
    let (masters, hosts) = five_with_clocks(TWO_DAYS);
    let locks = open(&hosts, SHORT).await.expect("five");
    wait_until_all_vote(&locks).await;
    for master in &masters {
        master.set_clock(0);
    }
    // Both connections of the client have a subscription.
    let connections = |master: &Redis| {
        let list = master.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        let id = |line: &str| {
            line.strip_prefix("id=")?
                .split(' ')
                .next()?
                .parse::<u64>()
                .ok()
        };
        list.text().lines().filter_map(id).collect::<Vec<_>>()
    };
    let before: Vec<Vec<u64>> = masters.iter().map(connections).collect();
    assert!(before.iter().all(|ids| ids.len() == 2), "{before:?}");
    for master in &masters {
        master.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    }

    let begun = Instant::now();
    loop {
        let servers = locks
            .inspect("a")
            .await
            .map(|lock_state| lock_state.servers)
            .unwrap_or_default();
        let disturbed: Vec<&str> = servers
            .iter()
            .filter_map(|server| server.error.as_deref())
            .collect();
        assert!(
            !disturbed.iter().any(|error| error.contains("counts in")),
            "{disturbed:?}"
        );
        let is_back = |(master, before): (&Redis, &Vec<u64>)| {
            let now = connections(master);
            now.len() == 2 && !now.iter().any(|id| before.contains(id))
        };
        if servers.len() == 5 && disturbed.is_empty() && masters.iter().zip(&before).all(is_back) {
            return;
        }
        assert!(begun.elapsed() < DEADLINE, "{disturbed:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
