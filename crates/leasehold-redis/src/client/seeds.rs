//! The servers of a URL that name others: sentinels, or some nodes of a cluster.

use std::fmt;

use super::address::{Address, AddressMap};
use leasehold_core::internal::StoreUrl;
use leasehold_core::internal::net::{Host, Password};
use leasehold_core::{Error, Result};

pub(super) const SENTINEL_EXAMPLE: &str = "redis+sentinel://host1,host2,host3/mymaster";

/// The sentinels of a URL.
#[derive(Clone, Debug)]
pub(crate) struct Sentinels {
    pub(super) seeds: Seeds,
    /// The name of the master in their configuration.
    pub(super) master: String,
}

/// The servers of a URL that name others: sentinels, or some nodes of a cluster.
#[derive(Clone)]
pub(crate) struct Seeds {
    hosts: Vec<Host>,
    /// How to log in to the seeds. Its host is the first one.
    pub(super) login: Address,
    /// The user, database and settings for the servers that the seeds name.
    pub(super) server: Address,
    addresses: AddressMap,
    shown_url: String,
}

impl Sentinels {
    pub(super) fn of_url(url: &StoreUrl) -> Result<Self> {
        let server = Address::of_host(url, &url.servers()?[0], 0)?;
        // The user and the password of the sentinels are not those of the servers.
        let password_file = url.settings.get("sentinel-password-file");
        let login = Address {
            database: 0,
            user: url.settings.get("sentinel-user").map(str::to_owned),
            password: password_file.map(Password::in_file).transpose()?,
            ..server.clone()
        };

        let master = url.path.trim_matches('/');
        if master.is_empty() {
            return Err(Error::invalid("the URL does not name the master")
                .help(format!("write {SENTINEL_EXAMPLE}")));
        }
        Ok(Self {
            seeds: Seeds::new(url, login, server, &format!("/{master}"))?,
            master: master.to_owned(),
        })
    }
}

impl Seeds {
    pub(super) fn of_cluster(url: &StoreUrl) -> Result<Self> {
        if !["", "0"].contains(&url.path.trim_matches('/')) {
            return Err(Error::invalid("a cluster has only the database 0"));
        }
        let login = Address::of_host(url, &url.servers()?[0], 0)?;
        // Requests and notifications have a connection each. A server may end a subscription by
        // itself, and a client could take that message for the reply to a request.
        let server = Address {
            old_protocol: true,
            ..login.clone()
        };
        Self::new(url, login, server, "")
    }

    fn new(url: &StoreUrl, login: Address, server: Address, shown_path: &str) -> Result<Self> {
        Ok(Self {
            shown_url: server.with_database(&url.shown_with(shown_path)),
            hosts: url.hosts.clone(),
            login,
            server,
            addresses: AddressMap::parse(url)?,
        })
    }

    /// Returns the hosts of the URL, with the address of each.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&Host, Address)> {
        let hosts = self.hosts.iter();
        hosts.map(|host| (host, self.login.at(host.clone())))
    }

    /// Returns the address of a server that announces `host`.
    pub(super) fn server_at(&self, host: Host) -> Address {
        Address {
            is_announced: true,
            ..self.server.at(self.addresses.reached(host))
        }
    }
}

/// Writes the URL without user, password and settings.
impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown_url)
    }
}

impl fmt::Debug for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seeds({self})")
    }
}
