//! The field of a hash that is a holder, and what a key is instead of a lock.

use std::time::SystemTime;

use crate::stores::votes::{parse_info, write_info};
use crate::{Claim, ClaimId, ClaimantInfo, Entry, Error, Share, Standing, Token};

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

/// Reads a field of leasehold or of Redisson. `counter` is the last token of an `RFencedLock`.
pub(super) fn holder(field: &[u8], acquires: &str, counter: Option<Token>) -> Entry {
    own_holder(field).unwrap_or_else(|| external_holder(field, acquires, counter))
}

fn own_holder(field: &[u8]) -> Option<Entry> {
    let text = std::str::from_utf8(field).ok()?;
    let (uuid, rest) = text.split_at_checked(UUID_LEN)?;
    let id = uuid::Uuid::try_parse(uuid).ok()?;
    let (share, info) = parse_info(&rest[rest.find(' ')?..])?;

    let standing = Standing::Held {
        token: token_in(text)?,
    };
    let id = ClaimId::from_bytes(id.into_bytes());
    Some(Entry::new(id, share, standing, info))
}

/// Describes a holder of Redisson. The hash of its field identifies it.
///
/// On an `RLock` the token is a part of the hash too. It is not a fencing token, but it differs
/// from others.
fn external_holder(field: &[u8], acquires: &str, counter: Option<Token>) -> Entry {
    let mut sha = sha1_smol::Sha1::new();
    sha.update(field);
    let bytes = sha.digest().bytes();
    let (id, _) = bytes
        .split_first_chunk::<16>()
        .expect("a digest has twenty bytes");

    let hashed = u64::from(u32::from_be_bytes([id[0], id[1], id[2], id[3]]));
    let hashed = Token::new(hashed.max(1)).expect("it is above zero");
    let standing = Standing::Held {
        token: counter.unwrap_or(hashed),
    };
    let info = ClaimantInfo {
        host: String::new(),
        pid: 0,
        program: "Redisson".to_owned(),
        label: format!("{} ×{acquires}", String::from_utf8_lossy(field)),
        since: SystemTime::UNIX_EPOCH,
    };
    Entry::new(ClaimId::from_bytes(*id), Share::MUTEX, standing, info)
}

/// Returns the error for a key that is not a lock of this type. `what` is its type on the server.
pub(super) fn foreign(what: &str) -> Error {
    match what {
        "readwrite" => Error::mismatch("the name is in use as an RReadWriteLock of Redisson")
            .help("use one kind of lock for a name, or another name"),
        "string" => Error::damaged(
            "the key is a string: a semaphore of Redisson, a lock of another library, or a lock \
             of Redisson 1",
        )
        .help("open the store with the dialect of its owner, or use another name"),
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
    use crate::conformance::support::claim;

    #[test]
    fn field_of_a_claim_round_trips() {
        let claim = claim("a");
        let field = format!("{}:77{}", uuid_text(claim.id), words(&claim));
        let entry = holder(field.as_bytes(), "1", Token::new(90));
        assert_eq!(entry.id, claim.id);
        assert_eq!(entry.token(), Token::new(77));
        assert_eq!(entry.info.pid, std::process::id());
        assert_eq!(token_in(&field), Token::new(77));
    }

    #[test]
    fn holder_of_redisson_is_shown_with_client_and_thread() {
        let field = "285475da-9152-4c83-822a-67ee2f116a79:52";
        let entry = holder(field.as_bytes(), "3", None);
        assert_eq!(entry.info.program, "Redisson");
        assert_eq!(entry.info.label, format!("{field} ×3"));

        let other = holder(b"285475da-9152-4c83-822a-67ee2f116a79:53", "3", None);
        assert_ne!(entry.id, other.id);
        let fenced = holder(field.as_bytes(), "1", Token::new(9));
        assert_eq!(fenced.token(), Token::new(9));
    }
}
