//! The token counter of a lock, and the format of such counters.
//!
//! A name takes its tokens in ranges from the [counter of the folder](super::folder_counter), which
//! rises forever, even across power loss. One sync of that counter covers [`RESERVE`] tokens.
//!
//! ```text
//! block, written at 0 and at 512 in turn (64 of 512 bytes used, little-endian), and at both if the
//! entry behind them is written in the same step:
//! magic 8 · version 4 · zero 4 · generation 8 · boot id 16 · last_token 8 · reserved_up_to 8
//! · zero 4 · crc32 4
//! ```
//!
//! `last_token` is the token of the last grant and is written without a sync. Tokens up to
//! `reserved_up_to` may be granted.
//!
//! In the counter of the folder, `reserved_up_to` is synced before any range above its previous
//! value is used. While a raised `reserved_up_to` may not be on the disk yet, the block has the
//! same value as its `last_token` too. After a reboot, or if a block is torn, counting continues
//! at `reserved_up_to`. A raised value is written to both blocks, so one intact block is enough.
//!
//! The counter of a name is never synced. After a reboot, or if a block is torn, the name takes a
//! new range.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::local_fs::{io_error, write_at};
use crate::{Error, Result};

/// One boot of the machine. The kernel draws an id for each.
///
/// Some kinds of container have a boot id of their own, so another boot id alone does not prove
/// that a process has ended.
pub(super) type Boot = [u8; 16];

/// The counter, as one block of the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenCounter {
    generation: u64,
    pub(super) boot: Boot,
    pub(super) last_token: u64,
    reserved_up_to: u64,
}

/// The content of the first bytes of a queue file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CounterState {
    /// No token was ever granted from the file.
    Fresh,
    /// Both blocks are intact.
    Intact(TokenCounter),
    /// One block is torn, and the other is intact.
    OneBlockLost(TokenCounter),
    /// The file is leasehold's, and both blocks are torn.
    Corrupt,
    /// A later version wrote the file.
    Newer(u32),
    /// Another program wrote the file.
    Foreign,
}

/// A file that has a counter, as errors name it.
pub(super) struct CounterFile<'a> {
    /// Makes the path, which only errors need.
    pub(super) path: &'a dyn Fn() -> PathBuf,
    /// Such as "a queue file".
    pub(super) kind: &'a str,
    /// Such as "this lock".
    pub(super) used_for: &'a str,
}

