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
    /// The sockets that are bound to it, and to the second port.
    kept: Vec<OwnedFd>,
}

impl Port {
    /// Reserves a free port.
    pub(crate) fn reserve() -> Self {
        Self::try_reserve().expect("the machine has a free loopback port")
    }

    /// Reserves a free port of which the port that is `distance` higher is free too, and reserves
    /// that one with it.
    pub(crate) fn reserve_with_second(distance: u16) -> Self {
        const TRIES: usize = 1_000;
        // Ports that do not fit stay reserved during the search, so that no port is drawn twice.
        let mut others = Vec::new();
        while others.len() < TRIES {
            let second = Self::reserve();
            let first = second.number.checked_sub(distance).map(Self::try_number);
            match first {
                Some(Ok(mut first)) => {
                    first.kept.extend(second.kept);
                    return first;
                }
                _ => others.push(second),
            }
        }
        panic!("the machine has no two free loopback ports with a distance of {distance}");
    }

    fn try_reserve() -> rustix::io::Result<Self> {
        let kept = tcp_socket()?;
        set_socket_reuseaddr(&kept, true)?;
        bind(&kept, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        Self::of(kept)
    }

    /// Reserves this port, unless any socket is bound to it.
    fn try_number(number: u16) -> rustix::io::Result<Self> {
        let kept = tcp_socket()?;
        bind(&kept, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, number))?;
        // With the option, the port would also be bound if another one had reserved it.
        set_socket_reuseaddr(&kept, true)?;
        Self::of(kept)
    }

    fn of(kept: OwnedFd) -> rustix::io::Result<Self> {
        let number = SocketAddr::try_from(getsockname(&kept)?)?.port();
        Ok(Self {
            number,
            kept: vec![kept],
        })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

fn tcp_socket() -> rustix::io::Result<OwnedFd> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    Ok(socket)
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

    #[test]
    fn second_port_is_reserved_too() {
        let ports: Vec<Port> = (0..100)
            .map(|_| Port::reserve_with_second(10_000))
            .collect();

        for port in &ports {
            for number in [port.number(), port.number() + 10_000] {
                assert!(Port::try_number(number).is_err(), "{number} is reserved");
                TcpListener::bind((Ipv4Addr::LOCALHOST, number)).expect("a server binds by number");
            }
        }
    }
}
