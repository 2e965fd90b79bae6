//! The record of a name: which jobs were completed under it.
//!
//! ```text
//! NAME.record has two blocks, at 0 and at 32 KiB, which are written in turn (little-endian):
//! magic 8 · version 4 · length of the text 4 · generation 8 · crc32 of all other bytes 4 · text
//! ```
//!
//! A block is written in place, because in a folder that several users share no user can replace a
//! file of another one. It is synced before the claim leaves. If power loss tears it, the other
//! block has the record before it: the claim has then not completed.
//!
//! All functions run under the lock of the queue file, except for [`read`], which may find a block
//! that is being written, and then returns the other one.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use rustix::fs::{OFlags, syncfs};

use super::folder::location::{Location, OpenFile};
use super::folder::object::touch;
use crate::local_fs::write_at;
use crate::record::{self, TEXT_MAX};
use crate::{Completion, Error, Record, Result};

/// Reads a record; an empty one if there is none.
pub(super) fn read(at: &Location) -> Result<Record> {
    let now = SystemTime::now();
    match at.open_file(OFlags::RDONLY, OPEN)? {
        None => Ok(Record::empty(now)),
        Some(file) => read_open(&file, at, now).map(|newest| newest.record),
    }
}

/// Keeps the record for its full time from now on.
pub(super) fn keep(at: &Location) -> Result<()> {
    if let Some(file) = at.open_file(OFlags::RDWR, OPEN)? {
        touch(file.file());
        // A holder that was killed may have written a completion, and not synced it.
        let synced = file.file().sync_data();
        synced.map_err(|error| at.io_error(error, "sync the record"))?;
    }
    Ok(())
}

/// Adds a completion durably, unless its claim has added it before.
pub(super) fn add(at: &Location, completion: &Completion) -> Result<()> {
    let file = at.open_or_make(OFlags::RDWR, b"", OPEN)?;
    let Newest {
        generation,
        mut record,
    } = read_open(&file, at, SystemTime::now())?;
    if record.is_of(completion.claim) {
        // It was written before, and the sync may have failed then.
        let synced = file.file().sync_data();
        return synced
            .and_then(|()| sync_name(at, &file, generation).map_err(Into::into))
            .map_err(|error| at.io_error(error, "sync the record"));
    }

    record.add(completion);
    let generation = generation + 1;
    let begin = if generation.is_multiple_of(2) {
        0
    } else {
        BLOCK_LEN as u64
    };
    let written = write_at(file.file(), &block(generation, &record), begin);
    written
        .and_then(|()| file.file().sync_data())
        .and_then(|()| sync_name(at, &file, generation).map_err(Into::into))
        .map_err(|error| at.io_error(error, "write the record"))
}

/// Makes the name of a new file durable. The folders of a long name may be new too.
fn sync_name(at: &Location, file: &OpenFile, generation: u64) -> rustix::io::Result<()> {
    match generation {
        1 if at.has_parents() => syncfs(file.file().as_fd()),
        1 => at.sync_parent(),
        _ => Ok(()),
    }
}

/// Removes a record whose last use is longer ago. Returns whether it was removed.
pub(super) fn remove_older(at: &Location, kept: Duration) -> Result<bool> {
    if !is_older(at, kept)? {
        return Ok(false);
    }
    at.remove()?;
    at.remove_empty_parents();
    Ok(true)
}

/// Whether the last use of a record is longer ago.
pub(super) fn is_older(at: &Location, kept: Duration) -> Result<bool> {
    let Some(file) = at.open_file(OFlags::RDONLY, OPEN)? else {
        return Ok(false);
    };
    let metadata = file.file().metadata();
    let used = metadata.and_then(|metadata| metadata.modified());
    let used = used.map_err(|error| at.io_error(error, "inspect"))?;
    // A file of another program is not removed, whatever its name.
    let newest = read_open(&file, at, SystemTime::now())?;
    let age = SystemTime::now().duration_since(used).unwrap_or_default();
    Ok(age > kept && newest.generation > 0)
}

