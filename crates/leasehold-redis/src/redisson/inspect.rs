//! What the server knows of locks, for inspection.

use redis::Value;

use super::Redisson;
use super::field::{RawHolder, foreign, holder};
use leasehold_core::store::{Share, Standing, replies};
use leasehold_core::{Entry, LockState, Name, Result, Token};

/// What the server knows of one lock.
pub(super) struct InspectReply {
    /// The last token of an `RFencedLock`.
    counter: Option<Token>,
    /// The size of a semaphore.
    slots: u32,
    holders: Vec<RawHolder>,
}

impl InspectReply {
    /// Creates what a reply to a claim that was refused says.
    pub(super) fn of_holders(holders: Vec<RawHolder>, slots: u32) -> Self {
        Self {
            counter: None,
            slots,
            holders,
        }
    }

    /// Returns the holders, of leasehold or of Redisson.
    pub(super) fn lock_state(&self, name: &Name) -> LockState {
        let mut lock_state = replies::lock_state(name.clone());
        for raw in &self.holders {
            let mut entry = holder(raw, self.counter, self.slots);
            if raw.kind == "Q" {
                let ahead = u32::try_from(lock_state.entries.len()).unwrap_or(u32::MAX);
                entry.standing = Standing::Queued { ahead };
            }
            add_entry(&mut lock_state, entry);
        }
        let tokens = lock_state.holders().filter_map(Entry::token);
        lock_state.last_token = self.counter.or(tokens.max());
        lock_state
    }
}

impl Redisson {
    pub(super) fn parse_inspected(&self, reply: Value) -> Result<InspectReply> {
        let words: Vec<Vec<u8>> =
            redis::from_redis_value(reply).map_err(|_| self.protocol_error())?;
        let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
        let [other, counter, slots, holders @ ..] = &words[..] else {
            return Err(self.protocol_error());
        };
        if !other.is_empty() {
            return Err(foreign(&text(other)));
        }

        Ok(InspectReply {
            counter: text(counter).parse().ok().and_then(Token::new),
            slots: text(slots).parse().unwrap_or(0),
            holders: RawHolder::parse_all(holders),
        })
    }
}

/// Adds a holder or a waiter, or one more permit of a holder.
fn add_entry(lock_state: &mut LockState, entry: Entry) {
    let same = lock_state.entries.iter_mut().find(|one| one.id == entry.id);
    let Some(same) = same else {
        lock_state.entries.push(entry);
        return;
    };
    let more = Share::slots(same.share.weight() + 1, same.share.capacity());
    same.share = more.unwrap_or(same.share);
}
