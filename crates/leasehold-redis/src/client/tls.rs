//! TLS, always verified.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::ServerName;

use super::address::Tls;
use super::stream::tcp;
use leasehold_core::internal::tls::{PemFiles, untrusted};
use leasehold_core::internal::{Host, TlsFiles, background};
use leasehold_core::{Error, Result};

pub(crate) type Encrypted = TlsStream<TcpStream>;

/// The files of TLS as they were read last, and the configuration that they give.
///
/// Parsing the authorities takes a few milliseconds, too long for each connect.
#[derive(Clone, Debug)]
pub(crate) struct LoadedFiles {
    files: Arc<PemFiles>,
    config: Arc<ClientConfig>,
}

pub(crate) async fn connect(host: &Host, tls: &Tls) -> Result<Encrypted> {
    let name = tls.server_name.as_deref().unwrap_or(&host.name);
    let config = current(tls).await?;
    let connected = encrypted(host, name, config).await;

    let is_denied = connected.as_ref().is_err_and(Error::is_denied);
    if is_denied && tls.files.authority.is_none() {
        // The authorities of the system may have changed since they were read.
        *tls.loaded.lock() = None;
    }
    connected
}

/// Checks the files of the client's certificate, before a connect needs them.
pub(crate) fn check_identity(files: &TlsFiles) -> Result<()> {
    if files.identity.is_none() {
        return Ok(());
    }
    PemFiles::read(files)?.client_config().map(drop)
}

async fn encrypted(host: &Host, name: &str, config: Arc<ClientConfig>) -> Result<Encrypted> {
    let stream = tcp(host).await?;
    let certificate_name = ServerName::try_from(name.to_owned()).map_err(|error| {
        Error::invalid(format!("{name:?} is not a name for a certificate")).caused_by(error)
    })?;
    TlsConnector::from(config)
        .connect(certificate_name, stream)
        .await
        .map_err(|error| untrusted(error, "redis://", " (or write it as server-name=)"))
}

/// Returns the configuration of the files as they are now.
///
/// If they cannot be used, the configuration stays as it was: new files may be about to replace
/// the old ones.
async fn current(tls: &Tls) -> Result<Arc<ClientConfig>> {
    let earlier = tls.loaded.lock().clone();
    match (load(tls, earlier.clone()).await, earlier) {
        (Ok(loaded), _) => {
            let config = Arc::clone(&loaded.config);
            *tls.loaded.lock() = Some(loaded);
            Ok(config)
        }
        (Err(error), Some(earlier)) => {
            tracing::warn!(
                %error,
                "the TLS files (ca=, cert=, key=) cannot be used; connecting with their earlier \
                 content"
            );
            Ok(earlier.config)
        }
        (Err(error), None) => Err(error),
    }
}

/// Reads the files on a thread that may block, as a connect may run on the only background thread.
async fn load(tls: &Tls, earlier: Option<LoadedFiles>) -> Result<LoadedFiles> {
    let paths = tls.files.clone();
    let reading = move || read(&paths, earlier);
    background::run_blocking("the TLS files (ca=, cert=, key=)", reading).await?
}

fn read(paths: &TlsFiles, earlier: Option<LoadedFiles>) -> Result<LoadedFiles> {
    let files = PemFiles::read(paths)?;
    if let Some(earlier) = earlier.filter(|earlier| *earlier.files == files) {
        return Ok(earlier);
    }

    let mut config = files.client_config()?;
    // A resumed session would not show its certificate.
    config.resumption = Resumption::disabled();
    Ok(LoadedFiles {
        files: Arc::new(files),
        config: Arc::new(config),
    })
}
