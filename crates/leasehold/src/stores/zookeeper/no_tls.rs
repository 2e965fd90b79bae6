//! In place of TLS, in a build without it.

use zookeeper_client::Connector;

use super::address::Tls;
use crate::{Error, Result};

pub(super) fn encrypted(
    _connector: Connector,
    _servers: &[String],
    _tls: &Tls,
) -> Result<Connector> {
    Err(Error::unsupported("this build has no TLS").help("build leasehold with its feature `tls`"))
}

#[allow(clippy::unused_async, reason = "as the one that asks")]
pub(super) async fn refusal(_servers: &[String], _tls: &Tls) -> Option<Error> {
    None
}
