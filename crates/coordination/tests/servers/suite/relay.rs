//! A TCP relay between client and server that can drop the answers or close the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Copies bytes between a client and the server until a test drops the answers or closes the connection.
pub struct Relay {
    pub address: String,
    pub swallow: Arc<AtomicBool>,
    pub cut: tokio::sync::watch::Sender<bool>,
}

impl Relay {
    pub async fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (swallow, server) = (Arc::new(AtomicBool::new(false)), server.to_owned());
        let (cut, cuts) = tokio::sync::watch::channel(false);
        let swallowing = Arc::clone(&swallow);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut cuts = cuts.clone();
                if *cuts.borrow() {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&server).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let swallowing = Arc::clone(&swallowing);
                tokio::spawn(async move {
                    tokio::select! {
                        () = copy(from_client, to_server, Arc::default()) => {}
                        () = copy(from_server, to_client, swallowing) => {}
                        _ = cuts.wait_for(|cut| *cut) => {}
                    }
                });
            }
        });
        Self { address, swallow, cut }
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, swallow: Arc<AtomicBool>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if !swallow.load(Ordering::SeqCst) && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
