//! A request for a lock: its identity and its share.

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::runtime::{fork, simulation};
use crate::{ClaimantInfo, Entry, Error, Name, Result};

/// A request to hold a lock, with everything that a store must know about it.
///
/// Its id is drawn before the first request, so that every request about it can be repeated.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// The name of the lock.
    pub name: Name,
    /// The identity of the claim.
    pub id: ClaimId,
    /// The part of the lock's capacity that the claim takes.
    pub share: Share,
    /// How long the store keeps the claim after its last renewal.
    pub lease: Duration,
    /// Whether the holder renews the claim.
    ///
    /// A claim without renewal lasts for its lease, even if its holder's connection breaks.
    pub auto_renew: bool,
    /// How many tokens below its own the grant reserves, for passes inside the process.
    ///
    /// The token of the grant is larger than every earlier one by more than this number. A store
    /// does so in the atomic step that grants, or its [`Guarantees`](crate::Guarantees) have no
    /// `cohorts`. It is 0 for a claim without a [cohort](crate::Lock::cohort).
    pub reserved: u32,
    /// Whether a request to leave comes from the watchdog of a run that was killed.
    #[doc(hidden)]
    pub by_watchdog: bool,
    /// The process behind the claim, in readable form.
    pub info: Arc<ClaimantInfo>,
}

impl Claim {
    /// The default lease: 30 seconds.
    pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

    /// Creates a claim with a new id and the default lease, which its holder renews.
    #[must_use]
    pub fn new(name: Name, share: Share, info: Arc<ClaimantInfo>) -> Self {
        Self {
            name,
            id: next_claim_id(),
            share,
            lease: Self::DEFAULT_LEASE,
            auto_renew: true,
            reserved: 0,
            by_watchdog: false,
            info,
        }
    }

    /// Returns the claim with which an entry can be removed from its queue.
    pub(crate) fn of_entry(name: Name, entry: &Entry) -> Self {
        let mut claim = Self::new(name, entry.share, Arc::new(entry.info.clone()));
        claim.id = entry.id;
        claim
    }
}

/// The identity of one claim: 128 random bits that are never used twice.
///
/// The mutex of a [numbered](crate::Lock::numbered) slot shares half of them with the claim of its
/// semaphore.
///
/// ```
/// let text = "6f1c2a4e9b0d4c5f8a7e3d2b1c0f9e8d";
/// let id: leasehold::ClaimId = text.parse()?;
/// assert_eq!(id.to_string(), text);
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId([u8; 16]);

impl ClaimId {
    /// Returns the bytes of the id, which its displayed form writes in hexadecimal.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

/// Draws the id of a new claim.
#[must_use]
pub fn draw_claim_id() -> ClaimId {
    ClaimId(simulation::draw_id().unwrap_or_else(|| uuid::Uuid::new_v4().into_bytes()))
}

/// Draws the id of a new claim, from random bytes that one system call has fetched for many ids.
///
/// A fork has the bytes of its parent too. So bytes are kept only once the background thread has
/// started: from then on, the engine refuses every call of a fork.
fn next_claim_id() -> ClaimId {
    if !fork::is_thread_started() || simulation::is_active() {
        return draw_claim_id();
    }

    let id = RANDOM.with_borrow_mut(|random| {
        if random.is_empty() {
            let mut bytes = [0; IDS_AT_ONCE * ID_LEN];
            getrandom::fill(&mut bytes).expect("the system has random bytes");
            random.extend(bytes.as_chunks::<ID_LEN>().0);
        }
        random.pop().expect("it has just been filled")
    });
    ClaimId(
        uuid::Builder::from_random_bytes(id)
            .into_uuid()
            .into_bytes(),
    )
}

thread_local! {
    /// Random bytes for the next claims of this thread.
    static RANDOM: RefCell<Vec<[u8; ID_LEN]>> = const { RefCell::new(Vec::new()) };
}

const ID_LEN: usize = 16;
const IDS_AT_ONCE: usize = 64;

/// Draws the id of a claim that is a part of another one. Its second half is that of the other id.
pub(crate) fn draw_part_of(whole: ClaimId) -> ClaimId {
    let mut part = draw_claim_id();
    part.0[8..].copy_from_slice(&whole.0[8..]);
    part
}

/// Returns whether the engine has drawn the first id for a part of the claim with the second one.
///
/// Users choose names, labels and programs, and no ids. So only the engine makes such a pair.
#[must_use]
pub fn is_part_of(part: ClaimId, whole: ClaimId) -> bool {
    part.0[8..] == whole.0[8..]
}

/// Creates an id from the bytes that a store kept.
#[must_use]
pub fn claim_id_from_bytes(bytes: [u8; 16]) -> ClaimId {
    ClaimId(bytes)
}

/// Parses the displayed form; capital digits are allowed.
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

/// Writes 32 hexadecimal digits.
impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The part of a lock's capacity that a claim takes: a weight and a capacity.
///
/// Every kind of lock has a capacity. A mutex claim takes 1 of 1, and a semaphore claim 1 (or k) of
/// n. A reader takes 1 of [`Share::RW_CAPACITY`], and a writer all of it. One rule grants them all:
/// [`admitted`](crate::store::admitted).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// let guard = locks.semaphore("gpu", 4).permits(3).acquire().await?;
/// let lock_state = locks.inspect("gpu").await?;
/// let share = lock_state.holders().next().expect("it is held").share;
/// assert_eq!((share.weight(), share.capacity()), (3, 4));
/// # drop(guard);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Share {
    weight: u32,
    capacity: u32,
}

