//! The rights that docs/stores/redis.md lists are enough, and each of them is needed.
#![cfg(all(feature = "redis", feature = "file"))]
#![allow(missing_docs, clippy::wildcard_imports)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lab_servers::Redis;
use leasehold::store::Store;
use leasehold::store::replies::released_within;
use leasehold::{CrashRelease, Guard, Locks, Result, stores};
use leasehold_conformance::Service;
use tokio::task::JoinHandle;

/// The ACL line of docs/stores/redis.md.
fn line() -> &'static str {
    let page = include_str!("../../../docs/stores/redis.md");

    page.lines()
        .find(|line| line.starts_with("user locks on "))
        .expect("docs/stores/redis.md has the ACL line")
}

struct Server {
    redis: Redis,
    settings: &'static str,
}

impl Server {
    fn with(line: &str, settings: &'static str) -> Self {
        // The default user has a password. So the rights of the user `locks` do not apply to other
        // clients.
        // user.
        Self {
            redis: Redis::setup().acl(line).password("of another").start(),
            settings,
        }
    }

    fn url(&self) -> String {
        format!(
            "redis://locks:secret@{}{}",
            self.redis.address(),
            self.settings
        )
    }
}

#[async_trait]
impl Service for Server {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(
            stores::Redis::builder(&self.url())?.connect().await?,
        ))
    }
}

mod with_all_of_them {
    use super::*;
    leasehold_conformance::conformance_tests!(of mutex and blocking, Server::with(line(), ""));
}

/// Performs every operation that needs a right of its own.
async fn exercise(server: &Server) -> Result<Locks> {
    let locks = leasehold::open(&server.url()).await?;
    // A client that is alone.
    locks.mutex("a").acquire().await?.release().await?;
    // The lock is handed over, twice.
    let first = locks.mutex("a").acquire().await?;
    let waiting = [wait_behind(&locks, 1).await?, wait_behind(&locks, 2).await?];
    first.release().await?;
    for next in waiting {
        next.await.expect("the task runs")?.release().await?;
    }
    let slots = locks.semaphore("s", 2);
    let begun = Instant::now();
    let one = slots
        .clone()
        .lease(Duration::from_millis(500))
        .acquire()
        .await?;
    let two = slots.acquire().await?;
    assert_eq!(locks.list("", 10).await?.len(), 1);
    // Both holds outlast the leases that they would have without renewal.
    while one.remaining() + two.remaining() > Duration::ZERO
        && begun.elapsed() < Duration::from_millis(1200)
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    one.release().await?;
    two.release().await?;
    // A user deleted one key of a queue. The client clears the remaining keys away.
    let _gone = locks.semaphore("d", 2).acquire().await?;
    server.redis.command(&["DEL", "leasehold:{d}"]);
    locks.semaphore("d", 2).acquire().await?.release().await?;
    Ok(locks)
}

/// Enters the queue, and waits until this number of claims wait.
async fn wait_behind(locks: &Locks, count: usize) -> Result<JoinHandle<Result<Guard>>> {
    let lock = locks.mutex("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    while locks.inspect("a").await?.waiters().count() < count {
        if waiting.is_finished() {
            return Err(waiting
                .await
                .expect("the task runs")
                .expect_err("another client holds the lock"));
        }
        tokio::task::yield_now().await;
    }
    Ok(waiting)
}

/// Without these rights leasehold guarantees less, as docs/stores/redis.md says.
const OPTIONAL: [&str; 4] = ["+info", "+pubsub|numsub", "+publish", "+client|tracking"];

/// Shows G-29.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_documented_right_is_needed() {
    let rights: Vec<&str> = line()
        .split(' ')
        .filter(|word| word.starts_with('+'))
        .collect();
    assert!(rights.len() > 20, "{rights:?}");
    for right in rights {
        let less: Vec<&str> = line().split(' ').filter(|word| *word != right).collect();
        let settings = if right == "+wait" {
            "?replicas=1"
        } else {
            "?crash-grace=500ms"
        };
        let server = Server::with(&less.join(" "), settings);
        let done = tokio::time::timeout(Duration::from_secs(30), exercise(&server))
            .await
            .expect(right);
        match done {
            Ok(_) => assert!(OPTIONAL.contains(&right), "{right} is not needed"),
            Err(error) => assert!(
                error.is_denied() || error.is_lost(),
                "without {right}: {error}"
            ),
        }
    }
}

/// Scripts may not query the connected clients. So a crash is detected when the lease ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_detection_falls_back_to_the_lease_without_rights() {
    for right in ["+info", "+pubsub|numsub"] {
        let less = line().replace(&format!(" {right}"), "");
        let locks = exercise(&Server::with(&less, ""))
            .await
            .expect("leasehold works with fewer rights");
        assert_eq!(
            locks.guarantees().crash_release,
            CrashRelease::LeaseExpiry,
            "without {right}"
        );
    }
    let locks = exercise(&Server::with(line(), ""))
        .await
        .expect("the user has all rights");
    assert_eq!(
        locks.guarantees().crash_release,
        released_within(Duration::from_secs(10))
    );
}

/// Shows G-47.
#[tokio::test]
async fn observer_polls_without_the_right_to_track() {
    for (line, is_pushed) in [
        (line().to_owned(), true),
        (line().replace(" +client|tracking", ""), false),
    ] {
        let server = Server::with(&line, "");
        let locks = leasehold::open(&server.url()).await.expect("it opens");
        let observer = locks.observe("a").await.expect("observed");
        assert_eq!(observer.is_pushed(), is_pushed, "{line}");
    }
}

#[tokio::test]
async fn user_without_key_rights_gets_help() {
    let server = Server::with(&line().replace("~leasehold:*", "~other:*"), "");
    let locks = leasehold::open(&server.url())
        .await
        .expect("the store opens");
    let error = locks.mutex("a").acquire().await.expect_err("refused");
    assert!(
        error.is_denied()
            && error
                .to_string()
                .contains("`leasehold doctor` prints the ACL line"),
        "{error}"
    );
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
}
