//! A port of loopback that is kept for a child until it listens there, and after.
//!
//! Two engines that start at the same time must never be told the same port: the agent of one would find the other's Spark.
//! So the port is bound and not listened to. The kernel gives a bound port to nobody who asks for any, and lets a socket of
//! the same kind, as Java's servers are (`SO_REUSEADDR`), listen there as long as no other does.

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
    /// Some port that nobody has.
    pub fn any() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = socket.local_addr()?;
        Ok(Self { _socket: socket, address })
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[tokio::test]
    async fn who_is_told_the_port_can_listen_there_and_nobody_else_is_given_it() {
        let reserved = Reserved::any().unwrap();
        // More than a kernel would skip by chance.
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
