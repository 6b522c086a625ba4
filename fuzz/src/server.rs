//! A server on a loopback port that clients of the targets connect to. It accepts one user, and no component.
//!
//! Client and server run on one thread, so the coverage that is recorded is that of the input. A panic in a task of the server ends
//! the process: tokio would otherwise catch it, and the input would pass.

use std::net::SocketAddr;
use std::process::abort;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use std::{io, panic};

use async_trait::async_trait;
use hs2::{
    Authenticator, Connection, ContextStep, Credentials, Handler, HttpScheme, Limits, Principal, SecurityContext,
    Server, ServiceProof, TicketHolder,
};
use keys::SecretKey;
use keys::secret_key::KEY_BYTES;
use keys::signature::SigningKey;
use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// The only user, and its password.
pub const USER: &str = "ann";
pub const PASSWORD: &str = "right";
/// The only ticket, and what stands behind every message of a context.
pub const TICKET: &[u8] = b"ticket";
pub const SIGNATURE: &[u8] = b"!";
/// The name of the server in proofs of components.
const AUDIENCE: &str = "fuzz";
/// The server ends a connection within this time after the client has sent everything.
const DEADLINE: Duration = Duration::from_secs(20);
/// The most that an answer has, and for each byte of input.
const ANSWER_BYTES: usize = 64 << 10;
const ANSWER_BYTES_PER_INPUT_BYTE: usize = 64;

static SERVER: LazyLock<Mutex<FuzzedServer>> = LazyLock::new(|| Mutex::new(FuzzedServer::start()));

struct FuzzedServer {
    runtime: Runtime,
    address: SocketAddr,
    clients: u32,
}

/// Sends the bytes over a connection of their own, and nothing after them. Returns what the server has sent until it closed the
/// connection.
pub fn send(bytes: &[u8]) -> Vec<u8> {
    let mut server = SERVER.lock();
    server.clients += 1;
    let (client, server_address) = (address_of(server.clients), server.address);
    let answer = server.runtime.block_on(async {
        timeout(DEADLINE, exchange(client, server_address, bytes)).await.expect("the server closes the connection")
    });
    let answer = answer.expect("loopback connects");
    assert!(
        answer.len() <= ANSWER_BYTES + ANSWER_BYTES_PER_INPUT_BYTE * bytes.len(),
        "{} bytes are answered with {}",
        bytes.len(),
        answer.len()
    );
    answer
}

/// An address of the loopback network for each of many clients: one address has too few ports for all that are closed within a
/// minute.
fn address_of(client: u32) -> SocketAddr {
    let [_, high, middle, low] = client.to_be_bytes();
    SocketAddr::from(([127, high | 1, middle, low.clamp(1, 254)], 0))
}

async fn exchange(client: SocketAddr, server: SocketAddr, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(client)?;
    let (mut reader, mut writer) = socket.connect(server).await?.into_split();
    let mut answer = Vec::new();
    // A server that has heard enough closes the connection, and then neither end is an error.
    let write = async {
        let _ = writer.write_all(bytes).await;
        let _ = writer.shutdown().await;
    };
    let read = async {
        let _ = reader.read_to_end(&mut answer).await;
    };
    tokio::join!(write, read);
    Ok(answer)
}

impl FuzzedServer {
    fn start() -> Self {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |report| {
            before(report);
            abort();
        }));
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let server = runtime.block_on(Server::bind("127.0.0.1:0", Limits::default())).expect("a free port");
        let address = server.local_addr().expect("it listens");
        let key = SigningKey::from_seed(&SecretKey::new([7; KEY_BYTES]));
        runtime.spawn(server.serve_connections(Arc::new(Peers { key }), CancellationToken::new()));
        Self { runtime, address, clients: 0 }
    }
}

/// Who may connect, and what serves them.
struct Peers {
    /// The key of components. No input has a signature of it.
    key: SigningKey,
}

#[async_trait]
impl Authenticator for Peers {
    async fn authenticate(&self, _: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        if credentials.user == USER && credentials.password == PASSWORD {
            return Ok(Principal::user(USER));
        }
        Err(UserError::new(ErrorKind::InvalidAuthorization, "authentication failed"))
    }

    fn begin_ticket_login(&self, _: SocketAddr) -> Result<Box<dyn SecurityContext>, UserError> {
        Ok(Box::new(TicketContext))
    }

    async fn authenticate_ticket(
        &self,
        _: SocketAddr,
        context: Box<dyn SecurityContext>,
        _: &str,
    ) -> Result<Principal, UserError> {
        Ok(context.holder().await?.principal)
    }

    fn http_schemes(&self) -> Vec<HttpScheme> {
        vec![HttpScheme::Basic, HttpScheme::Negotiate]
    }

    fn accepts_services(&self) -> bool {
        true
    }

    async fn authenticate_service(&self, _: SocketAddr, proof: &ServiceProof) -> Result<Principal, UserError> {
        assert!(!self.key.public().verifies(&proof.message(AUDIENCE), &proof.signature), "a forged signature");
        Err(UserError::new(ErrorKind::InvalidAuthorization, "authentication failed"))
    }
}

#[async_trait]
impl Handler for Peers {
    async fn connection(self: Arc<Self>, mut connection: Connection, _: CancellationToken) {
        while let Ok(Some(message)) = connection.next().await {
            if connection.send(&message.call().unknown()).await.is_err() {
                break;
            }
        }
        connection.close().await;
    }
}

/// A context that the ticket establishes.
struct TicketContext;

fn refused() -> UserError {
    UserError::new(ErrorKind::InvalidAuthorization, "authentication failed")
}

#[async_trait]
impl SecurityContext for TicketContext {
    async fn step(&mut self, token: &[u8]) -> Result<ContextStep, UserError> {
        if token == TICKET { Ok(ContextStep { reply: Vec::new(), is_established: true }) } else { Err(refused()) }
    }

    async fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, UserError> {
        Ok([message, SIGNATURE].concat())
    }

    async fn unwrap(&mut self, message: &[u8]) -> Result<Vec<u8>, UserError> {
        message.strip_suffix(SIGNATURE).map(<[u8]>::to_vec).ok_or_else(refused)
    }

    async fn holder(self: Box<Self>) -> Result<TicketHolder, UserError> {
        Ok(TicketHolder { principal: Principal::user(USER), name: USER.to_owned() })
    }
}
