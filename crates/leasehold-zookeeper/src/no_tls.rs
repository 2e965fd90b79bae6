//! Replaces TLS in a build without the feature `tls`.

use zookeeper_client::Connector;

use leasehold_core::internal::{Host, TlsFiles};
use leasehold_core::{Error, Result};

pub(super) fn encrypted(
    _connector: Connector,
    _servers: &[Host],
    _tls: &TlsFiles,
) -> Result<Connector> {
    Err(Error::unsupported("this build has no TLS").help("build leasehold with its feature `tls`"))
}

#[allow(
    clippy::unused_async,
    reason = "has the signature of the function with TLS"
)]
pub(super) async fn refusal(_servers: &[Host], _tls: &TlsFiles) -> Option<Error> {
    None
}
