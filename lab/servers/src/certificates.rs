//! Certificates of a service that speaks TLS, which are generated for each test and are valid for
//! two days.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;

use crate::child::Program;

const CONFIGURATION: &str = include_str!("openssl.cnf");
const DAYS: &str = "2";
/// The names in the certificate of a server, unless a test requires others.
const SERVER_NAMES: &str = "DNS:localhost, IP:127.0.0.1";

/// The certificates of several servers and of their clients, as files:
///
/// | files | |
/// |---|---|
/// | `ca.crt` | the authority of the servers and the clients |
/// | `server.crt`, `server.key` | the certificate of each server |
/// | `client.crt`, `client.key` | a client |
/// | `other.crt` | an authority that has not signed a server's certificate |
/// | `other-client.crt`, `other-client.key` | a client that the other authority has signed |
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: Arc<TempDir>,
}

impl Certificates {
    /// Generates certificates. `names` are those of the servers, such as `DNS:redis.lab`.
    #[must_use]
    pub fn of_servers(names: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("certificates-")
            .tempdir()
            .expect("a temporary folder is writable");
        make_all(folder.path(), names);
        Self {
            folder: Arc::new(folder),
        }
    }

    /// Returns the path of one of the files.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Copies all files to the folder of a server.
    pub(crate) fn copy_to(&self, folder: &Path) {
        let files = fs::read_dir(self.folder.path()).expect("the folder is readable");
        for file in files {
            let file = file.expect("the folder is readable");
            let copied = fs::copy(file.path(), folder.join(file.file_name()));
            copied.expect("a temporary folder is writable");
        }
    }
}

/// Generates the files of [`Certificates`] for one server: `localhost` and `127.0.0.1`.
pub(crate) fn make(folder: &Path) {
    make_all(folder, SERVER_NAMES);
}

fn make_all(folder: &Path, names: &str) {
    Program::installed("openssl", "openssl").must_be_there();
    fs::write(folder.join("openssl.cnf"), CONFIGURATION).expect("a temporary folder is writable");

    for (name, subject) in [
        ("ca", "/CN=lab authority"),
        ("other", "/CN=another authority"),
    ] {
        certificate(
            folder,
            names,
            name,
            &["-extensions", "ca", "-subj", subject],
        );
    }
    for (name, section, authority) in [
        ("server", "server", "ca"),
        ("client", "client", "ca"),
        ("other-client", "client", "other"),
    ] {
        let subject = format!("/CN={name}");
        let by = format!("{authority}.crt");
        let by_key = format!("{authority}.key");
        let output = [
            "-extensions",
            section,
            "-subj",
            &subject,
            "-CA",
            &by,
            "-CAkey",
            &by_key,
        ];
        certificate(folder, names, name, &output);
    }
}

/// Generates a key and its certificate.
fn certificate(folder: &Path, server_names: &str, name: &str, output: &[&str]) {
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
        .env("LAB_SERVER_NAMES", server_names)
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
