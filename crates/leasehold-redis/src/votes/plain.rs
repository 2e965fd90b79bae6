//! The lock that most articles and libraries describe for one Redis server: `SET NX PX` with a
//! random value.
//!
//! The name of a lock is its key, and the key expires with the lease. The server keeps no queue and
//! no history. So a waiter polls, and a server that loses a key has freed the lock.
//! `votes/format/single_key.rs` is the format.

use std::time::Duration;

use super::VotingStore;
use super::format::SingleKey;
use super::open::VotingConfig;
use super::quarantine::MasterSettings;
use crate::builder::StoreBuilder;
use crate::client;
use crate::client::Address;
use crate::client::groups::{DATABASE, DIALECT, PASSWORD, TLS, TLS_NAME, TOKENS};
use crate::examination::Kind;
use leasehold_core::Result;
use leasehold_core::internal::{UrlForm, with_setting};

/// Locks on a Redis server in the format of redis-py, rslock and `SET NX PX`.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::{Locks, stores::RedisPlain};
///
/// let builder = RedisPlain::builder("redis://127.0.0.1?dialect=plain")?;
/// let url = builder.url();
/// let locks = Locks::from_store(builder.connect().await?, &url)?;
/// # Ok(()) }
/// ```
///
/// The store supports mutexes only, and rejects other shares as
/// [unsupported](leasehold_core::Error::is_unsupported). The order of waiters is not guaranteed,
/// and a crashed client's lock is free when its lease ends. The server does not know the waiters,
/// so [`inspect`](leasehold_core::Locks::inspect) shows only the waiters of this client.
pub type RedisPlain = VotingStore<OneServer>;

/// The only vote is that of one server.
#[derive(Debug)]
pub enum OneServer {}

/// The address of a Redis server and the settings of the store on it.
pub type RedisPlainBuilder = StoreBuilder<RedisPlain>;

impl VotingStore<OneServer> {
    /// Parses the URL of a server with `dialect=plain`: `redis://[user[:password]@]host[:port]`,
    /// `rediss://…` with TLS, or `redis+unix:///path/to/socket`.
    ///
    /// | setting | |
    /// |---|---|
    /// | `dialect=plain` | required |
    /// | `tokens=on` | a second key counts leasehold's tokens |
    /// | `password-file`, `db`, `protocol` | as with `redis://` |
    /// | `ca`, `cert`, `key`, `server-name` | as with `redis://` |
    ///
    /// # Errors
    /// [`is_invalid`](leasehold_core::Error::is_invalid) if the URL is malformed, or has another dialect.
    pub fn builder(url: &str) -> Result<RedisPlainBuilder> {
        let url = FORM.parse(url)?;
        let counts_tokens = url.settings.switch("tokens").unwrap_or(false);
        let address = Address::of_server(&url)?;
        Ok(StoreBuilder {
            address: VotingConfig {
                shown_url: with_setting(&address.to_string(), "dialect", "plain"),
                addresses: vec![address],
                kind: Kind::Plain,
                format: SingleKey::new(counts_tokens),
                settings: MasterSettings {
                    longest_lease: Duration::MAX,
                    quarantine: false,
                },
            },
        })
    }
}

pub(crate) static FORM: UrlForm = UrlForm {
    store: "plain Redis",
    schemes: client::SERVER_SCHEMES,
    example: "redis://host:6379?dialect=plain",
    default_port: client::PORT,
    settings: &[DIALECT, TOKENS, DATABASE, PASSWORD, TLS, TLS_NAME],
    dialect: Some("plain"),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_names_all_settings() {
        UrlForm::assert_documented(&[&FORM], include_str!("plain.rs"));
    }

    #[test]
    fn url_with_the_dialect_is_parsed() {
        let server =
            RedisPlain::builder("redis+unix:///run/s?dialect=plain&tokens=on&db=1").expect("good");
        assert_eq!(server.address.addresses[0].database, 1);
        assert_eq!(server.url(), "redis+unix:///run/s?db=1&dialect=plain");
        assert!(server.address.format.guarantees_tokens());
        assert!(!server.address.format.remembers_last_token());

        let server = RedisPlain::builder("rediss://me:p@a/2?dialect=plain").expect("good");
        assert_eq!(server.url(), "rediss://a:6379/2?dialect=plain");
        assert!(!server.address.format.guarantees_tokens());
    }

    #[test]
    fn wrong_urls_are_refused_without_showing_the_password() {
        for (rest, reason) in [
            ("a", "not name the dialect"),
            ("a?dialect=classic", "plain"),
            ("a?dialect=plain&quarantine=off", "not a setting"),
            ("a?dialect=plain&crash-grace=5s", "not a setting"),
            ("a?dialect=plain&tokens=maybe", "on or off"),
            ("a,b?dialect=plain", "one host"),
            ("?dialect=plain", "no host"),
        ] {
            let error = RedisPlain::builder(&format!("redis://:secret@{rest}")).expect_err(rest);
            assert!(
                error.is_invalid() && error.to_string().contains(reason),
                "{rest}: {error}"
            );
            assert!(!format!("{error:?}").contains("secret"), "{rest}");
        }
    }
}
