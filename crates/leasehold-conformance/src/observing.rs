//! Observing a lock, and leader election.

use super::Service;
use super::support::{
    BRIEF_LEASE, acquire, break_held, claim, client, enter, fresh_name, granted, release, store,
    within_timeout,
};
use leasehold_core::store::{LABEL_MAX, OnContention};
use leasehold_core::{
    Election, Error, Leader, LeaderObserver, Leadership, LockState, Locks, Observer, Token,
};

/// An observer receives the grant and the release of every hold, and the end of a lease.
///
/// If the store pushes changes, an observer that only polled would exceed the time limit.
///
/// Shows G-47.
pub async fn observer_receives_every_change(service: &dyn Service) {
    let ours = client(service).await;
    let theirs = client(service).await;
    let name = fresh_name("observed");
    let mut observer = theirs.observe(&name).await.expect("observed");
    let first = within_timeout("the first state", observer.next()).await;
    assert!(first.expect("inspected").entries.is_empty());

    let cycles = if observer.is_pushed() { 12 } else { 1 };
    let changes = observe_holds(&ours, &name, cycles, &mut observer);
    within_timeout("every change is observed", Box::pin(changes)).await;

    if theirs.guarantees().lease_expiry {
        let ends = observe_end_of_lease(service, &name, &mut observer);
        within_timeout("the end of a lease is observed", Box::pin(ends)).await;
    }
}

async fn observe_holds(holder: &Locks, name: &str, cycles: u32, observer: &mut Observer) {
    for _ in 0..cycles {
        let guard = acquire(&holder.mutex(name)).await;
        let token = guard.token();
        observe_until(observer, |lock_state| {
            let mut holders = lock_state.holders();
            holders.any(|entry| entry.token() == Some(token))
        })
        .await;

        release(guard).await;
        observe_until(observer, |lock_state| lock_state.entries.is_empty()).await;
    }
}

/// A store pushes nothing when a lease ends.
async fn observe_end_of_lease(service: &dyn Service, name: &str, observer: &mut Observer) {
    let silent = store(service).await;
    let mut unrenewed = claim(name);
    unrenewed.lease = BRIEF_LEASE;

    enter(&*silent, &unrenewed, OnContention::Queue).await;
    observe_until(observer, |lock_state| lock_state.holders().count() == 1).await;
    observe_until(observer, |lock_state| lock_state.entries.is_empty()).await;
}

async fn observe_until(observer: &mut Observer, is_expected: impl Fn(&LockState) -> bool) {
    while !is_expected(&observer.next().await.expect("inspected")) {}
}

/// One candidate leads at a time. Every client finds its address and its token, and an observer
/// receives each change of the leader, also if one client leads twice in a row. A store without
/// tokens refuses elections.
///
/// Shows G-48.
pub async fn leader_is_elected_and_observed(service: &dyn Service) {
    let name = fresh_name("election");
    let one = client(service).await.election(&name);
    let two = client(service).await.election(&name);
    let operator = client(service).await;
    if !operator.guarantees().tokens {
        return election_is_refused(&one).await;
    }

    let mut observer = operator.election(&name).observe().await.expect("observed");
    assert_eq!(observer.next().await.expect("inspected"), None);
    for address in ["", &"x".repeat(LABEL_MAX + 1)] {
        let refused = one.campaign(address).await;
        assert!(refused.expect_err("refused").is_invalid());
    }

    let (first, address) = campaign_with_longest_address(&one).await;
    observe_leader(&mut observer, &address, first.token()).await;
    assert!(first.check().is_ok());
    first.resign().await.expect("resigned");
    let again = one.campaign(&address).await.expect("elected");
    observe_leader(&mut observer, &address, again.token()).await;

    let candidate = tokio::spawn(async move { two.campaign("two:2").await });
    again.resign().await.expect("resigned");

    let second = granted(candidate).await;
    observe_leader(&mut observer, "two:2", second.token()).await;
    let leader = one.leader().await.expect("inspected");
    assert_eq!(leader.expect("one leads").token, second.token());

    break_held(&operator, &name, second.token()).await;
    within_timeout("the leader is notified", second.lost()).await;
    drop(second);
    let none = async { while observer.next().await.expect("inspected").is_some() {} };
    within_timeout("the end of the leadership is observed", none).await;
}

/// Campaigns with an address that is as long as the store keeps, of characters that formats encode.
async fn campaign_with_longest_address(election: &Election) -> (Leadership, String) {
    let of_length = |bytes: usize| "ü %".repeat(bytes / 4) + &"x".repeat(bytes % 4);

    let address = of_length(255);
    let refused = match election.campaign(&address).await {
        Ok(leadership) => return (leadership, address),
        Err(error) => error,
    };
    assert!(refused.is_invalid() && refused.to_string().contains("at most 64 bytes"));

    let address = of_length(64);
    let leadership = election.campaign(&address).await.expect("elected");
    (leadership, address)
}

/// Waits until the observer reports this leader.
async fn observe_leader(observer: &mut LeaderObserver, address: &str, token: Token) {
    let is_expected = |leader: &Leader| leader.address() == address && leader.token == token;
    let expected = async {
        loop {
            let leader = observer.next().await.expect("inspected");
            if leader.as_ref().is_some_and(is_expected) {
                return;
            }
        }
    };
    within_timeout("the leader is observed", expected).await;
}

async fn election_is_refused(election: &Election) {
    let is_refused = |error: Error| assert!(error.is_unsupported(), "{error}");
    is_refused(election.campaign("one:1").await.expect_err("refused"));
    is_refused(election.leader().await.expect_err("refused"));
    is_refused(election.observe().await.expect_err("refused"));
}
