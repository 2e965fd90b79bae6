//! Telling of events.

use std::io::{Write, stdout};

use anyhow::Result;
use leasehold::Loss;

use crate::{Event, Face, Orders, Tells, What, now};

/// One line, written in one go.
pub(super) fn tell(event: Event) -> Result<()> {
    let line = format!("{event}\n");
    let mut stdout = stdout().lock();
    stdout.write_all(line.as_bytes())?;
    Ok(stdout.flush()?)
}

/// What one hand tells of one lock.
#[derive(Clone, Copy)]
pub(super) struct Teller<'a> {
    pub(super) orders: &'a Orders,
    pub(super) hand: u32,
    pub(super) name: u16,
}

impl Teller<'_> {
    pub(super) fn asked(self) -> Result<()> {
        self.tell(What::Asked)
    }

    /// When.
    pub(super) fn granted(self, token: leasehold::Token) -> Result<u64> {
        let (at, (weight, capacity)) = (now(), share(self.orders.face_of(self.name)));
        self.tell_at(at, What::Granted { token: token.get(), weight, capacity })?;
        Ok(at)
    }

    pub(super) fn trusted(self, at: u64, until: u64) -> Result<()> {
        self.tell_at(at, What::Trusted { until })
    }

    pub(super) fn nested(self, token: leasehold::Token, count: usize) -> Result<()> {
        self.tell(What::Nested { token: token.get(), count: u32::try_from(count)? })
    }

    pub(super) fn unnested(self, count: usize) -> Result<()> {
        self.tell(What::Unnested { count: u32::try_from(count)? })
    }

    pub(super) fn gave_up(self) -> Result<()> {
        self.tell(What::GaveUp)
    }

    pub(super) fn refused(self) -> Result<()> {
        self.tell(What::Refused)
    }

    pub(super) fn releasing(self, at: u64) -> Result<()> {
        self.tell_at(at, What::Releasing)
    }

    /// `good` is when it was last known to hold.
    pub(super) fn lost(self, good: u64, loss: Loss) -> Result<()> {
        self.tell_at(good, if loss == Loss::Gone { What::Gone } else { What::RanOut })
    }

    pub(super) fn released(self) -> Result<()> {
        self.tell(What::Released)
    }

    pub(super) fn unsure(self) -> Result<()> {
        self.tell(What::Unsure)
    }

    fn tell(self, what: What) -> Result<()> {
        self.tell_at(now(), what)
    }

    fn tell_at(self, at: u64, what: What) -> Result<()> {
        match self.orders.tells {
            Tells::All => tell(Event { at, hand: self.hand, name: self.name, what }),
            Tells::Nothing => Ok(()),
        }
    }
}

fn share(face: Face) -> (u32, u32) {
    use leasehold::Share;
    match face {
        Face::Mutex => (1, 1),
        Face::Reader => (1, Share::WHOLE),
        Face::Writer => (Share::WHOLE, Share::WHOLE),
        Face::Slots { take, of } => (take, of),
    }
}
