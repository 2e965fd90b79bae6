//! One claim in a line file.
//!
//! ```text
//! 256 bytes, little-endian; a place of zero is a free slot:
//! place 8 · claim 16 · member 16 · weight 4 · capacity 4 · token 8 · since 8 (ms) · pid 4
//! · host 1+64 · program 1+32 · label 1+64 · zero 21 · crc32 4
//! ```
//! A ticket lies within one page and is written in one go, so a process that is killed leaves it old or new.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::process::ProcessId;
use crate::{Claim, ClaimId, ClaimantInfo, Error, Result, Share, Token};

pub(super) const ENTRY_LEN: usize = 256;
const CRC_AT: usize = ENTRY_LEN - 4;
const INFO_AT: usize = 68;

/// A ticket as it stands in the file, and the slot it stands in.
#[derive(Clone, Copy)]
pub(super) struct StoredClaim {
    bytes: [u8; ENTRY_LEN],
    pub(super) slot: usize,
}

impl StoredClaim {
    pub(super) fn new(claim: &Claim, process: ProcessId, slot: usize, sequence: u64) -> Self {
        let mut stored = Self {
            bytes: [0; ENTRY_LEN],
            slot,
        };
        stored.put(0, &sequence.to_le_bytes());
        stored.put(8, &claim.id.to_bytes());
        stored.put(24, &process.to_bytes());
        stored.set_share(claim.share);
        stored.set_since(claim.info.since);
        stored.put(64, &claim.info.pid.to_le_bytes());
        let mut at = INFO_AT;
        for (text, max) in [
            (&claim.info.host, ClaimantInfo::HOST_MAX),
            (&claim.info.program, ClaimantInfo::PROGRAM_MAX),
            (&claim.info.label, ClaimantInfo::LABEL_MAX),
        ] {
            let text = &text.as_bytes()[..text.len().min(max)];
            stored.bytes[at] = u8::try_from(text.len()).expect("texts of a note are short");
            stored.put(at + 1, text);
            at += 1 + max;
        }
        stored
    }

    /// The ticket in a slot, or `None` if the slot is free.
    pub(super) fn read(bytes: &[u8], slot: usize) -> Result<Option<Self>> {
        let cut = |_| Error::damaged(format!("slot {slot} is cut off"));
        let bytes: [u8; ENTRY_LEN] = bytes.try_into().map_err(cut)?;
        let stored = Self { bytes, slot };
        if stored.sequence() == 0 {
            return Ok(None);
        }
        let crc = u32::from_le_bytes(stored.acquire(CRC_AT));
        if crc != crc32fast::hash(&bytes[..CRC_AT]) {
            return Err(Error::damaged(format!("the ticket in slot {slot} is torn")));
        }
        Share::from_parts(stored.weight(), stored.capacity()).map(|_| Some(stored))
    }

    /// What is written to the file.
    pub(super) fn to_bytes(self) -> [u8; ENTRY_LEN] {
        let mut bytes = self.bytes;
        let crc = crc32fast::hash(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Its number in the order of arrival.
    pub(super) fn sequence(&self) -> u64 {
        u64::from_le_bytes(self.acquire(0))
    }

    pub(super) fn id(&self) -> ClaimId {
        ClaimId::from_bytes(self.acquire(8))
    }

    pub(super) fn process(&self) -> ProcessId {
        ProcessId::from_bytes(self.acquire(24))
    }

    pub(super) fn share(&self) -> Share {
        Share::from_parts(self.weight(), self.capacity()).expect("checked when it was read or made")
    }

    pub(super) fn token(&self) -> Option<Token> {
        Token::new(u64::from_le_bytes(self.acquire(48)))
    }

    pub(super) fn info(&self) -> ClaimantInfo {
        let mut at = INFO_AT;
        let mut text = |max: usize| {
            let len = usize::from(self.bytes[at]).min(max);
            let text = String::from_utf8_lossy(&self.bytes[at + 1..at + 1 + len]).into_owned();
            at += 1 + max;
            text
        };
        let (host, program, label) = (
            text(ClaimantInfo::HOST_MAX),
            text(ClaimantInfo::PROGRAM_MAX),
            text(ClaimantInfo::LABEL_MAX),
        );
        let since = UNIX_EPOCH + Duration::from_millis(u64::from_le_bytes(self.acquire(56)));
        ClaimantInfo {
            host,
            pid: u32::from_le_bytes(self.acquire(64)),
            program,
            label,
            since,
        }
    }

    pub(super) fn grant(&mut self, token: Token) {
        self.put(48, &token.get().to_le_bytes());
        self.set_since(SystemTime::now());
    }

    pub(super) fn set_share(&mut self, share: Share) {
        self.put(40, &share.weight().to_le_bytes());
        self.put(44, &share.capacity().to_le_bytes());
    }

    fn set_since(&mut self, since: SystemTime) {
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.put(
            56,
            &u64::try_from(since.as_millis())
                .unwrap_or_default()
                .to_le_bytes(),
        );
    }

    fn weight(&self) -> u32 {
        u32::from_le_bytes(self.acquire(40))
    }

    fn capacity(&self) -> u32 {
        u32::from_le_bytes(self.acquire(44))
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn acquire<const N: usize>(&self, at: usize) -> [u8; N] {
        self.bytes[at..at + N]
            .try_into()
            .expect("fields lie inside a ticket")
    }
}
