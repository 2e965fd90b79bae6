//! The cryptography for programs that install no provider of rustls.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};

#[allow(
    clippy::unnecessary_wraps,
    reason = "a build without the feature has no provider"
)]
/// Returns the provider of this build.
#[must_use]
pub(crate) fn provider() -> Option<Arc<CryptoProvider>> {
    Some(Arc::new(aws_lc_rs::default_provider()))
}
