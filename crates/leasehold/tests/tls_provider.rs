//! The cryptography provider that a program has installed. A process has one, so this is a test
//! program of its own.
#![cfg(all(feature = "redis", feature = "tls"))]
#![allow(missing_docs)]

use std::sync::atomic::{AtomicUsize, Ordering};

use lab_servers::Redis;
use tokio_rustls::rustls::crypto::{CryptoProvider, GetRandomFailed, SecureRandom, aws_lc_rs};

/// The number of requests for random bytes.
static REQUESTS: AtomicUsize = AtomicUsize::new(0);

/// A part of the program's own provider, which a handshake needs.
#[derive(Debug)]
struct CountingRandom;

impl SecureRandom for CountingRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        REQUESTS.fetch_add(1, Ordering::Relaxed);
        aws_lc_rs::default_provider().secure_random.fill(bytes)
    }
}

#[tokio::test]
async fn tls_uses_the_provider_that_the_program_has_installed() {
    let provider = CryptoProvider {
        secure_random: &CountingRandom,
        ..aws_lc_rs::default_provider()
    };
    provider.install_default().expect("it is the first one");
    let server = Redis::setup().tls().start();
    let url = format!("{}?ca={}", server.tls_url(), server.ca_file().display());

    let locks = leasehold::open(&url).await.expect("it opens");
    let guard = locks.mutex("a").acquire().await.expect("it is granted");
    guard.release().await.expect("it was not lost");

    let requests = REQUESTS.load(Ordering::Relaxed);
    assert!(requests > 0, "another provider has made the handshake");
}
