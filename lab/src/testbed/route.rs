//! A way to the servers that some workers have to themselves.

use lab_servers::Wire;

/// Wires from some workers to the servers, one for each server, and the URL through them.
#[derive(Debug, Default)]
pub struct Route {
    /// The wires, in the order of the servers.
    pub wires: Vec<Wire>,
    /// The URL of the store through these wires.
    pub url: String,
}

impl Route {
    /// A route beside other wires, to the same servers. `url` leads through the other wires.
    pub(crate) fn beside(others: &[Wire], url: &str) -> Self {
        let wires: Vec<Wire> = others.iter().map(Wire::another).collect();
        let through = |url: String, (other, own): (&Wire, &Wire)| {
            url.replace(&other.address(), &own.address())
        };

        let url = others.iter().zip(&wires).fold(url.to_owned(), through);
        Self { wires, url }
    }
}
