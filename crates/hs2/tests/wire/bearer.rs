//! Bearer tokens of HTTP clients, challenges, and clients without a user name.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use hs2::{
    Auth, Authenticator, Client, ClientOptions, Connection, Credentials, Handler, HttpScheme, Limits, Principal, Server,
};
use model::error::{ErrorKind, UserError};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::http::response;
use crate::support::{Serving, echo};

/// A token is the name of its user after `token-`, which may also be the password.
struct Tokens;

fn user_of(token: &str) -> Result<Principal, UserError> {
    let refused = UserError::new(ErrorKind::InvalidAuthorization, "authentication failed");
    token.strip_prefix("token-").map(Principal::user).ok_or(refused)
}

#[async_trait]
impl Authenticator for Tokens {
    async fn authenticate(&self, _: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        user_of(&credentials.password)
    }

    async fn authenticate_bearer(&self, _: SocketAddr, token: &str, authzid: &str) -> Result<Principal, UserError> {
        let principal = user_of(token)?;
        Ok(if authzid.is_empty() { principal } else { principal.impersonating(authzid, Vec::new()) })
    }

    fn http_schemes(&self) -> Vec<HttpScheme> {
        vec![HttpScheme::Basic, HttpScheme::Bearer]
    }

    fn accepts_no_user_name(&self) -> bool {
        true
    }

    fn issue_cookie(&self, principal: &Principal) -> Option<String> {
        Some(principal.user.clone())
    }
}

#[async_trait]
impl Handler for Tokens {
    async fn connection(self: Arc<Self>, connection: Connection, _: CancellationToken) {
        answer_with_principal(connection).await;
    }
}

/// Answers each message with the user of the connection, and who acts for it.
pub(crate) async fn answer_with_principal(mut connection: Connection) {
    while let Ok(Some(message)) = connection.next().await {
        let Principal { user, via, .. } = connection.principal().unwrap();
        let value = Some(format!("user {user} via {}", via.as_deref().unwrap_or("-")));
        let reply = hs2::message::encode_call("GetInfo", 1, &hs2::tcli::TStringValue { value }).unwrap();
        drop(message);
        connection.send(&reply).await.unwrap();
    }
}

/// A server until the token is cancelled.
pub(crate) async fn serve<H: Handler + Authenticator + 'static>(handler: H) -> (SocketAddr, CancellationToken) {
    serve_on(Server::bind("127.0.0.1:0", Limits::default()).await.unwrap(), handler)
}

pub(crate) fn serve_on<H: Handler + Authenticator + 'static>(
    server: Server,
    handler: H,
) -> (SocketAddr, CancellationToken) {
    let (address, stop) = (server.local_addr().unwrap(), CancellationToken::new());
    tokio::spawn(server.serve_connections(Arc::new(handler), stop.clone()));
    (address, stop)
}

pub(crate) fn get_info() -> Vec<u8> {
    hs2::message::encode_call("GetInfo", 1, &hs2::tcli::TStringValue { value: None }).unwrap()
}

/// Head and body of the response to a call.
pub(crate) async fn call(address: SocketAddr, path: &str, header: &str) -> (String, String) {
    let message = get_info();
    let length = message.len();
    let head = format!("POST {path} HTTP/1.1\r\n{header}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&[head.as_bytes(), &message].concat()).await.unwrap();
    let (head, body) = response(&mut stream).await;
    (head, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn a_bearer_token_authenticates_one_request_and_is_given_no_cookie() {
    let (address, stop) = serve(Tokens).await;
    for header in ["Authorization: Bearer token-ann\r\n", "Authorization: bEARER  token-ann\r\n"] {
        let (head, body) = call(address, "/", header).await;
        assert!(head.starts_with("HTTP/1.1 200") && !head.contains("Set-Cookie"), "{head}");
        assert!(body.contains("user ann via -"), "{body}");
    }
    let (_, body) = call(address, "/?doAs=ann", "Authorization: Bearer token-etl\r\n").await;
    assert!(body.contains("user ann via etl"), "{body}");
    stop.cancel();
}

#[tokio::test]
async fn a_refusal_has_one_challenge_for_each_scheme() {
    let (address, stop) = serve(Tokens).await;
    // hyper writes the name in this case.
    let both = ["Www-Authenticate: Basic realm=\"enginehouse\"", "Www-Authenticate: Bearer realm=\"enginehouse\""];
    for (header, text) in [
        ("", "the request has neither Basic credentials nor a Bearer token"),
        ("Authorization: Digest YWFh\r\n", "the request has neither Basic credentials nor a Bearer token"),
        ("Authorization: Negotiate YWFh\r\n", "tickets are not accepted"),
        ("Authorization: Bearer other\r\n", "authentication failed"),
    ] {
        let (head, body) = call(address, "/", header).await;
        assert!(head.starts_with("HTTP/1.1 401") && body.contains(text), "{head}{body}");
        let challenges: Vec<&str> = head.lines().filter(|line| line.starts_with("Www-Authenticate")).collect();
        assert_eq!(challenges, both);
    }
    stop.cancel();

    let (address, stop) = serve(Serving(echo)).await;
    let (head, body) = call(address, "/", "Authorization: Bearer token-ann\r\n").await;
    assert!(head.starts_with("HTTP/1.1 401") && body.contains("bearer tokens are not accepted"), "{head}{body}");
    assert_eq!(head.matches("Www-Authenticate").count(), 1, "{head}");
    stop.cancel();
}

#[tokio::test]
async fn a_login_by_saml_is_refused_with_its_alternatives() {
    let (address, stop) = serve(Tokens).await;
    // The first request of Hive JDBC 4 with auth=browser: it expects a redirect to the identity provider.
    let (head, body) = call(address, "/cliservice", "X-Hive-Token-Response-Port: 40001\r\n").await;
    assert!(head.starts_with("HTTP/1.1 401") && !head.contains("Location"), "{head}");
    let expected = "logins by SAML in a browser (auth=browser) are not supported\n\
                    Hint: Log in with a user name and a password, or with a token (auth=jwt;jwt=TOKEN).\n";
    assert_eq!(body, expected);
    // The header of the request after the redirect, and one with credentials of another kind.
    let header = "Authorization: Bearer other\r\nX-Hive-Client-Identifier: 7\r\n";
    let (head, body) = call(address, "/cliservice", header).await;
    assert!(head.starts_with("HTTP/1.1 401") && body.contains("authentication failed"), "{head}{body}");
    let header = "Authorization: Bearer token-ann\r\nX-Hive-Token-Response-Port: 40001\r\n";
    let (_, body) = call(address, "/cliservice", header).await;
    assert!(body.contains("user ann via -"), "{body}");
    stop.cancel();

    let (address, stop) = serve(Serving(echo)).await;
    let (_, body) = call(address, "/", "X-Hive-Token-Response-Port: 40001\r\n").await;
    assert!(body.ends_with("\nHint: Log in with a user name and a password.\n"), "{body}");
    stop.cancel();
}

#[tokio::test]
async fn a_client_without_a_user_name_logs_in_only_where_its_password_names_the_user() {
    for (accepts, expected) in [(true, None), (false, Some("the SASL PLAIN response is malformed"))] {
        let (address, stop) = if accepts { serve(Tokens).await } else { serve(Serving(echo)).await };
        let options = ClientOptions::new(address.to_string(), Auth::user("", "token-ann"));
        let refusal = Client::connect(&options).await.err().map(|error| error.to_string());
        assert!(refusal.as_deref().unwrap_or_default().contains(expected.unwrap_or_default()), "{refusal:?}");
        assert_eq!(refusal.is_none(), accepts);
        stop.cancel();
    }
}
