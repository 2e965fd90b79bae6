//! A line as people see it.

use std::time::Duration;

use crate::{ClaimId, Name, Note, Share, Standing, Token};

/// Who holds a lock and who waits for it, in order, at one moment.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// let _guard = locks.mutex("a").label("the first").acquire().await?;
/// let line = locks.look("a").await?;
/// assert_eq!(line.holders().next().unwrap().note.label, "the first");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Which lock.
    pub name: Name,
    /// Holders and waiters, in order of arrival.
    pub entries: Vec<Entry>,
    /// The token of the last grant, if the store still knows it.
    pub last: Option<Token>,
    /// Those who hold the lock without being in line: by flock(1) on the file store.
    pub strangers: Vec<Stranger>,
    /// Where several servers keep the lock together, what each of them knows.
    pub views: Vec<View>,
}

/// What one of several servers knows of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Which server, as in its URL without a password.
    pub place: String,
    /// Whom it has given its vote, and for which token.
    pub holder: Option<(ClaimId, Token)>,
    /// The highest token it remembers.
    pub last: Option<Token>,
    /// For how much longer its vote is given.
    pub left: Duration,
    /// Why it cannot be asked, or its vote does not count.
    pub trouble: Option<String>,
}

/// What one of several servers has granted to a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vote {
    /// Which server, as in its URL without a password.
    pub place: String,
    /// How long its vote may be counted on, from its last answer: zero if it has given none, or it has run out.
    pub left: Duration,
}

/// A process that holds a lock without being in line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// The process, as this machine or container numbers it.
    pub pid: u32,
    /// What the kernel calls its program; empty if it does not say.
    pub program: String,
}

/// One claim in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which claim.
    pub id: ClaimId,
    /// How much it takes.
    pub share: Share,
    /// Whether it holds or waits.
    pub standing: Standing,
    /// Who it is.
    pub note: Note,
}

impl Line {
    /// Those who hold.
    pub fn holders(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.token().is_some())
    }

    /// Those who wait, next first.
    pub fn waiters(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.token().is_none())
    }
}

impl Entry {
    /// The token, if this claim holds.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.standing.token()
    }
}
