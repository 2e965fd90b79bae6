//! The token counter of the folder, from which the counters of names take ranges.
//!
//! The files of a free name are removed, and its [counter](super::counter) with them. A name that
//! comes back takes a new range. Every range is above all earlier ranges of all names, so the
//! tokens of a name rise forever.
//!
//! The file `.counter` has the format of a name's counter. In this file, `reserved_up_to` is on the
//! disk before a range below it is used. So the files of names need no sync: after power loss, a
//! name takes a range above everything that was granted before.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{FileType, FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::counter::{Boot, COUNTER_LEN, CounterState, TokenCounter, TokenRange};
use super::folder::location::Location;
use super::folder::object::OpenError;
use super::folder::{Folder, is_at, open_error, status_of};
use crate::local_fs::io_error;
use crate::{Error, Result};

/// Whether taking a range may wait for the disk or for another process that takes a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MayWait {
    Yes,
    No,
}

/// Takes a range of tokens above all ranges of the folder, and above `at_least`; `None` if that
/// would wait and may not.
pub(super) fn take_range(
    folder: &Folder,
    boot: Boot,
    at_least: u64,
    len: u64,
    may_wait: MayWait,
) -> Result<Option<TokenRange>> {
    let at = folder.counter_path();
    loop {
        let file = File::from(folder.open_or_make_counter(&at, OFlags::RDWR)?);
        if !lock(&file, &at, may_wait)? {
            return Ok(None);
        }

        if is_at(&status_of(&file, &at)?, &at)? {
            let range = take_locked(&file, &at, boot, at_least, len, may_wait);
            // If unlocking fails, closing is all that is left to do.
            let _ = flock(&file, FlockOperation::Unlock);
            return range;
        }
    }
}

/// Raises the counter to a token of a name whose files will be removed.
///
/// The counter is above it already, unless the file `.counter` was deleted.
pub(super) fn raise(folder: &Folder, boot: Boot, token: u64) -> Result<()> {
    if token == 0 {
        return Ok(());
    }
    let at = folder.counter_path();
    let present = match at.open(FileType::RegularFile, OFlags::RDONLY) {
        Ok(file) => read(&File::from(file)),
        Err(OpenError::Kernel(Errno::NOENT)) => CounterState::Fresh,
        Err(error) => return Err(open_error(error, "open the token counter", &at)),
    };

    match present {
        // A spent counter may be in the middle of a reservation, which may take its value back.
        CounterState::Intact(counter) if !counter.is_spent() && counter.last_token() >= token => {
            Ok(())
        }
        _ => take_range(folder, boot, token, 0, MayWait::Yes).map(|_| ()),
    }
}

fn take_locked(
    file: &File,
    at: &Location,
    boot: Boot,
    at_least: u64,
    len: u64,
    may_wait: MayWait,
) -> Result<Option<TokenRange>> {
    let mut counter = stored(file, at, boot)?;
    let failed = |error| io_error(error, "write", &at.path());

    counter.raise(at_least);
    if counter.boot() != boot || counter.is_spent() || !counter.has_room_for(len) {
        if may_wait == MayWait::No {
            return Ok(None);
        }
        // After power loss, the file must exist and must have this value.
        at.sync_parent()
            .map_err(|error| io_error(error, "sync the folder of", &at.path()))?;
        counter.move_to(boot);
        counter.reserve(file).map_err(failed)?;
    }
    counter.take(len, file).map(Some).map_err(failed)
}

/// The counter in the file, restarted if power loss may have torn it.
fn stored(file: &File, at: &Location, boot: Boot) -> Result<TokenCounter> {
    let path = at.path();
    let shown = path.display();
    match read(file) {
        CounterState::Fresh => Ok(TokenCounter::fresh(boot)),
        CounterState::Intact(counter) if counter.boot() == boot => Ok(counter),
        CounterState::Intact(counter) | CounterState::OneBlockLost(counter) => {
            Ok(counter.restarted())
        }
        CounterState::Newer(version) => {
            let message =
                format!("{shown} has version {version} of the format, newer than this program");
            Err(Error::unsupported(message)
                .help("use the newer leasehold everywhere on this machine"))
        }
        CounterState::Corrupt => Err(Error::damaged(format!("the counter in {shown} is torn"))
            .help(format!(
                "stop every user of the folder, then remove {shown}: tokens continue from the clock"
            ))),
        CounterState::Foreign => {
            let message = format!("{shown} is not a counter of leasehold");
            Err(Error::damaged(message).help("move it away, or choose another folder"))
        }
    }
}

/// Whether leasehold has written a regular file as a token counter.
pub(super) fn is_counter(file: &File) -> bool {
    !matches!(read(file), CounterState::Fresh | CounterState::Foreign)
}

fn read(file: &File) -> CounterState {
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

/// Locks the file; returns whether it is locked.
fn lock(file: &File, at: &Location, may_wait: MayWait) -> Result<bool> {
    let operation = match may_wait {
        MayWait::Yes => FlockOperation::LockExclusive,
        MayWait::No => FlockOperation::NonBlockingLockExclusive,
    };
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(io_error(error, "lock", &at.path())),
        }
    }
}
