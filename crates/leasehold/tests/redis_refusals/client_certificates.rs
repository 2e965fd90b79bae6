//! Servers that require a certificate of the client, and the files that a URL names.

use std::fs;
use std::path::Path;
use std::time::Duration;

use lab_servers::Redis;
use leasehold::Error;

use super::credentials::{kill_clients, reconnected};
use super::{check, hold, open, refused};

fn url(server: &Redis, certificate: &Path, key: &Path) -> String {
    format!(
        "{}?ca={}&cert={}&key={}",
        server.tls_url(),
        server.ca_file().display(),
        certificate.display(),
        key.display()
    )
}

/// A server of TLS 1.3 checks the client's certificate after the client's handshake has ended. One
/// of TLS 1.2 checks it before.
///
/// Shows G-28.
#[tokio::test]
async fn client_certificate_is_presented_and_required() {
    for protocols in ["TLSv1.3", "TLSv1.2"] {
        let setup = Redis::setup().client_certificates();
        let server = setup.config("tls-protocols", protocols).start();
        let file = |name: &str| server.folder().join(name);

        let right = url(&server, &file("client.crt"), &file("client.key"));
        let locks = open(&right).await;
        hold(&locks, "a").await.release().await.expect("released");

        let none = format!("{}?ca={}", server.tls_url(), server.ca_file().display());
        let wrong = url(
            &server,
            &file("other-client.crt"),
            &file("other-client.key"),
        );
        for denied in [none, wrong] {
            let error = refused(&denied).await;
            check(&error, Error::is_denied, "client certificate");
            check(&error, Error::is_denied, "cert=/path/to/cert.pem");
        }
    }
}

/// A server of TLS 1.2 ends the handshake with the same alert in both cases.
#[tokio::test]
async fn server_without_a_common_cipher_is_not_said_to_want_a_certificate_only() {
    let setup = Redis::setup().tls().config("tls-protocols", "TLSv1.2");
    let server = setup.config("tls-ciphers", "AES128-SHA").start();
    let url = format!("{}?ca={}", server.tls_url(), server.ca_file().display());
    let error = refused(&url).await;
    check(
        &error,
        Error::is_denied,
        "or it allows no cipher of leasehold",
    );
}

/// Shows G-28.
#[tokio::test]
async fn unusable_files_of_a_client_certificate_are_refused_with_help() {
    let server = Redis::setup().client_certificates().start();
    let file = |name: &str| server.folder().join(name);
    let [certificate, key] = [file("client.crt"), file("client.key")];

    for (certificate, key, reason) in [
        (&certificate, &file("other-client.key"), "belongs to cert="),
        (&certificate, &file("redis.conf"), "belongs to cert="),
        (&certificate, &file("nothing"), "belongs to cert="),
        (
            &certificate,
            &server.folder().to_owned(),
            "belongs to cert=",
        ),
        (&file("nothing"), &key, "give cert="),
        (&file("redis.conf"), &key, "give cert="),
    ] {
        let error = refused(&url(&server, certificate, key)).await;
        check(&error, Error::is_invalid, reason);
    }

    let one = format!("{}?cert={}", server.tls_url(), certificate.display());
    check(
        &refused(&one).await,
        Error::is_invalid,
        "only one of cert= and key=",
    );
}

/// The URLs of other clients turn the verification off with such settings.
///
/// Shows G-28.
#[tokio::test]
async fn verification_cannot_be_turned_off() {
    let server = Redis::setup().tls().start();
    for off in [
        "?insecure=true",
        "?verify=off",
        "?tls-verify=false",
        "?ssl_cert_reqs=none",
        "#insecure",
        "/#insecure",
    ] {
        let error = refused(&format!("{}{off}", server.tls_url())).await;
        assert!(error.is_invalid(), "{off}: {error}");
    }
    for scheme in ["rediss+sentinel", "rediss+cluster"] {
        let host = format!("localhost:{}", server.tls_port());
        let error = refused(&format!("{scheme}://{host}/main?insecure=true")).await;
        assert!(error.is_invalid(), "{scheme}: {error}");
    }
}

/// The server stops trusting the authority of the old certificate.
///
/// Shows G-28.
#[tokio::test]
async fn hold_survives_a_rotated_client_certificate() {
    let server = Redis::setup().client_certificates().start();
    let mut admin = server.connection();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let certificate = folder.path().join("tls.crt");
    let key = folder.path().join("tls.key");
    let put = |from: &str, to: &Path| {
        fs::copy(server.folder().join(from), to).expect("copied");
    };

    put("client.crt", &certificate);
    put("client.key", &key);
    let url = format!("{}&crash-grace=3s", url(&server, &certificate, &key));
    let locks = open(&url).await;
    let held = hold(&locks, "a").await;

    // The certificate has been replaced and its key has not.
    put("other-client.crt", &certificate);
    kill_clients(&mut admin);
    reconnected(&locks, &server).await;

    put("other-client.key", &key);
    let other_file = server.other_ca_file();
    let other = other_file.to_str().expect("a plain path");
    let reply = admin.request(&["CONFIG", "SET", "tls-ca-cert-file", other]);
    assert!(!reply.expect("the server replies").is_error());
    kill_clients(&mut admin);
    reconnected(&locks, &server).await;

    let lost = tokio::time::timeout(Duration::from_secs(4), held.lost()).await;
    assert!(lost.is_err(), "lost after the rotation: {lost:?}");
    held.release().await.expect("released");
}
