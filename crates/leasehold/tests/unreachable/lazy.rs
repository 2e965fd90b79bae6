//! Stores that are opened by their first request.

use leasehold::Need;

use super::*;

/// A service starts while its server is down, learns what is missing at once, and uses the store as
/// soon as the server runs.
///
/// Shows G-26.
#[tokio::test]
async fn lazy_store_is_opened_when_its_server_runs() {
    let mut server = Redis::start();
    server.kill();
    let url = format!("{}?reply-timeout=10s", server.url());
    let locks = leasehold::open_lazy(&url).expect("it needs no server");
    let mutex = locks.mutex("a");
    assert!(locks.guarantees().cohorts && !locks.url().contains('?'));

    let tries = join_all((0..20).map(|_| mutex.try_acquire())).await;
    for tried in tries {
        assert!(tried.expect_err("no server").is_unavailable());
    }
    for failed in [
        mutex.acquire().await.map(drop),
        locks.inspect("a").await.map(drop),
        locks.observe("a").await.map(drop),
    ] {
        assert!(failed.expect_err("no server").is_unavailable());
    }

    server.restart();
    let mut observer = locks.observe("a").await.expect("the server runs");
    assert!(observer.is_pushed());
    let both = join_all([mutex.acquire(), locks.mutex("b").acquire()]).await;
    let state = observer.next().await.expect("the server runs");
    assert_eq!(state.holders().count(), 1);
    for guard in both {
        let released = guard.expect("granted").release().await;
        released.expect("the server runs");
    }
}

/// The first requests share one opening, which has two connections.
///
/// Shows G-26.
#[tokio::test]
async fn first_requests_of_lazy_store_share_one_opening() {
    let server = Redis::start();
    let locks = leasehold::open_lazy(&server.url()).expect("it needs no server");
    let before = connections(&server);
    let acquires = (0..20).map(|name| locks.mutex(name.to_string()).acquire());
    let guards = join_all(acquires).await;
    assert!(guards.iter().all(Result::is_ok), "{guards:?}");

    let opened = connections(&server) - before;
    assert!(opened < 10, "{opened} connections");
}

/// Returns how many connections the server has accepted.
fn connections(server: &Redis) -> u32 {
    let info = server.command(&["INFO", "stats"]);
    let mut lines = info.text().lines();
    let count = lines.find_map(|line| line.strip_prefix("total_connections_received:"));
    count
        .expect("it is in the reply")
        .parse()
        .expect("a number")
}

/// Shows G-35.
#[tokio::test]
async fn lazy_store_refuses_wrong_url_and_missing_needs_at_once() {
    for url in ["redis://", "redis://a?what=1", "redlock://a", "nonsense:"] {
        let error = leasehold::open_lazy(url).expect_err(url);
        assert!(error.is_invalid(), "{url}: {error}");
    }

    for (url, need, has) in [
        ("redis://a", Need::Semaphores, true),
        ("redis://a?dialect=plain", Need::Tokens, false),
        ("redis://a?dialect=plain&tokens=on", Need::Tokens, true),
        ("redis://a?dialect=redisson&lock=rw", Need::RwLocks, true),
        ("redis://a?dialect=redisson", Need::Semaphores, false),
        ("redlock://a,b,c", Need::Tokens, true),
        ("redlock://a,b,c", Need::RwLocks, false),
        ("redlock://a,b,c", Need::Fifo, false),
        ("zookeeper://a", Need::Fifo, true),
        ("zookeeper://a", Need::Cohorts, false),
    ] {
        let locks = leasehold::open_lazy(url).expect(url);
        let checked = locks.require([need]);
        assert_eq!(checked.is_ok(), has, "{url} {need:?}: {checked:?}");
        if let Err(error) = checked {
            assert!(error.is_unsupported(), "{url}: {error}");
            assert!(
                error.to_string().contains("cannot use the store on "),
                "{error}"
            );
        }
    }
}

/// What an acquire refuses at its first use, `require` refuses at the start, in the same words.
#[tokio::test]
async fn missing_need_has_the_words_of_the_acquire() {
    let locks = leasehold::open_lazy("zookeeper://a").expect("it needs no server");
    let at_start = locks
        .require([Need::Tokens, Need::Cohorts])
        .expect_err("it has none");
    let at_acquire = locks
        .mutex("a")
        .cohort(4)
        .acquire()
        .await
        .expect_err("it has none");
    assert_eq!(at_start.reason(), at_acquire.reason());
    assert_eq!(at_start.hint(), at_acquire.hint());
}

/// A store without a server is open at once: its identity does not change with the first request.
#[tokio::test]
async fn lazy_memory_is_one_store_for_an_owner() {
    let locks = leasehold::open_lazy("memory:").expect("it needs no server");
    let others = leasehold::open_lazy("memory:").expect("it needs no server");
    let owner = leasehold::Owner::new();

    let outer = locks.reentrant("a").acquire(&owner).await.expect("granted");
    let inner = locks.reentrant("a").acquire(&owner).await.expect("nested");
    assert_eq!(outer.token(), inner.token());

    let first_there = others.reentrant("a").acquire(&owner).await;
    drop(first_there.expect("another store has a lock of its own"));
    assert_eq!(inner.count(), 2);
}
