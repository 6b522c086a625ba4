//! Requests below `/api/`: which of them arrive, and how the others are rejected.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hs2::http_api::{MAX_API_BODY_BYTES, problem};
use hs2::{
    ApiRequest, Authenticator, Connection, Credentials, Handler, HttpApi, Limits, Principal, RequestMemory, Server,
    TlsVersion,
};
use http::{HeaderValue, Response, StatusCode};
use model::error::{ErrorKind, UserError};
use serde_json::{Value, json};
use tests::certificate::Certificate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::http::{post, response};
use crate::support::server_tls;

const DEADLINE: Duration = Duration::from_secs(10);
const ALICE: &str = "Authorization: Basic YWxpY2U6eA==\r\n";
const MALLORY: &str = "Authorization: Basic bWFsbG9yeTp4\r\n";
const DORA: &str = "Authorization: Basic ZG9yYTp4\r\n";

/// Serves `/api/` by returning what arrived, and Thrift by returning each message.
#[derive(Default)]
struct Echo {
    has_no_api: bool,
    api: Arc<EchoApi>,
}

#[derive(Default)]
struct EchoApi {
    /// A request for `/api/wait` has begun.
    begun: Notify,
    /// It was dropped.
    dropped: Arc<Notify>,
}

struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[async_trait]
impl HttpApi for EchoApi {
    async fn respond(&self, ApiRequest { principal, peer, request }: ApiRequest) -> Response<Bytes> {
        assert!(peer.ip().is_loopback());
        assert!(!request.headers().contains_key("authorization") && !request.headers().contains_key("cookie"));
        match request.uri().path() {
            "/api/wait" => {
                let _dropped = NotifyOnDrop(Arc::clone(&self.dropped));
                self.begun.notify_one();
                std::future::pending().await
            }
            "/api/slow" => {
                self.begun.notify_one();
                tokio::time::sleep(Duration::from_millis(300)).await;
                Response::new(Bytes::from(vec![b'x'; 8 << 20]))
            }
            "/api/fail" => {
                let error = UserError::new(ErrorKind::UndefinedObject, "engine \"e\" does not exist")
                    .detail("The pool has 2 engines.")
                    .hint("SHOW ENGINES");
                problem(StatusCode::NOT_FOUND, &error)
            }
            _ => {
                let facts = json!({
                    "user": principal.user,
                    "method": request.method().as_str(),
                    "target": request.uri().to_string(),
                    "bytes": request.body().len(),
                    "sum": request.body().iter().map(|byte| u64::from(*byte)).sum::<u64>(),
                });
                let mut response = Response::new(Bytes::from(facts.to_string()));
                for (name, value) in [
                    ("set-cookie", "hive.server2.auth=valid-alice"),
                    ("content-length", "3"),
                    ("connection", "close"),
                    ("x-own", "1"),
                ] {
                    response.headers_mut().insert(name, HeaderValue::from_static(value));
                }
                response
            }
        }
    }
}

#[async_trait]
impl Authenticator for Echo {
    async fn authenticate(&self, _: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        if credentials.user == "mallory" {
            return Err(UserError::new(ErrorKind::InvalidAuthorization, "authentication failed"));
        }
        Ok(Principal::user(credentials.user.as_str()))
    }

    fn authenticate_cookie(&self, _: &str) -> Result<Principal, UserError> {
        Ok(Principal::user("alice"))
    }

    fn issue_cookie(&self, principal: &Principal) -> Option<String> {
        Some(format!("valid-{}", principal.user))
    }
}

#[async_trait]
impl Handler for Echo {
    async fn connection(self: Arc<Self>, mut connection: Connection, stop: CancellationToken) {
        loop {
            let next = tokio::select! {
                () = stop.cancelled() => break,
                next = connection.next() => next,
            };
            let Ok(Some(message)) = next else { return };
            connection.send(message.bytes()).await.unwrap();
        }
        connection.close().await;
    }

    fn http_api(&self) -> Option<Arc<dyn HttpApi>> {
        (!self.has_no_api).then(|| Arc::clone(&self.api) as _)
    }
}

