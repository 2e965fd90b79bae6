//! Ports that the kernel does not give to another process.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, SocketType, bind, getsockname, socket, sockopt::set_socket_reuseaddr,
};

/// A loopback port, reserved for one service until this value is dropped. The reservation lasts
/// while the service is dead.
///
/// The reservation is a socket that is bound and never listens. The kernel then does not give the
/// port to a process that binds any free port. The kernel also refuses connections to the port. A
/// server that binds this port by number, with `SO_REUSEADDR` as servers do, gets it.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _kept: OwnedFd,
}

impl Port {
    /// Reserves a free port.
    pub(crate) fn reserve() -> Self {
        Self::try_reserve().expect("the machine has a free loopback port")
    }

    /// Reserves a free port below `end`.
    pub(crate) fn reserve_below(end: u16) -> Self {
        const TRIES: usize = 1_000;
        // Ports that do not fit stay reserved during the search, so that no port is drawn twice.
        let mut others = Vec::new();
        while others.len() < TRIES {
            let port = Self::reserve();
            if port.number < end {
                return port;
            }
            others.push(port);
        }
        panic!("the machine has no free loopback port below {end}");
    }

    fn try_reserve() -> rustix::io::Result<Self> {
        let kept = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&kept, rustix::io::FdFlags::CLOEXEC)?;
        set_socket_reuseaddr(&kept, true)?;
        bind(&kept, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let number = SocketAddr::try_from(getsockname(&kept)?)?.port();
        Ok(Self {
            number,
            _kept: kept,
        })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::Port;

    #[test]
    fn reserved_ports_are_unique_and_reusable() {
        let ports: Vec<Port> = (0..500).map(|_| Port::reserve()).collect();
        let numbers: HashSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
        for port in &ports {
            let spec = (Ipv4Addr::LOCALHOST, port.number());
            for _ in 0..2 {
                let listener = TcpListener::bind(spec).expect("the server binds by number");
                TcpStream::connect(spec).expect("a client reaches the server");
                drop(listener);
                TcpStream::connect(spec).expect_err("no server listens");
            }
        }
    }
}
