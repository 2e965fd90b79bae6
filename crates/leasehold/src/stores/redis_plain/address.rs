//! The URL of one Redis server with `dialect=plain`.

use std::time::Duration;

use crate::stores::redis_client::{self, Address};
use crate::stores::url::UrlForm;
use crate::stores::url::settings::{DATABASE, DIALECT, PASSWORD, TLS, TLS_NAME, TOKENS};
use crate::stores::votes::{MasterSettings, Masters, SingleKey};
use crate::{Error, Result};

static FORM: UrlForm = UrlForm {
    store: "plain Redis",
    schemes: redis_client::SERVER_SCHEMES,
    example: EXAMPLE,
    default_port: redis_client::PORT,
    settings: &[DIALECT, TOKENS, DATABASE, PASSWORD, TLS, TLS_NAME],
};
const EXAMPLE: &str = "redis://host:6379?dialect=plain";

pub(super) fn parse(text: &str) -> Result<Masters> {
    let url = FORM.parse(text)?;
    match url.settings.get("dialect") {
        Some("plain") => {}
        Some(_) => {
            return Err(Error::invalid("dialect= names no dialect of this store")
                .help("the dialects of a single Redis server are plain and redisson"));
        }
        None => {
            let error = Error::invalid("the URL names no dialect");
            return Err(error.help(format!("write {EXAMPLE}")));
        }
    }

    let counts_tokens = url.settings.switch("tokens")?.unwrap_or(false);
    Ok(Masters {
        addresses: vec![Address::of_server(&url)?],
        format: SingleKey::new(counts_tokens),
        settings: MasterSettings {
            longest_lease: Duration::MAX,
            quarantine: false,
        },
    })
}

/// Returns the URL without user, password and settings other than the dialect.
pub(super) fn shown_url(server: &Masters) -> String {
    let [address] = &server.addresses[..] else {
        unreachable!("the store has one server");
    };
    format!("{address}?dialect=plain")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::url::assert_documented;

    #[test]
    fn documentation_names_all_settings() {
        assert_documented(&[&FORM], include_str!("../redis_plain.rs"));
    }

    #[test]
    fn url_with_the_dialect_is_parsed() {
        let server = parse("redis+unix:///run/s?dialect=plain&tokens=on&db=1").expect("good");
        assert_eq!(server.addresses[0].database, 1);
        assert_eq!(shown_url(&server), "redis+unix:///run/s?dialect=plain");
        assert!(server.format.guarantees_tokens());
        assert!(!server.format.remembers_last_token());

        let server = parse("rediss://me:p@a/2?dialect=plain").expect("good");
        assert_eq!(shown_url(&server), "rediss://a:6379/2?dialect=plain");
        assert!(!server.format.guarantees_tokens());
    }

    #[test]
    fn wrong_urls_are_refused_without_showing_the_password() {
        for (rest, reason) in [
            ("a", "no dialect"),
            ("a?dialect=classic", "plain"),
            ("a?dialect=plain&quarantine=off", "not a setting"),
            ("a?dialect=plain&crash-grace=5s", "not a setting"),
            ("a?dialect=plain&tokens=maybe", "on or off"),
            ("a,b?dialect=plain", "one host"),
            ("?dialect=plain", "no host"),
        ] {
            let error = parse(&format!("redis://:secret@{rest}")).expect_err(rest);
            assert!(
                error.is_invalid() && error.to_string().contains(reason),
                "{rest}: {error}"
            );
            assert!(!format!("{error:?}").contains("secret"), "{rest}");
        }
    }
}
