//! Acquiring and confirming a lock: tokens, and repeated rounds.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout;

use super::VotingStore;
use super::quorum_count::{QuorumCount, too_few};
use super::record::Holder;
use super::round::RoundResult;
use super::tracked_claim::{ClaimVotes, TrackedClaim};
use super::vote::VoteMode;
use super::voting::TallyOutcome;
use leasehold_core::store::{Claim, Share, units};
use leasehold_core::{Error, Result, Token};

/// The outcome of an attempt to acquire the lock.
pub(super) enum AcquireOutcome {
    Won(Token),
    /// Another claim has the lock.
    Contended {
        /// Its remaining lease, if it has an end.
        remaining: Option<Duration>,
        /// The claim itself, if the masters have named it.
        holder: Option<Holder>,
    },
}

/// How often a round with split votes is repeated before the lock counts as held by another claim.
const SPLITS_MAX: u32 = 6;
/// How often a token that is too low is raised.
const RAISES_MAX: u32 = 4;
/// The highest token: a record has 19 digits for it.
const TOKEN_MAX: u64 = 9_999_999_999_999_999_999;
/// The number of tokens that differ only in their client's digits.
const TOKEN_STEP: u64 = 1_000;
/// How long a ping may take.
const PING_MAX: Duration = Duration::from_millis(500);

impl<const MASTERS_MIN: usize> VotingStore<MASTERS_MIN> {
    /// Returns the state of a claim that this store supports.
    pub(super) fn tracked(&self, claim: &Claim) -> Result<Arc<TrackedClaim>> {
        if units(claim.share) != units(Share::MUTEX) {
            return Err(Error::unsupported(format!(
                "this store supports mutexes only, not {}",
                claim.share.kind()
            ))
            .help("use a mutex, or the stores redis: and file: for shares"));
        }
        if claim.lease > self.longest_lease {
            return Err(Error::invalid(format!(
                "the longest lease on these masters is {:?}",
                self.longest_lease
            ))
            .help(
                "use a shorter lease, or set a larger longest-lease= in the URLs of all clients",
            ));
        }

        let keys = self.format.keys(&claim.name)?;
        let master_locks = if self.format.remembers_last_token() {
            0
        } else {
            self.masters.len()
        };
        let votes = ClaimVotes::new(keys, master_locks, self.micros());
        Ok(self.claims.begin(claim, votes))
    }

    /// Returns how long the masters keep a vote.
    ///
    /// It is longer than the holder's lease, because the masters' clocks may run faster.
    pub(super) fn vote_life(&self, lease: Duration) -> Duration {
        if self.masters.len() == 1 {
            lease
        } else {
            lease.mul_f64(1.01) + Duration::from_millis(2)
        }
    }

    /// Votes until the claim holds the lock, or another claim seems to hold it.
    pub(super) async fn try_acquire(
        &self,
        tracked: &Arc<TrackedClaim>,
        mode: VoteMode,
    ) -> Result<AcquireOutcome> {
        let mut splits = 0;
        let mut raises = 0;
        loop {
            let token = self.proposal(tracked)?;
            let result = self.vote(tracked, token, mode).await;
            if result.outcome == TallyOutcome::Won {
                let token = Token::new(token).expect("a clock has started");
                self.claims.hold(tracked, token);
                tracked.request_decided();
                return Ok(AcquireOutcome::Won(token));
            }

            self.take_back(tracked, &result);
            self.check_quorum(&result)?;
            let is_held = result.is_held(self.masters.len());
            if is_held || splits == SPLITS_MAX || raises == RAISES_MAX {
                return Ok(AcquireOutcome::Contended {
                    remaining: result.remaining,
                    holder: result.holder(self.masters.len()).cloned(),
                });
            }
            if result.is_stale() {
                raises += 1;
            } else {
                splits += 1;
                tokio::time::sleep(split_pause(splits)).await;
            }
        }
    }

    /// Returns whether a claim still holds the lock. If it does, its lease starts again.
    pub(super) async fn confirm(&self, tracked: &Arc<TrackedClaim>, token: Token) -> Result<bool> {
        let result = self.vote(tracked, token.get(), VoteMode::Renew).await;
        match result.outcome {
            TallyOutcome::Won => Ok(true),
            TallyOutcome::Lost => {
                // The remaining votes would block other claims.
                self.take_back(tracked, &result);
                Ok(false)
            }
            TallyOutcome::Unknown => Err(self.no_quorum(&result)),
        }
    }

    /// Pings the masters until a quorum has replied.
    #[cold]
    pub(super) async fn reach_quorum(&self) -> Result<()> {
        let mut pings: FuturesUnordered<_> = self
            .masters
            .iter()
            .map(|master| async move {
                let ping = async { master.session()?.0.ping().await };
                let no_reply = |_| Err(Error::unavailable("the server does not reply"));
                let reply = timeout(PING_MAX, ping).await.unwrap_or_else(no_reply);
                (master, reply)
            })
            .collect();

        let mut count = QuorumCount::of(self.masters.len());
        while let Some((master, reply)) = pings.next().await {
            match reply {
                Ok(()) => count.succeed(),
                Err(error) => count.note_failure(&master.url, &error),
            }
            if count.is_reached() {
                *self.quorum_error.lock() = None;
                return Ok(());
            }
        }
        Err(count.error())
    }

    /// Records whether a lost round has reached a quorum.
    fn check_quorum(&self, result: &RoundResult) -> Result<()> {
        let is_reached = !self.no_quorum_without(result.tally.unknown);
        let error = (!is_reached).then(|| self.no_quorum(result));
        self.quorum_error.lock().clone_from(&error);
        error.map_or(Ok(()), Err)
    }

    /// Returns the error of a round in which no quorum has decided.
    #[cold]
    fn no_quorum(&self, result: &RoundResult) -> Error {
        if let Some(error) = result.refusals.first() {
            return error.clone();
        }
        let all = self.masters.len();
        too_few(all, all - result.tally.unknown, &result.errors)
    }

    /// Returns a token that is larger than every token that the claim has received or proposed: the
    /// time of the masters' clocks, or the successor of the highest token.
    ///
    /// These tokens may be ahead of the clocks by any amount: a clock that was ahead may have been
    /// corrected since.
    fn proposal(&self, tracked: &TrackedClaim) -> Result<u64> {
        let seen = tracked.highest_reply_token().max(tracked.highest_token());
        let token = self.micros() * 1_000 + self.token_digits;
        if token > seen {
            return Ok(token);
        }
        if seen > TOKEN_MAX - 2 * TOKEN_STEP {
            return Err(Error::damaged(format!(
                "the store's last token for this name, {seen}, leaves no larger token"
            ))
            .help("find the program that wrote it, and delete the key; or use another name"));
        }
        Ok((seen / TOKEN_STEP + 1) * TOKEN_STEP + self.token_digits)
    }

    /// Returns the median of the masters' clocks. Neither a single master's nor a client's clock
    /// can raise the tokens. The store was opened with a quorum, whose clocks are known.
    fn micros(&self) -> u64 {
        let known = self
            .masters
            .iter()
            .filter(|master| master.quarantine.is_known());
        let mut clocks: Vec<u64> = known.map(|master| master.clock.micros()).collect();
        clocks.sort_unstable();

        clocks.get(clocks.len() / 2).copied().unwrap_or_default()
    }
}

/// Returns a random pause after split votes, so that the rival claims do not collide again.
fn split_pause(splits: u32) -> Duration {
    let longest = 2_000 + 4_000 * u64::from(splits);
    Duration::from_micros(fastrand::u64(500..longest))
}
