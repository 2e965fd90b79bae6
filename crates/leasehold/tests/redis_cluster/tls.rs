//! Certificates of the nodes and of their clients.

use lab_servers::{Certificates, Cluster, Redis};

use super::opening::use_all;
use super::{FAILOVER_MAX, name_per_master, slot_of};

/// All nodes require certificates, of clients and of each other. They announce their IP addresses,
/// and their certificates have a name only.
struct Secured {
    certificates: Certificates,
    cluster: Cluster,
}

impl Secured {
    fn start() -> Self {
        let certificates = Certificates::of_servers("DNS:redis.lab");
        let setup = Redis::setup().tls_of(&certificates).client_certificates();
        Self {
            cluster: Cluster::of(&setup),
            certificates,
        }
    }

    /// Returns a URL with the client's certificate of this name.
    fn url(&self, identity: Option<&str>, more: &str) -> String {
        let file = |name: &str| self.certificates.file(name).display().to_string();
        let url = format!(
            "{}?ca={}",
            self.cluster.tls_url("127.0.0.1"),
            file("ca.crt")
        );
        let identity = identity.map(|name| {
            let certificate = file(&format!("{name}.crt"));
            let key = file(&format!("{name}.key"));
            format!("&cert={certificate}&key={key}")
        });
        format!("{url}{}{more}", identity.unwrap_or_default())
    }
}

/// Shows G-28.
#[tokio::test]
async fn client_certificate_and_name_reach_all_masters() {
    let mut secured = Secured::start();
    let named = "&server-name=redis.lab";
    let url = secured.url(Some("client"), named);
    let locks = leasehold::open(&url).await.expect("accepted");
    use_all(&secured.cluster, &locks).await;

    for (url, remedy) in [
        (secured.url(None, named), "cert="),
        (secured.url(Some("other-client"), named), "cert="),
        (secured.url(Some("client"), ""), "server-name="),
        (
            secured.url(Some("client"), "&server-name=elsewhere"),
            "server-name=",
        ),
    ] {
        let error = leasehold::open(&url).await.expect_err("refused");
        assert!(error.is_denied(), "{error}");
        assert!(error.to_string().contains(remedy), "{remedy}: {error}");
    }

    // The replica that takes over is reached with the same certificate and name.
    let cluster = &mut secured.cluster;
    let name = &name_per_master(cluster)[0];
    let slot = slot_of(cluster, name);
    let old = cluster.master_of(slot);
    cluster.node_mut(old).kill();
    let _new = cluster.master_other_than(old, slot);
    let lock = locks.mutex(name);
    let held = tokio::time::timeout(FAILOVER_MAX, lock.acquire())
        .await
        .expect("granted in time")
        .expect("granted");
    held.release().await.expect("released");
}

/// The nodes announce the name of their certificates, so the URL needs no `server-name=`.
#[tokio::test]
async fn announced_host_names_are_verified() {
    let certificates = Certificates::of_servers("DNS:localhost");
    let setup = Redis::setup()
        .tls_of(&certificates)
        .config("cluster-announce-hostname", "localhost")
        .config("cluster-preferred-endpoint-type", "hostname");
    let cluster = Cluster::of(&setup);
    let ca = certificates.file("ca.crt");
    let settings = format!("?ca={}", ca.display());

    let url = format!("{}{settings}", cluster.tls_url("localhost"));
    let locks = leasehold::open(&url).await.expect("trusted");
    use_all(&cluster, &locks).await;

    let by_address = format!("{}{settings}", cluster.tls_url("127.0.0.1"));
    let error = leasehold::open(&by_address).await.expect_err("refused");
    assert!(error.is_denied(), "{error}");
    assert!(error.to_string().contains("server-name="), "{error}");
}
