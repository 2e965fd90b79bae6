//! The replacement of TLS in a build without it.

use tokio::net::TcpStream;

use super::address::Tls;
use crate::stores::url::{Host, TlsFiles};
use crate::{Error, Result};

pub(in crate::stores) type Encrypted = TcpStream;

/// A build with TLS keeps its files; this one has none.
pub(in crate::stores) use std::convert::Infallible as LoadedFiles;

#[allow(
    clippy::unnecessary_wraps,
    reason = "it has the signature of the function with TLS"
)]
pub(in crate::stores) fn check_identity(_files: &TlsFiles) -> Result<()> {
    Ok(())
}

#[allow(
    clippy::unused_async,
    reason = "it has the signature of the function with TLS"
)]
pub(in crate::stores) async fn connect(_host: &Host, _tls: &Tls) -> Result<Encrypted> {
    Err(Error::unsupported("this build has no TLS").help("build leasehold with its feature `tls`"))
}
