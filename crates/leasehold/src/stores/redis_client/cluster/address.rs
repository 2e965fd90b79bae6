//! The URL of a cluster.

use std::fmt;

use crate::stores::redis_client::address::{self, Address, AddressMap, PORT, Settings};
use crate::stores::url::{Host, UrlForm};
use crate::{Error, Result};

/// Some nodes of a cluster, and how to log in to all of them.
#[derive(Clone, Debug)]
pub(in crate::stores) struct ClusterAddress {
    /// The nodes that the URL names.
    pub(super) seeds: Vec<(Host, Address)>,
    /// The user and the settings for all nodes. Its host is that of the first one.
    pub(in crate::stores) server: Address,
    addresses: AddressMap,
    is_tls: bool,
}

static FORM: UrlForm = UrlForm {
    store: "Redis Cluster",
    schemes: &["redis+cluster", "rediss+cluster"],
    example: "redis+cluster://host1,host2,host3",
    default_port: PORT,
    settings: &[
        "crash-grace",
        "replicas",
        "password-file",
        "address-map",
        "ca",
        "cert",
        "key",
        "server-name",
    ],
};

impl ClusterAddress {
    /// Returns the nodes that the URL names.
    pub(in crate::stores) fn seeds(&self) -> impl Iterator<Item = &Address> {
        self.seeds.iter().map(|(_, address)| address)
    }

    pub(in crate::stores) fn parse(text: &str) -> Result<Self> {
        let url = FORM.parse(text)?;
        let is_tls = url.scheme == "rediss+cluster";
        if !["", "0"].contains(&url.path.trim_matches('/')) {
            return Err(Error::invalid("a cluster has only the database 0"));
        }
        let seeds = url.servers()?.iter();
        let seeds = seeds.map(|host| {
            let address = Address::of_target(&url, address::tcp(host, is_tls), 0)?;
            Ok((host.clone(), address))
        });
        let seeds: Vec<_> = seeds.collect::<Result<_>>()?;

        let mut server = seeds[0].1.clone();
        server.settings = Settings::parse(&url)?;
        // Requests and notifications have a connection each. A server may end a subscription by
        // itself, and a client could take that message for the reply to a request.
        server.old_protocol = true;
        Ok(Self {
            seeds,
            server,
            addresses: AddressMap::parse(&url)?,
            is_tls,
        })
    }

    /// Returns the address of a node that announces `host`.
    pub(super) fn server_at(&self, host: Host) -> Address {
        let reached = self.addresses.reached(host);
        let mut server = self.server.clone();
        server.set_host(reached);
        server
    }
}

/// Writes the URL without user, password and settings.
impl fmt::Display for ClusterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "rediss" } else { "redis" };
        let hosts: Vec<String> = self
            .seeds
            .iter()
            .map(|(host, _)| host.to_string())
            .collect();
        write!(f, "{scheme}+cluster://{}", hosts.join(","))
    }
}
