//! The settings of TLS in a URL.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::client::tls::{LoadedFiles, check_identity};
use leasehold_core::Result;
use leasehold_core::internal::{StoreUrl, TlsFiles};

/// TLS of a connection. The certificate of the server is always verified.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    pub(crate) files: TlsFiles,
    /// The name in the server's certificate, if it is not the host of the connection.
    pub(crate) server_name: Option<String>,
    /// The files as they were read last. All connections of an address share them.
    #[allow(dead_code, reason = "a build without TLS loads no files")]
    pub(crate) loaded: Arc<Mutex<Option<LoadedFiles>>>,
}

impl Tls {
    /// Returns the settings of a URL; `None` if its scheme is one without TLS.
    pub(super) fn parse(url: &StoreUrl) -> Result<Option<Self>> {
        let schemes = "a scheme with TLS, such as rediss:// or redlocks://";
        let Some(files) = TlsFiles::parse(url, schemes)? else {
            return Ok(None);
        };
        check_identity(&files)?;
        Ok(Some(Self {
            files,
            server_name: url.settings.get("server-name").map(str::to_owned),
            loaded: Arc::default(),
        }))
    }
}

/// The files are compared by their paths.
impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files && self.server_name == other.server_name
    }
}

impl Eq for Tls {}
