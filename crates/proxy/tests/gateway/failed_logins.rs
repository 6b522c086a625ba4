//! Failed logins over HTTP: equal responses, their delays, and the lock-out.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use crate::cluster::Cluster;
use crate::fixture::within;
use crate::rights::{method_file, write_users};

/// `user:password` in base 64.
const RIGHT: &str = "YW5uOmNvcnJlY3QgaG9yc2U=";
const WRONG_PASSWORD: &str = "YW5uOndyb25n";
const UNKNOWN_USER: &str = "ZXZlOndyb25n";
const EMPTY_PASSWORD: &str = "YW5uOg==";
const NAME_OF_A_GROUP: &str = "QGFkbWluczp3cm9uZw==";
const NAME_OF_TWO_LINES: &str = "YW5uCnJvb3Q6d3Jvbmc=";

/// The failures that lock a user out from an address.
const LOCKOUT_FAILURES: usize = 40;

/// The response to a request without a body, from an address of the loopback network.
async fn response(cluster: &Cluster, from: u8, credentials: &str) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, from], 0))).unwrap();
    let mut stream = socket.connect(cluster.proxy.addr()).await.unwrap();
    let request = format!(
        "POST /cliservice HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {credentials}\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    within("a response", stream.read_to_end(&mut response)).await.unwrap();
    String::from_utf8_lossy(&response).into_owned()
}

async fn cluster(folder: &tempfile::TempDir) -> Cluster {
    let path = folder.path().join("users");
    write_users(&path, &[("ann", &[])]);
    Cluster::with(1, |settings| settings.authentication = Some(method_file(&path))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_to_failed_logins_over_http_are_equal_and_slower_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = cluster(&folder).await;
    let began = Instant::now();
    let expected = response(&cluster, 10, WRONG_PASSWORD).await;
    assert!(expected.starts_with("HTTP/1.1 401 Unauthorized\r\n"), "{expected}");
    assert!(expected.contains("Www-Authenticate: Basic") && expected.contains("authentication failed"), "{expected}");
    for _ in 0..3 {
        assert_eq!(response(&cluster, 10, WRONG_PASSWORD).await, expected);
    }
    // 0.1, 0.2, 0.4 and 0.8 s, each up to 20 % less.
    assert!(began.elapsed() > Duration::from_millis(1_200), "{:?}", began.elapsed());
    let failures = [UNKNOWN_USER, EMPTY_PASSWORD, NAME_OF_A_GROUP, NAME_OF_TWO_LINES];
    for (from, credentials) in (20..).zip(failures) {
        assert_eq!(response(&cluster, from, credentials).await, expected, "{credentials}");
    }
    // A method and a message that are accepted: the body is not Thrift.
    assert!(response(&cluster, 30, RIGHT).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_failures_over_http_lock_the_user_out_from_their_address() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = cluster(&folder).await;
    let failures = join_all((0..LOCKOUT_FAILURES).map(|_| response(&cluster, 10, WRONG_PASSWORD))).await;
    assert!(failures.iter().all(|failure| failure.starts_with("HTTP/1.1 401 ")), "{failures:?}");
    // The right password is refused from there, in the same words, and accepted from elsewhere.
    assert_eq!(response(&cluster, 10, RIGHT).await, failures[0]);
    assert!(response(&cluster, 11, RIGHT).await.starts_with("HTTP/1.1 200 "));
}
