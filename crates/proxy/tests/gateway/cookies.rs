//! The cookie of HTTP clients: one login is enough for the calls of a while, over any connection.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use authentication::{Chain, FileMethod, HashQueue, LoginCache, PasswordHash, Throttle, UsersFile};
use hs2::message::{decode_reply, encode_call};
use hs2::tcli::{TExecuteStatementReq, TExecuteStatementResp, TOpenSessionReq, TOpenSessionResp, TSessionHandle};
use hs2::{protocol, status};
use model::clock::SystemClock;
use proxy::Settings;
use thrift::protocol::TSerializable;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::cluster::Cluster;
use crate::fixture::within;

/// `ann:secret` in base 64.
const ANN: &str = "Authorization: Basic YW5uOnNlY3JldA==\r\n";

/// Method `file` with user ann.
fn with_users(settings: &mut Settings, folder: &std::path::Path) {
    let path = folder.join("users");
    std::fs::write(&path, format!("ann:{}:analysts\n", PasswordHash::of("secret").unwrap())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let clock = SystemClock::shared();
    let cache = Arc::new(LoginCache::new(Duration::from_mins(1), clock.clone()));
    let file = Arc::new(UsersFile::open(&path).unwrap());
    let method = FileMethod::new(file, HashQueue::default(), cache).unwrap();
    let throttle = Throttle::new(Duration::from_mins(5), clock.clone());
    settings.authentication = Some(Arc::new(Chain::new(vec![Arc::new(method)], throttle, clock)));
}

/// The response to a call at a path, over a connection of its own: its head and its body.
pub(crate) async fn post_at<Q: TSerializable>(
    cluster: &Cluster,
    path: &str,
    headers: &str,
    method: &str,
    request: &Q,
) -> (String, Vec<u8>) {
    let body = encode_call(method, 1, request).unwrap();
    let mut stream = TcpStream::connect(cluster.proxy.addr()).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Type: application/x-thrift\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
    let mut reply = Vec::new();
    within(method, stream.read_to_end(&mut reply)).await.unwrap();
    let end = reply.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    let body = reply.split_off(end);
    (String::from_utf8(reply).unwrap(), body)
}

async fn post<Q: TSerializable>(cluster: &Cluster, headers: &str, method: &str, request: &Q) -> (String, Vec<u8>) {
    post_at(cluster, "/cliservice", headers, method, request).await
}

fn statement(session_handle: &TSessionHandle) -> TExecuteStatementReq {
    TExecuteStatementReq {
        session_handle: session_handle.clone(),
        statement: "SHOW TENANTS".to_owned(),
        conf_overlay: None,
        run_async: Some(false),
        query_timeout: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cookie_authenticates_the_calls_after_a_login() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::with(1, |settings| with_users(settings, folder.path())).await;
    let opening =
        TOpenSessionReq { client_protocol: protocol::NEWEST, username: None, password: None, configuration: None };
    let (head, _) = post(&cluster, "", "OpenSession", &opening).await;
    assert!(head.starts_with("HTTP/1.1 401 ") && !head.contains("Set-Cookie"), "{head}");
    let (head, body) = post(&cluster, ANN, "OpenSession", &opening).await;
    let opened: TOpenSessionResp = decode_reply(&body).unwrap();
    status::check(&opened.status).unwrap();
    let session = opened.session_handle.unwrap();
    let cookie = head.lines().find_map(|line| line.strip_prefix("Set-Cookie: ")).expect("a cookie");
    let (pair, attributes) = cookie.split_once(';').unwrap();
    assert!(pair.starts_with("hive.server2.auth=") && attributes.contains("HttpOnly"), "{cookie}");

    let cookie = format!("Cookie: {pair}\r\n");
    let (head, body) = post(&cluster, &cookie, "ExecuteStatement", &statement(&session)).await;
    assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("Set-Cookie"), "{head}");
    let executed: TExecuteStatementResp = decode_reply(&body).unwrap();
    status::check(&executed.status).unwrap();

    let forged = format!("Cookie: {}\r\n", pair.replacen("auth=", "auth=A", 1));
    let (head, body) = post(&cluster, &forged, "ExecuteStatement", &statement(&session)).await;
    assert!(head.starts_with("HTTP/1.1 401 ") && head.contains("Www-Authenticate: Basic "), "{head}");
    assert_eq!(body, b"authentication failed\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_names_are_trusted_no_cookie_is_sent() {
    let cluster = Cluster::with(0, |_| {}).await;
    let (head, _) = post(
        &cluster,
        ANN,
        "OpenSession",
        &TOpenSessionReq { client_protocol: protocol::NEWEST, username: None, password: None, configuration: None },
    )
    .await;
    assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("Set-Cookie"), "{head}");
}
