//! TLS, always verified.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::address::Tls;
use crate::{Error, Result};

pub(super) type Encrypted = TlsStream<TcpStream>;

pub(super) async fn encrypted(stream: TcpStream, host: &str, tls: &Tls) -> Result<Encrypted> {
    let roots = roots(tls)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::unsupported("this build has no TLS").caused_by(error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| Error::invalid(format!("{host:?} is no name for a certificate")).caused_by(error))?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(untrusted)
}

fn roots(tls: &Tls) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &tls.authority {
        let unreadable = |error: &dyn std::fmt::Display| {
            Error::invalid(format!("the authority {} cannot be read: {error}", path.display()))
                .remedy("give ca= a file of PEM certificates")
        };
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))? {
            let certificate = certificate.map_err(|error| unreadable(&error))?;
            roots.add(certificate).map_err(|error| unreadable(&error))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        return Err(Error::invalid("there is no authority to trust").remedy("give one with ca=/path/to/ca.pem"));
    }
    Ok(roots)
}

/// A certificate that does not hold will not hold the next time either.
fn untrusted(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::InvalidData {
        return Error::denied(format!("the server's certificate is not accepted: {error}"))
            .remedy("use the host name of the certificate, and ca=/path/to/ca.pem if its authority is your own")
            .caused_by(error);
    }
    Error::unavailable(format!("TLS cannot be begun: {error}"))
        .remedy("check that the port speaks TLS; without TLS the scheme is redis://")
        .caused_by(error)
}
