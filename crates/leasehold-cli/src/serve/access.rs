//! The rights of a client: the host that a request names, and the token that it carries.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue, ORIGIN};
use leasehold::Error;
use subtle::ConstantTimeEq;

/// The rules for every request.
pub(super) struct Access {
    token: Option<BearerToken>,
    hosts: Vec<String>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The request names another host. A web site may have resolved its own name to this server.
    Host,
    /// The token is missing or wrong.
    Token,
    /// Another web site sent the request through the browser of a user.
    Origin,
}

impl Access {
    pub(super) fn new(token: Option<BearerToken>, hosts: &[String]) -> Self {
        Self {
            token,
            hosts: hosts.to_vec(),
        }
    }

    /// Checks the host. A web site can make a browser send requests to any address, but with the
    /// name of that site.
    pub(super) fn check_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let is_known = host.is_some_and(|host| self.is_known(without_port(host)));
        is_known.then_some(()).ok_or(Refusal::Host)
    }

    pub(super) fn check_token(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(token) = &self.token else {
            return Ok(());
        };

        let header = headers.get(AUTHORIZATION);
        let sent = header.and_then(|header| sent_token(header.to_str().ok()?));
        match sent {
            Some(sent) if token.equals(&sent) => Ok(()),
            _ => Err(Refusal::Token),
        }
    }

    /// Checks that the page itself sent a request that changes something.
    pub(super) fn check_origin(headers: &HeaderMap) -> Result<(), Refusal> {
        let host = headers.get(HOST).map(HeaderValue::as_bytes);
        let Some(origin) = headers.get(ORIGIN) else {
            // A program, not a browser.
            return Ok(());
        };

        let origin = origin.to_str().unwrap_or_default();
        let named = origin.split_once("://").map(|(_, host)| host.as_bytes());
        (named.is_some() && named == host)
            .then_some(())
            .ok_or(Refusal::Origin)
    }

    /// Whether a host is this server. An address cannot be rebound to another one.
    fn is_known(&self, host: &str) -> bool {
        let address = host.trim_start_matches('[').trim_end_matches(']');

        host.eq_ignore_ascii_case("localhost")
            || address.parse::<IpAddr>().is_ok()
            || self
                .hosts
                .iter()
                .any(|known| known.eq_ignore_ascii_case(host))
    }
}

/// The host of a header such as `localhost:7354` or `[::1]:7354`.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The token in a header `Bearer TOKEN`, or in the password of `Basic`, which browsers send.
fn sent_token(header: &str) -> Option<String> {
    let (scheme, value) = header.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(value.trim().to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }

    let decoded = BASE64_STANDARD.decode(value.trim()).ok()?;
    let credentials = String::from_utf8(decoded).ok()?;
    credentials
        .split_once(':')
        .map(|(_, token)| token.to_owned())
}

/// The token that clients must send. It has no `Debug`, so no log shows it.
pub(super) struct BearerToken(String);

impl BearerToken {
    /// Reads the token in a file, without the white space around it.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let message = format!("cannot read the token file {}: {error}", path.display());
            Error::invalid(message).help("write the path of a file that this user can read")
        })?;
        let token = text.trim();
        if token.len() < LENGTH_MIN {
            let message = format!("the token in {} is too short", path.display());
            let help = format!("write at least {LENGTH_MIN} bytes: openssl rand -hex 32");
            return Err(Error::invalid(message).help(help).into());
        }
        Ok(Self(token.to_owned()))
    }

    /// Compares in a time that does not depend on the first byte that differs.
    fn equals(&self, sent: &str) -> bool {
        self.0.as_bytes().ct_eq(sent.as_bytes()).into()
    }
}

/// The shortest token. A shorter one could be guessed over a network.
const LENGTH_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: hyper::header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().expect("a header"))])
    }

    fn access() -> Access {
        let token = BearerToken("0123456789abcdef".to_owned());
        Access::new(Some(token), &["locks.example".to_owned()])
    }

    #[test]
    fn only_addresses_and_known_names_are_hosts() {
        for (host, is_known) in [
            ("localhost:7354", true),
            ("LOCALHOST", true),
            ("127.0.0.1:7354", true),
            ("[::1]:7354", true),
            ("10.0.0.7", true),
            ("locks.example:80", true),
            ("evil.example:7354", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example:7354", false),
            ("", false),
        ] {
            let checked = access().check_host(&headers(HOST, host));
            assert_eq!(checked.is_ok(), is_known, "{host}");
        }
        assert_eq!(access().check_host(&HeaderMap::new()), Err(Refusal::Host));
    }

    #[test]
    fn only_the_whole_token_is_accepted() {
        for (header, is_accepted) in [
            ("Bearer 0123456789abcdef", true),
            ("bearer 0123456789abcdef", true),
            ("Basic YW55OjAxMjM0NTY3ODlhYmNkZWY=", true),
            ("Bearer 0123456789abcdee", false),
            ("Bearer 0123456789abcde", false),
            ("Bearer 0123456789abcdeff", false),
            ("Bearer ", false),
            ("Basic 0123456789abcdef", false),
            ("0123456789abcdef", false),
        ] {
            let checked = access().check_token(&headers(AUTHORIZATION, header));
            assert_eq!(checked.is_ok(), is_accepted, "{header}");
        }
        assert!(access().check_token(&HeaderMap::new()).is_err());
    }

    #[test]
    fn request_of_another_site_changes_nothing() {
        let checked = |origin: &str| {
            let mut headers = headers(HOST, "localhost:7354");
            headers.insert(ORIGIN, origin.parse().expect("a header"));
            Access::check_origin(&headers).is_ok()
        };
        assert!(checked("http://localhost:7354"));
        assert!(!checked("http://localhost:1"));
        assert!(!checked("https://evil.example"));
        assert!(!checked("null"));
    }
}
