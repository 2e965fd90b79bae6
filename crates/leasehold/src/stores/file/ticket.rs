//! One claim in a line file.
//!
//! ```text
//! 256 bytes, little-endian; a place of zero is a free slot:
//! place 8 · claim 16 · member 16 · weight 4 · capacity 4 · token 8 · since 8 (ms) · pid 4
//! · host 1+64 · program 1+32 · label 1+64 · zero 21 · crc32 4
//! ```
//! A ticket lies within one page and is written in one go, so a process that is killed leaves it old or new.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::member::MemberId;
use crate::{Claim, ClaimId, Error, Note, Result, Share, Token};

pub(super) const TICKET_LEN: usize = 256;
const CRC_AT: usize = TICKET_LEN - 4;
const NOTE_AT: usize = 68;

/// A ticket as it stands in the file, and the slot it stands in.
#[derive(Clone, Copy)]
pub(super) struct Ticket {
    bytes: [u8; TICKET_LEN],
    pub(super) slot: usize,
}

impl Ticket {
    pub(super) fn new(claim: &Claim, member: MemberId, slot: usize, place: u64) -> Self {
        let mut ticket = Self { bytes: [0; TICKET_LEN], slot };
        ticket.put(0, &place.to_le_bytes());
        ticket.put(8, &claim.id.to_bytes());
        ticket.put(24, &member.to_bytes());
        ticket.set_share(claim.share);
        ticket.set_since(claim.note.since);
        ticket.put(64, &claim.note.pid.to_le_bytes());
        let mut at = NOTE_AT;
        for (text, max) in [
            (&claim.note.host, Note::HOST_MAX),
            (&claim.note.program, Note::PROGRAM_MAX),
            (&claim.note.label, Note::LABEL_MAX),
        ] {
            let text = &text.as_bytes()[..text.len().min(max)];
            ticket.bytes[at] = u8::try_from(text.len()).expect("texts of a note are short");
            ticket.put(at + 1, text);
            at += 1 + max;
        }
        ticket
    }

    /// The ticket in a slot, or `None` if the slot is free.
    pub(super) fn read(bytes: &[u8], slot: usize) -> Result<Option<Self>> {
        let cut = |_| Error::damaged(format!("slot {slot} is cut off"));
        let bytes: [u8; TICKET_LEN] = bytes.try_into().map_err(cut)?;
        let ticket = Self { bytes, slot };
        if ticket.place() == 0 {
            return Ok(None);
        }
        let crc = u32::from_le_bytes(ticket.take(CRC_AT));
        if crc != crc32fast::hash(&bytes[..CRC_AT]) {
            return Err(Error::damaged(format!("the ticket in slot {slot} is torn")));
        }
        Share::from_parts(ticket.weight(), ticket.capacity()).map(|_| Some(ticket))
    }

    /// What is written to the file.
    pub(super) fn to_bytes(self) -> [u8; TICKET_LEN] {
        let mut bytes = self.bytes;
        let crc = crc32fast::hash(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Its number in the order of arrival.
    pub(super) fn place(&self) -> u64 {
        u64::from_le_bytes(self.take(0))
    }

    pub(super) fn id(&self) -> ClaimId {
        ClaimId::from_bytes(self.take(8))
    }

    pub(super) fn member(&self) -> MemberId {
        MemberId::from_bytes(self.take(24))
    }

    pub(super) fn share(&self) -> Share {
        Share::from_parts(self.weight(), self.capacity()).expect("checked when it was read or made")
    }

    pub(super) fn token(&self) -> Option<Token> {
        Token::new(u64::from_le_bytes(self.take(48)))
    }

    pub(super) fn note(&self) -> Note {
        let mut at = NOTE_AT;
        let mut text = |max: usize| {
            let len = usize::from(self.bytes[at]).min(max);
            let text = String::from_utf8_lossy(&self.bytes[at + 1..at + 1 + len]).into_owned();
            at += 1 + max;
            text
        };
        let (host, program, label) = (text(Note::HOST_MAX), text(Note::PROGRAM_MAX), text(Note::LABEL_MAX));
        let since = UNIX_EPOCH + Duration::from_millis(u64::from_le_bytes(self.take(56)));
        Note { host, pid: u32::from_le_bytes(self.take(64)), program, label, since }
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
        self.put(56, &u64::try_from(since.as_millis()).unwrap_or_default().to_le_bytes());
    }

    fn weight(&self) -> u32 {
        u32::from_le_bytes(self.take(40))
    }

    fn capacity(&self) -> u32 {
        u32::from_le_bytes(self.take(44))
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn take<const N: usize>(&self, at: usize) -> [u8; N] {
        self.bytes[at..at + N].try_into().expect("fields lie inside a ticket")
    }
}
