//! Compares random queues with the rule that decides all grants.

use std::time::Duration;

use proptest::prelude::*;

use super::server::{DAY, ModelServer, claim, liveness, request};
use crate::queue::messages::{EnterMode, Renewed};
use leasehold_core::store::{Claim, Share, Standing, admitted};

const LEASE: Duration = Duration::from_secs(30);
/// The life of a key that is not there.
const NO_KEY: i64 = -2;

/// One step of a client. A position wraps around the length of the queue.
#[derive(Clone, Debug)]
enum Step {
    Enter(Share, EnterMode),
    Leave(usize),
    /// The client enters its claim again, with the smallest share of its kind.
    Shrink(usize),
    Renew(usize),
}

/// A server, and its expected queue: claims in order of arrival, with the tokens of those that hold.
struct Queue {
    server: ModelServer,
    entries: Vec<(Claim, Option<u64>)>,
    last_token: u64,
    entered: u8,
}

/// Shares of one kind: a mutex with readers and writers, or slots.
fn shares(slots: Option<u32>) -> BoxedStrategy<Share> {
    match slots {
        None => prop::sample::select(vec![Share::MUTEX, Share::READER, Share::WRITER]).boxed(),
        Some(of) => (1..=of)
            .prop_map(move |permits| Share::slots(permits, of).expect("in range"))
            .boxed(),
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![Just(None), (1_u32..5).prop_map(Some)].prop_flat_map(|slots| {
        let mode =
            prop::sample::select(vec![EnterMode::Queue, EnterMode::Queue, EnterMode::TryNow]);
        let step = prop_oneof![
            4 => (shares(slots), mode).prop_map(|(share, mode)| Step::Enter(share, mode)),
            3 => any::<usize>().prop_map(Step::Leave),
            1 => any::<usize>().prop_map(Step::Shrink),
            1 => any::<usize>().prop_map(Step::Renew),
        ];
        prop::collection::vec(step, 1..40)
    })
}

impl Queue {
    fn new() -> Self {
        Self {
            server: ModelServer::start(),
            entries: Vec::new(),
            last_token: 0,
            entered: 0,
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let at = |number: &usize| number % self.entries.len();
        match step {
            Step::Enter(share, mode) => self.enter(*share, *mode)?,
            _ if self.entries.is_empty() => {}
            Step::Leave(number) => {
                let (claim, _) = self.entries.remove(at(number));
                let number = claim.id.to_bytes()[0];
                prop_assert!(self.server.leave(number));
                prop_assert!(!self.server.leave(number));
            }
            Step::Shrink(number) => {
                let at = at(number);
                let claim = &mut self.entries[at].0;
                claim.share = match claim.share.capacity() {
                    1 | Share::RW_CAPACITY => Share::READER,
                    slots => Share::slots(1, slots).expect("in range"),
                };
                let claim = claim.clone();
                self.send(&claim, EnterMode::TryNow);
            }
            Step::Renew(number) => {
                let claim = &self.entries[at(number)].0;
                let link = liveness(claim.id.to_bytes()[0], 1, None);
                prop_assert_ne!(self.server.renew(claim, &link), Renewed::Gone);
            }
        }
        Ok(())
    }

    fn enter(&mut self, share: Share, mode: EnterMode) -> Result<(), TestCaseError> {
        self.entered += 1;
        let mut claim = claim(self.entered, LEASE);
        claim.share = share;
        let shares = self.entries.iter().map(|(claim, _)| claim.share);
        let fits = admitted(shares.chain([share])) > self.entries.len();

        match self.send(&claim, mode) {
            Standing::Held { .. } => prop_assert!(fits, "granted too early"),
            Standing::Queued { .. } => prop_assert!(!fits && mode == EnterMode::Queue),
            _ => {
                prop_assert!(!fits && mode == EnterMode::TryNow);
                return Ok(());
            }
        }
        self.entries.push((claim, None));
        Ok(())
    }

    fn send(&mut self, claim: &Claim, mode: EnterMode) -> Standing {
        let link = liveness(claim.id.to_bytes()[0], 1, None);
        self.server.enter(&request(claim, mode, link)).standing
    }

    /// Checks the standing of every claim. A claim that was granted since the last check has a
    /// larger token than all claims before it. Every key outlives the leases.
    fn check(&mut self) -> Result<(), TestCaseError> {
        let mut lives = self.server.lives().into_iter();
        prop_assert!(lives.all(|life| life == NO_KEY || life >= DAY));
        let granted = admitted(self.entries.iter().map(|(claim, _)| claim.share));
        let claims: Vec<Claim> = self
            .entries
            .iter()
            .map(|(claim, _)| claim.clone())
            .collect();

        for (at, claim) in claims.iter().enumerate() {
            let known = self.entries[at].1;
            match (self.send(claim, EnterMode::Poll), known) {
                (Standing::Held { token }, Some(known)) => prop_assert_eq!(token.get(), known),
                (Standing::Held { token }, None) => {
                    prop_assert!(at < granted, "position {} of {}", at, granted);
                    prop_assert!(token.get() > self.last_token);
                    self.last_token = token.get();
                    self.entries[at].1 = Some(token.get());
                }
                (standing, _) => {
                    let ahead = u32::try_from(at).expect("a short queue");
                    prop_assert!(at >= granted, "position {} of {}", at, granted);
                    prop_assert_eq!(standing, Standing::Queued { ahead });
                }
            }
        }
        Ok(())
    }
}

proptest! {
    /// Shows G-01, G-05, S2.
    #[test]
    fn random_queues_match_the_model(steps in steps()) {
        let mut queue = Queue::new();
        for step in &steps {
            queue.step(step)?;
            queue.check()?;
        }

        for (claim, _) in std::mem::take(&mut queue.entries) {
            prop_assert!(queue.server.leave(claim.id.to_bytes()[0]));
        }
        prop_assert!(queue.server.keys() <= 1, "an empty queue has keys");
    }
}
