//! The field of a hash that is a holder, what the server knows of a lock, and what a key is instead
//! of one.

use std::time::Duration;

use crate::votes::{hashed, parse_info, write_info};
use leasehold_core::store::{
    Claim, Share, Standing, claim_id_from_bytes, foreign_claimant, replies,
};
use leasehold_core::{Entry, Error, LockState, Name, Result, Token};

/// The length of a client id of Redisson.
const UUID_LEN: usize = 36;

/// Returns the words of a claim's field after its token.
pub(super) fn words(claim: &Claim) -> String {
    let mut text = String::with_capacity(128);
    write_info(&mut text, claim);
    text
}

/// Returns the token in a field of leasehold.
pub(super) fn token_in(field: &str) -> Option<Token> {
    let rest = field.get(UUID_LEN..)?.strip_prefix(':')?;
    rest.split(' ').next()?.parse().ok()
}

/// A holder as the server has it.
pub(super) struct RawHolder {
    pub(super) field: Vec<u8>,
    /// How often it has acquired the lock.
    pub(super) acquires: String,
    /// How long its lease lasts; `None` without an end.
    pub(super) left: Option<Duration>,
    /// `M`utex, `R`eader, `W`riter, `P`ermit, or `Q` for a waiter of an `RFairLock`.
    pub(super) kind: String,
}

impl RawHolder {
    /// Reads the words of the scripts: four for each holder.
    pub(super) fn parse_all(words: &[Vec<u8>]) -> Vec<Self> {
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        let raw = |words: &[Vec<u8>]| Self {
            field: words[0].clone(),
            acquires: text(&words[1]),
            left: text(&words[2]).parse().ok().map(Duration::from_millis),
            kind: text(&words[3]),
        };
        words.chunks_exact(4).map(raw).collect()
    }
}

/// What the server knows of one lock.
pub(super) struct InspectReply {
    /// The last token of an `RFencedLock`.
    counter: Option<Token>,
    /// The size of a semaphore.
    slots: u32,
    holders: Vec<RawHolder>,
}

impl InspectReply {
    /// Creates what a reply to a claim that was refused says.
    pub(super) fn of_holders(holders: Vec<RawHolder>, slots: u32) -> Self {
        Self {
            counter: None,
            slots,
            holders,
        }
    }

    /// Returns the holders, of leasehold or of Redisson.
    pub(super) fn lock_state(&self, name: &Name) -> LockState {
        let mut lock_state = replies::lock_state(name.clone());
        for raw in &self.holders {
            let mut entry = holder(raw, self.counter, self.slots);
            if raw.kind == "Q" {
                let ahead = u32::try_from(lock_state.entries.len()).unwrap_or(u32::MAX);
                entry.standing = Standing::Queued { ahead };
            }
            add_entry(&mut lock_state, entry);
        }
        let tokens = lock_state.holders().filter_map(Entry::token);
        lock_state.last_token = self.counter.or(tokens.max());
        lock_state
    }

    /// Reads the words of a reply. Returns `None` if they are malformed.
    pub(super) fn parse(words: &[Vec<u8>]) -> Option<Result<Self>> {
        let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
        let [other, counter, slots, holders @ ..] = words else {
            return None;
        };
        if !other.is_empty() {
            return Some(Err(foreign(&text(other))));
        }

        Some(Ok(Self {
            counter: text(counter).parse().ok().and_then(Token::new),
            slots: text(slots).parse().unwrap_or(0),
            holders: RawHolder::parse_all(holders),
        }))
    }
}

/// Adds a holder or a waiter, or one more permit of a holder.
fn add_entry(lock_state: &mut LockState, entry: Entry) {
    let same = lock_state.entries.iter_mut().find(|one| one.id == entry.id);
    let Some(same) = same else {
        lock_state.entries.push(entry);
        return;
    };
    let more = Share::slots(same.share.weight() + 1, same.share.capacity());
    same.share = more.unwrap_or(same.share);
}

/// Reads a field of leasehold or of Redisson.
///
/// `counter` is the last token of an `RFencedLock`, and `slots` the size of a semaphore.
fn holder(raw: &RawHolder, counter: Option<Token>, slots: u32) -> Entry {
    let share = match &*raw.kind {
        "R" => Share::READER,
        "W" => Share::WRITER,
        "P" => Share::slots(1, slots).unwrap_or(Share::MUTEX),
        _ => Share::MUTEX,
    };
    let own = own_holder(&raw.field, share);
    let mut entry = own.unwrap_or_else(|| external_holder(raw, share, counter));
    entry.lease_left = raw.left;
    entry
}

fn own_holder(field: &[u8], share: Share) -> Option<Entry> {
    let text = std::str::from_utf8(field).ok()?.split('#').next()?;
    let (uuid, rest) = text.split_at_checked(UUID_LEN)?;
    let id = uuid::Uuid::try_parse(uuid).ok()?;
    let (requested, info) = parse_info(&rest[rest.find(' ')?..])?;

    let standing = Standing::Held {
        token: token_in(text)?,
    };
    let share = if share.is_whole() { requested } else { share };
    let id = claim_id_from_bytes(id.into_bytes());
    Some(replies::entry(id, share, standing, info))
}

/// Describes a holder of Redisson. The hash of its field identifies it, on an `RLock` with a token
/// too.
fn external_holder(raw: &RawHolder, share: Share, counter: Option<Token>) -> Entry {
    let (id, token) = hashed(&raw.field);
    let standing = Standing::Held {
        token: counter.unwrap_or(token),
    };
    let info = foreign_claimant("Redisson", label(raw));
    replies::entry(id, share, standing, info)
}

