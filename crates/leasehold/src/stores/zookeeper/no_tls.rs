//! In place of TLS, in a build without it.

use zookeeper_client::Connector;

use super::address::Tls;
use crate::{Error, Result};

pub(super) fn encrypted(_connector: Connector, _tls: &Tls) -> Result<Connector> {
    Err(Error::unsupported("this build has no TLS").remedy("build leasehold with its feature `tls`"))
}
