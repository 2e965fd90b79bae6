//! TLS, always verified.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::ServerName;

use super::address::Tls;
use crate::stores::tls::{roots, untrusted};
use crate::{Error, Result};

pub(super) type Encrypted = TlsStream<TcpStream>;

pub(super) async fn encrypted(stream: TcpStream, host: &str, tls: &Tls) -> Result<Encrypted> {
    let roots = roots(tls.authority.as_deref())?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::unsupported("this build has no TLS").caused_by(error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| Error::invalid(format!("{host:?} is no name for a certificate")).caused_by(error))?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| untrusted(error, "redis://"))
}