/// Returns a permit as Redisson shows it, or the client, the thread and the number of acquires.
fn label(raw: &RawHolder) -> String {
    if raw.kind == "Q" {
        return String::from_utf8_lossy(&raw.field).into_owned();
    }
    if raw.kind == "P" {
        let digits = raw.field.iter().map(|byte| format!("{byte:02x}"));
        return format!("permit {}", digits.collect::<String>());
    }
    format!("{} ×{}", String::from_utf8_lossy(&raw.field), raw.acquires)
}

/// Returns the error for a key that is not a lock of this type. `what` is its type on the server.
pub(super) fn foreign(what: &str) -> Error {
    match what {
        "readwrite" => Error::mismatch("the name is in use as an RReadWriteLock of Redisson")
            .help("open the store with lock=rw, or use another name"),
        "lock" => Error::mismatch("the name is in use as an RLock of Redisson")
            .help("open the store with lock=plain, or use another name"),
        "fair" => Error::mismatch("the name is in use as an RFairLock of Redisson")
            .help("an RFairLock is not shared: use another name, or getLock in Java"),
        "string" => Error::damaged(
            "the key is a string: a semaphore of Redisson, a lock of another library, or a lock \
             of Redisson 1",
        )
        .help(
            "open the store with lock=semaphore or the dialect of its owner, or use another name",
        ),
        "text" => Error::damaged("the key is a string without a number of permits")
            .help("find out who wrote it; delete it, or use another name"),
        "hash" => Error::damaged("the key is a hash without a holder of Redisson's format")
            .help("find out who wrote it; delete it, or use another name"),
        other => Error::damaged(format!(
            "the key is of the type {other}, and no lock of Redisson"
        ))
        .help("find out who wrote it; delete it, or use another name"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::uuid_text;
    use super::*;
    use crate::test_inputs::altered;
    use leasehold_conformance::support::claim;
    use proptest::prelude::*;

    fn raw(field: &str, kind: &str) -> RawHolder {
        RawHolder {
            field: field.into(),
            acquires: "3".into(),
            left: None,
            kind: kind.into(),
        }
    }

    #[test]
    fn field_of_a_claim_round_trips() {
        let claim = claim("a");
        let field = format!("{}:77{}", uuid_text(claim.id), words(&claim));
        let entry = holder(&raw(&field, "M"), Token::new(90), 0);
        assert_eq!(entry.id, claim.id);
        assert_eq!(entry.token(), Token::new(77));
        assert_eq!(entry.info.pid, std::process::id());
        assert_eq!(token_in(&field), Token::new(77));
    }

    #[test]
    fn kind_of_a_field_is_that_of_its_hold() {
        let field = "285475da-9152-4c83-822a-67ee2f116a79:52";
        for (kind, share) in [
            ("M", Share::MUTEX),
            ("R", Share::READER),
            ("W", Share::WRITER),
            ("P", Share::slots(1, 3).expect("in range")),
        ] {
            assert_eq!(holder(&raw(field, kind), None, 3).share, share, "{kind}");
        }
    }

    /// Each permit of a holder has a member of its own.
    #[test]
    fn permits_of_one_holder_are_one_entry() {
        let mut lock_state = replies::lock_state(claim("a").name);
        for field in ["one", "two", "one", "one"] {
            add_entry(&mut lock_state, holder(&raw(field, "P"), None, 9));
        }
        let permits = lock_state.entries.iter().map(|entry| entry.share.weight());
        assert_eq!(permits.collect::<Vec<_>>(), [3, 1]);
    }

    /// Shows G-52.
    #[test]
    fn holder_of_redisson_is_shown_with_client_and_thread() {
        let field = "285475da-9152-4c83-822a-67ee2f116a79:52";
        let entry = holder(&raw(field, "M"), None, 0);
        assert_eq!(&*entry.info.program, "Redisson");
        assert_eq!(entry.info.label, format!("{field} ×3"));

        let other = holder(
            &raw("285475da-9152-4c83-822a-67ee2f116a79:53", "M"),
            None,
            0,
        );
        assert_ne!(entry.id, other.id);
        let fenced = holder(&raw(field, "M"), Token::new(9), 0);
        assert_eq!(fenced.token(), Token::new(9));
    }

    /// Shows G-55.
    #[test]
    fn permit_of_redisson_is_shown_as_redisson_names_it() {
        let entry = holder(&raw("0123456789abcdef", "P"), None, 3);
        assert_eq!(entry.info.label, "permit 30313233343536373839616263646566");
        assert_eq!(entry.share, Share::slots(1, 3).expect("one of three"));
    }

    proptest! {
        #[test]
        fn any_field_is_shown(
            field in altered(&[
                "285475da-9152-4c83-822a-67ee2f116a79:77 M 30000 1763731234567 42 node worker label",
                "285475da-9152-4c83-822a-67ee2f116a79:52",
                "type: readwrite",
            ]),
            kind in prop::sample::select(vec!["M", "R", "P"]),
            counter in any::<Option<u64>>(),
        ) {
            let text = String::from_utf8_lossy(&field).into_owned();
            let _token = token_in(&text);
            let _error = foreign(&text);

            let raw = RawHolder {
                field,
                acquires: "1".to_owned(),
                left: None,
                kind: kind.to_owned(),
            };
            let _entry = holder(&raw, counter.and_then(Token::new), 5);
        }
    }
}