struct Serving {
    address: SocketAddr,
    api: Arc<EchoApi>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Serving {
    async fn start(limits: Limits) -> Self {
        Self::start_on(Server::bind("127.0.0.1:0", limits).await.unwrap(), Echo::default())
    }

    fn start_on(server: Server, echo: Echo) -> Self {
        let (address, stop, api) = (server.local_addr().unwrap(), CancellationToken::new(), Arc::clone(&echo.api));
        let task = tokio::spawn(server.serve_connections(Arc::new(echo), stop.clone()));
        Self { address, api, stop, task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// The response to one request on a connection of its own.
    async fn ask(&self, request: &[u8]) -> (String, Value) {
        let mut stream = self.connect().await;
        stream.write_all(request).await.unwrap();
        let (head, body) = response(&mut stream).await;
        (head, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

fn status(head: &str) -> &str {
    head.split(' ').nth(1).unwrap()
}

#[tokio::test]
async fn requests_of_every_method_arrive_with_their_bodies() {
    let serving = Serving::start(Limits::default()).await;
    let mut stream = serving.connect().await;
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"] {
        for (framing, body, bytes) in [
            ("", "", 0),
            ("Content-Length: 0\r\n", "", 0),
            ("Content-Length: 3\r\n", "abc", 3),
            ("Expect: 100-continue\r\nContent-Length: 3\r\n", "abc", 3),
            ("Transfer-Encoding: chunked\r\n", "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", 3),
        ] {
            let request = format!("{method} /api/v1/x?a=b%20c HTTP/1.1\r\n{ALICE}Cookie: a=b\r\n{framing}\r\n{body}");
            stream.write_all(request.as_bytes()).await.unwrap();
            let (mut head, mut body) = response(&mut stream).await;
            if head.starts_with("HTTP/1.1 100 ") {
                (head, body) = response(&mut stream).await;
            }
            assert_eq!(status(&head), "200", "{request}");
            assert!(!head.contains("Cookie") && !head.contains("Connection: close"), "{head}");
            assert!(head.contains("X-Own: 1\r\n"), "{head}");
            let facts: Value = serde_json::from_slice(&body).unwrap();
            let sum = if bytes == 0 { 0 } else { 97 + 98 + 99 };
            let target = "/api/v1/x?a=b%20c";
            let expected = json!({"user": "alice", "method": method, "target": target, "bytes": bytes, "sum": sum});
            assert_eq!(facts, expected, "{request}");
        }
    }
    // The connection is not the request's: another user, and Thrift.
    stream.write_all(format!("GET /api HTTP/1.1\r\n{DORA}\r\n").as_bytes()).await.unwrap();
    let (_, body) = response(&mut stream).await;
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["user"], "dora");
    let message = hs2::message::encode_call("GetInfo", 1, &hs2::tcli::TStringValue { value: None }).unwrap();
    stream.write_all(&post(&message, "")).await.unwrap();
    assert_eq!(response(&mut stream).await.1, message);
    serving.stop().await;
}

#[tokio::test]
async fn the_response_to_head_has_a_length_and_no_body() {
    let serving = Serving::start(Limits::default()).await;
    let mut stream = serving.connect().await;
    for method in ["HEAD", "GET"] {
        stream.write_all(format!("{method} /api/fail HTTP/1.1\r\n{ALICE}\r\n").as_bytes()).await.unwrap();
    }
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(DEADLINE, stream.read_u8()).await.unwrap().unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let (next, body) = response(&mut stream).await;
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    assert_eq!((status(&head), status(&next)), ("404", "404"));
    serving.stop().await;
}

#[tokio::test]
async fn rejections_below_api_are_problems() {
    let serving = Serving::start(Limits::default()).await;
    let too_long = MAX_API_BODY_BYTES + 1;
    let cookie = "Cookie: hive.server2.auth=valid-alice\r\nContent-Type: application/x-thrift\r\n";
    let requests = [
        ("GET /api/v1", "", "401", "28000"),
        ("GET /api", "", "401", "28000"),
        ("GET /api/v1", MALLORY, "401", "28000"),
        ("GET /api/v1", cookie, "401", "28000"),
        ("POST /api/v1", &format!("{cookie}Content-Length: 0\r\n"), "401", "28000"),
        ("GET /api/v1", &format!("{ALICE}Origin: http://localhost\r\n"), "403", "28000"),
        ("GET /api/v1", &format!("{ALICE}Host: evil.example\r\n"), "421", "28000"),
        ("GET /api/v1", &format!("{ALICE}Host: a\r\nHost: b\r\n"), "400", "22023"),
        ("POST /api/v1", &format!("{ALICE}Content-Encoding: gzip\r\nContent-Length: 0\r\n"), "415", "0A000"),
        ("POST /api/v1", &format!("{ALICE}Content-Length: {too_long}\r\n"), "413", "54000"),
        ("GET http://localhost/api/v1", ALICE, "400", "22023"),
        ("TRACE /api/v1", ALICE, "405", "0A000"),
        ("CONNECT /api/v1", ALICE, "405", "0A000"),
        ("GET //api/v1", ALICE, "404", "42704"),
        ("GET /api/../api/v1", ALICE, "404", "42704"),
        ("GET /x/../api/v1", ALICE, "404", "42704"),
        ("POST /%61pi/v1", ALICE, "404", "42704"),
        ("GET /%2e/api", ALICE, "404", "42704"),
        ("GET /%2e/api", "", "401", "28000"),
        ("POST /api/v1", &format!("{ALICE}Transfer-Encoding: chunked\r\n\r\nzz\r\n"), "400", "22023"),
        ("GET /api/fail", ALICE, "404", "42704"),
    ];
    for (target, headers, expected, sqlstate) in requests {
        let (head, problem) = serving.ask(format!("{target} HTTP/1.1\r\n{headers}\r\n").as_bytes()).await;
        assert_eq!(status(&head), expected, "{target} {headers}");
        assert!(head.contains("Content-Type: application/problem+json\r\n"), "{target} {headers}: {head}");
        assert!(!head.contains("Cookie"), "{head}");
        assert_eq!(problem["sqlstate"], sqlstate, "{target} {headers}: {problem}");
        assert_eq!(problem["status"].to_string(), expected);
        assert!(!problem["title"].as_str().unwrap().is_empty());
        assert_eq!(head.contains("Www-Authenticate: Basic"), expected == "401", "{head}");
        assert_eq!(head.contains("Allow: GET"), expected == "405", "{head}");
        let known = ["title", "status", "sqlstate", "detail", "hint"];
        assert!(problem.as_object().unwrap().iter().all(|(name, value)| known.contains(&&**name) && !value.is_null()));
    }
    serving.stop().await;
}

#[tokio::test]
async fn a_problem_names_every_part_of_its_error() {
    let serving = Serving::start(Limits::default()).await;
    let (_, problem) = serving.ask(format!("GET /api/fail HTTP/1.1\r\n{ALICE}\r\n").as_bytes()).await;
    let expected = json!({
        "title": "engine \"e\" does not exist",
        "status": 404,
        "sqlstate": "42704",
        "detail": "The pool has 2 engines.",
        "hint": "SHOW ENGINES",
    });
    assert_eq!(problem, expected);
    serving.stop().await;
}

#[tokio::test]
async fn without_tls_where_it_is_required_nothing_below_api_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let files = Certificate::create(folder.path(), "server").unwrap();
    let (tls, _) = server_tls(&files, TlsVersion::Tls12, true);
    let server = Server::bind("127.0.0.1:0", Limits::default()).await.unwrap().with_tls(tls);
    let serving = Serving::start_on(server, Echo::default());
    let (head, problem) = serving.ask(format!("GET /api/v1 HTTP/1.1\r\n{ALICE}\r\n").as_bytes()).await;
    assert_eq!((status(&head), problem["sqlstate"].as_str()), ("426", Some("28000")));
    serving.stop().await;
}

#[tokio::test]
async fn a_listener_without_an_api_has_nothing_below_api() {
    let server = Server::bind("127.0.0.1:0", Limits::default()).await.unwrap();
    let serving = Serving::start_on(server, Echo { has_no_api: true, ..Echo::default() });
    let message = hs2::message::encode_call("GetInfo", 1, &hs2::tcli::TStringValue { value: None }).unwrap();
    for path in ["/api", "/api/", "/api/v1/engines"] {
        let request =
            [format!("POST {path} HTTP/1.1\r\n{ALICE}Content-Length: {}\r\n\r\n", message.len()).as_bytes(), &message]
                .concat();
        let (head, problem) = serving.ask(&request).await;
        assert_eq!((status(&head), problem["sqlstate"].as_str()), ("404", Some("42704")), "{path}");
        assert_eq!(status(&serving.ask(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).await.0), "401", "{path}");
    }
    // Every other path is the Thrift service's.
    for path in ["/", "/cliservice", "/cliservice/", "//cliservice", "/gateway/default/hive", "/apis", "/x?y=/api/"] {
        let mut stream = serving.connect().await;
        let head = format!("POST {path} HTTP/1.1\r\n{ALICE}Content-Length: {}\r\n\r\n", message.len());
        stream.write_all(&[head.as_bytes(), &message].concat()).await.unwrap();
        assert_eq!(response(&mut stream).await.1, message, "{path}");
    }
    serving.stop().await;
}

#[tokio::test]
async fn a_body_below_api_has_a_limit_and_a_deadline() {
    let serving = Serving::start(Limits { stall: Duration::from_millis(300), ..Limits::default() }).await;
    let body = vec![b'x'; MAX_API_BODY_BYTES + 1];
    let by_length = |bytes: usize| {
        let head = format!("POST /api/v1 HTTP/1.1\r\n{ALICE}Content-Length: {bytes}\r\n\r\n");
        [head.as_bytes(), &body[..bytes]].concat()
    };
    let by_chunks = |bytes: usize| {
        let head = format!("POST /api/v1 HTTP/1.1\r\n{ALICE}Transfer-Encoding: chunked\r\n\r\n{bytes:x}\r\n");
        [head.as_bytes(), &body[..bytes], b"\r\n0\r\n\r\n"].concat()
    };
    for request in [by_length(MAX_API_BODY_BYTES), by_chunks(MAX_API_BODY_BYTES)] {
        let (head, facts) = serving.ask(&request).await;
        assert_eq!((status(&head), facts["bytes"].as_u64()), ("200", Some(MAX_API_BODY_BYTES as u64)));
    }
    for request in [by_length(body.len()), by_chunks(body.len())] {
        let (head, problem) = serving.ask(&request).await;
        assert_eq!((status(&head), problem["sqlstate"].as_str()), ("413", Some("54000")));
    }
    let (head, problem) = serving.ask(&by_length(1000)[..200]).await;
    assert_eq!((status(&head), problem["sqlstate"].as_str()), ("408", Some("HYT00")));
    assert!(head.contains("Connection: close"), "{head}");
    serving.stop().await;
}

/// Requests below `/api/` count in their user's share of the bytes that are being received.
#[tokio::test]
async fn slow_bodies_of_one_user_leave_the_share_of_another() {
    let request_memory = RequestMemory::new(16 << 20, 4 * MAX_API_BODY_BYTES);
    let serving = Serving::start(Limits { stall: Duration::from_secs(3), request_memory, ..Limits::default() }).await;
    let request = |user| format!("POST /api/v1 HTTP/1.1\r\n{user}Content-Length: {MAX_API_BODY_BYTES}\r\n\r\n");
    let mut slow = JoinSet::new();
    for _ in 0..4 {
        let mut stream = serving.connect().await;
        stream.write_all(request(DORA).as_bytes()).await.unwrap();
        slow.spawn(async move {
            while stream.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let body = vec![b'x'; MAX_API_BODY_BYTES];
    // The other request of dora waits before anything of its body is read.
    let (dora, alice) = (request(DORA).into_bytes(), [request(ALICE).as_bytes(), &body].concat());
    let (dora, alice) = tokio::join!(serving.ask(&dora), serving.ask(&alice));
    assert_eq!((status(&dora.0), status(&alice.0), dora.1["sqlstate"].as_str()), ("503", "200", Some("54000")));
    assert!(dora.1["hint"].as_str().unwrap().contains("proxy.request_memory_per_user"), "{}", dora.1);
    slow.shutdown().await;
    serving.stop().await;
}

#[tokio::test]
async fn a_request_below_api_has_the_grace_of_its_server() {
    let serving = Serving::start(Limits::default()).await;
    let mut stream = serving.connect().await;
    stream.write_all(format!("GET /api/slow HTTP/1.1\r\n{ALICE}\r\n").as_bytes()).await.unwrap();
    timeout(DEADLINE, serving.api.begun.notified()).await.unwrap();
    let ((), (head, body)) = tokio::join!(serving.stop(), response(&mut stream));
    assert_eq!((status(&head), body.len()), ("200", 8 << 20));
}

#[tokio::test]
async fn a_request_below_api_ends_with_its_client() {
    let serving = Serving::start(Limits::default()).await;
    let mut stream = serving.connect().await;
    stream.write_all(format!("GET /api/wait HTTP/1.1\r\n{ALICE}\r\n").as_bytes()).await.unwrap();
    timeout(DEADLINE, serving.api.begun.notified()).await.unwrap();
    drop(stream);
    timeout(DEADLINE, serving.api.dropped.notified()).await.expect("it is dropped");
    serving.stop().await;
}
