//! Waiting: in order, until the deadline, and without an entry left behind.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::support::{all_end, client, empty, fresh_name, granted, waiters, within_timeout};
use super::{LockKind, Service};
use leasehold_core::store::Standing;
use leasehold_core::{Guard, Refused};

/// Waiters are granted in order of arrival, for all clients together.
///
/// Shows G-05, L2.
pub async fn grants_are_fifo(service: &dyn Service, kind: LockKind) {
    let first = client(service).await;
    let name = fresh_name("order");
    if !first.guarantees().fifo {
        return position_is_unknown(service, kind, &name).await;
    }

    let held = kind.lock(&first, &name).acquire().await.expect("granted");
    let clients = [client(service).await, client(service).await];
    let arrivals = Arc::new(Mutex::new(Vec::new()));

    let mut tasks = tokio::task::JoinSet::new();
    for arrival in 0..8 {
        let lock = kind.lock(&clients[arrival % 2], &name);
        let arrivals = Arc::clone(&arrivals);
        tasks.spawn(async move {
            let held = lock.acquire().await.expect("granted");
            arrivals.lock().push(arrival);
            held.release().await.expect("released");
        });
        waiters(&first, &name, arrival + 1).await;
    }
    held.release().await.expect("released");
    all_end(tasks).await;
    assert_eq!(*arrivals.lock(), (0..8).collect::<Vec<_>>());
}

/// A store without a queue does not know the position of a waiter: the observer sees only the
/// holder.
async fn position_is_unknown(service: &dyn Service, kind: LockKind, name: &str) {
    let ours = client(service).await;
    let theirs = client(service).await;
    let held = kind.lock(&ours, name).acquire().await.expect("granted");
    let lock = kind.lock(&theirs, name);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waiters(&theirs, name, 1).await;

    let lock_state = ours.inspect(name).await.expect("inspected");
    assert_eq!(lock_state.waiters().count(), 0, "the store has a queue");

    held.release().await.expect("released");
    granted(waiting).await;
}

/// A wait ends at its deadline, says who holds the lock, and leaves no entry. A grant before the
/// deadline is kept.
///
/// Shows G-09, L6.
pub async fn wait_deadline_is_kept(service: &dyn Service, kind: LockKind) {
    const WAIT: Duration = Duration::from_millis(100);
    let name = fresh_name("deadline");
    let ours = client(service).await;
    let theirs = client(service).await;
    let held = kind.lock(&ours, &name).acquire().await.expect("granted");
    let lock = kind.lock(&theirs, &name);

    let started = Instant::now();
    let refused = lock.try_acquire_for(WAIT).await;
    names_holder(
        &refused.expect("the store replies").expect_err("held"),
        &held,
    );
    assert!(started.elapsed() >= WAIT);
    let refused = lock.try_acquire_for(Duration::ZERO).await;
    names_holder(
        &refused.expect("the store replies").expect_err("held"),
        &held,
    );
    let lock_state = ours.inspect(&name).await.expect("inspected");
    assert_eq!(lock_state.waiters().count(), 0);

    let waiting = tokio::spawn(async move { lock.try_acquire_for(Duration::from_secs(60)).await });
    waiters(&theirs, &name, 1).await;
    held.release().await.expect("released");
    let next = granted(waiting).await;
    next.expect("in time").check().expect("still held");
}

fn names_holder(refused: &Refused, held: &Guard) {
    let holders: Vec<_> = refused.holders.iter().map(|entry| entry.id).collect();
    assert_eq!(holders, [held.claim_id()], "{refused}");
    assert_eq!(refused.ahead, Some(1), "{refused}");

    let program = &refused.holders[0].info.program;
    assert!(refused.to_string().contains(&**program), "{refused}");
}

/// A dropped guard is released in the background, even if a thread without a runtime drops it.
///
/// Shows G-11.
pub async fn dropped_guard_is_released(service: &dyn Service, kind: LockKind) {
    let name = fresh_name("dropped");
    let locks = client(service).await;
    let other = client(service).await;

    let held = kind.lock(&locks, &name).acquire().await.expect("granted");
    let dropping = std::thread::spawn(move || drop(held));
    dropping.join().expect("dropping does not panic");

    let lock = kind.lock(&other, &name);
    let again = within_timeout("the lock is free", lock.acquire()).await;
    drop(again.expect("granted"));
    empty(&locks, &name).await;
}

/// The holder and the waiter are shown with label, position and token.
///
/// Shows G-18.
pub async fn queue_is_shown_in_order(service: &dyn Service, kind: LockKind) {
    let name = fresh_name("shown");
    let ours = client(service).await;
    let theirs = client(service).await;
    let held = kind
        .lock(&ours, &name)
        .with(|lock| lock.label("holder"))
        .acquire()
        .await
        .expect("granted");
    let lock = kind.lock(&theirs, &name).with(|lock| lock.label("waiter"));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    // In a store without a queue, a waiter is known to its own client alone.
    let observer = if ours.guarantees().fifo {
        &ours
    } else {
        &theirs
    };
    waiters(observer, &name, 1).await;
    let lock_state = observer.inspect(&name).await.expect("inspected");
    assert_eq!(lock_state.name.as_str(), name);
    let [first, second] = &lock_state.entries[..] else {
        panic!("two claims are in the queue: {lock_state:?}")
    };

    let token = held.token();
    assert_eq!(first.standing, Standing::Held { token });
    assert_eq!(first.info.label, "holder");
    assert_eq!(first.share, kind.share());
    assert_eq!(first.info.pid, std::process::id());
    assert_eq!(second.standing, Standing::Queued { ahead: 1 });
    assert_eq!(second.info.label, "waiter");
    assert_eq!(lock_state.last_token, Some(token));

    held.release().await.expect("released");
    let next = granted(waiting).await;
    next.release().await.expect("released");
    let lock_state = ours.inspect(&name).await.expect("inspected");
    assert_eq!(lock_state.entries, []);
}

/// Names with a meaning in a file system, a protocol or a pattern are valid, and each is its own
/// lock.
///
/// Shows G-17.
pub async fn hostile_names_are_distinct(service: &dyn Service, kind: LockKind) {
    let locks = client(service).await;
    let base = fresh_name("hostile");
    let long = "ü".repeat((512 - base.len()) / 2);
    let names = [
        "", "/", "/..", "/../..", "%2F", "%", "+", "{}", "a}b{c", "{x", "*", "?[a]", "\0", "\r\n",
        "\u{202e}", " ", ":q", ".queue", ".lock", &long,
    ];

    let mut held = Vec::new();
    for name in names.map(|name| format!("{base}{name}")) {
        let lock = kind.lock(&locks, &name);
        let guard = lock.try_acquire().await.expect("any text is a name");
        held.push(guard.expect("no other name is this lock"));

        let refused = lock.try_acquire().await.expect("the store replies");
        assert!(refused.is_err(), "{name:?}");
    }
    for held in held {
        held.release().await.expect("released");
    }

    for name in ["", &"x".repeat(513)] {
        let refused = kind.lock(&locks, name).acquire().await;
        assert!(refused.expect_err("refused").is_invalid());
    }
}
