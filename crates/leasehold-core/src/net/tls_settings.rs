//! The settings of TLS in a URL.

use std::path::PathBuf;

use super::host::Host;
use crate::stores::url::{StoreUrl, Transport};
use crate::{Error, Result};

/// TLS of a connection: PEM files by their paths. The certificate of the server is always verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The authority to trust; the authorities of the system if it is `None`.
    pub authority: Option<PathBuf>,
    /// The client's own certificate, for servers that require one.
    pub identity: Option<Identity>,
    /// The name in the server's certificate, if it is not the host of the connection.
    pub server_name: Option<String>,
}

/// A certificate and its key, each a PEM file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Tls {
    /// Returns the settings of a URL; `None` if its scheme is one without TLS.
    ///
    /// `schemes` describes the schemes with TLS in the error of a setting that requires one.
    pub fn of_url(url: &StoreUrl, schemes: &str) -> Result<Option<Self>> {
        if url.transport != Transport::Tls {
            return match url.settings.first_with_tls() {
                Some(setting) => Err(Error::invalid(format!("{setting}= requires {schemes}"))),
                None => Ok(None),
            };
        }

        let path = |setting| url.settings.get(setting).map(absolute_path);
        let identity = match (path("cert"), path("key")) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(Identity {
                certificate: certificate.into(),
                key: key.into(),
            }),
            _ => {
                return Err(Error::invalid("the URL has only one of cert= and key=")
                    .help("name the PEM files of the client's certificate and of its key"));
            }
        };
        Ok(Some(Self {
            authority: path("ca").map(PathBuf::from),
            identity,
            server_name: url.settings.get("server-name").map(str::to_owned),
        }))
    }

    /// Returns the name that the certificate of a server must have.
    #[must_use]
    pub fn name_of<'a>(&'a self, host: &'a Host) -> &'a str {
        self.server_name.as_deref().unwrap_or(&host.name)
    }
}

/// Returns the whole path of a file that is read again later, perhaps from another working
/// directory.
pub(crate) fn absolute_path(path: &str) -> String {
    let absolute = std::path::absolute(path).ok();
    absolute
        .and_then(|path| path.into_os_string().into_string().ok())
        .unwrap_or_else(|| path.to_owned())
}
