//! The settings of TLS in a URL.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::stores::redis_client::tls::{LoadedFiles, check_identity};
use crate::{Error, Result};

/// TLS of a connection. The certificate of the server is always verified.
#[derive(Clone, Default)]
pub(in crate::stores) struct Tls {
    /// The file of the authority to trust instead of those of the system.
    pub(in crate::stores) authority: Option<PathBuf>,
    /// The file of the client's certificate.
    pub(in crate::stores) certificate: Option<PathBuf>,
    /// The file of the key that belongs to the client's certificate.
    pub(in crate::stores) key: Option<PathBuf>,
    /// The name in the server's certificate, if it is not the host of the connection.
    pub(in crate::stores) server_name: Option<String>,
    /// The files as they were read last. All connections of an address share them.
    #[allow(dead_code, reason = "a build without TLS loads no files")]
    pub(in crate::stores) loaded: Arc<Mutex<Option<LoadedFiles>>>,
}

impl Tls {
    pub(super) const SETTINGS: [&str; 4] = ["ca", "cert", "key", "server-name"];

    /// Applies one of [`SETTINGS`](Self::SETTINGS).
    pub(super) fn set(&mut self, name: &str, value: &str) {
        match name {
            "ca" => self.authority = Some(absolute_path(value).into()),
            "cert" => self.certificate = Some(absolute_path(value).into()),
            "key" => self.key = Some(absolute_path(value).into()),
            _ => self.server_name = Some(value.to_owned()),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.certificate.is_some() == self.key.is_some() {
            return check_identity(self);
        }
        Err(Error::invalid("the URL has only one of cert= and key=")
            .help("name the PEM files of the client's certificate and of its key"))
    }
}

/// The files are compared by their paths.
impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        self.authority == other.authority
            && self.certificate == other.certificate
            && self.key == other.key
            && self.server_name == other.server_name
    }
}

impl Eq for Tls {}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authority", &self.authority)
            .field("certificate", &self.certificate)
            .field("key", &self.key)
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

/// Returns the whole path of a file that is read again later, perhaps from another working
/// directory.
pub(in crate::stores) fn absolute_path(path: &str) -> String {
    let absolute = std::path::absolute(path).ok();
    let absolute = absolute.and_then(|path| path.into_os_string().into_string().ok());
    absolute.unwrap_or_else(|| path.to_owned())
}
