//! Redlock: a lock on several independent Redis servers, the masters.
//!
//! A master remembers the last token that it has granted, and grants only a larger one. So all
//! votes for a hold have the same token, and tokens rise even if the clocks do not. [`Fenced`] is
//! this format, and [`Voting`] counts the votes. `docs/protocols/redlock.md` describes
//! the protocol in steps.

use super::VotingStore;
use super::format::{Fenced, SingleKey, VoteFormat};
use super::open::VotingConfig;
use super::quarantine::MasterSettings;
use super::quorum::quorum;
use crate::builder::StoreBuilder;
use crate::client;
use crate::client::Address;
use crate::client::groups::{
    CLASSIC, DATABASE, LONGEST_LEASE, PASSWORD, QUARANTINE, TLS, TLS_NAME, TOKENS,
};
use crate::examination::Kind;
use leasehold_core::internal::{StoreUrl, Transport, UrlForm};
use leasehold_core::{Error, Result};

/// Locks on several Redis servers, of which a minority may fail.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::{Locks, stores::Redlock};
///
/// let builder = Redlock::builder("redlock://a:6379,b:6379,c:6379")?;
/// let url = builder.url();
/// let locks = Locks::from_store(builder.connect().await?, &url)?;
/// # Ok(()) }
/// ```
///
/// The store supports mutexes only, and rejects other shares as
/// [unsupported](leasehold_core::Error::is_unsupported). The masters do not know the waiters, so
/// [`inspect`](leasehold_core::Locks::inspect) shows only the waiters of this client.
pub type Redlock = VotingStore<SeveralServers>;

/// A majority of several servers decides.
#[derive(Debug)]
pub enum SeveralServers {}

/// The servers of a store, and its settings.
pub type RedlockBuilder = StoreBuilder<Redlock>;

/// The fewest masters of which one may fail.
const MASTERS_MIN: usize = 3;
/// The most masters that one URL may name.
const MASTERS_MAX: usize = 15;

impl VotingStore<SeveralServers> {
    /// Parses a URL.
    ///
    /// `redlock://[user[:password]@]host[:port],host[:port],…[/database]` names three to fifteen
    /// masters; `redlocks://…` connects with TLS.
    ///
    /// | setting | |
    /// |---|---|
    /// | `dialect=classic` | the format of redsync, node-redlock and others; no tokens |
    /// | `tokens=on` | with a dialect: a second key counts leasehold's tokens |
    /// | `longest-lease=60s` | the longest lease of any client; all clients set the same |
    /// | `quarantine=off` | for masters that never forget a vote (`appendfsync always`) |
    /// | `password-file`, `db`, `protocol` | as with `redis://` |
    /// | `ca`, `cert`, `key`, `server-name` | as with `redis://` |
    ///
    /// # Errors
    /// [`is_invalid`](leasehold_core::Error::is_invalid) if the URL cannot be parsed, names fewer than three
    /// masters, or names one of them twice.
    pub fn builder(url: &str) -> Result<RedlockBuilder> {
        let url = FORM.parse(url)?;
        check_count(url.servers()?.len())?;
        let addresses = Address::of_hosts(&url)?;
        check_distinct(&addresses)?;

        let format = format(&url)?;
        Ok(StoreBuilder {
            address: VotingConfig {
                shown_url: shown_url(&addresses, format),
                addresses,
                format,
                settings: master_settings(&url),
                kind: Kind::Redlock,
            },
        })
    }
}

pub(crate) static FORM: UrlForm = UrlForm {
    store: "Redlock",
    schemes: &[("redlock", Transport::Tcp), ("redlocks", Transport::Tls)],
    example: "redlock://host1,host2,host3",
    default_port: client::PORT,
    settings: &[
        CLASSIC, TOKENS, QUARANTINE, DATABASE, PASSWORD, TLS, TLS_NAME,
    ],
    dialect: None,
};

/// Returns the URL without user, password and settings other than the dialect.
fn shown_url(addresses: &[Address], format: &dyn VoteFormat) -> String {
    let locations: Vec<String> = addresses.iter().map(Address::location).collect();
    let is_tls = addresses.iter().any(Address::is_encrypted);
    let scheme = if is_tls { "redlocks" } else { "redlock" };
    let is_classic = !format.remembers_last_token();
    let dialect = if is_classic { "?dialect=classic" } else { "" };
    format!("{scheme}://{}{dialect}", locations.join(","))
}

fn format(url: &StoreUrl) -> Result<&'static dyn VoteFormat> {
    let tokens = url.settings.switch("tokens");
    match url.settings.get("dialect") {
        None if tokens.is_some() => Err(Error::invalid(
            "tokens= requires a dialect; redlock:// without one always has tokens",
        )),
        None => Ok(&Fenced),
        Some(_) => Ok(SingleKey::new(tokens.unwrap_or(false))),
    }
}

