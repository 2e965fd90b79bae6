//! Certificates of a service that speaks TLS, which are generated for each test and are valid for
//! two days.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::child::Program;

const CONFIGURATION: &str = include_str!("openssl.cnf");
const DAYS: &str = "2";

/// Generates two authorities and the certificates of a server and a client.
///
/// `ca.crt` is the authority. It signs `server.crt` with `server.key` for `localhost` and
/// `127.0.0.1`, and `client.crt` with `client.key` for a client. `other.crt` is an authority that
/// does not sign any certificate.
pub(crate) fn make(folder: &Path) {
    Program::installed("openssl", "openssl").must_be_there();
    fs::write(folder.join("openssl.cnf"), CONFIGURATION).expect("a temporary folder is writable");
    certificate(
        folder,
        "ca",
        &["-extensions", "ca", "-subj", "/CN=lab authority"],
    );
    certificate(
        folder,
        "other",
        &["-extensions", "ca", "-subj", "/CN=another authority"],
    );

    for (name, subject) in [("server", "/CN=localhost"), ("client", "/CN=client")] {
        certificate(
            folder,
            name,
            &[
                "-extensions",
                name,
                "-subj",
                subject,
                "-CA",
                "ca.crt",
                "-CAkey",
                "ca.key",
            ],
        );
    }
}

/// Generates a key and its certificate.
fn certificate(folder: &Path, name: &str, output: &[&str]) {
    let key = format!("{name}.key");
    let certificate = format!("{name}.crt");
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-config",
        "openssl.cnf",
        "-days",
        DAYS,
        "-nodes",
        "-newkey",
        "ec",
    ]);
    openssl
        .args([
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-keyout",
            &key,
            "-out",
            &certificate,
        ])
        .args(output);

    let done = openssl
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("openssl can be started");
    assert!(
        done.status.success(),
        "openssl did not make {name}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}