impl CounterFile<'_> {
    /// The counter with which this boot continues, or the reason why the file cannot be used.
    ///
    /// After power loss a block may be torn or old. Then counting continues above the reservation.
    pub(super) fn counter(&self, state: &CounterState, boot: Boot) -> Result<TokenCounter> {
        let path = self.path;
        match state {
            CounterState::Fresh => Ok(TokenCounter::fresh(boot)),
            CounterState::Intact(counter) if counter.boot == boot => Ok(*counter),
            CounterState::Intact(counter) | CounterState::OneBlockLost(counter) => {
                Ok(counter.restarted())
            }
            CounterState::Newer(version) => Err(Error::unsupported(format!(
                "{} has version {version} of the format, newer than this program",
                path().display()
            ))
            .help("use the newer leasehold everywhere on this machine")),
            CounterState::Corrupt => {
                let message = format!("the counter in {} is torn", path().display());
                Err(Error::damaged(message).help(self.removal_help()))
            }
            CounterState::Foreign => Err(Error::damaged(format!(
                "{} is not {} of leasehold",
                path().display(),
                self.kind
            ))
            .help("move it away, or choose another folder")),
        }
    }

    pub(super) fn removal_help(&self) -> String {
        let path = (self.path)();
        let shown = path.display();
        let used_for = self.used_for;
        format!(
            "stop every user of {used_for}, then remove {shown}: tokens continue from the clock"
        )
    }
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
            [Some(first), Some(second)] => CounterState::Intact(first.newer(second)),
            [Some(only), None] | [None, Some(only)] => CounterState::OneBlockLost(only),
            [None, None] if blocks.iter().any(|block| block.starts_with(MAGIC)) => {
                CounterState::Corrupt
            }
            [None, None] => CounterState::Foreign,
        }
    }

    /// The counter of a new name. It begins at the microseconds of the clock, so that tokens rise
    /// even if the whole folder was deleted.
    pub(super) fn fresh(boot: Boot) -> Self {
        let clock = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let last_token = u64::try_from(clock.as_micros()).unwrap_or_default().max(1);

        Self {
            generation: 0,
            boot,
            last_token,
            reserved_up_to: last_token,
        }
    }

    /// Continues above every token that can have been granted.
    pub(super) fn restarted(self) -> Self {
        Self {
            last_token: self.reserved_up_to,
            ..self
        }
    }

    /// Whether no token was ever granted from this counter.
    pub(super) fn is_fresh(&self) -> bool {
        self.generation == 0
    }

    /// Whether the next token needs a new range or reservation.
    pub(super) fn is_spent(&self) -> bool {
        self.last_token >= self.reserved_up_to
    }

    /// Whether a range of this length lies within the reservation.
    pub(super) fn has_room_for(&self, len: u64) -> bool {
        self.last_token.saturating_add(len) <= self.reserved_up_to
    }

    /// Writes that the next `len` tokens are taken, and returns their range. A counter without
    /// [room](Self::has_room_for) must [`reserve`](Self::reserve) first.
    pub(super) fn take(&mut self, len: u64, file: &File) -> io::Result<TokenRange> {
        let next = self.with_taken(len);
        let range = TokenRange {
            after: self.last_token,
            up_to: next.last_token,
        };
        self.replace(next, file)?;
        Ok(range)
    }

    /// Returns the counter after the next `len` tokens.
    fn with_taken(&self, len: u64) -> Self {
        assert!(
            self.has_room_for(len),
            "a token above the reservation could be used twice"
        );
        Self {
            last_token: self.last_token + len,
            ..*self
        }
    }

    /// Returns the counter after the next `len` tokens, and the bytes at the beginning of the file
    /// that has it. The block with the present value stays as it is.
    pub(super) fn taken(&self, len: u64) -> (Self, [u8; COUNTER_LEN]) {
        let next = self.with_taken(len).numbered(self.generation + 1);
        let mut bytes = [0; COUNTER_LEN];
        for counter in [self, &next] {
            let at = counter.block_at();
            bytes[at..at + USED_LEN].copy_from_slice(&counter.to_bytes());
        }
        (next, bytes)
    }

    /// Continues in a range that the counter of the folder gave in this boot.
    pub(super) fn extend(&mut self, range: &TokenRange, boot: Boot, file: &File) -> io::Result<()> {
        let next = Self {
            boot,
            last_token: range.after,
            reserved_up_to: range.up_to,
            ..*self
        };
        self.replace_both(next, file)
    }

    /// Reserves tokens durably.
    pub(super) fn reserve(&mut self, file: &File) -> io::Result<()> {
        let last_token = self.last_token;
        self.set_reserved(file)?;
        file.sync_data()?;

        let raised = Self {
            last_token,
            ..*self
        };
        self.replace(raised, file)
    }

    /// Writes a raised reservation to both blocks.
    ///
    /// The file shows the counter as spent until the reservation is known to be on the disk. If
    /// this process is killed here, or the sync fails, no process grants tokens that power loss
    /// could take back.
    pub(super) fn set_reserved(&mut self, file: &File) -> io::Result<()> {
        let reserved_up_to = self.last_token + RESERVE;
        let spent = Self {
            last_token: reserved_up_to,
            reserved_up_to,
            ..*self
        };
        self.replace_both(spent, file)
    }

    /// Writes the next value to both blocks.
    ///
    /// One write would leave the earlier reservation in the other block. If power loss then tore
    /// the block with the raised one, counting would continue at the earlier reservation, which is
    /// below tokens that were granted since, and those tokens would be granted once more. The
    /// blocks are written one after the other, so that one of them is intact at any time.
    fn replace_both(&mut self, next: Self, file: &File) -> io::Result<()> {
        self.replace(next, file)?;
        self.replace(*self, file)
    }

    /// Writes the next value to the block that has the older one.
    fn replace(&mut self, next: Self, file: &File) -> io::Result<()> {
        let next = next.numbered(self.generation + 1);
        write_at(file, &next.to_bytes(), next.block_at() as u64)?;
        *self = next;
        Ok(())
    }

    fn numbered(self, generation: u64) -> Self {
        Self { generation, ..self }
    }

    /// Where the block with this generation is.
    fn block_at(&self) -> usize {
        if self.generation.is_multiple_of(2) {
            0
        } else {
            BLOCK_LEN
        }
    }

    fn newer(self, other: Self) -> Self {
        if self.generation >= other.generation {
            self
        } else {
            other
        }
    }

    fn to_bytes(self) -> [u8; USED_LEN] {
        let mut block = [0; USED_LEN];
        block[..MAGIC.len()].copy_from_slice(MAGIC);
        block[VERSION_AT].copy_from_slice(&VERSION.to_le_bytes());
        block[GENERATION_AT].copy_from_slice(&self.generation.to_le_bytes());
        block[BOOT_AT].copy_from_slice(&self.boot);
        block[LAST_TOKEN_AT].copy_from_slice(&self.last_token.to_le_bytes());
        block[RESERVED_AT].copy_from_slice(&self.reserved_up_to.to_le_bytes());

        let crc = crc32fast::hash(&block[..CRC_AT.start]);
        block[CRC_AT].copy_from_slice(&crc.to_le_bytes());
        block
    }
}

