//! TLS for the client library. Certificates are always verified.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zookeeper_client::{Connector, TlsOptions};

use super::reply_error::store_error;
use leasehold_core::Result;
use leasehold_core::internal::net::{Host, PemFiles, Tls, certificate_name, install_provider};

/// Configures the client library for TLS.
pub(super) fn encrypted(connector: Connector, servers: &[Host], tls: &Tls) -> Result<Connector> {
    install_provider();

    // These calls report errors in the files and names. The client library would panic at some of
    // them.
    let files = PemFiles::read(tls)?;
    files.client_config()?;
    for server in servers {
        certificate_name(server, tls)?;
    }

    let authority = files
        .authority_text()
        .unwrap_or_else(|| system_authorities().into());
    let mut options = TlsOptions::new()
        .with_pem_ca(&authority)
        .map_err(store_error)?;
    if let Some((certificate, key)) = files.identity_texts() {
        options = options
            .with_pem_identity(&certificate, &key)
            .map_err(store_error)?;
    }
    Ok(connector.with_tls(options))
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
