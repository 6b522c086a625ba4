//! The cookie of HTTP clients: when it is sent, and what it authenticates.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use hs2::{Authenticator, Connection, Credentials, Handler, Limits, Principal, Server};
use model::error::{ErrorKind, UserError};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::http::response;
use crate::support::echo;

/// Answers each message with itself. Its cookies are the names of users.
struct Echo;

#[async_trait]
impl Authenticator for Echo {
    async fn authenticate(&self, _: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        Ok(Principal::user(credentials.user.clone()))
    }

    fn authenticate_cookie(&self, cookie: &str) -> Result<Principal, UserError> {
        let refused = UserError::new(ErrorKind::InvalidAuthorization, "authentication failed");
        cookie.strip_prefix("valid-").map(Principal::user).ok_or(refused)
    }

    fn issue_cookie(&self, principal: &Principal) -> Option<String> {
        (principal.user != "carol").then(|| format!("valid-{}", principal.user))
    }
}

#[async_trait]
impl Handler for Echo {
    async fn connection(self: Arc<Self>, connection: Connection, stop: CancellationToken) {
        echo(connection, stop).await;
    }
}

/// The status of a call with these headers, and the cookie in the response.
async fn call(address: SocketAddr, headers: &str) -> (String, Option<String>) {
    let message = hs2::message::encode_call("GetInfo", 1, &hs2::tcli::TStringValue { value: None }).unwrap();
    let head = format!("POST / HTTP/1.1\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n", message.len());
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&[head.as_bytes(), &message].concat()).await.unwrap();
    let (head, _) = response(&mut stream).await;
    let cookie = head.lines().find_map(|line| line.strip_prefix("Set-Cookie: ")).map(str::to_owned);
    (head.split(' ').nth(1).unwrap().to_owned(), cookie)
}

#[tokio::test]
async fn a_cookie_replaces_credentials_for_calls_in_thrift_only() {
    let server = Server::bind("127.0.0.1:0", Limits::default()).await.unwrap();
    let address = server.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.serve_connections(Arc::new(Echo), stop.clone()));
    let (alice, carol) = ("Authorization: Basic YWxpY2U6eA==\r\n", "Authorization: Basic Y2Fyb2w6eA==\r\n");
    let thrift = "Content-Type: application/x-thrift\r\n";
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let valid = "Cookie: other=1; hive.server2.auth=valid-alice\r\n";
    let forged = "Cookie: hive.server2.auth=alice\r\n";

    let (status, cookie) = call(address, &format!("{alice}{thrift}")).await;
    assert_eq!(status, "200");
    let expected = "hive.server2.auth=valid-alice; Path=/; Max-Age=900; HttpOnly; SameSite=Strict";
    assert_eq!(cookie.unwrap(), expected);
    assert_eq!(call(address, &format!("{carol}{thrift}")).await, ("200".to_owned(), None), "none is issued");
    // It is not renewed by itself.
    assert_eq!(call(address, &format!("{valid}{thrift}")).await, ("200".to_owned(), None));
    for refused in [format!("{forged}{thrift}"), format!("{valid}{form}"), valid.to_owned()] {
        assert_eq!(call(address, &refused).await, ("401".to_owned(), None), "{refused}");
    }
    // Credentials take precedence, also wrong ones.
    let (status, cookie) = call(address, &format!("{alice}{forged}{thrift}")).await;
    assert!(status == "200" && cookie.is_some());
    let broken = format!("Authorization: Basic ?\r\n{valid}{thrift}");
    assert_eq!(call(address, &broken).await.0, "401");
    stop.cancel();
    serving.await.unwrap();
}
