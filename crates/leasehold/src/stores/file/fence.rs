//! The counter of grants: rises for ever, also over power loss, with one sync per [`RESERVE`] grants.
//!
//! ```text
//! block, written at 0 and at 512 in turn (64 of 512 bytes used, little-endian):
//! magic 8 · version 4 · zero 4 · generation 8 · boot id 16 · last 8 · ceiling 8 · zero 4 · crc32 4
//! ```
//! `last` is the token given last and is written without a sync; `ceiling` is synced before any token above the
//! previous ceiling is given; a block whose ceiling may not be on the disk yet has it for its `last` too. After a reboot, or if a block is torn, counting goes on at the ceiling. A raised ceiling
//! is written to both blocks, so either of them alone suffices.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where tickets begin.
pub(super) const FENCE_LEN: usize = 2 * BLOCK_LEN;
/// How many tokens one sync covers.
pub(super) const RESERVE: u64 = 1024;

const BLOCK_LEN: usize = 512;
const USED_LEN: usize = 64;
const MAGIC: &[u8; 8] = b"leasehld";
const VERSION: u32 = 1;

/// A boot of the machine: tickets of another are void, as all its processes are.
pub(super) type Boot = [u8; 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    generation: u64,
    boot: Boot,
    last: u64,
    ceiling: u64,
}

/// What a line file's first bytes turn out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing was ever granted from it.
    Fresh,
    /// Both blocks are good.
    Whole(Fence),
    /// One block is torn; the other is as good.
    Half(Fence),
    /// It was leasehold's, and both blocks are torn.
    Torn,
    /// Written by a later version.
    Newer(u32),
    /// Not leasehold's.
    Foreign,
}

impl Fence {
    pub(super) fn read(bytes: &[u8]) -> Found {
        let head = &bytes[..bytes.len().min(FENCE_LEN)];
        if head.iter().all(|byte| *byte == 0) {
            return Found::Fresh;
        }
        let blocks = [0, BLOCK_LEN].map(|at| head.get(at..at + USED_LEN).unwrap_or_default());
        if let Some(version) = blocks.iter().find_map(|block| newer_version(block)) {
            return Found::Newer(version);
        }
        match blocks.map(parse) {
            [Some(a), Some(b)] => Found::Whole(if a.generation >= b.generation { a } else { b }),
            [Some(one), None] | [None, Some(one)] => Found::Half(one),
            [None, None] if blocks.iter().any(|block| block.starts_with(MAGIC)) => Found::Torn,
            [None, None] => Found::Foreign,
        }
    }

    /// The counter of a new name. It begins at the clock's microseconds, so that tokens go on rising even if the whole
    /// folder was deleted.
    pub(super) fn fresh(boot: Boot) -> Self {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let last = u64::try_from(clock.as_micros()).unwrap_or_default().max(1);
        Self { generation: 0, boot, last, ceiling: last }
    }

    /// Goes on where no token can have been given yet.
    pub(super) fn restarted(self) -> Self {
        Self { last: self.ceiling, ..self }
    }

    /// Of this boot from the next writing on.
    pub(super) fn move_to(&mut self, boot: Boot) {
        self.boot = boot;
    }

    pub(super) fn boot(&self) -> Boot {
        self.boot
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Whether nothing was ever granted from it.
    pub(super) fn is_fresh(&self) -> bool {
        self.generation == 0
    }

    /// Whether the next token needs a sync first.
    pub(super) fn is_spent(&self) -> bool {
        self.last >= self.ceiling
    }

    /// Raises the ceiling, durably.
    pub(super) fn reserve(&mut self, file: &File) -> io::Result<()> {
        let announced = self.announce(file)?;
        file.sync_data()?;
        let raised = Self { last: self.last, ..announced }.next_generation();
        raised.write(file)?;
        *self = raised;
        Ok(())
    }

    /// Writes a raised ceiling to both blocks. It reads as spent until it is known to be on the disk: if this process ends
    /// here, or the sync fails, nobody gives tokens that power loss could take back.
    pub(super) fn announce(&self, file: &File) -> io::Result<Self> {
        let ceiling = self.last + RESERVE;
        let first = Self { last: ceiling, ceiling, ..*self }.next_generation();
        let second = first.next_generation();
        first.write(file)?;
        second.write(file)?;
        Ok(second)
    }

    /// The next token, written down; [`reserve`](Self::reserve) comes first when the fence [is spent](Self::is_spent).
    pub(super) fn mint(&mut self, file: &File) -> io::Result<u64> {
        assert!(self.last < self.ceiling, "a token above the ceiling might be given twice");
        let next = Self { last: self.last + 1, ..*self }.next_generation();
        next.write(file)?;
        *self = next;
        Ok(next.last)
    }

    fn next_generation(self) -> Self {
        Self { generation: self.generation + 1, ..self }
    }

    fn write(&self, file: &File) -> io::Result<()> {
        let at = if self.generation.is_multiple_of(2) { 0 } else { BLOCK_LEN as u64 };
        file.write_all_at(&self.to_bytes(), at)
    }

    fn to_bytes(self) -> [u8; USED_LEN] {
        let mut block = [0; USED_LEN];
        block[..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[16..24].copy_from_slice(&self.generation.to_le_bytes());
        block[24..40].copy_from_slice(&self.boot);
        block[40..48].copy_from_slice(&self.last.to_le_bytes());
        block[48..56].copy_from_slice(&self.ceiling.to_le_bytes());
        let crc = crc32fast::hash(&block[..USED_LEN - 4]);
        block[USED_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        block
    }
}

fn parse(block: &[u8]) -> Option<Fence> {
    let block: &[u8; USED_LEN] = block.try_into().ok()?;
    let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
    if !is_sound(block) || version(block) != VERSION {
        return None;
    }
    let boot = block[24..40].try_into().expect("sixteen bytes");
    let fence = Fence { generation: number(16), boot, last: number(40), ceiling: number(48) };
    (fence.last <= fence.ceiling).then_some(fence)
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
