//! A wire between a client and a server that can be cut, so that a server seems to die; and what a server tells whoever asks
//! how it is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::within;

pub struct Wire {
    address: SocketAddr,
    cut: CancellationToken,
    open: Arc<AtomicUsize>,
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
        (Self { address, cut: CancellationToken::new(), open: Arc::default() }, listener)
    }

    /// The other end.
    pub fn connect(&self, listener: TcpListener, server: SocketAddr) {
        let (cut, open) = (self.cut.clone(), Arc::clone(&self.open));
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = cut.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                let (Ok((mut near, _)), cut) = (accepted, cut.clone()) else { return };
                let open = Arc::clone(&open);
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(server).await else { return };
                    open.fetch_add(1, Ordering::SeqCst);
                    tokio::select! {
                        () = cut.cancelled() => {}
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    }
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections go through it now.
    pub fn connections(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Closes every connection and accepts no other.
    pub fn cut(&self) {
        self.cut.cancel();
    }
}

/// The answer to `GET path`: the status and the text.
pub async fn probe(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within(path, stream.read_to_string(&mut answer)).await.unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), text.trim_end().to_owned())
}
