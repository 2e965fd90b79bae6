//! The PEM files that a URL names.

use std::borrow::Cow;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::{built_in, system_roots};
use crate::net::tls_settings::{Identity, Tls};
use crate::{Error, Result};

/// The files with their content.
#[derive(Debug, PartialEq, Eq)]
pub struct PemFiles {
    authority: Option<PemFile>,
    identity: Option<ClientIdentity>,
}

/// What a file contains.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Authority,
    Certificate,
    Key,
}

/// The client's certificate and its key.
#[derive(Debug, PartialEq, Eq)]
struct ClientIdentity {
    certificate: PemFile,
    key: PemFile,
}

#[derive(PartialEq, Eq)]
struct PemFile {
    part: Part,
    path: PathBuf,
    content: Vec<u8>,
}

impl PemFiles {
    /// Reads the files.
    pub fn read(paths: &Tls) -> Result<Self> {
        let authority = paths.authority.as_deref();
        let identity = paths.identity.as_ref().map(ClientIdentity::read);
        Ok(Self {
            authority: authority
                .map(|path| PemFile::read(Part::Authority, path))
                .transpose()?,
            identity: identity.transpose()?,
        })
    }

    /// Returns the configuration of a client that trusts the authority and has the identity.
    pub fn client_config(&self) -> Result<ClientConfig> {
        let config = ClientConfig::builder_with_provider(Self::provider()?)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::unsupported("this build has no TLS").caused_by(error))?
            .with_root_certificates(self.roots()?);
        let Some(ClientIdentity { certificate, key }) = &self.identity else {
            return Ok(config.with_no_client_auth());
        };

        let certificates = certificate.certificates()?;
        if certificates.is_empty() {
            return Err(certificate.unusable("it contains no certificate"));
        }
        let secret =
            PrivateKeyDer::from_pem_slice(&key.content).map_err(|error| key.unusable(error))?;
        config
            .with_client_auth_cert(certificates, secret)
            .map_err(|error| key.unusable(error))
    }

    /// Returns the provider that the program has installed, or else the one of this build.
    pub fn provider() -> Result<Arc<CryptoProvider>> {
        let installed = CryptoProvider::get_default().cloned();

        installed.or_else(built_in::provider).ok_or_else(|| {
            Error::unsupported("TLS needs a cryptography provider, and none is installed").help(
                "call CryptoProvider::install_default of rustls before opening the store, or add \
                 the Cargo feature aws-lc-rs of leasehold",
            )
        })
    }

    /// Returns the text of the authority; `None` for the authorities of the system.
    pub fn authority_text(&self) -> Option<Cow<'_, str>> {
        self.authority.as_ref().map(PemFile::text)
    }

    /// Returns the texts of the client's certificate and of its key.
    pub fn identity_texts(&self) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
        let identity = self.identity.as_ref()?;
        Some((identity.certificate.text(), identity.key.text()))
    }

    fn roots(&self) -> Result<RootCertStore> {
        let Some(authority) = &self.authority else {
            return system_roots();
        };

        let mut roots = RootCertStore::empty();
        for certificate in authority.certificates()? {
            roots
                .add(certificate)
                .map_err(|error| authority.unusable(error))?;
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

impl ClientIdentity {
    fn read(paths: &Identity) -> Result<Self> {
        Ok(Self {
            certificate: PemFile::read(Part::Certificate, &paths.certificate)?,
            key: PemFile::read(Part::Key, &paths.key)?,
        })
    }
}

impl PemFile {
    fn read(part: Part, path: &Path) -> Result<Self> {
        let content = std::fs::read(path).map_err(|error| unusable(part, path, error))?;
        Ok(Self {
            part,
            path: path.to_owned(),
            content,
        })
    }

    fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.content)
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>> {
        CertificateDer::pem_slice_iter(&self.content)
            .map(|certificate| certificate.map_err(|error| self.unusable(error)))
            .collect()
    }

    fn unusable(&self, error: impl Display) -> Error {
        unusable(self.part, &self.path, error)
    }
}

fn unusable(part: Part, path: &Path, error: impl Display) -> Error {
    let path = path.display();
    let (problem, help) = match part {
        Part::Authority => (
            format!("the authority {path} cannot be read: {error}"),
            "give ca= a file of PEM certificates",
        ),
        Part::Certificate => (
            format!("the certificate {path} cannot be read: {error}"),
            "give cert= a file of PEM certificates",
        ),
        Part::Key => (
            format!("the key {path} cannot be used: {error}"),
            "give key= the PEM file of the key that belongs to cert=, without a passphrase",
        ),
    };
    Error::invalid(problem).help(help)
}

/// Shows no content: it may be a key.
impl std::fmt::Debug for PemFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PemFile({})", self.path.display())
    }
}
