//! Certificates of servers and clients.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use lab_servers::ZooKeeper;
use leasehold::Error;
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};

use crate::{SERVER, open, use_once, within_timeout};

async fn refused(url: &str) -> Error {
    leasehold::open(url).await.expect_err("refused")
}

/// The client verifies the certificate of the server in every TLS connection.
///
/// Shows G-28.
#[tokio::test]
async fn untrusted_certificates_are_refused() {
    let url = |ca: PathBuf| format!("{}/tls?ca={}", SERVER.tls_url(), ca.display());
    let locks = open(&url(SERVER.ca_file())).await;
    use_once(&locks, "a").await;

    let other_name = url(SERVER.ca_file()).replace("localhost", "[::ffff:127.0.0.1]");
    for untrusted in [url(SERVER.other_ca_file()), other_name] {
        let error = refused(&untrusted).await;
        assert!(error.is_denied(), "{error}");
        let text = error.to_string();
        assert!(text.contains("certificate is not accepted"), "{text}");
    }

    let not_a_name = url(SERVER.ca_file()).replace("localhost", "127.1");
    let not_pem = url(SERVER.folder().join("zoo.cfg"));
    for invalid in [not_a_name, url("/nowhere".into()), not_pem] {
        let error = refused(&invalid).await;
        assert!(error.is_invalid(), "{invalid}: {error}");
    }
}

/// A mount may hang. Here it is a FIFO, from which the measurement of the servers' ticks reads.
///
/// Shows G-24.
#[tokio::test]
async fn file_that_blocks_its_reader_delays_no_other_request() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ca = folder.path().join("ca.pem");
    fs::copy(SERVER.ca_file(), &ca).expect("copied");
    let url = format!("{}/blocked?ca={}", SERVER.tls_url(), ca.display());
    let locks = open(&url).await;
    fs::remove_file(&ca).expect("removed");
    mkfifoat(CWD, &ca, Mode::RWXU).expect("created");

    let held = locks.mutex("a").acquire().await.expect("granted");
    let mut options = OpenOptions::new();
    options
        .write(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    // Without a reader this is an error.
    let begun = async {
        loop {
            match options.open(&ca) {
                Ok(fifo) => return fifo,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let fifo = within_timeout("the file is read", begun).await;
    let released = within_timeout("the lock is released", held.release()).await;
    released.expect("released");
    drop(fifo);
}

/// A server may require a client certificate.
#[tokio::test]
async fn client_certificate_is_presented() {
    let server = ZooKeeper::setup().client_certificates().start();
    let file = |name: &str| server.folder().join(name).display().to_string();
    let url = |settings: &str| format!("{}?ca={}{settings}", server.tls_url(), file("ca.crt"));
    let with = |certificate: &str, key: &str| {
        url(&format!("&cert={}&key={}", file(certificate), file(key)))
    };
    let locks = open(&with("client.crt", "client.key")).await;
    use_once(&locks, "a").await;

    for denied in [url(""), with("other.crt", "other.key")] {
        let error = refused(&denied).await;
        assert!(error.is_denied(), "{denied}: {error}");
        let text = error.to_string();
        assert!(text.contains("client certificate"), "{denied}: {text}");
    }

    for invalid in [
        url(&format!("&cert={}", file("client.crt"))),
        with("client.crt", "server.key"),
        with("client.crt", "zoo.cfg"),
        with("nothing", "client.key"),
    ] {
        let error = refused(&invalid).await;
        assert!(error.is_invalid(), "{invalid}: {error}");
    }
}
