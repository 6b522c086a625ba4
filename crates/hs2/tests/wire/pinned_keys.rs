//! TLS between roles: raw public keys that the client knows.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use hs2::{Auth, Client, ClientOptions, ClientTls, Limits, Server, ServerKey, ServerTls, Session};
use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;
use rustls::HandshakeKind;
use tests::certificate::Certificate;
use tokio_rustls::TlsConnector;

use crate::number_server::{Running, row, start_on};
use crate::support::connect_tls;

const DEADLINE: Duration = Duration::from_secs(20);

/// Two pairs of seed and public key: tests 1 and 2 of RFC 8032, section 7.1.
const PAIRS: [[&str; 2]; 2] = [
    [
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
    ],
    [
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
    ],
];

fn bytes(hex: &str) -> [u8; 32] {
    std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
}

fn server_key(pair: usize) -> ServerKey {
    ServerKey::from_seed(&bytes(PAIRS[pair][0])).unwrap()
}

fn public_key(pair: usize) -> [u8; 32] {
    bytes(PAIRS[pair][1])
}

struct Listener {
    server: Running,
    key: Arc<Mutex<Option<ServerKey>>>,
}

async fn listen(required: bool) -> Listener {
    let key = Arc::new(Mutex::new(Some(server_key(0))));
    let current = Arc::clone(&key);
    let refusal = || UserError::new(ErrorKind::InvalidAuthorization, "this agent requires TLS");
    let tls = ServerTls::pinned(move || current.lock().clone(), required, refusal).unwrap();
    let server = Server::bind("127.0.0.1:0", Limits::default()).await.unwrap().with_tls(tls);
    Listener { server: start_on(server), key }
}

impl Listener {
    fn options(&self, tls: Option<ClientTls>) -> ClientOptions {
        ClientOptions { tls, ..self.server.options(Auth::user("alice", "x")) }
    }

    /// The outcome of a login by a client that knows these keys.
    async fn login(&self, keys: &[[u8; 32]]) -> Result<Client, String> {
        let tls = ClientTls::pinned(keys).unwrap();
        Client::connect(&self.options(Some(tls))).await.map_err(|error| error.to_string())
    }
}

#[tokio::test]
async fn a_client_reaches_only_a_server_with_a_key_that_it_knows() {
    let listener = listen(true).await;
    for keys in [&[public_key(0)][..], &[public_key(1), public_key(0)]] {
        let client = listener.login(keys).await.unwrap();
        let mut session = Session::open(client, &[]).await.unwrap();
        let table = session.run("numbers 2500", DEADLINE).await.unwrap();
        assert_eq!(table.rows, (0..2500).map(row).collect::<Vec<_>>());
        session.close().await.unwrap();
    }
    for keys in [&[public_key(1)][..], &[]] {
        let error = listener.login(keys).await.map(drop).unwrap_err();
        assert!(error.ends_with("TLS handshake failed: the server does not have the expected key"), "{error}");
    }
    listener.server.stop().await;
}

#[tokio::test]
async fn a_key_that_is_replaced_counts_for_the_next_handshake() {
    let listener = listen(true).await;
    let mut before = Session::open(listener.login(&[public_key(0)]).await.unwrap(), &[]).await.unwrap();
    *listener.key.lock() = Some(server_key(1));
    assert!(listener.login(&[public_key(0)]).await.is_err());
    assert!(listener.login(&[public_key(1)]).await.is_ok());
    assert_eq!(before.run("numbers 3", DEADLINE).await.unwrap().rows.len(), 3, "the open connection continues");
    *listener.key.lock() = None;
    assert!(listener.login(&[public_key(0), public_key(1)]).await.is_err());
    listener.server.stop().await;
}

#[tokio::test]
async fn a_client_without_tls_is_refused_in_its_own_protocol_where_tls_is_required() {
    for (required, expected) in [(true, Err("this agent requires TLS".to_owned())), (false, Ok(()))] {
        let listener = listen(required).await;
        let outcome = Client::connect(&listener.options(None)).await;
        assert_eq!(outcome.map(drop).map_err(|error| error.to_string()), expected);
        listener.server.stop().await;
    }
}

/// A client with certificates, such as a driver or a browser, and a server with certificates at a client that pins keys.
#[tokio::test]
async fn certificates_and_raw_keys_do_not_meet() {
    let folder = tempfile::tempdir().unwrap();
    let files = Certificate::create(folder.path(), "server").unwrap();
    let listener = listen(false).await;
    let tls = ClientTls::from_ca_file(&files.certificate).unwrap();
    let error = Client::connect(&listener.options(Some(tls))).await.map(drop).unwrap_err().to_string();
    assert!(error.contains("TLS handshake failed"), "{error}");
    listener.server.stop().await;

    let (tls, _) = crate::support::server_tls(&files, hs2::TlsVersion::Tls13, true);
    let server = start_on(Server::bind("127.0.0.1:0", Limits::default()).await.unwrap().with_tls(tls));
    let tls = Some(ClientTls::pinned(&[public_key(0)]).unwrap());
    let options = ClientOptions { tls, ..server.options(Auth::user("alice", "x")) };
    let error = Client::connect(&options).await.map(drop).unwrap_err().to_string();
    assert!(error.contains("TLS handshake failed"), "{error}");
    server.stop().await;
}

/// A resumed session would not be verified again.
#[tokio::test]
async fn no_session_is_resumed() {
    let listener = listen(true).await;
    let connector = TlsConnector::from(ClientTls::pinned(&[public_key(0)]).unwrap().config());
    for _ in 0..2 {
        let stream = connect_tls(&connector, listener.server.address).await.unwrap();
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(HandshakeKind::Full));
        assert_eq!(stream.get_ref().1.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    }
    listener.server.stop().await;
}
