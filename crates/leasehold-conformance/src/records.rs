//! Jobs that run once: the record beside a lock.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Service;
use super::faulty_client::{FaultyClient, ReplyFault};
use super::support::{
    claim, client, empty, enter, fresh_name, granted, locks_over, store, waiters, within_timeout,
};
use leasehold_core::store::{
    Claim, Intercept, Intercepted, OnContention, RecordReader, Records, Request, Store,
};
use leasehold_core::{
    Completion, Done, Error, Locks, Name, NotGranted, Once, OnceGuard, Outcome, Result, Token,
};

/// A job that is completed is done for all clients: by its id, in any order of ids, and by its
/// period.
///
/// Shows G-58.
pub async fn jobs_that_are_completed_are_done(service: &dyn Service) {
    let Some((ours, theirs)) = clients(service).await else {
        return;
    };
    let name = fresh_name("done");
    let mut tokens = Vec::new();
    for id in ["friday", "saturday", "a\tb %\n~"] {
        let guard = starts(&ours.once(&name).id(id)).await;
        tokens.push(guard.token());
        guard.complete().await.expect("it is recorded");
    }

    let found = done(&theirs.once(&name).id("friday")).await;
    assert_eq!((found.token, found.name.as_str()), (tokens[0], &*name));
    assert!(
        found.by.contains(&std::process::id().to_string()),
        "{}",
        found.by
    );
    done(&theirs.once(&name).id("saturday")).await;
    done(&theirs.once(&name).id("a\tb %\n~")).await;
    done(&theirs.once(&name).per(HOUR)).await;
    starts(&theirs.once(&name).id("sunday"))
        .await
        .complete()
        .await
        .expect("it is recorded");
    starts(&theirs.once(fresh_name("other")).id("friday"))
        .await
        .fail()
        .await
        .expect("it is held");

    let record = ours.record(&name).await.expect("it is read");
    let ids: Vec<&str> = record.completions.iter().map(|one| &*one.id).collect();
    assert_eq!(ids, ["sunday", "a\tb %\n~", "saturday", "friday"]);
    let last = record.last_success().expect("there are some");
    assert!(last.started_at <= last.ended_at && last.ended_at <= record.read_at);

    let kept = store(service).await;
    let kept = records(&*kept).kept().await.expect("a duration");
    let too_long = ours.once(&name).per(kept * 2 + HOUR).try_acquire().await;
    assert!(too_long.expect_err("it is refused").is_invalid());
    for invalid in [
        ours.once(&name),
        ours.once(&name).id(""),
        ours.once(&name).id("x".repeat(65)),
    ] {
        assert!(
            invalid
                .try_acquire()
                .await
                .expect_err("it is refused")
                .is_invalid()
        );
    }
    empty(&ours, &name).await;
}

/// A job that failed, or whose guard was dropped or lost, runs again.
///
/// Shows G-58.
pub async fn job_without_completion_runs_again(service: &dyn Service) {
    let Some((ours, theirs)) = clients(service).await else {
        return;
    };
    let name = fresh_name("again");
    let job = |locks: &Locks| locks.once(&name).id("1");
    drop(starts(&job(&ours)).await);
    let failed = starts(&job(&theirs)).await;
    let id = failed.claim_id();
    failed.fail().await.expect("it is recorded");

    let record = ours.record(&name).await.expect("it is read");
    assert!(record.completions.is_empty());
    let failure = record.failure.expect("it is recorded");
    assert_eq!((failure.claim, failure.outcome), (id, Outcome::Failure));

    let broken = starts(&job(&ours)).await;
    let end = theirs.break_hold(&name, broken.token()).await;
    assert!(end.expect("it replies").is_some());
    let error = broken.complete().await.expect_err("the lock was lost");
    assert!(error.is_lost(), "{error}");
    starts(&job(&theirs))
        .await
        .complete()
        .await
        .expect("it is recorded");
    done(&job(&ours)).await;
}

