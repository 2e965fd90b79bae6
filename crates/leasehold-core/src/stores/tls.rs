//! The authorities that the network stores trust, the identity of a client, and the errors of TLS.

#[cfg_attr(not(feature = "aws-lc-rs"), path = "tls/no_built_in.rs")]
pub(crate) mod built_in;
mod pem_files;

use std::io;

use tokio_rustls::rustls::{self, RootCertStore};

use crate::{Error, Result};

pub use pem_files::PemFiles;

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

/// Maps the error of a TLS handshake; `plain` is the scheme without TLS, and `setting` the setting
/// of the URL for another name in the certificate, if the store has one.
///
/// A server with a rejected certificate is rejected again, so a retry does not help.
#[must_use]
pub fn untrusted(error: io::Error, plain: &str, setting: &str) -> Error {
    let error = match rejected_client(error) {
        Ok(rejection) => return rejection,
        Err(error) => error,
    };
    if error.kind() == io::ErrorKind::InvalidData {
        return Error::denied(format!("the server's certificate is not accepted: {error}"))
            .help(format!(
                "use the host name of the certificate{setting}, and ca=/path/to/ca.pem if its \
                 authority is your own"
            ))
            .caused_by(error);
    }

    Error::unavailable(format!("the TLS handshake failed: {error}"))
        .help(format!(
            "check that the port speaks TLS; without TLS the scheme is {plain}"
        ))
        .caused_by(error)
}

/// Returns the error for a connection that the server has ended with an alert, because of the
/// client's certificate or without one.
///
/// In TLS 1.3 a server checks the client's certificate after the client's handshake has ended.
///
/// # Errors
/// The error of the connection, if it has another cause.
pub fn rejected_client(error: io::Error) -> std::result::Result<Error, io::Error> {
    let tls_error = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<rustls::Error>());
    if !matches!(tls_error, Some(rustls::Error::AlertReceived(_))) {
        return Err(error);
    }

    Ok(Error::denied(format!(
        "the server rejected the client certificate, or requires one and none is configured: \
         {error}"
    ))
    .help(CLIENT_CERTIFICATE)
    .caused_by(error))
}

const CLIENT_CERTIFICATE: &str =
    "give one that the server trusts, with cert=/path/to/cert.pem and key=/path/to/key.pem";
