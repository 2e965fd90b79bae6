//! TLS, always verified.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use zookeeper_client::{Connector, TlsOptions};

use super::address::Tls;
use super::trouble;
use crate::{Error, Result};

pub(super) fn encrypted(connector: Connector, tls: &Tls) -> Result<Connector> {
    if CryptoProvider::get_default().is_none() {
        // If somebody else was faster, his will do.
        let _ = aws_lc_rs::default_provider().install_default();
    }
    let authority = match &tls.authority {
        Some(path) => read(path)?,
        None => system_authorities()?,
    };
    let mut options = TlsOptions::new().with_pem_ca(&authority).map_err(trouble::told)?;
    if let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) {
        options = options.with_pem_identity(&read(certificate)?, &read(key)?).map_err(trouble::told)?;
    }
    Ok(connector.with_tls(options))
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| {
        Error::invalid(format!("{} cannot be read", path.display())).remedy("give a file of PEM").caused_by(error)
    })
}

fn system_authorities() -> Result<String> {
    let mut text = String::new();
    for certificate in rustls_native_certs::load_native_certs().certs {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in STANDARD.encode(&certificate).as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    if text.is_empty() {
        return Err(Error::invalid("there is no authority to trust").remedy("give one with ca=/path/to/ca.pem"));
    }
    Ok(text)
}