/// A waiter reads the record after its grant, and finds what the holder before it has completed.
///
/// Shows G-58.
pub async fn waiter_finds_the_job_done(service: &dyn Service) {
    let Some((ours, theirs)) = clients(service).await else {
        return;
    };
    let name = fresh_name("waiter");
    let guard = starts(&ours.once(&name).id("1")).await;
    let refused = theirs.once(&name).id("1").try_acquire().await;
    let refused = refused.expect("it replies").expect_err("it is held");
    assert!(matches!(refused, NotGranted::Refused(_)));

    let waiting = tokio::spawn(theirs.once(&name).id("1").acquire());
    waiters(&ours, &name, 1).await;
    let behind = tokio::spawn(theirs.once(&name).id("2").acquire());
    waiters(&ours, &name, 2).await;
    let token = guard.token();
    guard.complete().await.expect("it is recorded");
    let found = granted(waiting).await.expect_err("it is done");
    assert_eq!(found.token, token);
    let next = granted(behind).await.expect("another id is not done");
    next.complete().await.expect("it is recorded");
    empty(&ours, &name).await;

    // A job that takes longer than half of its period was not yet done when the waiter asked.
    let name = fresh_name("long");
    let job = |locks: &Locks| locks.once(&name).per(Duration::from_secs(6));
    let guard = starts(&job(&ours)).await;
    let waiting = tokio::spawn(job(&theirs).acquire());
    waiters(&ours, &name, 1).await;
    tokio::time::sleep(Duration::from_millis(3100)).await;
    let token = guard.token();
    guard.complete().await.expect("it is recorded");
    let found = granted(waiting).await.expect_err("it is done");
    assert_eq!(found.token, token);
}

/// A claim that waits, or that is gone, adds nothing to the record.
///
/// Shows G-58.
pub async fn only_a_holder_records_a_completion(service: &dyn Service) {
    let store = store(service).await;
    if store.extensions().records.is_none() {
        return;
    }
    let name = fresh_name("holder");
    let (gone, holder, waiter) = (claim(&name), claim(&name), claim(&name));
    let token = held(&*store, &gone).await;
    store.leave(&gone).await.expect("it replies");
    let held_token = held(&*store, &holder).await;
    enter(&*store, &waiter, OnContention::Queue).await;

    for other in [&gone, &waiter, &claim(&name)] {
        assert!(!complete(&*store, other, token).await, "it does not hold");
    }
    let record = records(&*store)
        .record(&holder.name, RecordReader::Observer)
        .await;
    assert!(record.expect("it is read").completions.is_empty());
    let lock_state = store.inspect(&holder.name).await.expect("inspected");
    assert_eq!(lock_state.entries.len(), 2, "no claim has left");

    assert!(complete(&*store, &holder, held_token).await);
    let granted = within_timeout("the waiter is granted", store.queued(&waiter, 1)).await;
    assert!(granted.expect("it replies").token().is_some());
    store.leave(&waiter).await.expect("it replies");
}

/// A claim records its completion once, however often the request is repeated, also after the next
/// claim has recorded one. Tokens decide nothing: that of an old completion may be the largest.
///
/// Shows G-58.
pub async fn completion_is_recorded_once(service: &dyn Service) {
    let store = store(service).await;
    if store.extensions().records.is_none() {
        return;
    }
    let name = fresh_name("repeated");
    let (first, second) = (claim(&name), claim(&name));
    held(&*store, &first).await;
    let largest = Token::new(u64::MAX / 4).expect("it is not zero");
    assert!(complete(&*store, &first, largest).await);
    assert!(complete(&*store, &first, largest).await);

    let token = held(&*store, &second).await;
    assert!(complete(&*store, &first, largest).await);
    assert!(complete(&*store, &second, token).await);
    assert!(complete(&*store, &first, largest).await);
    let record = records(&*store)
        .record(&first.name, RecordReader::Holder)
        .await;
    let completions = record.expect("it is read").completions;
    let claims: Vec<_> = completions.iter().map(|one| one.claim).collect();
    assert_eq!(claims, [second.id, first.id]);
    assert_eq!(completions[0].token, token);
}

/// A completion whose request or reply is lost is repeated, and recorded once.
///
/// Shows G-58.
pub async fn completion_survives_lost_replies(service: &dyn Service) {
    let Some((ours, _)) = clients(service).await else {
        return;
    };
    for fault in ReplyFault::ALL {
        let faulty = FaultyClient::connect(service).await;
        let name = fresh_name("lost-completion");
        let guard = starts(&faulty.locks.once(&name).id("1")).await;
        faulty.faults.inject(fault);
        let completed = within_timeout("it is recorded", guard.complete()).await;
        completed.expect("it is recorded");

        done(&ours.once(&name).id("1")).await;
        let record = ours.record(&name).await.expect("it is read");
        assert_eq!(record.completions.len(), 1, "{fault:?}");
        empty(&ours, &name).await;
    }
}

