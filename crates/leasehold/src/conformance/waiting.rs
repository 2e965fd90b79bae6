//! Waiting: in order, for as long as was said, and without traces.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::support::{client, empty, fresh_name, waiters, within_timeout};
use super::{LockKind, Service};
use crate::Standing;

/// Waiters are served in order of arrival, whichever client they came through.
pub async fn grants_are_fifo(service: &dyn Service, kind: LockKind) {
    let first = client(service).await;
    if !first.guarantees().fifo {
        return;
    }
    let name = fresh_name("order");
    let held = kind.lock(&first, &name).acquire().await.expect("granted");
    let (clients, served) = (
        [client(service).await, client(service).await],
        Arc::new(Mutex::new(Vec::new())),
    );
    let mut tasks = tokio::task::JoinSet::new();
    for arrival in 0..8 {
        let (lock, served) = (kind.lock(&clients[arrival % 2], &name), Arc::clone(&served));
        tasks.spawn(async move {
            let held = lock.acquire().await.expect("granted");
            served.lock().push(arrival);
            held.release().await.expect("released");
        });
        waiters(&first, &name, arrival + 1).await;
    }
    held.release().await.expect("released");
    while let Some(done) = within_timeout("every waiter is served", tasks.join_next()).await {
        done.expect("no waiter fails");
    }
    assert_eq!(*served.lock(), (0..8).collect::<Vec<_>>());
}

/// A wait ends at its deadline with nothing, and leaves nobody in line; a grant in time is a grant.
pub async fn wait_deadline_is_kept(service: &dyn Service, kind: LockKind) {
    const WAIT: Duration = Duration::from_millis(100);
    let name = fresh_name("deadline");
    let (ours, theirs) = (client(service).await, client(service).await);
    let held = kind.lock(&ours, &name).acquire().await.expect("granted");
    let lock = kind.lock(&theirs, &name);
    let started = Instant::now();
    assert!(lock.try_acquire_for(WAIT).await.expect("asked").is_none());
    assert!(started.elapsed() >= WAIT);
    assert!(
        lock.try_acquire_for(Duration::ZERO)
            .await
            .expect("asked")
            .is_none()
    );
    assert_eq!(
        ours.inspect(&name).await.expect("looked").waiters().count(),
        0
    );
    let waiting = tokio::spawn(async move { lock.try_acquire_for(Duration::from_secs(60)).await });
    waiters(&theirs, &name, 1).await;
    held.release().await.expect("released");
    let granted = within_timeout("the waiter is served", waiting)
        .await
        .expect("it runs")
        .expect("asked");
    assert!(granted.expect("in time").check().is_ok());
}

/// A dropped guard is released in the background, from a thread without a runtime too.
pub async fn dropped_guard_is_released(service: &dyn Service, kind: LockKind) {
    let name = fresh_name("dropped");
    let locks = client(service).await;
    let held = kind.lock(&locks, &name).acquire().await.expect("granted");
    std::thread::spawn(move || drop(held))
        .join()
        .expect("dropping does not panic");
    let again = within_timeout(
        "the lock is free",
        kind.lock(&client(service).await, &name).acquire(),
    )
    .await
    .expect("granted");
    drop(again);
    empty(&locks, &name).await;
}

/// Who holds and who waits can be seen, with label, place and token.
pub async fn queue_is_shown_in_order(service: &dyn Service, kind: LockKind) {
    let name = fresh_name("shown");
    let (ours, theirs) = (client(service).await, client(service).await);
    let held = kind
        .lock(&ours, &name)
        .with(|lock| lock.label("holder"))
        .acquire()
        .await
        .expect("granted");
    let lock = kind.lock(&theirs, &name).with(|lock| lock.label("waiter"));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    // Without a line in the store, who waits is known to his own client.
    let observer = if ours.guarantees().fifo {
        &ours
    } else {
        &theirs
    };
    waiters(observer, &name, 1).await;
    let lock_state = observer.inspect(&name).await.expect("looked");
    assert_eq!(lock_state.name.as_str(), name);
    let [first, second] = &lock_state.entries[..] else {
        panic!("two are in line: {lock_state:?}")
    };
    assert_eq!(
        (first.standing, &*first.info.label),
        (
            Standing::Held {
                token: held.token()
            },
            "holder"
        )
    );
    assert_eq!(
        (second.standing, &*second.info.label),
        (Standing::Queued { ahead: 1 }, "waiter")
    );
    assert_eq!(
        (first.share, first.info.pid),
        (kind.share(), std::process::id())
    );
    assert_eq!(lock_state.last_token, Some(held.token()));
    held.release().await.expect("released");
    within_timeout("the waiter is served", waiting)
        .await
        .expect("it runs")
        .expect("granted")
        .release()
        .await
        .expect("released");
    assert!(
        ours.inspect(&name)
            .await
            .expect("looked")
            .entries
            .is_empty()
    );
}

/// Names that mean something to a file system, a protocol or a pattern are names like any other, and each its own lock.
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
        held.push(
            lock.try_acquire()
                .await
                .expect("any text names a lock")
                .expect("no other name is this lock"),
        );
        assert!(
            lock.try_acquire().await.expect("asked").is_none(),
            "{name:?}"
        );
    }
    for held in held {
        held.release().await.expect("released");
    }
    for name in ["", &"x".repeat(513)] {
        assert!(
            kind.lock(&locks, name)
                .acquire()
                .await
                .expect_err("refused")
                .is_invalid()
        );
    }
}
