//! What a user holds.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::time::Duration;

use crate::engine::Hold;
use crate::runtime::background::on_background;
use crate::{FencingToken, LossReason, RenewalStatus, Result, ServerVote, Share, Token};

/// A granted lock, held until it is released, dropped or lost.
///
/// Dropping it releases in the background: it never blocks and needs no runtime around it. A guard is tied to no task
/// or thread; it may be sent anywhere and released there.
///
/// The background ends with the process. A program whose last act is dropping a guard awaits
/// [`drain()`](crate::drain()) before it exits, or [releases](Self::release) the guard. Otherwise the release may never
/// be sent, and the lock stays held until the store detects the crash or the lease ends.
///
/// ```
/// # async fn charge(order: u32, token: leasehold::Token) -> leasehold::Result<()> { Ok(()) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::open("memory:").await?;
/// let guard = locks.mutex("orders/42").acquire().await?;
/// guard.while_held(charge(42, guard.token())).await??; // stopped the moment the lock is lost
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    hold: Hold,
}

impl Guard {
    pub(crate) fn new(hold: Hold) -> Self {
        Self { hold }
    }

    /// The number of this grant, larger than that of any earlier grant of the name.
    #[must_use]
    pub fn token(&self) -> Token {
        self.hold.token()
    }

    /// The token and the claim id of this grant, for resources that [compare both](crate::fence).
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        FencingToken::new(self.token(), self.hold.claim().id)
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        self.hold.claim().name.as_str()
    }

    /// Whether the lock can still be trusted to be ours, by the clock and without asking the store.
    ///
    /// True now says nothing of a moment later; only a resource that checks [tokens](Self::token) closes that gap.
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost), for ever once it has been.
    pub fn check(&self) -> Result<()> {
        self.hold.check()
    }

    /// Why the lock was lost, or `None` while it is held.
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        self.hold.loss()
    }

    /// How long the lock may be trusted from now if no renewal were answered any more: zero once lost,
    /// [`Duration::MAX`] where only a crash ends a hold.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Where several servers keep the lock together, what each has granted, and for how long; empty where one store decides.
    ///
    /// It is what this process has heard last, at the grant or a renewal, and asks nobody;
    /// [`look`](crate::Locks::inspect) asks. A hold is trusted for as long as a majority is, which is [`remaining`](Self::remaining).
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let locks = leasehold::open("redlock://a,b,c,d,e").await?;
    /// let guard = locks.mutex("orders/42").acquire().await?;
    /// for vote in guard.votes().iter().filter(|vote| vote.remaining.is_zero()) {
    ///     eprintln!("{} has not voted", vote.server);
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn votes(&self) -> Vec<ServerVote> {
        self.hold.votes()
    }

    /// How the renewal of the lease goes.
    #[must_use]
    pub fn renewal(&self) -> RenewalStatus {
        self.hold.renewal()
    }

    /// Resolves when the lock is lost, at the latest when the lease could have ended; pends while it is held.
    ///
    /// *Cancel safety*: reads only.
    pub async fn lost(&self) -> LossReason {
        on_background(self.hold.lost()).await
    }

    /// Resolves when no more than `margin` remains, or the lock is lost: the moment to begin stopping work that takes
    /// `margin` to stop.
    ///
    /// *Cancel safety*: reads only.
    pub async fn until_remaining(&self, margin: Duration) {
        on_background(self.hold.until_remaining(margin)).await;
    }

    /// Runs `work` while the lock is held, and drops it the moment the lock is lost.
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost) if the lock was lost before the work was done, or in the same moment.
    ///
    /// *Cancel safety*: dropping it drops the work; the lock is held on.
    pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        self.check()?;
        let (mut work, mut lost) = (pin!(work), pin!(self.lost()));
        let done = std::future::poll_fn(|context| {
            if lost.as_mut().poll(context).is_ready() {
                return std::task::Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        });
        match done.await {
            Some(done) => self.check().map(|()| done),
            None => Err(self.hold.error()),
        }
    }

    /// Descriptors for a child process that does the work: where the store knows such a thing (the file store does), the
    /// lock stays held as long as any process has them open, even if this one is killed. Releasing frees it all the same.
    /// Empty where only this process keeps the lock.
    ///
    /// On the file store they keep alive all that this process has in lines through the same [`Locks`](crate::Locks): open
    /// the store once more for work that children carry on.
    ///
    /// They are closed on exec; clear that flag for the child that is to inherit them (`fcntl(F_SETFD)`).
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost), or [`is_unavailable`](crate::Error::is_unavailable) if there is no descriptor
    /// left.
    pub fn inheritable_fds(&self) -> Result<Vec<OwnedFd>> {
        self.hold.inheritable_fds()
    }

    /// Gives back a writer's exclusiveness and goes on as a reader, without a gap in which another writer could come;
    /// the token stays. Does nothing for a guard that is a reader's already.
    ///
    /// # Errors
    /// [`is_unsupported`](crate::Error::is_unsupported) if this is not a reader-writer lock,
    /// [`is_lost`](crate::Error::is_lost), or why the store could not be asked; then the guard is as it was, or already
    /// a reader's.
    ///
    /// *Cancel safety*: dropped, it may have happened; repeating it does no harm.
    pub async fn downgrade(&self) -> Result<()> {
        if self.hold.claim().share.capacity() != Share::RW_CAPACITY {
            let what = format!(
                "{} has no readers to downgrade to",
                self.hold.claim().share.kind()
            );
            return Err(crate::Error::unsupported(what));
        }
        on_background(self.hold.change_share(Share::READER)).await
    }

    /// Releases and waits for the store's word. From the first poll on the guard is invalid, whatever the answer.
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost) if the lock was lost before: what was done meanwhile may have overlapped with
    /// another holder. [`is_unavailable`](crate::Error::is_unavailable) if the store did not answer: releasing is then
    /// tried on in the background until the lease has ended.
    ///
    /// *Cancel safety*: dropped, the release goes on in the background.
    pub async fn release(self) -> Result<()> {
        on_background(self.hold.release()).await
    }
}
