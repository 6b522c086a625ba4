//! A relay between a client and a backend, good ones and bad ones.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::number_server::{Numbers, row, start, wait};
use crate::support::{LOGIN, Serving};
use hs2::answer::encode_refusal;
use hs2::message::{Message, encode_call, encode_reply};
use hs2::relay::{self, Decision, Outcome, RelayError};
use hs2::scan::HandleAt;
use hs2::tcli::{
    TCloseSessionReq, TExecuteStatementResp, TFetchOrientation, TFetchResultsReq, TFetchResultsResp, TOperationHandle,
    TOperationType,
};
use hs2::{
    Auth, Client, ClientError, ClientOptions, Connection, Handle, Handler, Limits, Method, Principal, Server, Session,
    status,
};
use model::error::{ErrorKind, UserError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(10);

/// Relays every connection to the backend, all handles translated.
struct Front {
    backend: ClientOptions,
    deadline: Duration,
}

impl Front {
    async fn relay(&self, connection: &mut Connection) -> Result<(), RelayError> {
        let mut backend = Client::connect(&self.backend).await.unwrap();
        let mut backend_handles: HashMap<Handle, Handle> = HashMap::new();
        while let Some(mut message) = connection.next().await.map_err(RelayError::Client)? {
            let request = message.request().unwrap();
            connection.set_principal(Principal::user("anyone"));
            if let Some(at) = request.handle {
                let Some(theirs) = backend_handles.get(&at.read(message.bytes()).unwrap()) else {
                    let error = UserError::new(ErrorKind::WrongState, "handle does not exist");
                    let refusal = encode_refusal(request.method.unwrap(), message.seqid(), &error);
                    connection.send(&refusal).await.map_err(RelayError::Client)?;
                    continue;
                };
                at.patch(message.bytes_mut(), theirs).unwrap();
            }
            let decide = |reply: &hs2::scan::Reply, head: &[u8]| match reply.handle {
                _ if reply.error_code == Some(status::ENGINE_DRAINING) => Decision::Buffer,
                Some(at) => {
                    let ours = Handle::random();
                    backend_handles.insert(ours, at.read(head).unwrap());
                    Decision::ForwardAs(ours)
                }
                None => Decision::Forward,
            };
            match relay::exchange(connection, &message, &mut backend, self.deadline, decide).await? {
                Outcome::Forwarded { .. } => {}
                Outcome::Buffered(reply) => {
                    // What a proxy does elsewhere: here it says so.
                    assert!(Message::new(reply).unwrap().method() == Some(Method::ExecuteStatement));
                    let error = UserError::new(ErrorKind::ConnectionLost, "buffered");
                    let refusal = encode_refusal(Method::ExecuteStatement, message.seqid(), &error);
                    connection.send(&refusal).await.map_err(RelayError::Client)?;
                }
            }
        }
        Ok(())
    }
}

pub struct Relaying {
    pub address: SocketAddr,
    ended: mpsc::UnboundedReceiver<Result<(), RelayError>>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

pub async fn front(backend: ClientOptions, deadline: Duration) -> Relaying {
    let (sender, ended) = mpsc::unbounded_channel();
    let server = Server::bind("127.0.0.1:0", Limits::default()).await.unwrap();
    let address = server.local_addr().unwrap();
    let stop = CancellationToken::new();
    let front = Arc::new(Front { backend, deadline });
    let serve = move |mut connection: Connection, stop: CancellationToken| {
        let (front, sender) = (Arc::clone(&front), sender.clone());
        async move {
            tokio::select! {
                () = stop.cancelled() => {}
                ended = front.relay(&mut connection) => drop(sender.send(ended)),
            }
        }
    };
    let task = tokio::spawn(server.serve_connections(Arc::new(Serving(serve)), stop.clone()));
    Relaying { address, ended, stop, task }
}

impl Relaying {
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    async fn session(&self, auth: Auth) -> Session {
        let client = Client::connect(&ClientOptions::new(self.address.to_string(), auth)).await.unwrap();
        Session::open(client, &[]).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_relayed_between_all_transports() {
    let backend = start(Limits::default()).await;
    for to_backend in [Auth::service("proxy", "derived", "alice"), Auth::None] {
        let front = front(backend.options(to_backend.clone()), DEADLINE).await;
        for from_client in [Auth::user("alice", "x"), Auth::None] {
            let mut session = front.session(from_client.clone()).await;
            let table = session.run("numbers 2500", DEADLINE).await.unwrap();
            assert_eq!(table.rows, (0..2500).map(row).collect::<Vec<_>>(), "{from_client:?} {to_backend:?}");
            let refused = session.execute("fail").await.map(drop);
            assert!(matches!(refused, Err(ClientError::Refused(error)) if error.kind == ErrorKind::UndefinedTable));
            let buffered = session.execute("drain").await.map(drop);
            assert!(matches!(buffered, Err(ClientError::Refused(error)) if error.message == "buffered"));
            session.close().await.unwrap();
        }
        front.stop().await;
    }
    backend.stop().await;
}

/// Every row of one fetch arrives as it was sent, through buffers that are much smaller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_much_longer_than_every_buffer_is_copied_byte_for_byte() {
    let backend = start(Limits::default()).await;
    let relaying = front(backend.options(Auth::user("alice", "x")), DEADLINE).await;
    let mut direct = Session::open(backend.client("alice").await, &[]).await.unwrap();
    let mut relayed = relaying.session(Auth::user("alice", "x")).await;
    let mut replies = Vec::new();
    for session in [&mut direct, &mut relayed] {
        let operation_handle = session.execute("numbers 200000").await.unwrap().handle().clone();
        let fetch = TFetchResultsReq {
            operation_handle,
            orientation: TFetchOrientation::FETCH_NEXT,
            max_rows: 200_000,
            fetch_type: None,
        };
        session.client().send(&encode_call("FetchResults", 77, &fetch).unwrap()).await.unwrap();
        let reply = session.client().receive(DEADLINE).await.unwrap();
        assert!(reply.bytes().len() > 3 << 20, "{}", reply.bytes().len());
        replies.push(reply.into_bytes());
    }
    assert!(replies[0] == replies[1]);
    relaying.stop().await;
    backend.stop().await;
}

#[tokio::test]
async fn a_handle_of_the_backend_means_nothing_to_a_client() {
    let backend = start(Limits::default()).await;
    let front = front(backend.options(Auth::user("alice", "x")), DEADLINE).await;
    let direct = Session::open(backend.client("alice").await, &[]).await.unwrap();
    let mut relayed = front.session(Auth::user("alice", "x")).await;
    let request = TCloseSessionReq { session_handle: direct.handle().clone() };
    let refused = relayed.client().close_session(&request).await;
    assert!(matches!(refused, Err(ClientError::Refused(error)) if error.message == "handle does not exist"));
    front.stop().await;
    backend.stop().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_the_exchange_and_the_backends_call() {
    let backend = start(Limits::default()).await;
    let mut front = front(backend.options(Auth::user("alice", "x")), DEADLINE).await;
    let service: Arc<Numbers> = Arc::clone(&backend.service);
    let mut events = service.events();
    let mut session = front.session(Auth::user("alice", "x")).await;
    let request = wait(&session);
    let call = tokio::spawn(async move { session.client().execute_statement(&request).await.map(drop) });
    service.waiting.notified().await;
    call.abort();
    assert!(matches!(front.ended.recv().await.unwrap(), Err(RelayError::ClientGone)));
    assert_eq!(events.recv().await.unwrap(), "open alice");
    assert_eq!(events.recv().await.unwrap(), "hung up");
    front.stop().await;
    backend.stop().await;
}

/// A backend that accepts every client and answers the first request with these bytes, then closes (or not).
pub async fn bad_backend(answer: Vec<u8>, stays: bool) -> ClientOptions {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 10 + 5 + 4]).await.unwrap();
        stream.write_all(&[5, 0, 0, 0, 0]).await.unwrap();
        let length = stream.read_u32().await.unwrap();
        stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
        stream.write_all(&answer).await.unwrap();
        if stays {
            let _ = stream.read(&mut [0]).await;
        }
    });
    ClientOptions::new(address.to_string(), Auth::user("a", "b"))
}

