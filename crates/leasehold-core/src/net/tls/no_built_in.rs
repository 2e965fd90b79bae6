//! A build without the feature `aws-lc-rs`, in which each program installs a provider of its own.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::CryptoProvider;

/// Returns the provider of this build.
#[must_use]
pub(crate) const fn provider() -> Option<Arc<CryptoProvider>> {
    None
}
