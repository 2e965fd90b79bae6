//! The settings of TLS in a URL.

use std::path::PathBuf;

use crate::{Error, Result};

/// TLS of a connection. The certificate of the server is always verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::stores) struct Tls {
    /// The file of the authority to trust instead of those of the system.
    pub(in crate::stores) authority: Option<PathBuf>,
    /// The file of the client's certificate.
    pub(in crate::stores) certificate: Option<PathBuf>,
    /// The file of the key that belongs to the client's certificate.
    pub(in crate::stores) key: Option<PathBuf>,
    /// The name in the server's certificate, if it is not the host of the connection.
    pub(in crate::stores) server_name: Option<String>,
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
            return Ok(());
        }
        Err(Error::invalid("the URL has only one of cert= and key=")
            .help("name the PEM files of the client's certificate and of its key"))
    }
}

/// Returns the whole path of a file that is read again later, perhaps from another working
/// directory.
pub(in crate::stores) fn absolute_path(path: &str) -> String {
    let absolute = std::path::absolute(path).ok();
    let absolute = absolute.and_then(|path| path.into_os_string().into_string().ok());
    absolute.unwrap_or_else(|| path.to_owned())
}
