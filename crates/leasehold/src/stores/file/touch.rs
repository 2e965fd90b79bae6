//! Times of files, by which cleaners of temporary folders choose what to delete.

use std::os::fd::AsFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, fstat, futimens};

/// Cleaners count in hours and days, so a file that is younger than this is left as it is.
const YOUNG: Duration = Duration::from_secs(60);

/// Sets the times of a file that is in use to now, unless they are recent.
pub(super) fn touch(file: impl AsFd) {
    let Ok(what) = fstat(&file) else { return };
    let oldest = what.st_mtime.min(what.st_atime).try_into().unwrap_or(0);
    let age = SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_secs(oldest));
    if age.is_ok_and(|age| age > YOUNG) {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        // Only the owner of a file may do this, or who may write it; the lock is held all the same.
        let _ = futimens(
            file,
            &Timestamps {
                last_access: now,
                last_modification: now,
            },
        );
    }
}