/// Tokens that one name may grant: above `after`, up to and including `up_to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenRange {
    pub(super) after: u64,
    pub(super) up_to: u64,
}

/// Whether leasehold has written a regular file as a token counter.
pub(super) fn is_counter(file: &File) -> bool {
    !matches!(read(file), CounterState::Fresh | CounterState::Foreign)
}

/// Reads a file that has nothing but a counter.
pub(super) fn read(file: &File) -> CounterState {
    let mut bytes = [0; COUNTER_LEN + 1];
    let mut len = 0;
    while let Ok(count @ 1..) = file.read_at(&mut bytes[len..], len as u64) {
        len += count;
    }
    // A disk image begins with zeros, as a counter does whose blocks were never written.
    if len > COUNTER_LEN {
        return CounterState::Foreign;
    }
    TokenCounter::read(&bytes[..len])
}

/// The kernel's id of the present boot.
pub(super) fn this_boot() -> Result<Boot> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(PATH).map_err(|error| {
        let is_hidden = error.kind() == std::io::ErrorKind::NotFound;
        let error = io_error(error, "read", Path::new(PATH));
        if !is_hidden {
            return error;
        }
        error.help(
            "the file store needs all of /proc: start this program without ProcSubset=pid (in a \
             unit of systemd) or subset=pid, or use a server",
        )
    })?;

    let boot = uuid::Uuid::parse_str(text.trim())
        .map_err(|_| Error::unsupported(format!("{PATH} does not contain a boot id")))?;
    Ok(boot.into_bytes())
}

fn parse(block: &[u8]) -> Option<TokenCounter> {
    let block: &Block = block.try_into().ok()?;
    if !is_sound(block) || version(block) != VERSION {
        return None;
    }

    let number = |at: Range<usize>| {
        u64::from_le_bytes(block[at].try_into().expect("a number has eight bytes"))
    };
    let counter = TokenCounter {
        generation: number(GENERATION_AT),
        boot: block[BOOT_AT].try_into().expect("a boot id has 16 bytes"),
        last_token: number(LAST_TOKEN_AT),
        reserved_up_to: number(RESERVED_AT),
    };
    let is_in_range = counter.reserved_up_to.max(counter.generation) <= NUMBER_MAX;
    (counter.last_token <= counter.reserved_up_to && is_in_range).then_some(counter)
}

fn newer_version(block: &[u8]) -> Option<u32> {
    let block: &Block = block.try_into().ok()?;
    (is_sound(block) && version(block) > VERSION).then(|| version(block))
}

fn is_sound(block: &Block) -> bool {
    let crc = u32::from_le_bytes(block[CRC_AT].try_into().expect("a checksum has four bytes"));
    block.starts_with(MAGIC) && crc32fast::hash(&block[..CRC_AT.start]) == crc
}

fn version(block: &Block) -> u32 {
    u32::from_le_bytes(
        block[VERSION_AT]
            .try_into()
            .expect("a version has four bytes"),
    )
}

/// The largest number that a block may have, so that counting on does not overflow. The clock's
/// microseconds reach it in 146,000 years.
const NUMBER_MAX: u64 = 1 << 62;

/// The number of tokens that one sync of the folder's counter covers.
///
/// A reboot skips the rest of the reserved tokens. They correspond to 66 ms of the clock, because a
/// new counter begins at the clock's microseconds.
pub(super) const RESERVE: u64 = 64 * 1024;

/// The number of tokens that a name takes at once.
pub(super) const RANGE: u64 = 1024;

/// The number of tokens that a new name takes. Names that are removed and used again must not take
/// tokens faster than the clock advances: one per microsecond.
pub(super) const FIRST_RANGE: u64 = 16;

/// The length of both blocks. The entries of claims begin here.
pub(super) const COUNTER_LEN: usize = 2 * BLOCK_LEN;

/// The used bytes of a block.
type Block = [u8; USED_LEN];

const BLOCK_LEN: usize = 512;
const USED_LEN: usize = 64;
const MAGIC: &[u8; 8] = b"leasehld";
const VERSION: u32 = 1;

const VERSION_AT: Range<usize> = 8..12;
const GENERATION_AT: Range<usize> = 16..24;
const BOOT_AT: Range<usize> = 24..40;
const LAST_TOKEN_AT: Range<usize> = 40..48;
const RESERVED_AT: Range<usize> = 48..56;
const CRC_AT: Range<usize> = USED_LEN - 4..USED_LEN;
