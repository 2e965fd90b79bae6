//! TLS: the files of a connection as they are now, and its errors. Certificates are always verified.

#[cfg_attr(not(feature = "aws-lc-rs"), path = "tls/no_built_in.rs")]
pub(crate) mod built_in;
mod pem_files;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, AlertDescription, ClientConfig, RootCertStore};

use super::host::{ATTEMPT_MAX, Help, Host};
use super::tls_settings::Tls;
use crate::runtime::background::BlockingSteps;
use crate::{Error, Result};

pub use pem_files::PemFiles;

pub type Encrypted<S> = TlsStream<S>;

/// The files as they were read last. Its clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadedTls {
    last: Arc<Mutex<Option<LoadedFiles>>>,
    reading: BlockingSteps,
}

/// The files of TLS, and the configuration that they give.
///
/// Parsing the authorities takes a few milliseconds, too long for each connect.
#[derive(Clone, Debug)]
struct LoadedFiles {
    files: Arc<PemFiles>,
    config: Arc<ClientConfig>,
}

impl LoadedTls {
    /// Encrypts the stream that `opening` opens to `host`.
    pub(super) async fn encrypt<S>(
        &self,
        opening: impl Future<Output = Result<S>>,
        host: &Host,
        tls: &Tls,
        help: &Help,
    ) -> Result<Encrypted<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.current(tls).await?;
        let stream = opening.await?;
        let name = certificate_name(host, tls)?;
        let encrypted = TlsConnector::from(config).connect(name, stream).await;

        let encrypted = encrypted.map_err(|error| untrusted(error, help));
        let is_denied = encrypted.as_ref().is_err_and(Error::is_denied);
        if is_denied && tls.authority.is_none() {
            // The authorities of the system may have changed since they were read.
            *self.last.lock() = None;
        }
        encrypted
    }

    /// Returns the reason why servers accept no connection, if a certificate is the reason.
    pub(super) async fn refusal(&self, hosts: &[Host], tls: &Tls, help: &Help) -> Option<Error> {
        let attempts = hosts
            .iter()
            .map(|host| timeout(ATTEMPT_MAX, self.refusal_of(host, tls, help)));

        let replies = join_all(attempts).await;
        replies.into_iter().find_map(|reply| reply.ok().flatten())
    }

    async fn refusal_of(&self, host: &Host, tls: &Tls, help: &Help) -> Option<Error> {
        let stream = host.connect().await.ok()?;
        let encrypting = self.encrypt(async { Ok(stream) }, host, tls, help);
        let mut stream = match encrypting.await {
            Ok(stream) => stream,
            Err(error) => return Some(error),
        };

        // In TLS 1.3 a server checks the client certificate after the client's handshake has ended.
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let reading = poll_fn(|context| Pin::new(&mut stream).poll_read(context, &mut buffer));
        let error = reading.await.err()?;
        Some(rejected_client(&error)?.caused_by(error))
    }

    /// Returns the configuration of the files as they are now.
    ///
    /// If they cannot be used, the configuration stays as it was: new files may be about to replace
    /// the old ones.
    async fn current(&self, tls: &Tls) -> Result<Arc<ClientConfig>> {
        let earlier = self.last.lock().clone();
        match (self.load(tls, earlier.clone()).await, earlier) {
            (Ok(loaded), _) => {
                let config = Arc::clone(&loaded.config);
                *self.last.lock() = Some(loaded);
                Ok(config)
            }
            (Err(error), Some(earlier)) => {
                tracing::warn!(
                    %error,
                    "the TLS files (ca=, cert=, key=) cannot be used; connecting with their \
                     earlier content"
                );
                Ok(earlier.config)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Reads the files on a thread that may block, as a connect may run on the only background
    /// thread.
    async fn load(&self, tls: &Tls, earlier: Option<LoadedFiles>) -> Result<LoadedFiles> {
        let tls = tls.clone();
        let read = move || read(&tls, earlier);
        let reading = self.reading.run("the TLS files (ca=, cert=, key=)", read);
        reading.await?
    }
}

fn read(tls: &Tls, earlier: Option<LoadedFiles>) -> Result<LoadedFiles> {
    let files = PemFiles::read(tls)?;
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

/// Checks the files of the client's certificate, before a connect needs them.
pub fn check_identity(tls: &Tls) -> Result<()> {
    if tls.identity.is_none() {
        return Ok(());
    }
    PemFiles::read(tls)?.client_config().map(drop)
}

/// Returns the name that the certificate of a server must have.
pub fn certificate_name(host: &Host, tls: &Tls) -> Result<ServerName<'static>> {
    let name = tls.name_of(host);
    ServerName::try_from(name.to_owned()).map_err(|error| {
        Error::invalid(format!("{name:?} is not a name for a certificate")).caused_by(error)
    })
}

/// Installs the provider of this build in a program that has installed none, for a client library
/// that would panic.
pub fn install_provider() {
    if CryptoProvider::get_default().is_none()
        && let Ok(provider) = PemFiles::provider()
    {
        // This fails if another thread was faster. The provider of that thread is used then.
        let _ = Arc::unwrap_or_clone(provider).install_default();
    }
}

/// Returns the authorities of the system.
fn system_roots() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);

    if roots.is_empty() {
        return Err(
            Error::invalid("the system has no certificate authorities to trust")
                .help("name a file with a certificate: ca=/path/to/ca.pem"),
        );
    }
    Ok(roots)
}

