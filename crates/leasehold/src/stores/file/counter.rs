//! The counter of grants: rises for ever, also over power loss, with one sync per [`RESERVE`] grants.
//!
//! ```text
//! block, written at 0 and at 512 in turn (64 of 512 bytes used, little-endian):
//! magic 8 · version 4 · zero 4 · generation 8 · boot id 16 · last 8 · ceiling 8 · zero 4 · crc32 4
//! ```
//! `last_token` is the token given last and is written without a sync; `reserved_up_to` is synced before any token above the
//! previous ceiling is given; a block whose ceiling may not be on the disk yet has it for its `last_token` too. After a reboot, or if a block is torn, counting goes on at the ceiling. A raised ceiling
//! is written to both blocks, so either of them alone suffices.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where tickets begin.
pub(super) const COUNTER_LEN: usize = 2 * BLOCK_LEN;
/// How many tokens one sync covers.
pub(super) const RESERVE: u64 = 1024;

const BLOCK_LEN: usize = 512;
const USED_LEN: usize = 64;
const MAGIC: &[u8; 8] = b"leasehld";
const VERSION: u32 = 1;

/// A boot of the machine: tickets of another are void, as all its processes are.
pub(super) type Boot = [u8; 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenCounter {
    generation: u64,
    boot: Boot,
    last_token: u64,
    reserved_up_to: u64,
}

/// What a line file's first bytes turn out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CounterState {
    /// Nothing was ever granted from it.
    Fresh,
    /// Both blocks are good.
    Intact(TokenCounter),
    /// One block is torn; the other is as good.
    OneBlockLost(TokenCounter),
    /// It was leasehold's, and both blocks are torn.
    Corrupt,
    /// Written by a later version.
    Newer(u32),
    /// Not leasehold's.
    Foreign,
}

impl TokenCounter {
    pub(super) fn read(bytes: &[u8]) -> CounterState {
        let head = &bytes[..bytes.len().min(COUNTER_LEN)];
        if head.iter().all(|byte| *byte == 0) {
            return CounterState::Fresh;
        }
        let blocks = [0, BLOCK_LEN].map(|at| head.get(at..at + USED_LEN).unwrap_or_default());
        if let Some(version) = blocks.iter().find_map(|block| newer_version(block)) {
            return CounterState::Newer(version);
        }
        match blocks.map(parse) {
            [Some(a), Some(b)] => {
                CounterState::Intact(if a.generation >= b.generation { a } else { b })
            }
            [Some(one), None] | [None, Some(one)] => CounterState::OneBlockLost(one),
            [None, None] if blocks.iter().any(|block| block.starts_with(MAGIC)) => {
                CounterState::Corrupt
            }
            [None, None] => CounterState::Foreign,
        }
    }

    /// The counter of a new name. It begins at the clock's microseconds, so that tokens go on rising even if the whole
    /// folder was deleted.
    pub(super) fn fresh(boot: Boot) -> Self {
        let clock = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let last = u64::try_from(clock.as_micros()).unwrap_or_default().max(1);
        Self {
            generation: 0,
            boot,
            last_token: last,
            reserved_up_to: last,
        }
    }

    /// Goes on where no token can have been given yet.
    pub(super) fn restarted(self) -> Self {
        Self {
            last_token: self.reserved_up_to,
            ..self
        }
    }

    /// Of this boot from the next writing on.
    pub(super) fn move_to(&mut self, boot: Boot) {
        self.boot = boot;
    }

    pub(super) fn boot(&self) -> Boot {
        self.boot
    }

    pub(super) fn last_token(&self) -> u64 {
        self.last_token
    }

    /// Whether nothing was ever granted from it.
    pub(super) fn is_fresh(&self) -> bool {
        self.generation == 0
    }

    /// Whether the next token needs a sync first.
    pub(super) fn is_spent(&self) -> bool {
        self.last_token >= self.reserved_up_to
    }

    /// Raises the ceiling, durably.
    pub(super) fn reserve(&mut self, file: &File) -> io::Result<()> {
        let announced = self.set_reserved(file)?;
        file.sync_data()?;
        let raised = Self {
            last_token: self.last_token,
            ..announced
        }
        .next_generation();
        raised.write(file)?;
        *self = raised;
        Ok(())
    }

    /// Writes a raised ceiling to both blocks. It reads as spent until it is known to be on the disk: if this process ends
    /// here, or the sync fails, nobody gives tokens that power loss could take back.
    pub(super) fn set_reserved(&self, file: &File) -> io::Result<Self> {
        let reserved_up_to = self.last_token + RESERVE;
        let first = Self {
            last_token: reserved_up_to,
            reserved_up_to,
            ..*self
        }
        .next_generation();
        let second = first.next_generation();
        first.write(file)?;
        second.write(file)?;
        Ok(second)
    }

    /// The next token, written down; [`reserve`](Self::reserve) comes first when the fence [is spent](Self::is_spent).
    pub(super) fn mint(&mut self, file: &File) -> io::Result<u64> {
        assert!(
            self.last_token < self.reserved_up_to,
            "a token above the ceiling might be given twice"
        );
        let next = Self {
            last_token: self.last_token + 1,
            ..*self
        }
        .next_generation();
        next.write(file)?;
        *self = next;
        Ok(next.last_token)
    }

    fn next_generation(self) -> Self {
        Self {
            generation: self.generation + 1,
            ..self
        }
    }

    fn write(&self, file: &File) -> io::Result<()> {
        let at = if self.generation.is_multiple_of(2) {
            0
        } else {
            BLOCK_LEN as u64
        };
        file.write_all_at(&self.to_bytes(), at)
    }

    fn to_bytes(self) -> [u8; USED_LEN] {
        let mut block = [0; USED_LEN];
        block[..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[16..24].copy_from_slice(&self.generation.to_le_bytes());
        block[24..40].copy_from_slice(&self.boot);
        block[40..48].copy_from_slice(&self.last_token.to_le_bytes());
        block[48..56].copy_from_slice(&self.reserved_up_to.to_le_bytes());
        let crc = crc32fast::hash(&block[..USED_LEN - 4]);
        block[USED_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        block
    }
}

fn parse(block: &[u8]) -> Option<TokenCounter> {
    let block: &[u8; USED_LEN] = block.try_into().ok()?;
    let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
    if !is_sound(block) || version(block) != VERSION {
        return None;
    }
    let boot = block[24..40].try_into().expect("sixteen bytes");
    let counter = TokenCounter {
        generation: number(16),
        boot,
        last_token: number(40),
        reserved_up_to: number(48),
    };
    (counter.last_token <= counter.reserved_up_to).then_some(counter)
}

fn newer_version(block: &[u8]) -> Option<u32> {
    let block: &[u8; USED_LEN] = block.try_into().ok()?;
    (is_sound(block) && version(block) > VERSION).then(|| version(block))
}

fn is_sound(block: &[u8; USED_LEN]) -> bool {
    let crc = u32::from_le_bytes(block[USED_LEN - 4..].try_into().expect("four bytes"));
    block.starts_with(MAGIC) && crc32fast::hash(&block[..USED_LEN - 4]) == crc
}

fn version(block: &[u8; USED_LEN]) -> u32 {
    u32::from_le_bytes(block[8..12].try_into().expect("four bytes"))
}
