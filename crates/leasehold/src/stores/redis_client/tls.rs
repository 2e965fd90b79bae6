//! TLS, always verified.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::ServerName;

use super::address::Tls;
use super::stream::tcp;
use crate::runtime::background;
use crate::stores::tls::{client_config, untrusted};
use crate::{Error, Result};

pub(in crate::stores) type Encrypted = TlsStream<TcpStream>;

/// The configuration for each set of files.
///
/// Reading and parsing the files takes a few milliseconds, too long for each connect.
static CONFIGS: Mutex<BTreeMap<Tls, Arc<ClientConfig>>> = Mutex::new(BTreeMap::new());

pub(in crate::stores) async fn connect(host: &str, port: u16, tls: &Tls) -> Result<Encrypted> {
    let name = tls.server_name.as_deref().unwrap_or(host);
    let known = CONFIGS.lock().get(tls).cloned();

    if let Some(config) = known {
        match encrypted(host, port, name, config).await {
            // The authorities may have changed since they were read.
            Err(error) if error.is_denied() => {}
            connected => return connected,
        }
    }
    encrypted(host, port, name, load(tls).await?).await
}

async fn encrypted(
    host: &str,
    port: u16,
    name: &str,
    config: Arc<ClientConfig>,
) -> Result<Encrypted> {
    let stream = tcp(host, port).await?;
    let name = ServerName::try_from(name.to_owned()).map_err(|error| {
        Error::invalid(format!("{name:?} is not a name for a certificate")).caused_by(error)
    })?;
    TlsConnector::from(config)
        .connect(name, stream)
        .await
        .map_err(|error| untrusted(error, "redis://"))
}

/// Reads the files on a thread that may block, as a connect may run on the only background thread.
async fn load(tls: &Tls) -> Result<Arc<ClientConfig>> {
    let files = tls.clone();
    let reading = background::handle().spawn_blocking(move || config(&files));
    let read = reading
        .await
        .map_err(|error| Error::unavailable("the files of TLS cannot be read").caused_by(error))?;

    let config = Arc::new(read?);
    CONFIGS.lock().insert(tls.clone(), Arc::clone(&config));
    Ok(config)
}

fn config(tls: &Tls) -> Result<ClientConfig> {
    let identity = tls.certificate.as_deref().zip(tls.key.as_deref());
    let mut config = client_config(tls.authority.as_deref(), identity)?;
    // A resumed session would not show its certificate.
    config.resumption = Resumption::disabled();
    Ok(config)
}
