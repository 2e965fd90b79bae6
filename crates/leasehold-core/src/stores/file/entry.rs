//! One claim in a queue file.
//!
//! ```text
//! 256 bytes, little-endian; a slot of zeros is free:
//! sequence 8 · claim 16 · process 16 · weight 4 · capacity 4 · token 8 · since 8 (ms) · pid 4
//! · host 1+64 · program 1+32 · label 1+64 · reserved tokens 4 · zero 17 · crc32 4
//! ```
//!
//! An entry lies within one page and is written in one call. A process that is killed leaves either
//! the old entry or the new one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::process::ProcessId;
use crate::store::{HOST_MAX, PROGRAM_MAX, claim_id_from_bytes, share_from_parts};
use crate::{Claim, ClaimId, ClaimantInfo, Error, Result, Share, Token};

/// An entry as it is stored in the file, and its slot.
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
        stored.put(SEQUENCE_AT, &sequence.to_le_bytes());
        stored.put(ID_AT, &claim.id.to_bytes());
        stored.put(PROCESS_AT, &process.to_bytes());
        stored.set_share(claim.share);
        stored.set_since(claim.info.since);

        stored.put(PID_AT, &claim.info.pid.to_le_bytes());
        stored.put_text(HOST_AT, &claim.info.host, HOST_MAX);
        stored.put_text(PROGRAM_AT, &claim.info.stored_program(), PROGRAM_MAX);
        stored.put_text(LABEL_AT, &claim.info.label, LABEL_MAX);
        stored.put(RESERVED_AT, &claim.reserved.to_le_bytes());
        stored
    }

    /// Reads the entry of a slot; `None` if the slot is free.
    pub(super) fn read(bytes: &[u8], slot: usize) -> Result<Option<Self>> {
        let bytes: [u8; ENTRY_LEN] = bytes
            .try_into()
            .map_err(|_| Error::damaged(format!("slot {slot} is cut off")))?;
        if bytes == [0; ENTRY_LEN] {
            return Ok(None);
        }

        let stored = Self { bytes, slot };
        let crc = u32::from_le_bytes(stored.field(CRC_AT));
        if crc != crc32fast::hash(&bytes[..CRC_AT]) {
            return Err(Error::damaged(format!("the entry in slot {slot} is torn")));
        }
        if !(1..=SEQUENCE_MAX).contains(&stored.sequence()) {
            return Err(Error::damaged(format!(
                "the entry in slot {slot} has an impossible number"
            )));
        }
        share_from_parts(stored.weight(), stored.capacity())?;
        Ok(Some(stored))
    }

    /// The bytes to write to the file.
    pub(super) fn to_bytes(self) -> [u8; ENTRY_LEN] {
        let mut bytes = self.bytes;
        let crc = crc32fast::hash(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Its number in the order of arrival.
    pub(super) fn sequence(&self) -> u64 {
        u64::from_le_bytes(self.field(SEQUENCE_AT))
    }

    pub(super) fn id(&self) -> ClaimId {
        claim_id_from_bytes(self.field(ID_AT))
    }

    pub(super) fn process(&self) -> ProcessId {
        ProcessId::from_bytes(self.field(PROCESS_AT))
    }

    pub(super) fn share(&self) -> Share {
        share_from_parts(self.weight(), self.capacity())
            .expect("the share was checked when the entry was read or made")
    }

    pub(super) fn token(&self) -> Option<Token> {
        Token::new(u64::from_le_bytes(self.field(TOKEN_AT)))
    }

    /// How many tokens below its own the grant reserves.
    pub(super) fn reserved(&self) -> u32 {
        u32::from_le_bytes(self.field(RESERVED_AT))
    }

    pub(super) fn info(&self) -> ClaimantInfo {
        let since = Duration::from_millis(u64::from_le_bytes(self.field(SINCE_AT)));
        let stored_program = self.text(PROGRAM_AT, PROGRAM_MAX);
        let (program, is_candidate) = ClaimantInfo::from_stored_program(&stored_program);
        ClaimantInfo {
            host: self.text(HOST_AT, HOST_MAX).into(),
            pid: u32::from_le_bytes(self.field(PID_AT)),
            program,
            label: self.text(LABEL_AT, LABEL_MAX),
            is_candidate,
            since: UNIX_EPOCH + since,
        }
    }

    pub(super) fn grant(&mut self, token: Token) {
        self.put(TOKEN_AT, &token.get().to_le_bytes());
        self.set_since(SystemTime::now());
    }

    pub(super) fn set_share(&mut self, share: Share) {
        self.put(WEIGHT_AT, &share.weight().to_le_bytes());
        self.put(CAPACITY_AT, &share.capacity().to_le_bytes());
    }

    fn set_since(&mut self, since: SystemTime) {
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(since.as_millis()).unwrap_or_default();
        self.put(SINCE_AT, &millis.to_le_bytes());
    }

    fn weight(&self) -> u32 {
        u32::from_le_bytes(self.field(WEIGHT_AT))
    }

    fn capacity(&self) -> u32 {
        u32::from_le_bytes(self.field(CAPACITY_AT))
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes a text of at most `max` bytes, with its length before it.
    fn put_text(&mut self, at: usize, text: &str, max: usize) {
        let text = &text.as_bytes()[..text.len().min(max)];
        self.bytes[at] = u8::try_from(text.len()).expect("texts of a claimant are short");
        self.put(at + 1, text);
    }

    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        self.bytes[at..at + N]
            .try_into()
            .expect("every field lies inside the entry")
    }

    fn text(&self, at: usize, max: usize) -> String {
        let len = usize::from(self.bytes[at]).min(max);
        String::from_utf8_lossy(&self.bytes[at + 1..at + 1 + len]).into_owned()
    }
}

/// Refuses a label for which an entry has no room.
pub(super) fn check_label(info: &ClaimantInfo) -> Result<()> {
    let len = info.label.len();
    if len <= LABEL_MAX {
        return Ok(());
    }
    let text = if info.is_candidate {
        "a leader's address"
    } else {
        "a label"
    };
    Err(Error::invalid(format!(
        "{text} in a folder has at most {LABEL_MAX} bytes, because its entries have a fixed \
         length, and this one has {len}"
    )))
}

pub(super) const ENTRY_LEN: usize = 256;

const LABEL_MAX: usize = 64;

/// The largest sequence number that is read, so that the next one does not overflow.
const SEQUENCE_MAX: u64 = 1 << 62;

const SEQUENCE_AT: usize = 0;
const ID_AT: usize = 8;
const PROCESS_AT: usize = 24;
const WEIGHT_AT: usize = 40;
const CAPACITY_AT: usize = 44;
const TOKEN_AT: usize = 48;
const SINCE_AT: usize = 56;
const PID_AT: usize = 64;
const HOST_AT: usize = 68;
const PROGRAM_AT: usize = HOST_AT + 1 + HOST_MAX;
const LABEL_AT: usize = PROGRAM_AT + 1 + PROGRAM_MAX;
const RESERVED_AT: usize = LABEL_AT + 1 + LABEL_MAX;
const CRC_AT: usize = ENTRY_LEN - 4;
