//! The replacement of TLS in a build without it.

use tokio::net::TcpStream;

use super::address::Tls;
use leasehold_core::internal::{Host, TlsFiles};
use leasehold_core::{Error, Result};

pub(crate) type Encrypted = TcpStream;

/// A build with TLS keeps its files; this one has none.
pub(crate) use std::convert::Infallible as LoadedFiles;

#[allow(
    clippy::unnecessary_wraps,
    reason = "it has the signature of the function with TLS"
)]
pub(crate) fn check_identity(_files: &TlsFiles) -> Result<()> {
    Ok(())
}

#[allow(
    clippy::unused_async,
    reason = "it has the signature of the function with TLS"
)]
pub(crate) async fn connect(_host: &Host, _tls: &Tls) -> Result<Encrypted> {
    Err(Error::unsupported("this build has no TLS").help("build leasehold with its feature `tls`"))
}
