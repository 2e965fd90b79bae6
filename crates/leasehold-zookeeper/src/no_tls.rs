//! Replaces TLS in a build without the feature `tls`.

use zookeeper_client::Connector;

use leasehold_core::internal::net::{Host, Tls};
use leasehold_core::{Error, Result};

pub(super) fn encrypted(_connector: Connector, _servers: &[Host], _tls: &Tls) -> Result<Connector> {
    Err(Error::unsupported("this build has no TLS").help("build leasehold with its feature `tls`"))
}
