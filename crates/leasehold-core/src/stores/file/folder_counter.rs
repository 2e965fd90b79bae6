//! The token counter of the folder, from which the counters of names take ranges.
//!
//! The files of a free name are removed, and its [counter](super::counter) with them. A name that
//! comes back takes a new range. Every range is above all earlier ranges of all names, so the
//! tokens of a name rise forever.
//!
//! The file `.counter` has the format of a name's counter. In this file, `reserved_up_to` is on the
//! disk before a range below it is used. So the files of names need no sync: after power loss, a
//! name takes a range above everything that was granted before.

use std::sync::Arc;

use rustix::fs::{FlockOperation, OFlags};

use super::counter::{self, Boot, CounterFile, CounterState, TokenRange};
use super::folder::Folder;
use super::folder::location::{Location, OpenFile};
use crate::Result;

/// Whether taking a range may wait for the disk or for another process that takes a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MayWait {
    Yes,
    No,
}

/// Takes a range of tokens above all ranges of the folder, and above `at_least`; `None` if that
/// would wait and may not.
pub(super) fn take_range(
    folder: &Arc<Folder>,
    boot: Boot,
    at_least: u64,
    len: u64,
    may_wait: MayWait,
) -> Result<Option<TokenRange>> {
    let at = Location::counter(folder);
    let operation = match may_wait {
        MayWait::Yes => FlockOperation::LockExclusive,
        MayWait::No => FlockOperation::NonBlockingLockExclusive,
    };
    loop {
        let file = at.open_or_make(OFlags::RDWR, b"", OPEN)?;
        if !file.lock(operation, &at)? {
            return Ok(None);
        }

        if file.status_at(&at)?.is_some() {
            let range = take_locked(&file, &at, boot, at_least, len, may_wait);
            file.unlock();
            return range;
        }
    }
}

/// Raises the counter to a token of a name whose files will be removed.
///
/// The counter is above it already, unless the file `.counter` was deleted.
pub(super) fn raise(folder: &Arc<Folder>, boot: Boot, token: u64) -> Result<()> {
    if token == 0 {
        return Ok(());
    }
    let at = Location::counter(folder);
    let present = match at.open_file(OFlags::RDONLY, OPEN)? {
        Some(file) => counter::read(file.file()),
        None => CounterState::Fresh,
    };

    match present {
        // A spent counter may be in the middle of a reservation, which may take its value back.
        CounterState::Intact(counter) if !counter.is_spent() && counter.last_token >= token => {
            Ok(())
        }
        _ => take_range(folder, boot, token, 0, MayWait::Yes).map(|_| ()),
    }
}

fn take_locked(
    file: &OpenFile,
    at: &Location,
    boot: Boot,
    at_least: u64,
    len: u64,
    may_wait: MayWait,
) -> Result<Option<TokenRange>> {
    let kind = CounterFile {
        path: &|| at.path(),
        kind: "a counter",
        used_for: "the folder",
    };
    let mut counter = kind.counter(&counter::read(file.file()), boot)?;

    // Without room for the tokens, it is reserved next.
    counter.last_token = counter.last_token.max(at_least);
    if counter.boot != boot || counter.is_spent() || !counter.has_room_for(len) {
        if may_wait == MayWait::No {
            return Ok(None);
        }
        // After power loss, the file must exist and must have this value.
        at.sync_parent()
            .map_err(|error| at.io_error(error, "sync the folder of"))?;
        counter.boot = boot;
        counter
            .reserve(file.file())
            .map_err(|error| at.io_error(error, "write"))?;
    }

    let range = counter.take(len, file.file());
    range.map(Some).map_err(|error| at.io_error(error, "write"))
}

/// What errors say if the file cannot be opened.
const OPEN: &str = "open the token counter";
