//! A reserved loopback port, for a child that will listen there.
//!
//! Two engines that start at the same time must never receive one port: the agent of one would find the Spark of the other.
//! So the port is bound without listening. The kernel gives a bound port to no other process that asks for any port, and lets
//! a socket of the same kind (`SO_REUSEADDR`, as Java's servers use it) listen there as long as no other does.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// The port, for as long as this lives.
#[derive(Debug)]
pub struct Reserved {
    _socket: TcpSocket,
    address: SocketAddr,
}

impl Reserved {
    /// Reserves any free port.
    pub fn any() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = socket.local_addr()?;
        Ok(Self { _socket: socket, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[tokio::test]
    async fn only_the_recipient_of_a_reserved_port_can_listen_there() {
        let reserved = Reserved::any().unwrap();
        // More than the kernel would skip by chance.
        let others: Vec<_> = (0..500).map(|_| Reserved::any().unwrap()).collect();
        assert!(others.iter().all(|other| other.address() != reserved.address()));
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(reserved.address()).unwrap();
        let listener = socket.listen(8).unwrap();
        let (accepted, connected) = tokio::join!(listener.accept(), tokio::net::TcpStream::connect(reserved.address()));
        assert_eq!(accepted.unwrap().1, connected.unwrap().local_addr().unwrap());
    }
}
