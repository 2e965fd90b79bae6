//! The servers that a URL of the store `redis` names.

use std::fmt;

use super::address::{Address, Settings};
use super::cluster::ClusterAddress;
use super::endpoint::Endpoint;
use super::sentinel::{SentinelAddress, WatchedMaster};
use crate::Result;
use crate::stores::url::StoreUrl;

#[derive(Clone, Debug)]
pub(in crate::stores) enum Topology {
    /// One server.
    Single(Address),
    /// The master that sentinels name.
    Sentinel(SentinelAddress),
    /// The masters of a cluster.
    Cluster(ClusterAddress),
}

impl Topology {
    pub(in crate::stores) fn parse(url: &str) -> Result<Self> {
        let scheme = url.split_once("://").map_or(url, |(scheme, _)| scheme);
        if scheme.ends_with("+sentinel") {
            return SentinelAddress::parse(url).map(Self::Sentinel);
        }
        if scheme.ends_with("+cluster") {
            return ClusterAddress::parse(url).map(Self::Cluster);
        }
        Address::parse(url).map(Self::Single)
    }

    /// Returns the server, or the sentinels and their master, of a URL with a dialect.
    pub(in crate::stores) fn of_dialect(url: &StoreUrl) -> Result<Self> {
        if url.scheme.ends_with("+sentinel") {
            return SentinelAddress::of_url(url).map(Self::Sentinel);
        }
        Address::of_server(url).map(Self::Single)
    }

    /// Returns what a link connects to, if one server at a time has all keys.
    pub(in crate::stores) fn endpoint(self) -> Option<Endpoint> {
        match self {
            Self::Single(address) => Some(Endpoint::Server(address)),
            Self::Sentinel(address) => Some(address.endpoint()),
            Self::Cluster(_) => None,
        }
    }

    /// Returns the servers whose risks to locks are examined: of a cluster, the nodes that the URL
    /// names.
    pub(in crate::stores) async fn to_examine(&self) -> Result<Vec<Address>> {
        match self {
            Self::Single(address) => Ok(vec![address.clone()]),
            Self::Sentinel(address) => {
                let master = WatchedMaster::follow(address.clone());
                Ok(vec![master.locate().await?])
            }
            Self::Cluster(address) => Ok(address.seeds().cloned().collect()),
        }
    }

    pub(in crate::stores) fn settings(&self) -> Settings {
        match self {
            Self::Single(address) => address.settings,
            Self::Sentinel(address) => address.server.settings,
            Self::Cluster(address) => address.server.settings,
        }
    }

    pub(in crate::stores) fn settings_mut(&mut self) -> &mut Settings {
        match self {
            Self::Single(address) => &mut address.settings,
            Self::Sentinel(address) => &mut address.server.settings,
            Self::Cluster(address) => &mut address.server.settings,
        }
    }
}

/// Writes the URL without user, password and settings.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(address) => address.fmt(f),
            Self::Sentinel(address) => address.fmt(f),
            Self::Cluster(address) => address.fmt(f),
        }
    }
}