/// The store refuses to record a completion. The lock is free then, so that another client can run
/// the job again.
///
/// Shows G-10, L2.
pub async fn lock_is_free_after_a_refused_completion(service: &dyn Service) {
    let Some((ours, _)) = clients(service).await else {
        return;
    };
    let name = fresh_name("refused-completion");
    let intercepted = Intercepted(RefusedCompletions(store(service).await));
    let refusing = locks_over(Arc::new(intercepted));
    let guard = starts(&refusing.once(&name).id("1")).await;

    let error = guard.complete().await.expect_err("it is refused");
    assert!(error.is_denied(), "{error}");
    empty(&ours, &name).await;
}

#[derive(Debug)]
struct RefusedCompletions(Arc<dyn Store>);

#[async_trait]
impl Intercept for RefusedCompletions {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    async fn around<T: Send>(
        &self,
        request: Request,
        reply: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        if request == Request::Complete {
            return Err(Error::denied("injected: no right to write"));
        }
        reply.await
    }
}

/// The names with records are listed, and free names with records are not listed as locks in use.
pub async fn records_are_listed(service: &dyn Service) {
    let Some((ours, _)) = clients(service).await else {
        return;
    };
    let prefix = fresh_name("listed");
    let names: Vec<String> = ["a", "b/c d", "{e}~f"]
        .map(|end| format!("{prefix}/{end}"))
        .into();
    for name in &names {
        starts(&ours.once(name).id("1"))
            .await
            .complete()
            .await
            .expect("it is recorded");
    }
    let guard = ours
        .mutex(format!("{prefix}/unrecorded"))
        .acquire()
        .await
        .expect("granted");

    let listed = ours
        .list_records(&format!("{prefix}/"), 10)
        .await
        .expect("listed");
    let listed: Vec<&str> = listed.iter().map(Name::as_str).collect();
    assert_eq!(listed, names);
    assert_eq!(
        ours.list_records(&prefix, 2).await.expect("listed").len(),
        2
    );
    let in_use = ours.list(&prefix, 10).await.expect("listed");
    assert_eq!(in_use.len(), 1, "{in_use:?}");
    guard.release().await.expect("released");
}

/// Two clients of the service; `None` if its store has no records, which it must refuse.
async fn clients(service: &dyn Service) -> Option<(Locks, Locks)> {
    let locks = client(service).await;
    if store(service).await.extensions().records.is_some() {
        return Some((locks, client(service).await));
    }

    let name = fresh_name("refused");
    let refused = locks.once(&name).id("1").try_acquire().await;
    let error = refused.expect_err("refused, and not granted without a record");
    assert!(error.is_unsupported(), "{error}");
    assert!(
        locks
            .record(&name)
            .await
            .expect_err("refused")
            .is_unsupported()
    );
    assert!(
        locks
            .list_records("", 1)
            .await
            .expect_err("refused")
            .is_unsupported()
    );
    empty(&locks, &name).await;
    None
}

/// Acquires a job that is not done.
async fn starts(job: &Once) -> OnceGuard {
    let acquired = within_timeout("the job is granted", job.acquire()).await;
    acquired.expect("granted").expect("it is not done")
}

/// Acquires a job that is done.
async fn done(job: &Once) -> Done {
    let acquired = within_timeout("the job is granted", job.acquire()).await;
    acquired.expect("granted").expect_err("it is done")
}

async fn held(store: &dyn Store, claim: &Claim) -> Token {
    let standing = enter(store, claim, OnContention::Fail).await;
    standing.token().expect("granted")
}

async fn complete(store: &dyn Store, claim: &Claim, token: Token) -> bool {
    let record = records(store)
        .record(&claim.name, RecordReader::Observer)
        .await;
    let started_at = record.expect("it is read").read_at;
    let completion = Completion::success(claim, token, started_at);
    let completed = records(store).complete(claim, &completion).await;
    completed.expect("it replies")
}

fn records(store: &dyn Store) -> &dyn Records {
    store.extensions().records.expect("the store has records")
}

const HOUR: Duration = Duration::from_secs(3_600);
