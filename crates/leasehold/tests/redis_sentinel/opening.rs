//! Users, certificates and errors of sentinels and of their servers.

use std::fs;

use lab_servers::{Certificates, Redis, Sentinels};

use super::open;

#[tokio::test]
async fn sentinels_and_servers_have_passwords_of_their_own() {
    let page = include_str!("../../../../docs/stores/redis.md");
    let rights = page.lines().find(|line| line.starts_with("user locks on "));
    let server = Redis::setup()
        .acl(rights.expect("the page has the ACL line"))
        .password("of-servers")
        .config("masterauth", "of-servers");
    let sentinel = Redis::setup()
        .password("of-sentinels")
        .config("sentinel", "sentinel-pass of-sentinels");
    let group = Sentinels::of(&server, &sentinel);
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), "of-sentinels\n").expect("written");

    let begin = "redis+sentinel://:of-servers@";
    let base = group.url_through(begin, Redis::address);
    let url = format!("{base}?{}", group.settings());
    let with_file = format!("{url}&sentinel-password-file={}", file.path().display());
    let locks = leasehold::open(&with_file)
        .await
        .expect("both passwords are right");
    let held = locks.mutex("a").acquire().await.expect("granted");
    held.release().await.expect("released");

    let with_rights = with_file.replace(":of-servers@", "locks:secret@");
    let locks = leasehold::open(&with_rights)
        .await
        .expect("the documented rights are enough");
    drop(locks.mutex("b").acquire().await.expect("granted"));

    let error = leasehold::open(&url)
        .await
        .expect_err("no password of the sentinels");
    assert!(error.is_denied(), "{error}");
    let wrong = with_file.replace("of-servers@", "wrong@");
    let error = leasehold::open(&wrong)
        .await
        .expect_err("a wrong password of the servers");
    assert!(error.is_denied(), "{error}");
}

#[tokio::test]
async fn sentinels_and_servers_are_reached_with_tls() {
    let group = Sentinels::of(&Redis::setup().tls(), &Redis::setup().tls());
    let reached = |server: &Redis| format!("127.0.0.1:{}", server.tls_port());
    let url = group.url_through("rediss+sentinel://", reached);
    let mapped = group.settings_with(reached);

    // Each server of the lab has an authority of its own.
    let bundle = tempfile::NamedTempFile::new().expect("a temporary file");
    let sentinels = (0..3).map(|number| group.sentinel(number));
    let all = sentinels
        .chain((0..group.count()).map(|number| group.server(number)))
        .map(|server| fs::read_to_string(server.ca_file()).expect("an authority"));
    fs::write(bundle.path(), all.collect::<String>()).expect("written");

    let trusted = format!("{url}?{mapped}&ca={}", bundle.path().display());
    let locks = leasehold::open(&trusted).await.expect("trusted");
    drop(locks.mutex("a").acquire().await.expect("granted"));

    let named = format!("{trusted}&server-name=localhost");
    leasehold::open(&named)
        .await
        .expect("the certificates have this name");
    let misnamed = format!("{trusted}&server-name=elsewhere");
    let error = leasehold::open(&misnamed).await.expect_err("another name");
    assert!(error.is_denied(), "{error}");

    let other = group.sentinel(0).other_ca_file();
    let untrusted = format!("{url}?{mapped}&ca={}", other.display());
    let error = leasehold::open(&untrusted)
        .await
        .expect_err("another authority");
    assert!(error.is_denied(), "{error}");
}

/// Sentinels and servers require a certificate, and the certificates have a name of no host.
///
/// Shows G-28.
#[tokio::test]
async fn client_certificate_is_presented_to_sentinels_and_servers() {
    let certificates = Certificates::of_servers("DNS:redis.lab");
    let setup = Redis::setup().tls_of(&certificates).client_certificates();
    let group = Sentinels::of(&setup, &setup);
    let reached = |server: &Redis| format!("127.0.0.1:{}", server.tls_port());
    let url = group.url_through("rediss+sentinel://", reached);
    let mapped = group.settings_with(reached);
    let file = |name: &str| certificates.file(name).display().to_string();
    let identity = |name: &str| {
        let certificate = file(&format!("{name}.crt"));
        let key = file(&format!("{name}.key"));
        format!("&cert={certificate}&key={key}")
    };
    let trusted = format!("{url}?{mapped}&ca={}", file("ca.crt"));
    let named = format!("{trusted}&server-name=redis.lab");

    let right = format!("{named}{}", identity("client"));
    let locks = leasehold::open(&right).await.expect("accepted");
    let held = locks.mutex("a").acquire().await.expect("granted");
    held.release().await.expect("released");

    let wrong = format!("{named}{}", identity("other-client"));
    let unnamed = format!("{trusted}{}", identity("client"));
    for (url, remedy) in [
        (named, "cert="),
        (wrong, "cert="),
        (unnamed, "server-name="),
    ] {
        let error = leasehold::open(&url).await.expect_err("refused");
        assert!(error.is_denied(), "{error}");
        assert!(error.to_string().contains(remedy), "{remedy}: {error}");
    }
}

#[tokio::test]
async fn wrong_names_and_absent_sentinels_are_reported() {
    let mut group = Sentinels::start();
    let url = format!("{}x?{}", group.url(), group.settings());
    let error = leasehold::open(&url).await.expect_err("an unknown master");
    assert!(error.is_invalid(), "{error}");
    assert!(error.to_string().contains("mainx"), "{error}");

    group.sentinel_mut(0).kill();
    group.sentinel_mut(1).kill();
    let locks = open(&group, "").await;
    drop(
        locks
            .mutex("a")
            .acquire()
            .await
            .expect("one sentinel is enough to find the master"),
    );

    group.sentinel_mut(2).kill();
    let url = format!("{}?{}", group.url(), group.settings());
    let error = leasehold::open(&url)
        .await
        .expect_err("no sentinel is left");
    assert!(error.is_unavailable(), "{error}");
    drop(
        locks
            .mutex("b")
            .acquire()
            .await
            .expect("an open store keeps its master"),
    );
}
