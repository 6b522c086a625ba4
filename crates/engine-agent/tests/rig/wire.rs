//! A wire between a client and a server that can be cut, so that a server seems to die.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

pub struct Wire {
    address: SocketAddr,
    cut: CancellationToken,
}

impl Wire {
    /// A wire to `server`.
    pub async fn to(server: SocketAddr) -> Self {
        let (wire, listener) = Self::listen().await;
        wire.connect(listener, server);
        wire
    }

    /// One end; the server may be told its address before it listens.
    pub async fn listen() -> (Self, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Self { address, cut: CancellationToken::new() }, listener)
    }

    /// The other end.
    pub fn connect(&self, listener: TcpListener, server: SocketAddr) {
        let cut = self.cut.clone();
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = cut.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                let (Ok((mut near, _)), cut) = (accepted, cut.clone()) else { return };
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(server).await else { return };
                    tokio::select! {
                        () = cut.cancelled() => {}
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    }
                });
            }
        });
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes every connection and accepts no other.
    pub fn cut(&self) {
        self.cut.cancel();
    }
}
