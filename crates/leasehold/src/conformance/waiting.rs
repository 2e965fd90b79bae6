//! Waiting: in order, for as long as was said, and without traces.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::subject::{client, empty, fresh_name, soon, waiters};
use super::{Face, Service};
use crate::Standing;

/// Waiters are served in order of arrival, whichever client they came through.
pub async fn served_in_order(service: &dyn Service, face: Face) {
    let first = client(service).await;
    if !first.promises().fifo {
        return;
    }
    let name = fresh_name("order");
    let held = face.lock(&first, &name).acquire().await.expect("granted");
    let (clients, served) = ([client(service).await, client(service).await], Arc::new(Mutex::new(Vec::new())));
    let mut tasks = tokio::task::JoinSet::new();
    for arrival in 0..8 {
        let (lock, served) = (face.lock(&clients[arrival % 2], &name), Arc::clone(&served));
        tasks.spawn(async move {
            let held = lock.acquire().await.expect("granted");
            served.lock().push(arrival);
            held.release().await.expect("released");
        });
        waiters(&first, &name, arrival + 1).await;
    }
    held.release().await.expect("released");
    while let Some(done) = soon("every waiter is served", tasks.join_next()).await {
        done.expect("no waiter fails");
    }
    assert_eq!(*served.lock(), (0..8).collect::<Vec<_>>());
}

/// A wait ends at its deadline with nothing, and leaves nobody in line; a grant in time is a grant.
pub async fn deadlines_are_kept(service: &dyn Service, face: Face) {
    const WAIT: Duration = Duration::from_millis(100);
    let name = fresh_name("deadline");
    let (ours, theirs) = (client(service).await, client(service).await);
    let held = face.lock(&ours, &name).acquire().await.expect("granted");
    let lock = face.lock(&theirs, &name);
    let started = Instant::now();
    assert!(lock.try_acquire_for(WAIT).await.expect("asked").is_none());
    assert!(started.elapsed() >= WAIT);
    assert!(lock.try_acquire_for(Duration::ZERO).await.expect("asked").is_none());
    assert_eq!(ours.look(&name).await.expect("looked").waiters().count(), 0);
    let waiting = tokio::spawn(async move { lock.try_acquire_for(Duration::from_secs(60)).await });
    waiters(&theirs, &name, 1).await;
    held.release().await.expect("released");
    let granted = soon("the waiter is served", waiting).await.expect("it runs").expect("asked");
    assert!(granted.expect("in time").check().is_ok());
}

/// A dropped guard is released in the background, from a thread without a runtime too.
pub async fn dropped_is_released(service: &dyn Service, face: Face) {
    let name = fresh_name("dropped");
    let locks = client(service).await;
    let held = face.lock(&locks, &name).acquire().await.expect("granted");
    std::thread::spawn(move || drop(held)).join().expect("dropping does not panic");
    let again = soon("the lock is free", face.lock(&client(service).await, &name).acquire()).await.expect("granted");
    drop(again);
    empty(&locks, &name).await;
}

/// Who holds and who waits can be seen, with label, place and token.
pub async fn shown_in_line(service: &dyn Service, face: Face) {
    let name = fresh_name("shown");
    let (ours, theirs) = (client(service).await, client(service).await);
    let held = face.lock(&ours, &name).with(|lock| lock.label("holder")).acquire().await.expect("granted");
    let lock = face.lock(&theirs, &name).with(|lock| lock.label("waiter"));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    // Without a line in the store, who waits is known to his own client.
    let onlooker = if ours.promises().fifo { &ours } else { &theirs };
    waiters(onlooker, &name, 1).await;
    let line = onlooker.look(&name).await.expect("looked");
    assert_eq!(line.name.as_str(), name);
    let [first, second] = &line.entries[..] else { panic!("two are in line: {line:?}") };
    assert_eq!((first.standing, &*first.note.label), (Standing::Held { token: held.token() }, "holder"));
    assert_eq!((second.standing, &*second.note.label), (Standing::Queued { ahead: 1 }, "waiter"));
    assert_eq!((first.share, first.note.pid), (face.share(), std::process::id()));
    assert_eq!(line.last, Some(held.token()));
    held.release().await.expect("released");
    soon("the waiter is served", waiting).await.expect("it runs").expect("granted").release().await.expect("released");
    assert!(ours.look(&name).await.expect("looked").entries.is_empty());
}

/// Names that mean something to a file system, a protocol or a pattern are names like any other, and each its own lock.
pub async fn hostile_names_are_apart(service: &dyn Service, face: Face) {
    let locks = client(service).await;
    let base = fresh_name("hostile");
    let long = "ü".repeat((512 - base.len()) / 2);
    let names = [
        "", "/", "/..", "/../..", "%2F", "%", "+", "{}", "a}b{c", "{x", "*", "?[a]", "\0", "\r\n", "\u{202e}", " ",
        ":q", ".line", ".lock", &long,
    ];
    let mut held = Vec::new();
    for name in names.map(|name| format!("{base}{name}")) {
        let lock = face.lock(&locks, &name);
        held.push(lock.try_acquire().await.expect("any text names a lock").expect("no other name is this lock"));
        assert!(lock.try_acquire().await.expect("asked").is_none(), "{name:?}");
    }
    for held in held {
        held.release().await.expect("released");
    }
    for name in ["", &"x".repeat(513)] {
        assert!(face.lock(&locks, name).acquire().await.expect_err("refused").is_invalid());
    }
}
