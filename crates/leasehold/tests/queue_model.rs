//! Compares random queues on Redis with the rule that decides all grants.
#![cfg(feature = "redis")]
#![allow(missing_docs)]

use std::sync::{Arc, OnceLock};

use lab_servers::Redis;
use leasehold::store::{Claim, OnContention, Share, Standing, Store, admitted};
use leasehold::{ClaimId, ClaimantInfo, Name, Token, stores};
use proptest::prelude::*;

/// One step of one of several clients.
#[derive(Clone, Debug)]
enum Step {
    Enter {
        share: Share,
        on_contention: OnContention,
    },
    /// The claim at this position leaves. The position wraps around the length of the queue.
    Leave(usize),
    /// The client enters the claim at this position again, with the smallest share of its kind.
    Shrink(usize),
    Renew(usize),
}

/// The expected queue: claims in order of arrival, with the tokens of the held claims.
#[derive(Default)]
struct Model {
    entries: Vec<(Claim, Option<Token>)>,
    last: Option<Token>,
}

impl Model {
    fn granted(&self) -> usize {
        admitted(self.entries.iter().map(|(claim, _)| claim.share))
    }

    fn would_be_granted(&self, share: Share) -> bool {
        let shares = self
            .entries
            .iter()
            .map(|(claim, _)| claim.share)
            .chain([share]);
        admitted(shares) > self.entries.len()
    }
}

fn claim(name: &Name, share: Share) -> Claim {
    let info = ClaimantInfo::here("").expect("a good label");
    Claim::new(name.clone(), share, info.into())
}

/// Shares of one kind: a mutex with readers and writers, or slots.
fn shares(slots: Option<u32>) -> BoxedStrategy<Share> {
    match slots {
        None => prop_oneof![
            Just(Share::MUTEX),
            Just(Share::READER),
            Just(Share::READER),
            Just(Share::WRITER)
        ]
        .boxed(),
        Some(of) => (1..=of)
            .prop_map(move |permits| Share::slots(permits, of).expect("in range"))
            .boxed(),
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![Just(None), (1u32..5).prop_map(Some)].prop_flat_map(|slots| {
        let on_contention = prop_oneof![
            Just(OnContention::Queue),
            Just(OnContention::Queue),
            Just(OnContention::Fail)
        ];
        let enter = (shares(slots), on_contention).prop_map(|(share, on_contention)| Step::Enter {
            share,
            on_contention,
        });
        let step = prop_oneof![
            4 => enter,
            3 => any::<usize>().prop_map(Step::Leave),
            1 => any::<usize>().prop_map(Step::Shrink),
            1 => any::<usize>().prop_map(Step::Renew),
        ];
        prop::collection::vec(step, 1..40)
    })
}

/// Two clients of one server, for all cases.
fn clients() -> &'static (Redis, tokio::runtime::Runtime, [Arc<stores::Redis>; 2]) {
    static CLIENTS: OnceLock<(Redis, tokio::runtime::Runtime, [Arc<stores::Redis>; 2])> =
        OnceLock::new();
    CLIENTS.get_or_init(|| {
        let server = Redis::start();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("the runtime starts");
        let connect =
            || runtime.block_on(async { stores::Redis::builder(&server.url())?.connect().await });
        let clients =
            [connect(), connect()].map(|client| Arc::new(client.expect("the client connects")));
        (server, runtime, clients)
    })
}

