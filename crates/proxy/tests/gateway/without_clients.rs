//! A proxy that serves no clients: a dedicated master.

use hs2::Auth;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::cluster::Cluster;
use crate::fixture::{eventually, wire, within};

const REASON: &str = "this proxy serves no clients";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_without_clients_rejects_every_login_and_serves_the_probes() {
    let cluster = Cluster::with(1, |settings| settings.serves_clients = false).await;
    let address = cluster.proxy.addr().to_string();
    assert_eq!(wire::probe(&address, "/livez").await, (200, "ok".to_owned()));
    eventually("it is ready", async || (wire::probe(&address, "/readyz").await.0 == 200).then_some(())).await;
    for auth in [Auth::user("admin", ""), Auth::None] {
        let error = cluster.try_session_as(auth.clone(), &[]).await.err().unwrap();
        assert!(error.to_string().contains(REASON), "{auth:?}: {error}");
    }
    let mut stream = TcpStream::connect(&address).await.unwrap();
    // `admin:x` in base 64.
    let head = "POST /cliservice HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YWRtaW46eA==\r\n\
                Content-Type: application/x-thrift\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within("HTTP", stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401") && answer.contains(REASON), "{answer}");
}
