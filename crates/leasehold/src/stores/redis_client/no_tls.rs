//! The replacement of TLS in a build without it.

use tokio::net::TcpStream;

use super::address::Tls;
use crate::{Error, Result};

pub(in crate::stores) type Encrypted = TcpStream;

/// What a build with TLS keeps of its files.
#[derive(Clone)]
pub(in crate::stores) struct Loaded;

#[allow(
    clippy::unnecessary_wraps,
    reason = "it has the signature of the function with TLS"
)]
pub(in crate::stores) fn check_identity(_tls: &Tls) -> Result<()> {
    Ok(())
}

#[allow(
    clippy::unused_async,
    reason = "it has the signature of the function with TLS"
)]
pub(in crate::stores) async fn connect(_host: &str, _port: u16, _tls: &Tls) -> Result<Encrypted> {
    Err(Error::unsupported("this build has no TLS").help("build leasehold with its feature `tls`"))
}
