//! Leader election through the blocking API.

use std::thread;
use std::time::Duration;

use super::Service;
use super::support::{client, fresh_name, on_blocking_thread, within_timeout};
use leasehold_core::blocking::{Election, LeaderObserver, Locks};
use leasehold_core::{Error, Token};

/// How long a candidate waits that is not elected.
const SHORT: Duration = Duration::from_millis(50);
/// How long a thread waits for a loss that must come.
const LONG: Duration = Duration::from_secs(60);

/// Threads campaign, resign and observe as async clients do. A store without tokens refuses
/// elections.
///
/// Shows G-48.
pub async fn blocking_leader_is_elected_and_observed(service: &dyn Service) {
    let name = fresh_name("blocking-election");
    let one = Locks::from(client(service).await);
    let two = Locks::from(client(service).await);
    let operator = Locks::from(client(service).await);

    let suite = on_blocking_thread(move || {
        let one = one.election(&name);
        if operator.guarantees().tokens {
            elect(&one, two.election(&name), &operator, &name);
        } else {
            election_is_refused(&one);
        }
    });
    within_timeout("both candidates are elected", suite).await;
}

fn elect(one: &Election, two: Election, operator: &Locks, name: &str) {
    let mut observer = operator.election(name).observe().expect("observed");
    assert_eq!(observer.next().expect("inspected"), None);
    assert!(one.campaign("").expect_err("refused").is_invalid());

    let first = one.campaign("one:1").expect("elected");
    observe_leader(&mut observer, "one:1", first.token());
    let early = two.try_campaign_for("two:2", SHORT).expect("it replies");
    assert!(early.is_err(), "two clients lead");
    let unchanged = observer.next_for(SHORT);
    assert!(unchanged.is_none(), "{unchanged:?} is not a new leader");

    let candidate = thread::spawn(move || two.campaign("two:2"));
    first.resign().expect("resigned");
    let second = candidate.join().expect("the thread ran").expect("elected");
    observe_leader(&mut observer, "two:2", second.token());
    let leader = one.leader().expect("inspected").expect("one leads");
    assert_eq!(leader.token, second.token());

    let broken = operator.break_hold(name, second.token());
    broken.expect("it replies").expect("it was held");
    assert!(second.lost_for(LONG).is_some(), "it is not lost");
    drop(second);
    while observer.next().expect("inspected").is_some() {}
}

/// Waits until the observer reports this leader.
fn observe_leader(observer: &mut LeaderObserver, address: &str, token: Token) {
    loop {
        let leader = observer.next().expect("inspected");
        if leader.is_some_and(|leader| leader.address() == address && leader.token == token) {
            return;
        }
    }
}

fn election_is_refused(election: &Election) {
    let is_refused = |error: Error| assert!(error.is_unsupported(), "{error}");
    is_refused(election.campaign("one:1").expect_err("refused"));
    is_refused(election.leader().expect_err("refused"));
    is_refused(election.observe().expect_err("refused"));
}
