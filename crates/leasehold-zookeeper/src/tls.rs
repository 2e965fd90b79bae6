//! TLS of the ZooKeeper store. Certificates are always verified.

use std::future::poll_fn;
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
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::ServerName;
use zookeeper_client::{Connector, TlsOptions};

use super::reply_error::store_error;
use leasehold_core::internal::tls::{PemFiles, rejected_client, untrusted};
use leasehold_core::internal::{Host, TlsFiles};
use leasehold_core::{Error, Result};

/// Configures the client library for TLS.
pub(super) fn encrypted(
    connector: Connector,
    servers: &[Host],
    tls: &TlsFiles,
) -> Result<Connector> {
    if CryptoProvider::get_default().is_none()
        && let Ok(provider) = PemFiles::provider()
    {
        // This fails if another thread was faster. The provider of that thread is used then.
        let _ = Arc::unwrap_or_clone(provider).install_default();
    }

    // These two calls report errors in the files and names. The client library would panic at some
    // of them.
    config(tls)?;
    for server in servers {
        certificate_name(server)?;
    }

    let authority = match &tls.authority {
        Some(path) => read(path)?,
        None => system_authorities(),
    };
    let mut options = TlsOptions::new()
        .with_pem_ca(&authority)
        .map_err(store_error)?;
    if let Some(identity) = &tls.identity {
        options = options
            .with_pem_identity(&read(&identity.certificate)?, &read(&identity.key)?)
            .map_err(store_error)?;
    }
    Ok(connector.with_tls(options))
}

/// Returns the reason why no server accepts a connection, if a certificate is the reason.
///
/// The client library reports only that it has no connection. So this connects to each server
/// once more.
pub(super) async fn refusal(servers: &[Host], tls: &TlsFiles) -> Option<Error> {
    let config = Arc::new(config(tls).ok()?);
    let attempts = servers.iter().map(|server| {
        let refusal = refusal_of(server, Arc::clone(&config));
        timeout(REFUSAL_TIMEOUT, refusal)
    });

    let replies = join_all(attempts).await;
    replies.into_iter().find_map(|reply| reply.ok().flatten())
}

async fn refusal_of(server: &Host, config: Arc<ClientConfig>) -> Option<Error> {
    let name = certificate_name(server).ok()?;
    let addresses = server.addresses().await.ok()?.ok()?;
    let stream = TcpStream::connect(&*addresses).await.ok()?;

    match TlsConnector::from(config).connect(name, stream).await {
        // In TLS 1.3 a server checks the client certificate after the client's handshake has ended.
        Ok(mut stream) => {
            let mut byte = [0];
            let mut buffer = ReadBuf::new(&mut byte);
            let reading = poll_fn(|context| Pin::new(&mut stream).poll_read(context, &mut buffer));
            let error = reading.await.err()?;
            rejected_client(error).ok()
        }
        Err(error) => Some(untrusted(error, "zookeeper://", "")),
    }
}

/// Returns the name that the certificate of a server must have.
fn certificate_name(server: &Host) -> Result<ServerName<'static>> {
    let name = &server.name;
    ServerName::try_from(name.clone()).map_err(|error| {
        let message = format!("a certificate cannot be issued for the host {name:?}");
        Error::invalid(message).caused_by(error)
    })
}

fn config(tls: &TlsFiles) -> Result<ClientConfig> {
    PemFiles::read(tls)?.client_config()
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| {
        Error::invalid(format!("{} cannot be read", path.display()))
            .help("give a PEM file")
            .caused_by(error)
    })
}

/// Returns the authorities that the system trusts, in PEM.
fn system_authorities() -> String {
    let mut text = String::new();
    for certificate in rustls_native_certs::load_native_certs().certs {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in STANDARD.encode(&certificate).as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

/// How long one server has to report what is wrong with a certificate.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
