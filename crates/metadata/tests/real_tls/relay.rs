//! A relay to a server that records what the client sends.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub struct Relay {
    pub port: u16,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Relay {
    pub async fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&sent);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { continue };
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                let recorded = Arc::clone(&recorded);
                tokio::spawn(async move {
                    let mut bytes = [0; 4096];
                    while let Ok(length @ 1..) = from_client.read(&mut bytes).await {
                        recorded.lock().extend_from_slice(&bytes[..length]);
                        if to_server.write_all(&bytes[..length]).await.is_err() {
                            break;
                        }
                    }
                });
                tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            }
        });
        Self { port, sent }
    }

    /// Everything that clients have sent.
    pub fn sent(&self) -> Vec<u8> {
        self.sent.lock().clone()
    }
}
