//! Requests to enter that the server executes after their client has left.

use std::time::Duration;

use lab_servers::Redis;
use leasehold::Locks;
use leasehold_conformance::support::within_timeout;

use super::{DAY, commands, granted, monitor, open, remote, use_once};

/// The words of a command, as MONITOR shows them. The library's commands contain no quotes.
pub(super) fn words(command: &str) -> Vec<String> {
    command
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// The request that entered `name` first.
fn entering(commands: &[String], name: &str) -> Vec<String> {
    let key = format!("leasehold:{{{name}}}");
    let mut found = commands
        .iter()
        .map(|command| words(command))
        .find(|words| {
            words[0].to_lowercase().starts_with("eval")
                && words.get(3) == Some(&key)
                && words.get(4).is_some_and(|word| word.len() > 80)
        })
        .expect("the request was sent");
    assert!(
        found[0].eq_ignore_ascii_case("evalsha"),
        "the server did not know the script"
    );
    "EVALSHA".clone_into(&mut found[0]);
    found
}

pub(super) fn again(server: &Redis, request: &[String]) -> lab_servers::Reply {
    server.request(&request.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A request to enter reaches the server after its client has left. Its claim waits on the server
/// until it is granted. The client then releases a grant that no caller wants.
///
/// Shows G-10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grant_to_a_claim_that_has_left_is_released() {
    let server = Redis::start();
    let ours = open(&server.url(), "").await;
    let theirs = open(&server.url(), "").await;
    let hour = Duration::from_secs(3600);
    // The server learns the script.
    use_once(&ours.mutex("b")).await;
    let mut monitor = monitor(&server);
    use_once(&ours.mutex("a").lease(hour)).await;
    let request = entering(&commands(&server, &mut monitor), "a");
    let held = theirs.mutex("a").acquire().await.expect("granted");
    let late = again(&server, &request);
    assert_eq!(&late.text()[16..17], "N", "{late:?}");
    held.release().await.expect("released");
    let lock = theirs.mutex("a");
    let next = granted(tokio::spawn(async move { lock.acquire().await })).await;
    next.release().await.expect("released");
}

/// The same request is refused if it arrives later than its client waits. A clock that jumps causes
/// the refusal of one request at most.
///
/// Shows G-10.
#[tokio::test]
async fn request_later_than_its_client_waits_is_refused() {
    let server = Redis::setup().own_clock().start();
    let locks = open(&server.url(), "").await;
    use_once(&locks.mutex("b")).await;
    let mut monitor = monitor(&server);
    use_once(&locks.mutex("a")).await;
    let request = entering(&commands(&server, &mut monitor), "a");
    server.set_clock(20);
    let late = again(&server, &request);
    assert!(
        late.is_error() && late.error().is_some_and(|error| error.starts_with("LATE")),
        "{late:?}"
    );
    for ahead in [20, 2 * DAY, 0, 30] {
        server.set_clock(ahead);
        let guard = within_timeout("the lock is granted", locks.mutex("c").acquire())
            .await
            .expect("granted");
        guard.release().await.expect("released");
    }
}

/// Carries the request that entered `a` out again, which is granted, and waits until the lock is
/// free.
async fn late_grant_ends(server: &Redis, sent: &[String], theirs: &Locks) {
    let late = again(server, &entering(sent, "a"));
    assert_eq!(&late.text()[16..17], "H", "{late:?}");

    let next = granted(tokio::spawn(theirs.mutex("a").acquire())).await;
    next.release().await.expect("released");
}

/// A client receives no reply to its request to enter, and leaves. Then the server carries the
/// request out and grants the lock at once.
///
/// Shows G-10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_carried_out_after_leaving_ends_within_seconds() {
    let server = Redis::start();
    let theirs = open(&server.url(), "").await;
    let (wire, ours) = remote(&server, "").await;
    use_once(&ours.mutex("b")).await;
    let mut monitor = monitor(&server);
    wire.drop_replies(1);
    let lock = ours.mutex("a").lease(Duration::from_secs(3600));
    let guard = within_timeout("the lock is granted", lock.acquire())
        .await
        .expect("granted");
    guard.release().await.expect("released");
    late_grant_ends(&server, &commands(&server, &mut monitor), &theirs).await;
}

/// A client receives no reply to its request, and the repetition of it is refused. Then the server
/// carries the first request out and grants the lock at once.
///
/// Shows G-10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_carried_out_after_a_refusal_ends_within_seconds() {
    let server = Redis::start();
    let theirs = open(&server.url(), "").await;
    let (wire, ours) = remote(&server, "").await;
    use_once(&ours.mutex("b")).await;
    let held = theirs.mutex("a").acquire().await.expect("granted");
    let mut monitor = monitor(&server);
    wire.drop_replies(1);
    let patient = ours.reply_timeout(Duration::from_secs(9)).expect("valid");
    let lock = patient.mutex("a").lease(Duration::from_secs(3600));
    let refused = within_timeout("the lock is refused", lock.try_acquire()).await;
    refused.expect("a reply").expect_err("it is held");
    held.release().await.expect("released");
    late_grant_ends(&server, &commands(&server, &mut monitor), &theirs).await;
}
