//! The absences of holders that earlier processes of this user have observed, in a file.
//!
//! A client may end the hold of an absent holder once it has observed the absence for the holder's
//! crash grace. A command that does not wait ends before that. It leaves what it has observed for
//! the next one, such as the next start by cron. Both read one clock, which counts from the boot,
//! so the file is of no use after a boot or in another time namespace. A file that is missing,
//! damaged or not this user's own is no sighting: the lock is then granted later.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::store::{ClaimId, Sighting, draw_claim_id};
use leasehold::{Locks, Name};
use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::user_folder;

/// How many sightings are kept, the latest ones.
const SIGHTINGS_MAX: usize = 1_000;
/// The longest file that is read. That many sightings of the longest names fit into it.
const BYTES_MAX: u64 = 1 << 22;
/// How long a sighting is kept: the longest lease, after which the store ends the hold itself.
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    boot: String,
    sightings: Vec<Seen>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Seen {
    /// The store's URL without its password.
    store: String,
    name: String,
    claim: String,
    mark: String,
    grace_ms: u64,
    read_at_ns: u64,
}

/// Lets the store go on with the absences that earlier processes have observed.
pub(crate) fn restore(locks: &Locks, name: &str) {
    let store = locks.store();
    let (Some(store), Ok(name)) = (store.extensions().sightings, Name::parse(name)) else {
        return;
    };
    let seen = Kept::read().sightings.into_iter();
    let of_lock = seen.filter(|seen| seen.is_of(locks.url(), &name));
    let sightings: Vec<Sighting> = of_lock.filter_map(Seen::sighting).collect();
    if !sightings.is_empty() {
        store.remember(&name, sightings);
    }
}

/// Keeps the absences that the store has observed, for a later process.
pub(crate) fn keep(locks: &Locks, name: &str) {
    let store = locks.store();
    let (Some(store), Ok(name)) = (store.extensions().sightings, Name::parse(name)) else {
        return;
    };
    let observed = store.sightings(&name);
    let mut kept = Kept::read();
    let is_of_lock = |seen: &Seen| seen.is_of(locks.url(), &name);
    let had_some = kept.sightings.iter().any(is_of_lock);
    if observed.is_empty() && !had_some {
        return;
    }

    kept.sightings.retain(|seen| !is_of_lock(seen));
    let observed = observed
        .into_iter()
        .map(|sighting| Seen::of(locks.url(), &name, sighting));
    kept.sightings.extend(observed);
    let surplus = kept.sightings.len().saturating_sub(SIGHTINGS_MAX);
    kept.sightings.drain(..surplus);
    if let Err(error) = kept.write() {
        tracing::debug!(%error, "could not keep the absence of a holder");
    }
}

/// Returns how long ago the absence of a claim's client was first read.
pub(crate) fn age(claim: ClaimId) -> Option<Duration> {
    let claim = claim.to_string();
    let kept = Kept::read().sightings.into_iter();
    let seen = kept.rev().find(|seen| seen.claim == claim)?;
    Some(Duration::from_nanos(now().saturating_sub(seen.read_at_ns)))
}

impl Kept {
    /// Reads the sightings of this boot that may still be of use.
    fn read() -> Self {
        let boot = boot().unwrap_or_default();
        let text = path().and_then(|path| read_own(path).ok());
        let kept: Option<Self> = text.and_then(|text| serde_json::from_str(&text).ok());
        let mut sightings = match kept {
            Some(kept) if kept.boot == boot && !boot.is_empty() => kept.sightings,
            _ => Vec::new(),
        };

        let now = now();
        let oldest = now.saturating_sub(u64::try_from(KEPT_FOR.as_nanos()).unwrap_or(u64::MAX));
        sightings.retain(|seen| (oldest..=now).contains(&seen.read_at_ns));
        Self { boot, sightings }
    }

    fn write(&self) -> io::Result<()> {
        let Some(path) = path().filter(|_| !self.boot.is_empty()) else {
            return Ok(());
        };
        if let Some(folder) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }

        // A reader finds either the old content or the new one. Containers that share the folder
        // have processes with the same ids.
        let new = path.with_extension(format!("{}.new", draw_claim_id()));
        let written = write_new(&new, &serde_json::to_vec(self)?);
        let replaced = written.and_then(|()| fs::rename(&new, &path));
        if replaced.is_err() {
            // The first error is reported.
            let _ = fs::remove_file(&new);
        }
        replaced
    }
}

impl Seen {
    fn of(store: &str, name: &Name, sighting: Sighting) -> Self {
        Self {
            store: store.to_owned(),
            name: name.to_string(),
            claim: sighting.claim.to_string(),
            mark: sighting.mark,
            grace_ms: u64::try_from(sighting.grace.as_millis()).unwrap_or(u64::MAX),
            read_at_ns: sighting.read_at,
        }
    }

    fn is_of(&self, store: &str, name: &Name) -> bool {
        self.store == store && self.name == name.as_str()
    }

    fn sighting(self) -> Option<Sighting> {
        Some(Sighting {
            claim: self.claim.parse().ok()?,
            mark: self.mark,
            grace: Duration::from_millis(self.grace_ms),
            read_at: self.read_at_ns,
        })
    }
}

fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    // A umask may have removed a right of the owner.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text)
}

/// Reads a file that no other user can have written.
fn read_own(path: PathBuf) -> io::Result<String> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let file: File = options
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let status = file.metadata()?;
    let is_own = status.uid() == rustix::process::geteuid().as_raw();
    if !status.is_file() || !is_own || status.mode() & 0o077 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }

    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The file of this user.
fn path() -> Option<PathBuf> {
    let folder = user_folder::candidates().next()?;
    Some(folder.join("leasehold-sightings.json"))
}

/// What the clock of this process counts from: the boot, and the offset of the time namespace. The
/// number of a namespace alone may belong to an earlier one.
fn boot() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let offsets = match fs::read_to_string("/proc/self/timens_offsets") {
        // Linux has time namespaces since version 5.6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        offsets => offsets.ok()?,
    };
    let offsets: Vec<&str> = offsets.split_whitespace().collect();
    Some(format!("{} {}", boot.trim(), offsets.join(" ")))
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
