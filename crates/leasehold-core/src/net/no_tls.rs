//! Replaces TLS in a build without the feature `tls`.

#![allow(
    clippy::unused_async,
    clippy::unused_self,
    clippy::unnecessary_wraps,
    reason = "it has the signatures of the module with TLS"
)]

use std::io;

use super::host::{Help, Host};
use super::tls_settings::Tls;
use crate::{Error, Result};

pub type Encrypted<S> = S;

/// A build with TLS keeps its files; this one has none.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadedTls {}

impl LoadedTls {
    pub(super) async fn encrypt<S>(
        &self,
        _opening: impl Future<Output = Result<S>>,
        _host: &Host,
        _tls: &Tls,
        _help: &Help,
    ) -> Result<Encrypted<S>> {
        Err(Error::unsupported("this build has no TLS")
            .help("build leasehold with its feature `tls`"))
    }

    pub(super) async fn refusal(&self, _hosts: &[Host], _tls: &Tls, _help: &Help) -> Option<Error> {
        None
    }
}

pub fn rejected_client(_error: &io::Error) -> Option<Error> {
    None
}

pub fn check_identity(_tls: &Tls) -> Result<()> {
    Ok(())
}
