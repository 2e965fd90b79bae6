//! A wish to hold.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::{ClaimantInfo, Error, Lock, Name, Result};

/// A wish to hold a lock, with everything a store must know of it.
///
/// Its id is drawn before the first request, so that every request about it can be repeated safely.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// Which lock.
    pub name: Name,
    /// Which claim; never used twice.
    pub id: ClaimId,
    /// How much of the lock.
    pub share: Share,
    /// How long the store shall keep the claim without hearing of it.
    pub lease: Duration,
    /// Whether its holder keeps renewing it. If not, it lasts for its lease whatever becomes of the holder's connection.
    pub auto_renew: bool,
    /// Who claims, for people.
    pub info: Arc<ClaimantInfo>,
}

impl Claim {
    /// Creates a claim with a new id and the [default lease](Lock::LEASE), which its holder renews.
    #[must_use]
    pub fn new(name: Name, share: Share, info: Arc<ClaimantInfo>) -> Self {
        Self {
            name,
            id: ClaimId::draw(),
            share,
            lease: Lock::LEASE,
            auto_renew: true,
            info,
        }
    }
}

/// The identity of one claim: 128 random bits, drawn before the first request and never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimId([u8; 16]);

impl ClaimId {
    /// A new one.
    #[must_use]
    pub fn draw() -> Self {
        Self(uuid::Uuid::new_v4().into_bytes())
    }

    /// As bytes, for a store to keep.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// From the bytes a store kept.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

/// As it is displayed; digits above nine may be capitals.
impl FromStr for ClaimId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid =
            || Error::invalid(format!("{text:?} is not a claim id: 32 hexadecimal digits"));
        if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(invalid());
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| invalid())?;
        Ok(Self(number.to_be_bytes()))
    }
}

/// What is kept by claim. Ids are random already, so half of one is its hash.
pub(crate) type ById<T> = HashMap<ClaimId, T, BuildHasherDefault<IdHasher>>;

#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(half) = bytes.first_chunk() {
            self.0 = u64::from_ne_bytes(*half);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Hash for ClaimId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How much of a lock a claim takes: `weight` of `capacity`.
///
/// Every primitive is a share: a mutex takes 1 of 1, a semaphore slot 1 (or k) of n, a reader 1 of
/// [`Share::RW_CAPACITY`], a writer all of it. One rule grants them all; see [`admitted`](crate::admitted).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Share {
    weight: u32,
    capacity: u32,
}

impl Share {
    /// The capacity of a reader-writer lock.
    pub const RW_CAPACITY: u32 = 1 << 30;
    /// The largest semaphore.
    pub const SLOTS_MAX: u32 = 1 << 20;

    /// The whole of a mutex.
    pub const MUTEX: Self = Self {
        weight: 1,
        capacity: 1,
    };
    /// A reader's share of a reader-writer lock.
    pub const READER: Self = Self {
        weight: 1,
        capacity: Self::RW_CAPACITY,
    };
    /// A writer's share of a reader-writer lock.
    pub const WRITER: Self = Self {
        weight: Self::RW_CAPACITY,
        capacity: Self::RW_CAPACITY,
    };

    /// `permits` slots of a semaphore that has `slots`.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) unless 1 ≤ `permits` ≤ `slots` ≤ [`SLOTS_MAX`](Self::SLOTS_MAX).
    pub fn slots(permits: u32, slots: u32) -> Result<Self> {
        if permits == 0 || permits > slots || slots > Self::SLOTS_MAX {
            let max = Self::SLOTS_MAX;
            return Err(Error::invalid(format!(
                "cannot take {permits} of {slots} slots: a semaphore has 1 to {max} slots, and a claim takes at least one and at most all"
            )));
        }
        Ok(Self {
            weight: permits,
            capacity: slots,
        })
    }

    /// A share as a store kept it.
    ///
    /// # Errors
    /// [`is_damaged`](Error::is_damaged) if no primitive has such a share.
    pub fn from_parts(weight: u32, capacity: u32) -> Result<Self> {
        if weight == 0 || weight > capacity || capacity > Self::RW_CAPACITY {
            return Err(Error::damaged(format!(
                "a share of {weight} of {capacity} cannot be"
            )));
        }
        Ok(Self { weight, capacity })
    }

    /// How much is taken.
    #[must_use]
    pub fn weight(self) -> u32 {
        self.weight
    }

    /// How much there is.
    #[must_use]
    pub fn capacity(self) -> u32 {
        self.capacity
    }

    /// Weight and capacity as they count in a line: a mutex and the writer of a reader-writer lock are the same, so that
    /// they exclude each other on one name.
    #[must_use]
    pub fn units(self) -> (u32, u32) {
        if self.capacity == 1 {
            (Self::RW_CAPACITY, Self::RW_CAPACITY)
        } else {
            (self.weight, self.capacity)
        }
    }

    /// Refuses to take more than `present`, a share the claim has already; it may keep less.
    ///
    /// # Errors
    /// [`is_mismatch`](Error::is_mismatch) as [`check_same_kind`](Self::check_same_kind), [`is_invalid`](Error::is_invalid) if it is
    /// more.
    pub fn check_shrinks_from(self, present: Self) -> Result<()> {
        self.check_same_kind(present)?;
        if self.units().0 <= present.units().0 {
            return Ok(());
        }
        Err(Error::invalid(
            "a claim can give back a part of its share, not take more",
        ))
    }

    /// Whether nobody else can hold beside it.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.weight == self.capacity
    }

    /// The kind of lock this is a share of, in words.
    #[must_use]
    pub fn kind(self) -> String {
        match self.capacity {
            1 => "a mutex".to_owned(),
            Self::RW_CAPACITY => "a reader-writer lock".to_owned(),
            slots => format!("a semaphore of {slots} slots"),
        }
    }

    /// Refuses to mix kinds or capacities on one name. Mutexes and reader-writer locks go together.
    ///
    /// # Errors
    /// [`is_mismatch`](Error::is_mismatch) if `present`, a share of somebody already in the line, is of another capacity.
    pub fn check_same_kind(self, present: Self) -> Result<()> {
        if self.units().1 == present.units().1 {
            return Ok(());
        }
        let (asked, used) = (self.kind(), present.kind());
        Err(Error::mismatch(format!(
            "asked for {asked}, but the name is in use as {used}"
        ))
        .help("use one kind and size for a name, or another name"))
    }
}

/// `weight of capacity`, as people say it.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::MUTEX | Self::WRITER => f.write_str("exclusive"),
            Self::READER => f.write_str("shared"),
            Self { weight, capacity } => write!(f, "{weight} of {capacity}"),
        }
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.weight, self.capacity)
    }
}