fn master_settings(url: &StoreUrl) -> MasterSettings {
    // In the format of other libraries a master has no key for its incarnation.
    let is_own_format = url.settings.get("dialect").is_none();
    let quarantine = url.settings.switch("quarantine");
    MasterSettings {
        longest_lease: url.settings.duration(&LONGEST_LEASE),
        quarantine: quarantine.unwrap_or(is_own_format),
    }
}

fn check_count(masters: usize) -> Result<()> {
    if masters < MASTERS_MIN {
        return Err(Error::invalid(
            "redlock:// needs at least three masters: with one or two, none may fail",
        )
        .help("name three or five hosts, or use redis:// for one"));
    }

    if masters > MASTERS_MAX {
        return Err(Error::invalid(format!(
            "redlock:// takes at most {MASTERS_MAX} masters"
        )));
    }

    if masters.is_multiple_of(2) {
        tracing::warn!(
            "{masters} masters survive the failure of {}, as {} do: use an odd number",
            masters - quorum(masters),
            masters - 1
        );
    }
    Ok(())
}

/// Rejects a server that the URL names twice, because it would have two votes.
fn check_distinct(addresses: &[Address]) -> Result<()> {
    for (at, address) in addresses.iter().enumerate() {
        let mut earlier = addresses[..at].iter();
        if earlier.any(|other| other.target == address.target) {
            let error = Error::invalid(format!("{address} is named twice"));
            return Err(error.help("name each master once"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use leasehold_core::internal::Password;

    #[test]
    fn documentation_names_all_settings() {
        UrlForm::assert_documented(&[&FORM], include_str!("redlock.rs"));
    }

    #[test]
    fn urls_are_parsed() {
        let url = "redlock://me:a%2Cb@a:1,b,[::1]:3/2?longest-lease=10s";
        let masters = Redlock::builder(url).expect("good");
        assert_eq!(masters.url(), "redlock://a:1/2,b:6379/2,[::1]:3/2");
        for address in &masters.address.addresses {
            assert_eq!(address.password.as_ref().map(Password::as_str), Some("a,b"));
            assert_eq!(address.database, 2);
        }
        assert_eq!(
            masters.address.settings.longest_lease,
            Duration::from_secs(10)
        );
        assert!(masters.address.settings.quarantine);
        assert!(masters.address.format.remembers_last_token());
    }

    #[test]
    fn urls_with_a_dialect_are_parsed() {
        let classic = Redlock::builder("redlocks://a,b,c?dialect=classic&ca=/x").expect("good");
        let url = "redlocks://a:6379,b:6379,c:6379?dialect=classic";
        assert_eq!(classic.url(), url);
        assert!(!classic.address.format.remembers_last_token());
        assert!(!classic.address.format.guarantees_tokens());
    }

    /// Shows G-35.
    #[test]
    fn redlock_without_fault_tolerance_is_refused() {
        for (url, reason) in [
            ("redlock://a", "three masters"),
            ("redlock://a,b", "three masters"),
            ("redlock://a,b,a", "redis://a:6379 is named twice"),
            ("redlock://a,b,a:6379", "named twice"),
            ("redlock://a,b,c?dialect=plain", "classic"),
            ("redis://a?dialect=plain", "scheme"),
            ("redlock://a,b,c?replicas=1", "replicas"),
            ("redlock://a,b,c?longest-lease=5x", "longest lease"),
            ("redlock://a,b,c?quarantine=maybe", "on or off"),
            ("redlock://a,b,c?what=1", "not a setting"),
            ("redlock://a,b,c?tokens=on", "requires a dialect"),
            ("redlock://a,b,", "host"),
        ] {
            let error = Redlock::builder(url).expect_err(url);
            assert!(
                error.is_invalid() && error.to_string().contains(reason),
                "{url}: {error}"
            );
        }
        let even = Redlock::builder("redlock://a,b,c,d").expect("a warning only");
        assert_eq!(even.address.addresses.len(), 4);
    }

    /// Shows G-35.
    #[test]
    fn more_than_fifteen_masters_are_refused() {
        let url = |count: usize| {
            let hosts: Vec<String> = (0..count).map(|number| format!("host{number}")).collect();
            format!("redlock://{}", hosts.join(","))
        };
        for count in [3, 5, 14, 15] {
            let masters = Redlock::builder(&url(count)).expect("few enough");
            assert_eq!(masters.address.addresses.len(), count);
        }
        for count in [16, 17, 18, 31, 32, 33, 64] {
            let error = Redlock::builder(&url(count)).expect_err("too many");
            assert!(
                error.is_invalid() && error.to_string().contains("at most 15 masters"),
                "{count}: {error}"
            );
        }
    }

    #[test]
    fn errors_do_not_show_the_password() {
        for rest in [
            "secret@a,b",
            "secret#@a,b,c",
            "secret@a,b,c?what=1",
            "secret@a,b,a",
            "sec/secret@a,b,c",
            "secret",
        ] {
            let error = Redlock::builder(&format!("redlock://me:{rest}")).expect_err(rest);
            assert!(
                !format!("{error:?}").contains("secret"),
                "{rest}: {error:?}"
            );
        }
    }
}
