//! The rights that docs/stores/redis.md lists are enough, and each of them is needed.
#![cfg(all(feature = "redis", feature = "file"))]
#![allow(missing_docs, clippy::wildcard_imports)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lab_servers::{Redis, Release};
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

/// The ACL line of docs/stores/redis.md for a user who only looks.
fn line_for_looking() -> &'static str {
    let page = include_str!("../../../docs/stores/redis.md");
    let mut lines = page.lines();
    let line = lines.find(|line| line.starts_with("user look on "));
    line.expect("docs/stores/redis.md has the ACL line")
}

/// Each right of the line is needed, and none to write.
///
/// Shows G-29.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_without_a_right_to_write_looks_at_locks() {
    let rights = line_for_looking()
        .split(' ')
        .filter(|word| word.starts_with('+'));
    let mut setup = Redis::setup().acl(line()).password("of another");
    let mut users = vec![("look".to_owned(), line_for_looking().to_owned())];
    for (number, right) in rights.enumerate() {
        let less = line_for_looking().split(' ').filter(|word| *word != right);
        let user = format!("less{number}");
        let less = less.collect::<Vec<_>>().join(" ");
        users.push((
            user.clone(),
            less.replace("user look", &format!("user {user}")),
        ));
    }
    for (_, line) in &users {
        setup = setup.acl(line);
    }

    let redis = setup.start();
    let url = |user: &str| format!("redis://{user}:secret@{}", redis.address());
    let holder = leasehold::open(&url("locks")).await.expect("it opens");
    let _held = holder.mutex("a").acquire().await.expect("granted");
    let waiting = wait_behind(&holder, 1).await.expect("it waits");
    for (user, line) in users {
        let address = url(&user);
        let looked = tokio::time::timeout(Duration::from_secs(30), look(&address));
        let looked = looked.await.expect(&line);
        assert_eq!(looked.is_ok(), user == "look", "{line}: {looked:?}");
    }

    let looking = leasehold::open(&url("look")).await.expect("it opens");
    let refused = looking
        .mutex("b")
        .acquire()
        .await
        .expect_err("it may not write");
    assert!(refused.is_denied(), "{refused}");
    waiting.abort();
}

/// Lists, inspects and observes a lock with a holder and a waiter.
async fn look(url: &str) -> Result<()> {
    let locks = leasehold::open(url).await?;
    for _ in 0..2 {
        let listed = locks.list("", 10).await?;
        assert_eq!(listed.len(), 1);
        let inspected = locks.inspect("a").await?;
        assert_eq!(inspected.entries.len(), 2);
    }
    let mut observer = locks.observe("a").await?;
    observer.next().await?;
    let is_complete = observer.is_pushed()
        && locks.guarantees().crash_release == released_within(Duration::from_secs(10));
    if is_complete {
        return Ok(());
    }
    Err(leasehold::Error::denied("it polls, or sees no crash"))
}

/// Redis 6.2 has no command that runs a script to read only.
#[tokio::test]
async fn redis_6_refuses_a_user_without_the_right_to_scripts() {
    let less = line().replace(" +evalsha", "");
    let redis = Redis::setup().release(Release::Redis62).acl(&less);
    let redis = redis.password("of another").start();
    let url = format!("redis://locks:secret@{}", redis.address());
    let locks = leasehold::open(&url).await.expect("it opens");
    let refused = locks.inspect("a").await.expect_err("refused");
    assert!(refused.is_denied(), "{refused}");
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

/// Shows G-28, G-29.
#[tokio::test]
async fn database_of_the_url_needs_the_right_to_select() {
    for (rights, opens) in [
        (line().to_owned(), false),
        (format!("{} +select", line()), true),
    ] {
        let server = Server::with(&rights, "");
        let url = format!("{}/1", server.url());
        match leasehold::open(&url).await {
            Ok(_) => assert!(opens, "{rights}"),
            Err(error) => assert!(!opens && error.to_string().contains("+select"), "{error}"),
        }
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