impl Share {
    /// The capacity of a reader-writer lock.
    pub const RW_CAPACITY: u32 = 1 << 30;
    /// The capacity of the largest semaphore.
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

    /// Creates the share of `permits` slots of a semaphore that has `slots`.
    ///
    /// ```
    /// use leasehold::Share;
    /// assert_eq!(Share::slots(3, 4)?.to_string(), "3 of 4");
    /// assert!(Share::slots(5, 4).unwrap_err().is_invalid());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) unless 1 ≤ `permits` ≤ `slots` ≤
    /// [`SLOTS_MAX`](Self::SLOTS_MAX).
    pub fn slots(permits: u32, slots: u32) -> Result<Self> {
        if permits == 0 || permits > slots || slots > Self::SLOTS_MAX {
            let max = Self::SLOTS_MAX;
            return Err(Error::invalid(format!(
                "cannot take {permits} of {slots} slots: \
                 a semaphore has 1 to {max} slots, and a claim takes one, some or all of them"
            )));
        }
        Ok(Self {
            weight: permits,
            capacity: slots,
        })
    }

    /// Returns how much of the capacity the claim takes.
    #[must_use]
    pub fn weight(self) -> u32 {
        self.weight
    }

    /// Returns the capacity of the lock.
    #[must_use]
    pub fn capacity(self) -> u32 {
        self.capacity
    }

    /// Returns whether the claim excludes all others.
    ///
    /// ```
    /// use leasehold::Share;
    /// assert!(Share::WRITER.is_whole() && !Share::READER.is_whole());
    /// ```
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.weight == self.capacity
    }

    /// Returns the kind of lock, in words.
    ///
    /// ```
    /// assert_eq!(leasehold::Share::MUTEX.kind(), "a mutex");
    /// ```
    #[must_use]
    pub fn kind(self) -> String {
        match self.capacity {
            1 => "a mutex".to_owned(),
            Self::RW_CAPACITY => "a reader-writer lock".to_owned(),
            slots => format!("a semaphore of {slots} slots"),
        }
    }
}

/// Creates a share from the numbers that a store kept.
///
/// # Errors
/// [`is_damaged`](Error::is_damaged) if no kind of lock has such a share.
pub fn share_from_parts(weight: u32, capacity: u32) -> Result<Share> {
    if weight == 0 || weight > capacity || capacity > Share::RW_CAPACITY {
        return Err(Error::damaged(format!(
            "a share of {weight} of {capacity} is impossible"
        )));
    }
    Ok(Share { weight, capacity })
}

/// Returns weight and capacity as the grant rule counts them.
///
/// A mutex counts as the writer of a reader-writer lock, so that they exclude each other on one
/// name.
#[must_use]
pub fn units(share: Share) -> (u32, u32) {
    if share.capacity == 1 {
        (Share::RW_CAPACITY, Share::RW_CAPACITY)
    } else {
        (share.weight, share.capacity)
    }
}

/// Checks that a claim that has the share `present` takes no more with `requested`.
///
/// # Errors
/// As [`check_same_kind`], and [`is_invalid`](Error::is_invalid) if it takes more.
pub fn check_shrinks(requested: Share, present: Share) -> Result<()> {
    check_same_kind(requested, present)?;

    if units(requested).0 > units(present).0 {
        return Err(Error::invalid(
            "a claim can give back a part of its share, but cannot take more",
        ));
    }
    Ok(())
}

/// Checks that two claims of one name are of one kind and capacity.
///
/// Mutexes and reader-writer locks may share a name.
///
/// # Errors
/// [`is_mismatch`](Error::is_mismatch) if `present`, the share of a claim in the queue, has another
/// capacity.
pub fn check_same_kind(requested: Share, present: Share) -> Result<()> {
    if units(requested).1 == units(present).1 {
        return Ok(());
    }

    let requested = requested.kind();
    let used = present.kind();
    let error = Error::mismatch(format!(
        "the claim is for {requested}, but the name is in use as {used}"
    ));
    Err(error.help("use one kind and size for a name, or another name"))
}

/// Writes the share in readable form: `exclusive`, `shared` or `weight of capacity`.
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