struct Newest {
    /// Zero if no block was ever written in full.
    generation: u64,
    record: Record,
}

fn read_open(file: &OpenFile, at: &Location, now: SystemTime) -> Result<Newest> {
    let mut newest = Newest {
        generation: 0,
        record: Record::empty(now),
    };
    let mut is_foreign = false;
    for begin in [0, BLOCK_LEN as u64] {
        let bytes = read_block(file.file(), begin).map_err(|error| at.io_error(error, "read"))?;
        if let Some(version) = later_version(&bytes) {
            return Err(record::newer(&format!("v{version}")));
        }
        match parse(&bytes) {
            Some((generation, text)) if generation > newest.generation => {
                newest = Newest {
                    generation,
                    record: Record::parse(text, now)?,
                };
            }
            Some(_) => {}
            None => is_foreign |= !bytes.starts_with(MAGIC) && bytes.iter().any(|byte| *byte != 0),
        }
    }

    // Beside a sound block, it is torn.
    if is_foreign && newest.generation == 0 {
        let message = format!("{} is not a record of leasehold", at.path().display());
        return Err(Error::damaged(message).help("move it away, or choose another folder"));
    }
    Ok(newest)
}

fn read_block(file: &File, begin: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; BLOCK_LEN];
    let mut len = 0;
    while len < BLOCK_LEN {
        match file.read_at(&mut bytes[len..], begin + len as u64)? {
            0 => break,
            count => len += count,
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

fn block(generation: u64, record: &Record) -> Vec<u8> {
    let text = record.to_text();
    let len = u32::try_from(text.len()).expect("a record is shorter than its block");

    let mut block = Vec::with_capacity(HEADER_LEN + text.len());
    block.extend_from_slice(MAGIC);
    block.extend_from_slice(&VERSION.to_le_bytes());
    block.extend_from_slice(&len.to_le_bytes());
    block.extend_from_slice(&generation.to_le_bytes());
    block.extend_from_slice(&checksum(&block, text.as_bytes()).to_le_bytes());
    block.extend_from_slice(text.as_bytes());
    block
}

/// The generation and the text of a sound block; `None` if it is torn, or was never written.
fn parse(bytes: &[u8]) -> Option<(u64, &str)> {
    let (head, rest) = bytes.split_at_checked(HEADER_LEN - 4)?;
    let (sum, text) = rest.split_at_checked(4)?;
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let len = usize::try_from(number(LEN_AT)).ok()?;

    let text = text.get(..len)?;
    let generation = head[GENERATION_AT..].try_into().expect("eight bytes");
    let is_sound = checksum(head, text).to_le_bytes() == sum && number(VERSION_AT) == VERSION;
    let text = std::str::from_utf8(text).ok().filter(|_| is_sound)?;
    Some((u64::from_le_bytes(generation), text))
}

/// The version of a block that a later release has written. Its other fields may differ, so nothing
/// else of it is read, and no checksum tells that it is whole.
fn later_version(bytes: &[u8]) -> Option<u32> {
    let head = bytes.strip_prefix(MAGIC)?;
    let version = u32::from_le_bytes(*head.first_chunk()?);
    (version > VERSION).then_some(version)
}

fn checksum(head: &[u8], text: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(head);
    sum.update(text);
    sum.finalize()
}

/// What errors say if the file cannot be opened.
const OPEN: &str = "open the record";
const MAGIC: &[u8; 8] = b"leaserec";
/// The version of the blocks. Their text has a version of its own.
const VERSION: u32 = 1;
const VERSION_AT: usize = 8;
const LEN_AT: usize = 12;
const GENERATION_AT: usize = 16;
const HEADER_LEN: usize = 28;
const BLOCK_LEN: usize = 32 * 1024;
const _: () = assert!(
    HEADER_LEN + TEXT_MAX <= BLOCK_LEN,
    "a record fits its block"
);
