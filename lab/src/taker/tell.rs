//! Telling of events.

use std::io::{Write, stdout};

use anyhow::Result;

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

    pub(super) fn granted(self, token: leasehold::Token) -> Result<()> {
        let (weight, capacity) = share(self.orders.face);
        self.tell(What::Granted { token: token.get(), weight, capacity })
    }

    pub(super) fn gave_up(self) -> Result<()> {
        self.tell(What::GaveUp)
    }

    pub(super) fn releasing(self) -> Result<()> {
        self.tell(What::Releasing)
    }

    pub(super) fn released(self) -> Result<()> {
        self.tell(What::Released)
    }

    fn tell(self, what: What) -> Result<()> {
        match self.orders.tells {
            Tells::All => tell(Event { at: now(), hand: self.hand, name: self.name, what }),
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
