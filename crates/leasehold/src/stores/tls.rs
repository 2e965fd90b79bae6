//! The authorities that the network stores trust, and the errors of a TLS handshake.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::{Error, Result};

/// Returns the configuration of a client that trusts an authority and has an identity: the files of
/// its certificate and of its key.
pub(super) fn client_config(
    authority: Option<&Path>,
    identity: Option<(&Path, &Path)>,
) -> Result<ClientConfig> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::unsupported("this build has no TLS").caused_by(error))?
        .with_root_certificates(roots(authority)?);
    let Some((certificate, key)) = identity else {
        return Ok(config.with_no_client_auth());
    };

    let certificates = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| {
        Error::invalid(format!(
            "the certificate {} cannot be read: {error}",
            certificate.display()
        ))
        .help("give cert= a file of PEM certificates")
    })?;

    let unusable = |error: &dyn Display| {
        Error::invalid(format!("the key {} cannot be used: {error}", key.display()))
            .help("give key= the PEM file of the key that belongs to cert=")
    };
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(&error))?;
    config
        .with_client_auth_cert(certificates, key)
        .map_err(|error| unusable(&error))
}

/// Returns the provider that the program has installed, or else aws-lc-rs.
fn provider() -> Arc<CryptoProvider> {
    let installed = CryptoProvider::get_default().cloned();
    installed.unwrap_or_else(|| Arc::new(aws_lc_rs::default_provider()))
}

/// Reads the authorities in a file, or those of the system without a file.
pub(super) fn roots(authority: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match authority {
        Some(path) => add_file(&mut roots, path)?,
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }

    if !roots.is_empty() {
        return Ok(roots);
    }

    let problem = match authority {
        Some(path) => format!("the authority {} contains no certificate", path.display()),
        None => "the system has no certificate authorities to trust".to_owned(),
    };
    Err(Error::invalid(problem).help("name a file with a certificate: ca=/path/to/ca.pem"))
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<()> {
    let unreadable = |error: &dyn Display| {
        let path = path.display();
        Error::invalid(format!("the authority {path} cannot be read: {error}"))
            .help("give ca= a file of PEM certificates")
    };

    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| unreadable(&error))?;
        roots.add(certificate).map_err(|error| unreadable(&error))?;
    }
    Ok(())
}

/// Maps the error of a TLS handshake; `plain` is the scheme without TLS.
///
/// A server with a rejected certificate is rejected again, so a retry does not help.
pub(super) fn untrusted(error: io::Error, plain: &str) -> Error {
    if error.kind() == io::ErrorKind::InvalidData {
        return Error::denied(format!("the server's certificate is not accepted: {error}"))
            .help(
                "use the host name of the certificate, and ca=/path/to/ca.pem if its authority \
                 is your own",
            )
            .caused_by(error);
    }

    Error::unavailable(format!("the TLS handshake failed: {error}"))
        .help(format!(
            "check that the port speaks TLS; without TLS the scheme is {plain}"
        ))
        .caused_by(error)
}
