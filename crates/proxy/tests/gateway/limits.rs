//! The limits of one client, and unusual names and requests.

use std::time::Duration;

use hs2::message::{decode_reply, encode_call};
use hs2::tcli::{TExecuteStatementReq, TExecuteStatementResp, TOpenSessionReq, TOpenSessionResp, TSessionHandle};
use hs2::{Auth, Client, ClientError, ClientOptions, Session, protocol, status};
use model::error::UserError;
use thrift::protocol::TSerializable;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::agents::{run, try_run};
use crate::cluster::Cluster;
use crate::fixture::{WAIT, eventually, within};

/// One request over HTTP of a user whose name has three letters; the head and the body of the answer.
async fn post(cluster: &Cluster, headers: &str, body: &[u8]) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(cluster.proxy.addr()).await.unwrap();
    let head = format!(
        "POST /cliservice HTTP/1.1\r\n{headers}Authorization: Basic YW5uOng=\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut reply = Vec::new();
    within("an answer", stream.read_to_end(&mut reply)).await.unwrap();
    let end = reply.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    (String::from_utf8_lossy(&reply[..end]).into_owned(), reply[end..].to_vec())
}

async fn call<Q: TSerializable, A: TSerializable>(cluster: &Cluster, method: &str, request: &Q) -> A {
    let (head, body) = post(cluster, "Host: localhost\r\n", &encode_call(method, 1, request).unwrap()).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    decode_reply(&body).unwrap()
}

fn opening() -> TOpenSessionReq {
    TOpenSessionReq { client_protocol: protocol::NEWEST, username: None, password: None, configuration: None }
}

async fn open(cluster: &Cluster) -> Result<TSessionHandle, UserError> {
    let answer: TOpenSessionResp = call(cluster, "OpenSession", &opening()).await;
    status::check(&answer.status).map(|()| answer.session_handle.unwrap())
}

async fn set(cluster: &Cluster, session: &TSessionHandle) -> Result<(), UserError> {
    let request = TExecuteStatementReq {
        session_handle: session.clone(),
        statement: "SET enginehouse.tenant".to_owned(),
        conf_overlay: None,
        run_async: Some(true),
        query_timeout: None,
    };
    let answer: TExecuteStatementResp = call(cluster, "ExecuteStatement", &request).await;
    status::check(&answer.status)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_a_session_are_closed_and_others_get_in() {
    let cluster = Cluster::with(1, |settings| {
        settings.limits.wire.connections = 3;
        settings.limits.without_session = Duration::from_secs(5);
    })
    .await;
    let mut used = cluster.session("bob").await;
    let (one, two) = (cluster.connect("ann").await, cluster.connect("ann").await);
    let eve = ClientOptions::new(cluster.proxy.addr().to_string(), Auth::user("eve", ""));
    let refused = Client::connect(&eve).await;
    assert!(matches!(refused.map(drop), Err(ClientError::Unauthenticated(_))), "there is no place");
    within("the end of both", async { tokio::join!(one.closed(), two.closed()) }).await;
    let served = eventually("a place", async || Client::connect(&eve).await.ok()).await;
    Session::open(served, &[]).await.unwrap();
    // A connection with a session stays.
    run(&mut used, "SET enginehouse.tenant").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unused_sessions_over_http_give_their_places_up() {
    for of_peer in [false, true] {
        let cluster = Cluster::with(1, |settings| {
            let limit =
                if of_peer { &mut settings.limits.http_sessions_per_peer } else { &mut settings.limits.sessions };
            *limit = 3;
        })
        .await;
        let (used, first, second) =
            (open(&cluster).await.unwrap(), open(&cluster).await.unwrap(), open(&cluster).await.unwrap());
        set(&cluster, &used).await.unwrap();
        let third = open(&cluster).await.expect("the first unused one goes");
        assert_eq!(set(&cluster, &first).await.unwrap_err().sqlstate(), "55000");
        for session in [&used, &second, &third] {
            set(&cluster, session).await.unwrap();
        }
        // All were used: now the limit holds.
        assert_eq!(open(&cluster).await.unwrap_err().sqlstate(), "54000");
        let binary = cluster.try_session("bob", &[]).await.map(drop);
        assert_eq!(binary.is_ok(), of_peer, "sessions of connections are not limited by address: {binary:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_names_of_the_proxy_are_served_over_http() {
    let cluster = Cluster::with(1, |settings| settings.hosts = vec!["gateway.example".to_owned()]).await;
    let body = encode_call("OpenSession", 1, &opening()).unwrap();
    for (headers, expected) in [
        ("Host: evil.example:10009\r\n", "421"),
        ("Host: gateway.example:10009\r\n", "200"),
        ("Host: GATEWAY.example\r\n", "200"),
        ("Host: 127.0.0.1:10009\r\n", "200"),
        ("Host: gateway.example\r\nOrigin: null\r\n", "403"),
    ] {
        let (head, _) = post(&cluster, headers, &body).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {expected} ")), "{headers}: {head}");
    }
}

/// The names under which roles connect to each other are names of users, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_may_be_named_as_roles_are() {
    let (cluster, mut admin, _engine) = Cluster::with_engine().await;
    let settling = cluster.master.keep_settling();
    run(&mut admin, "ALTER TENANT t_1 USER_LIST ('ann', 'proxy', 'master')").await;
    drop(settling);
    for user in ["proxy", "master"] {
        let mut session = cluster.session(user).await;
        assert_eq!(run(&mut session, "SELECT 1").await.rows.len(), 1, "{user}");
        assert_eq!(run(&mut session, "SHOW ENGINES t_1").await.rows.len(), 1, "{user}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_its_engine_closed_for_idleness_is_bound_again() {
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let mut plain = cluster.session("ann").await;
    let mut stateful: Session = cluster.session("ann").await;
    run(&mut plain, "SELECT 1").await;
    run(&mut stateful, "CREATE TEMPORARY VIEW mine AS SELECT 1").await;
    engine.datafusion.close_sessions();
    // There is one engine: it is not passed over either.
    let again = tokio::time::timeout(WAIT / 2, try_run(&mut plain, "SELECT 2")).await;
    assert_eq!(again.unwrap().unwrap().rows[0][0].to_string(), "2");
    let error = try_run(&mut stateful, "SELECT * FROM mine").await.unwrap_err();
    assert_eq!(error.sqlstate(), "08S01", "{}", error.text());
    let error = try_run(&mut stateful, "SELECT 1").await.unwrap_err();
    assert!(error.text().contains("state was lost"), "{}", error.text());
}
