//! `address-map=`: where clients reach servers that announce an address of another network.

use leasehold_core::internal::{Host, StoreUrl, UrlForm};
use leasehold_core::{Error, Result};

/// The servers whose announced address differs from the one that this client reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddressMap(Vec<(Host, Host)>);

impl AddressMap {
    /// Parses `announced=reached,announced=reached`, where each is a host with a port.
    pub(crate) fn parse(url: &StoreUrl) -> Result<Self> {
        let Some(text) = url.settings.get("address-map") else {
            return Ok(Self::default());
        };
        let pairs = text.split(',').map(|pair| pair_in(url.form, pair));
        pairs.collect::<Result<_>>().map(Self)
    }

    /// Returns where the server that announces `announced` is reached.
    pub(crate) fn reached(&self, announced: Host) -> Host {
        let mapped = self.0.iter().find(|(from, _)| *from == announced);
        mapped.map_or(announced, |(_, to)| to.clone())
    }
}

fn pair_in(form: &UrlForm, text: &str) -> Result<(Host, Host)> {
    let wrong = || {
        Error::invalid("address-map= has an entry that is not two addresses with ports")
            .help("write address-map=10.0.0.1:6379=gateway.example:7001")
    };

    let (from, to) = text.split_once('=').ok_or_else(wrong)?;
    if !from.contains(':') || !to.contains(':') {
        return Err(wrong());
    }
    let host = |text| form.host(text).map_err(|_| wrong());
    Ok((host(from)?, host(to)?))
}
