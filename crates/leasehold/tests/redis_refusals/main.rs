//! The requests that a Redis server may refuse, and the library's errors for them: the kind of the
//! error, a remedy, and never the password.
#![cfg(all(feature = "redis", feature = "tls"))]
#![allow(missing_docs)]

mod client_certificates;
mod credentials;
mod requests;
mod servers;

use leasehold::{Error, Guard, Locks};

async fn open(url: &str) -> Locks {
    leasehold::open(url).await.expect("the store opens")
}

async fn refused(url: &str) -> Error {
    leasehold::open(url).await.expect_err("refused")
}

async fn hold(locks: &Locks, name: &str) -> Guard {
    locks.mutex(name).acquire().await.expect("granted")
}

#[track_caller]
fn check(error: &Error, is: fn(&Error) -> bool, output: &str) {
    assert!(is(error) && error.to_string().contains(output), "{error:?}");
    assert!(
        !format!("{error:?} {error}").contains("hunter2"),
        "{error:?}"
    );
}
