//! TLS, always verified.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::ServerName;

use super::address::Tls;
use super::stream::tcp;
use crate::runtime::background;
use crate::stores::tls::{roots, untrusted};
use crate::{Error, Result};

pub(in crate::stores) type Encrypted = TlsStream<TcpStream>;

/// The configuration for each authority file, and for the system's authorities.
///
/// Reading and parsing one takes a few milliseconds, too long for each connect.
static CONFIGS: Mutex<BTreeMap<Option<PathBuf>, Arc<ClientConfig>>> = Mutex::new(BTreeMap::new());

pub(in crate::stores) async fn connect(host: &str, port: u16, tls: &Tls) -> Result<Encrypted> {
    let authority = tls.authority.clone();
    let state = CONFIGS.lock().get(&authority).cloned();

    if let Some(config) = state {
        match encrypted(host, port, config).await {
            // The authorities may have changed since they were read.
            Err(error) if error.is_denied() => {}
            connected => return connected,
        }
    }
    encrypted(host, port, load(authority).await?).await
}

async fn encrypted(host: &str, port: u16, config: Arc<ClientConfig>) -> Result<Encrypted> {
    let stream = tcp(host, port).await?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| {
        Error::invalid(format!("{host:?} is not a name for a certificate")).caused_by(error)
    })?;
    TlsConnector::from(config)
        .connect(name, stream)
        .await
        .map_err(|error| untrusted(error, "redis://"))
}

/// Reads the authorities on a thread that may block, as a connect may run on the only background
/// thread.
async fn load(authority: Option<PathBuf>) -> Result<Arc<ClientConfig>> {
    let path = authority.clone();
    let reading = background::handle().spawn_blocking(move || config(path.as_deref()));
    let read = reading
        .await
        .map_err(|error| Error::unavailable("the authorities cannot be read").caused_by(error))?;

    let config = Arc::new(read?);
    CONFIGS.lock().insert(authority, Arc::clone(&config));
    Ok(config)
}

fn config(authority: Option<&Path>) -> Result<ClientConfig> {
    let roots = roots(authority)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::unsupported("this build has no TLS").caused_by(error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // A resumed session would not show its certificate.
    config.resumption = Resumption::disabled();
    Ok(config)
}
