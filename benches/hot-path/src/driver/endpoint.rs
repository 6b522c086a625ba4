//! An endpoint: where a client connects, and how.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::net::sockopt::{Timeout, set_socket_timeout, set_tcp_nodelay};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::stream::Stream;

/// How long a connection may take, and how long a peer may be silent in the middle of a call.
pub const DEADLINE: Duration = Duration::from_mins(1);
/// The addresses of this machine that clients connect from, one after the other: 127.0.0.2 and the following ones. Ports of one
/// address would not suffice for all connections of a run, each of which occupies its port for a minute after its end.
const SOURCES: u32 = 16;
const FIRST_SOURCE: u32 = 2;
/// The name in the certificate of relays.
const SERVER_NAME: &str = "localhost";

/// Where clients connect.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub address: SocketAddr,
    /// `None` without TLS.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Endpoint {
    /// Opens the connection of the client with that number.
    pub fn connect(&self, number: usize) -> Result<Stream> {
        let stream = open(self.address, number).with_context(|| format!("cannot connect to {}", self.address))?;
        match &self.tls {
            None => Ok(Stream::Plain(stream)),
            Some(tls) => {
                let session = ClientConnection::new(Arc::clone(tls), ServerName::try_from(SERVER_NAME)?)?;
                Ok(Stream::Tls(Box::new(StreamOwned::new(session, stream))))
            }
        }
    }
}

fn open(address: SocketAddr, number: usize) -> rustix::io::Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    for direction in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, direction, Some(DEADLINE))?;
    }
    set_tcp_nodelay(&socket, true)?;
    let source = Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) - 1 + FIRST_SOURCE + number as u32 % SOURCES);
    bind(&socket, &SocketAddr::from((source, 0)))?;
    connect(&socket, &address)?;
    Ok(TcpStream::from(socket))
}

/// TLS of clients that trust this certificate. Each connection has a whole handshake.
pub fn trusting(certificate: &Path) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).context("cannot read the certificate")?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}
