//! TLS, always verified.

use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig};
use zookeeper_client::{Connector, TlsOptions};

use super::address::{Identity, Tls};
use super::reply_error;
use crate::stores::tls::{roots, untrusted};
use crate::{Error, Result};

/// How long servers are asked what is wrong with a certificate.
const ASKED_MAX: Duration = Duration::from_secs(1);

pub(super) fn encrypted(connector: Connector, servers: &[String], tls: &Tls) -> Result<Connector> {
    if CryptoProvider::get_default().is_none() {
        // If somebody else was faster, his will do.
        let _ = aws_lc_rs::default_provider().install_default();
    }
    // These say what is wrong with the files and the names; the client library panics at some.
    config(tls)?;
    servers
        .iter()
        .try_for_each(|server| name(server).map(drop))?;
    let authority = match &tls.authority {
        Some(path) => read(path)?,
        None => system_authorities(),
    };
    let mut options = TlsOptions::new()
        .with_pem_ca(&authority)
        .map_err(reply_error::store_error)?;
    if let Some(Identity { certificate, key }) = &tls.identity {
        options = options
            .with_pem_identity(&read(certificate)?, &read(key)?)
            .map_err(reply_error::store_error)?;
    }
    Ok(connector.with_tls(options))
}

/// Why no server lets us in, if it is for a certificate. The client library knows only that none does, so all are asked again.
pub(super) async fn refusal(servers: &[String], tls: &Tls) -> Option<Error> {
    let config = Arc::new(config(tls).ok()?);
    let sent = servers
        .iter()
        .map(|server| timeout(ASKED_MAX, refusal_of(server, Arc::clone(&config))));
    join_all(sent)
        .await
        .into_iter()
        .find_map(|reply| reply.ok().flatten())
}

async fn refusal_of(server: &str, config: Arc<ClientConfig>) -> Option<Error> {
    let name = name(server).ok()?;
    let stream = TcpStream::connect(server).await.ok()?;
    match TlsConnector::from(config).connect(name, stream).await {
        // By TLS 1.3 a server looks at our certificate after the handshake has ended for us.
        Ok(mut stream) => {
            poll_fn(|context| Pin::new(&mut stream).poll_read(context, &mut ReadBuf::new(&mut [0])))
                .await
                .err()
                .filter(is_alert)
                .map(refused)
        }
        Err(error) if is_alert(&error) => Some(refused(error)),
        Err(error) => Some(untrusted(error, "zookeeper://")),
    }
}

/// What the certificate of `host:port` is to be for.
fn name(server: &str) -> Result<ServerName<'static>> {
    let host = server.rsplit_once(':').map_or(server, |(host, _port)| host);
    ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(|error| {
        Error::invalid(format!("{host:?} is no name for a certificate")).caused_by(error)
    })
}

fn is_alert(error: &io::Error) -> bool {
    let refused_error = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(refused_error, Some(rustls::Error::AlertReceived(_)))
}

fn refused(error: io::Error) -> Error {
    Error::denied(format!(
        "the server does not accept this client's certificate, or that it has none: {error}"
    ))
    .help("give one that the server trusts, with cert=/path/to/cert.pem and key=/path/to/key.pem")
    .caused_by(error)
}

fn config(tls: &Tls) -> Result<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::unsupported("this build has no TLS").caused_by(error))?
        .with_root_certificates(roots(tls.authority.as_deref())?);
    let Some(Identity { certificate, key }) = &tls.identity else {
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
    let unusable = |error: &dyn std::fmt::Display| {
        Error::invalid(format!("the key {} cannot be used: {error}", key.display()))
            .help("give key= the PEM file of the key that belongs to cert=")
    };
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(&error))?;
    config
        .with_client_auth_cert(certificates, key)
        .map_err(|error| unusable(&error))
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| {
        Error::invalid(format!("{} cannot be read", path.display()))
            .help("give a file of PEM")
            .caused_by(error)
    })
}

fn system_authorities() -> String {
    let mut text = String::new();
    for certificate in rustls_native_certs::load_native_certs().certs {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for lock_state in STANDARD.encode(&certificate).as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(lock_state));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}