/// Performs a step through one client, and its expected effect on the model. Checks that the reply
/// was right.
async fn step(
    store: &stores::Redis,
    name: &Name,
    model: &mut Model,
    step: &Step,
) -> Result<(), TestCaseError> {
    let at = |n: usize| (!model.entries.is_empty()).then(|| n % model.entries.len().max(1));
    match *step {
        Step::Enter {
            share,
            on_contention,
        } => {
            let claim = claim(name, share);
            let granted = model.would_be_granted(share);
            let reply = store
                .enter(&claim, on_contention)
                .await
                .expect("entered")
                .standing;
            match reply {
                Standing::Held { .. } => prop_assert!(granted, "granted too early"),
                Standing::Queued { ahead } => {
                    prop_assert!(!granted && on_contention == OnContention::Queue);
                    prop_assert_eq!(ahead as usize, model.entries.len());
                }
                Standing::Gone => prop_assert!(!granted && on_contention == OnContention::Fail),
                other => prop_assert!(false, "unknown standing {other:?}"),
            }
            if reply != Standing::Gone {
                model.entries.push((claim, None));
            }
        }
        Step::Leave(n) => {
            let Some(at) = at(n) else { return Ok(()) };
            let (claim, _) = model.entries.remove(at);
            prop_assert!(store.leave(&claim).await.expect("left"));
            prop_assert!(!store.leave(&claim).await.expect("replied"));
        }
        Step::Shrink(n) => {
            let Some(at) = at(n) else { return Ok(()) };
            let claim = &mut model.entries[at].0;
            claim.share = match claim.share.capacity() {
                1 | Share::RW_CAPACITY => Share::READER,
                slots => Share::slots(1, slots).expect("in range"),
            };
            let claim = claim.clone();
            store
                .enter(&claim, OnContention::Fail)
                .await
                .expect("entered");
        }
        Step::Renew(n) => {
            let Some(at) = at(n) else { return Ok(()) };
            let claims = [model.entries[at].0.clone(), claim(name, Share::MUTEX)];
            let left = store.renew(&claims).await.expect("replied");
            prop_assert!(left[1].is_none(), "a claim that never entered is kept");
        }
    }
    Ok(())
}

/// Checks that the server's queue is the model's queue. A claim that was granted since the last
/// check has a larger token than all claims before it.
async fn compare(
    store: &stores::Redis,
    name: &Name,
    model: &mut Model,
) -> Result<(), TestCaseError> {
    let granted = model.granted();
    let lock_state = store.inspect(name).await.expect("read");
    let ids =
        |entries: &[leasehold::Entry]| entries.iter().map(|entry| entry.id).collect::<Vec<_>>();
    prop_assert_eq!(
        ids(&lock_state.entries),
        model
            .entries
            .iter()
            .map(|(claim, _)| claim.id)
            .collect::<Vec<_>>()
    );
    for (at, (entry, (claim, known))) in lock_state
        .entries
        .iter()
        .zip(&mut model.entries)
        .enumerate()
    {
        prop_assert_eq!(entry.share, claim.share);
        prop_assert_eq!(
            entry.token().is_some(),
            at < granted,
            "position {} of {}",
            at,
            granted
        );
        match (entry.token(), *known) {
            (Some(token), Some(before)) => prop_assert_eq!(token, before),
            (Some(token), None) => {
                prop_assert!(
                    model.last.is_none_or(|last| token > last),
                    "{} after {:?}",
                    token,
                    model.last
                );
                model.last = Some(token);
                *known = Some(token);
            }
            (None, known) => prop_assert!(known.is_none(), "a grant was taken back"),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    })]
    /// Shows G-01, G-05, S2.
    #[test]
    fn random_queues_match_the_model(steps in steps()) {
        let (server, runtime, stores) = clients();
        let name = Name::parse(&format!("queue/{}", ClaimId::draw())).expect("a good name");
        runtime.block_on(async {
            let mut model = Model::default();
            for (n, what) in steps.iter().enumerate() {
                step(&stores[n % 2], &name, &mut model, what).await?;
                compare(&stores[0], &name, &mut model).await?;
            }
            for (claim, _) in std::mem::take(&mut model.entries) {
                prop_assert!(stores[0].leave(&claim).await.expect("left"));
            }
            Ok(())
        })?;
        let keys = server.command(&["KEYS", &format!("leasehold:{{{}*", name.as_str())]);
        prop_assert!(keys.texts().len() <= 1, "an empty queue has the keys {:?}", keys.texts());
    }
}