/// Maps the error of a TLS handshake.
///
/// A server with a rejected certificate is rejected again, so a retry does not help.
fn untrusted(error: io::Error, help: &Help) -> Error {
    if let Some(rejection) = rejected_client(&error) {
        return rejection.caused_by(error);
    }
    let name = help.server_name;
    match alert(&error) {
        Some(AlertDescription::UnrecognisedName) => Error::denied(format!(
            "the server has no certificate for this name: {error}"
        ))
        .help(format!("use the host name of the certificate{name}")),
        Some(AlertDescription::ProtocolVersion | AlertDescription::InsufficientSecurity) => {
            Error::unsupported(format!(
                "the server allows no TLS 1.2 or 1.3 with a cipher of leasehold: {error}"
            ))
        }
        Some(_) => Error::unavailable(format!("the server ended the TLS handshake: {error}"))
            .help("the log of the server may have the reason"),
        None if error.kind() == io::ErrorKind::InvalidData => Error::denied(format!(
            "the server's certificate is not accepted: {error}"
        ))
        .help(format!(
            "use the host name of the certificate{name}, and ca=/path/to/ca.pem if its \
                     authority is your own"
        )),
        None => Error::unavailable(format!("the TLS handshake failed: {error}")).help(format!(
            "check that the port speaks TLS; without TLS the scheme is {}",
            help.plain_scheme
        )),
    }
    .caused_by(error)
}

/// Returns the error for a connection that the server has ended with an alert, because of the
/// client's certificate or without one. `None` if the connection broke for another reason.
///
/// In TLS 1.3 a server checks the client's certificate after the client's handshake has ended.
pub fn rejected_client(error: &io::Error) -> Option<Error> {
    let alert = alert(error)?;
    let reason = if alert == AlertDescription::HandshakeFailure {
        "the server requires a client certificate and none is configured, or it allows no cipher \
         of leasehold"
    } else if CLIENT_REJECTIONS.contains(&alert) {
        "the server rejected the client certificate, or requires one and none is configured"
    } else {
        return None;
    };
    Some(Error::denied(format!("{reason}: {error}")).help(CLIENT_CERTIFICATE))
}

/// Returns the alert with which the server has ended the connection.
fn alert(error: &io::Error) -> Option<AlertDescription> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::AlertReceived(alert) => Some(*alert),
        _ => None,
    }
}

/// The alerts about the certificate of a client, besides `HandshakeFailure`. A server of TLS 1.2 sends
/// that one for a certificate that is missing, and any server if no cipher is common.
const CLIENT_REJECTIONS: [AlertDescription; 9] = [
    AlertDescription::BadCertificate,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::CertificateRevoked,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnknownCA,
    AlertDescription::AccessDenied,
    AlertDescription::DecryptError,
    AlertDescription::CertificateRequired,
];

const CLIENT_CERTIFICATE: &str =
    "give one that the server trusts, with cert=/path/to/cert.pem and key=/path/to/key.pem";
