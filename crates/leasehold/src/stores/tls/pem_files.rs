//! The PEM files that a URL names.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::{built_in, system_roots};
use crate::{Error, Result};

/// The paths of the files.
#[derive(Clone, Copy, Debug)]
pub(in crate::stores) struct PemPaths<'a> {
    /// The authority to trust; the authorities of the system if it is `None`.
    pub(in crate::stores) authority: Option<&'a Path>,
    /// The client's certificate and its key.
    pub(in crate::stores) identity: Option<(&'a Path, &'a Path)>,
}

/// The files with their content.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::stores) struct PemFiles {
    authority: Option<PemFile>,
    identity: Option<ClientIdentity>,
}

/// The client's certificate and its key.
#[derive(Debug, PartialEq, Eq)]
struct ClientIdentity {
    certificate: PemFile,
    key: PemFile,
}

#[derive(PartialEq, Eq)]
struct PemFile {
    path: PathBuf,
    content: Vec<u8>,
}

impl PemFiles {
    pub(in crate::stores) fn read(paths: PemPaths<'_>) -> Result<Self> {
        let authority = paths.authority.map(read_authority).transpose()?;
        let identity = paths.identity.map(|(certificate, key)| {
            Ok(ClientIdentity {
                certificate: read_certificate(certificate)?,
                key: read_key(key)?,
            })
        });
        Ok(Self {
            authority,
            identity: identity.transpose()?,
        })
    }

    /// Returns the configuration of a client that trusts the authority and has the identity.
    pub(in crate::stores) fn client_config(&self) -> Result<ClientConfig> {
        let config = ClientConfig::builder_with_provider(provider()?)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::unsupported("this build has no TLS").caused_by(error))?
            .with_root_certificates(self.roots()?);
        let Some(ClientIdentity { certificate, key }) = &self.identity else {
            return Ok(config.with_no_client_auth());
        };

        let certificates = certificate
            .certificates()
            .map_err(|error| certificate.unreadable("certificate", &error))?;
        if certificates.is_empty() {
            return Err(certificate.unreadable("certificate", &"it contains no certificate"));
        }
        let secret = PrivateKeyDer::from_pem_slice(&key.content)
            .map_err(|error| unusable_key(&key.path, &error))?;
        config
            .with_client_auth_cert(certificates, secret)
            .map_err(|error| unusable_key(&key.path, &error))
    }

    fn roots(&self) -> Result<RootCertStore> {
        let Some(authority) = &self.authority else {
            return system_roots();
        };

        let unreadable = |error: &dyn Display| authority.unreadable("authority", error);
        let mut roots = RootCertStore::empty();
        for certificate in authority
            .certificates()
            .map_err(|error| unreadable(&error))?
        {
            roots.add(certificate).map_err(|error| unreadable(&error))?;
        }

        if roots.is_empty() {
            let path = authority.path.display();
            let problem = format!("the authority {path} contains no certificate");
            return Err(
                Error::invalid(problem).help("name a file with a certificate: ca=/path/to/ca.pem")
            );
        }
        Ok(roots)
    }
}

impl PemFile {
    fn read(path: &Path) -> std::io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            content: std::fs::read(path)?,
        })
    }

    fn certificates(
        &self,
    ) -> std::result::Result<Vec<CertificateDer<'static>>, impl Display + use<>> {
        CertificateDer::pem_slice_iter(&self.content).collect::<std::result::Result<Vec<_>, _>>()
    }

    fn unreadable(&self, what: &str, error: &dyn Display) -> Error {
        unreadable_certificate(what, &self.path, error)
    }
}

fn read_authority(path: &Path) -> Result<PemFile> {
    PemFile::read(path).map_err(|error| unreadable_certificate("authority", path, &error))
}

fn read_certificate(path: &Path) -> Result<PemFile> {
    PemFile::read(path).map_err(|error| unreadable_certificate("certificate", path, &error))
}

fn read_key(path: &Path) -> Result<PemFile> {
    PemFile::read(path).map_err(|error| unusable_key(path, &error))
}

fn unreadable_certificate(what: &str, path: &Path, error: &dyn Display) -> Error {
    let setting = if what == "authority" { "ca=" } else { "cert=" };
    let path = path.display();
    Error::invalid(format!("the {what} {path} cannot be read: {error}"))
        .help(format!("give {setting} a file of PEM certificates"))
}

fn unusable_key(path: &Path, error: &dyn Display) -> Error {
    let path = path.display();
    Error::invalid(format!("the key {path} cannot be used: {error}"))
        .help("give key= the PEM file of the key that belongs to cert=, without a passphrase")
}

/// Shows no content: it may be a key.
impl std::fmt::Debug for PemFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PemFile({})", self.path.display())
    }
}

/// Returns the provider that the program has installed, or else the one of this build.
fn provider() -> Result<Arc<CryptoProvider>> {
    let installed = CryptoProvider::get_default().cloned();

    installed.or_else(built_in::provider).ok_or_else(|| {
        Error::unsupported("TLS needs a cryptography provider, and none is installed").help(
            "call CryptoProvider::install_default of rustls before opening the store, or add the \
             Cargo feature aws-lc-rs of leasehold",
        )
    })
}