pub fn framed(total: usize, bytes: &[u8]) -> Vec<u8> {
    [&(total as u32).to_be_bytes(), bytes].concat()
}

/// A connection of a client, accepted by a server of ours, and the client's end.
pub async fn client_connection() -> (Connection, TcpStream) {
    let (connection, mut stream) = connection_that_begins_with(LOGIN).await;
    stream.read_exact(&mut [0; 5]).await.unwrap();
    (connection, stream)
}

/// The same, with these first bytes of the client.
pub async fn connection_that_begins_with(bytes: &[u8]) -> (Connection, TcpStream) {
    let (sender, mut connections) = mpsc::unbounded_channel();
    let server = Server::bind("127.0.0.1:0", Limits::default()).await.unwrap();
    let address = server.local_addr().unwrap();
    tokio::spawn(server.serve_connections(Arc::new(handing_over(sender)), CancellationToken::new()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    (connections.recv().await.unwrap(), stream)
}

/// A handler that hands its connections over.
pub fn handing_over(sender: mpsc::UnboundedSender<Connection>) -> impl Handler {
    Serving(move |connection, _| {
        let sender = sender.clone();
        async move { sender.send(connection).unwrap_or_else(|_| panic!("the connection is expected")) }
    })
}

pub fn fetch_request() -> Message {
    let request = TFetchResultsReq {
        operation_handle: Handle::random().operation(TOperationType::EXECUTE_STATEMENT, true),
        orientation: TFetchOrientation::FETCH_NEXT,
        max_rows: 10,
        fetch_type: None,
    };
    Message::new(encode_call("FetchResults", 5, &request).unwrap()).unwrap()
}

fn fetch_reply(name: &str, seqid: i32) -> Vec<u8> {
    let lines = (0..10_000).map(|line| format!("line {line}"));
    let results = Some(hs2::rowset::lines(0, lines));
    encode_reply(name, seqid, &TFetchResultsResp { status: status::success(), has_more_rows: None, results })
}

pub async fn relay_once(backend: ClientOptions, request: &Message) -> (Result<Outcome, RelayError>, bool, Vec<u8>) {
    relay_within(DEADLINE, backend, request).await
}

async fn relay_within(
    deadline: Duration,
    backend: ClientOptions,
    request: &Message,
) -> (Result<Outcome, RelayError>, bool, Vec<u8>) {
    let (mut connection, mut stream) = client_connection().await;
    let mut to = Client::connect(&backend).await.unwrap();
    let outcome = relay::exchange(&mut connection, request, &mut to, deadline, |_, _| Decision::Forward).await;
    tokio::spawn(connection.close());
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.unwrap();
    (outcome, to.is_broken(), received)
}

#[tokio::test]
async fn what_a_backend_must_not_send_never_reaches_the_client() {
    let good = fetch_reply("FetchResults", 5);
    let (outcome, broken, received) =
        relay_once(bad_backend(framed(good.len(), &good), true).await, &fetch_request()).await;
    assert!(matches!(outcome, Ok(Outcome::Forwarded { bytes }) if bytes == good.len()), "{outcome:?}");
    assert!(!broken);
    assert_eq!(received, framed(good.len(), &good));

    let other_seqid = fetch_reply("FetchResults", 6);
    let other_method = fetch_reply("GetResultSetMetadata", 5);
    let short = encode_refusal(Method::FetchResults, 5, &UserError::internal("x"));
    let mut no_status = good[..32].to_vec();
    no_status.extend_from_slice(&[12, 0, 0, 12, 0, 1, 0, 0, 0]);
    for (what, answer) in [
        ("another call's reply", framed(other_seqid.len(), &other_seqid)),
        ("another method's reply", framed(other_method.len(), &other_method)),
        ("a length beyond the limit", framed(usize::MAX, b"")),
        ("two replies", [framed(short.len(), &short), framed(short.len(), &short)].concat()),
        (
            "a reply that ends before its frame",
            framed(good.len() + 1, &encode_refusal(Method::CloseSession, 5, &UserError::internal("x"))),
        ),
        ("no Thrift", framed(12, b"HTTP/1.1 200")),
        ("a call", framed(fetch_request().bytes().len(), fetch_request().bytes())),
        ("a status without a code", framed(no_status.len(), &no_status)),
        ("nothing and the end", Vec::new()),
    ] {
        let (outcome, broken, received) = relay_once(bad_backend(answer, false).await, &fetch_request()).await;
        let Err(error) = outcome else { panic!("{what} was relayed") };
        assert!(error.client_is_usable() && received.is_empty(), "{what}: {error}");
        assert!(broken, "{what}");
    }
}

#[tokio::test]
async fn a_backend_that_dies_within_a_reply_is_reported_as_partly_delivered() {
    let good = fetch_reply("FetchResults", 5);
    let half = framed(good.len(), &good[..good.len() / 2]);
    let (outcome, broken, received) = relay_once(bad_backend(half.clone(), false).await, &fetch_request()).await;
    let Err(error) = outcome else { panic!("half a reply is none") };
    assert!(matches!(error, RelayError::Backend { partly: true, .. }) && !error.client_is_usable(), "{error}");
    assert!(broken);
    assert_eq!(received, half);
}

/// What came unasked, or that the backend has gone, is noticed before the next request: nothing is sent then.
#[tokio::test]
async fn a_backend_that_speaks_unasked_or_has_gone_is_not_asked_again() {
    for stays in [true, false] {
        let good = fetch_reply("FetchResults", 5);
        let unasked = if stays { &good[..] } else { b"" };
        let answer = [&framed(good.len(), &good), unasked].concat();
        let (mut connection, mut stream) = client_connection().await;
        let reading = tokio::spawn(async move {
            let mut received = Vec::new();
            stream.read_to_end(&mut received).await.map(|_| received)
        });
        let mut to = Client::connect(&bad_backend(answer, stays).await).await.unwrap();
        let request = fetch_request();
        let forward = |_: &hs2::scan::Reply, _: &[u8]| Decision::Forward;
        relay::exchange(&mut connection, &request, &mut to, DEADLINE, forward).await.unwrap();
        if stays {
            // The bytes are on their way; the first thing that reads them must be the check.
            while !to.has_unread().await {}
        } else {
            to.closed().await;
        }
        let outcome = relay::exchange(&mut connection, &request, &mut to, DEADLINE, forward).await;
        assert!(matches!(outcome, Err(RelayError::Broken)), "{outcome:?}");
        // Nor does the client receive a byte of it.
        connection.close().await;
        assert!(reading.await.unwrap().unwrap() == framed(good.len(), &good));
    }
}

#[tokio::test]
async fn a_backend_that_says_nothing_is_given_up_in_time() {
    let (backend, soon) = (bad_backend(Vec::new(), true).await, Duration::from_millis(200));
    let (outcome, broken, received) = relay_within(soon, backend, &fetch_request()).await;
    assert!(matches!(outcome, Err(RelayError::Timeout(_))), "{outcome:?}");
    assert!(broken && received.is_empty());
}

/// The handle stands behind an error text that is longer than every buffer: the reply is read whole before a byte of
/// it goes on.
#[tokio::test]
async fn a_handle_behind_a_long_status_is_replaced_all_the_same() {
    let theirs = Handle::random();
    let mut long = status::refusal(&UserError::internal("x"));
    long.sql_state = Some("x".repeat(300_000));
    long.status_code = hs2::tcli::TStatusCode::SUCCESS_WITH_INFO_STATUS;
    let operation_handle: Option<TOperationHandle> = Some(theirs.operation(TOperationType::EXECUTE_STATEMENT, false));
    let answer = TExecuteStatementResp { status: long, operation_handle };
    let reply = encode_reply("ExecuteStatement", 9, &answer);
    let request = hs2::tcli::TExecuteStatementReq {
        session_handle: Handle::random().session(),
        statement: "x".to_owned(),
        conf_overlay: None,
        run_async: None,
        query_timeout: None,
    };
    let request = Message::new(encode_call("ExecuteStatement", 9, &request).unwrap()).unwrap();
    let (mut connection, mut stream) = client_connection().await;
    let mut to = Client::connect(&bad_backend(framed(reply.len(), &reply), true).await).await.unwrap();
    let ours = Handle::random();
    let reading = tokio::spawn(async move {
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.unwrap();
        received
    });
    let decide = |reply: &hs2::scan::Reply, head: &[u8]| {
        assert_eq!(reply.handle.as_ref().map(|at: &HandleAt| at.read(head).unwrap()), Some(theirs));
        Decision::ForwardAs(ours)
    };
    relay::exchange(&mut connection, &request, &mut to, DEADLINE, decide).await.unwrap();
    connection.close().await;
    let received = reading.await.unwrap();
    let message = Message::new(received[4..].to_vec()).unwrap();
    let relayed = hs2::scan::reply(message.bytes()).unwrap();
    assert_eq!(relayed.handle.unwrap().read(message.bytes()).unwrap(), ours);
    assert_eq!(message.bytes().len(), reply.len());
}
