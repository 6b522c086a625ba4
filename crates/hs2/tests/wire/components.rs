//! Components of an installation log in with the key of their role.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use hs2::{
    Auth, Authenticator, Client, ClientError, ClientOptions, Connection, Credentials, Handler, Limits, Principal,
    Server, ServiceLogin, ServiceProof, Sign,
};
use model::error::{ErrorKind, UserError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

const NAME: &str = "engine:one";

/// Accepts a "signature" of which the first bytes are those of the message: enough to see what was signed.
struct Verifier;

fn sign(message: &[u8]) -> [u8; 64] {
    let mut signature = [0; 64];
    for (at, byte) in message.iter().enumerate() {
        signature[at % 64] ^= byte.rotate_left((at / 64) as u32);
    }
    signature
}

#[async_trait]
impl Authenticator for Verifier {
    async fn authenticate(&self, _: SocketAddr, _: &Credentials) -> Result<Principal, UserError> {
        Err(UserError::new(ErrorKind::InvalidAuthorization, "passwords are not accepted"))
    }

    fn accepts_services(&self) -> bool {
        true
    }

    async fn authenticate_service(&self, _: SocketAddr, proof: &ServiceProof) -> Result<Principal, UserError> {
        if proof.generation == 1 && proof.signature == sign(&proof.message(NAME)) {
            return Ok(Principal::service(proof.role.as_str(), proof.user.as_str()));
        }
        Err(UserError::new(ErrorKind::InvalidAuthorization, "not our proxy"))
    }
}

#[async_trait]
impl Handler for Verifier {
    /// Returns each message to its sender, after the name of the principal.
    async fn connection(self: Arc<Self>, mut connection: Connection, _: CancellationToken) {
        assert_eq!(connection.principal().unwrap().service.as_deref(), Some("proxy"));
        while let Ok(Some(message)) = connection.next().await {
            connection.send(message.bytes()).await.unwrap();
        }
    }
}

async fn start() -> (String, AbortOnDropHandle<()>) {
    let server = Server::bind("127.0.0.1:0", Limits::default()).await.unwrap();
    let address = server.local_addr().unwrap().to_string();
    let serving = server.serve_connections(Arc::new(Verifier), CancellationToken::new());
    (address, AbortOnDropHandle::new(tokio::spawn(serving)))
}

fn login(audience: &str, sign: Sign) -> Auth {
    Auth::Service(ServiceLogin {
        role: "proxy",
        generation: 1,
        audience: audience.to_owned(),
        user: "ann".to_owned(),
        sign,
    })
}

async fn refusal(address: &str, auth: Auth) -> String {
    match Client::connect(&ClientOptions::new(address, auth)).await {
        Err(ClientError::Unauthenticated(text)) => text,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("the component got in"),
    }
}

#[tokio::test]
async fn a_component_logs_in_with_a_signature_for_this_server() {
    let (address, _serving) = start().await;
    let client = Client::connect(&ClientOptions::new(&address, login(NAME, Arc::new(sign)))).await;
    assert!(client.is_ok());
    assert_eq!(refusal(&address, login("engine:two", Arc::new(sign))).await, "not our proxy");
    assert_eq!(refusal(&address, login(NAME, Arc::new(|_| [0; 64]))).await, "not our proxy");
    assert_eq!(refusal(&address, Auth::user("proxy", "x")).await, "passwords are not accepted");
}

/// Reads one message of the negotiation.
async fn read(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 5];
    stream.read_exact(&mut head).await.unwrap();
    let mut payload = vec![0; u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize];
    stream.read_exact(&mut payload).await.unwrap();
    (head[0], payload)
}

fn message(status: u8, payload: &[u8]) -> Vec<u8> {
    [&[status][..], &(payload.len() as u32).to_be_bytes(), payload].concat()
}

/// D10 of the attacks: what a server receives is of no use at another one, or later.
#[tokio::test]
async fn a_proof_cannot_be_replayed_or_passed_on() {
    let (address, _serving) = start().await;
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(&message(1, b"ENGINEHOUSE-ED25519")).await.unwrap();
    let (status, challenge) = read(&mut stream).await;
    assert_eq!((status, challenge.len()), (2, 32));

    // A component connects to this attacker, who sends it the challenge of the server.
    let attacker = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let lured =
        ClientOptions::new(attacker.local_addr().unwrap().to_string(), login("engine:attacker", Arc::new(sign)));
    let lured = AbortOnDropHandle::new(tokio::spawn(async move { Client::connect(&lured).await.map(drop) }));
    let (mut from_lured, _) = attacker.accept().await.unwrap();
    assert_eq!(read(&mut from_lured).await, (1, b"ENGINEHOUSE-ED25519".to_vec()));
    from_lured.write_all(&message(2, &challenge)).await.unwrap();
    let (status, proof) = read(&mut from_lured).await;
    assert_eq!(status, 5);
    stream.write_all(&message(5, &proof)).await.unwrap();
    assert_eq!(read(&mut stream).await, (3, b"not our proxy".to_vec()));
    drop((from_lured, lured));

    for payload in [&b""[..], &proof[..67], &[&proof[..], b"\0x"].concat()] {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(&message(1, b"ENGINEHOUSE-ED25519")).await.unwrap();
        let (_, next) = read(&mut stream).await;
        assert_ne!(next, challenge);
        stream.write_all(&message(5, payload)).await.unwrap();
        let (status, text) = read(&mut stream).await;
        assert_eq!((status, text), (3, b"the proof of a component is malformed".to_vec()));
    }
}
