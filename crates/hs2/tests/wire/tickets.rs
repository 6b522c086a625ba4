//! Logins by tickets: the messages of SASL GSSAPI and the headers of HTTP, around a context whose tokens the tests know.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use hs2::{
    Authenticator, Connection, ContextStep, Credentials, Handler, HttpScheme, Limits, Principal, SecurityContext,
    Server, TicketHolder, TlsVersion,
};
use model::error::{ErrorKind, UserError};
use tests::certificate::Certificate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::bearer::{self, answer_with_principal, call, get_info, serve_on};
use crate::support::server_tls;

const START: u8 = 1;
const OK: u8 = 2;
const BAD: u8 = 3;
const ERROR: u8 = 4;
const COMPLETE: u8 = 5;

/// Accepts `ticket`, and `more` before it. It answers a client that has sent `mutual` with a proof. A message is signed by a `!`.
#[derive(Default)]
struct Context {
    is_established: bool,
}

fn failed() -> UserError {
    UserError::new(ErrorKind::InvalidAuthorization, "authentication failed")
}

#[async_trait]
impl SecurityContext for Context {
    async fn step(&mut self, token: &[u8]) -> Result<ContextStep, UserError> {
        let (reply, is_established) = match token {
            b"ticket" => (&b""[..], true),
            b"mutual" => (&b"proof"[..], true),
            b"more" => (&b"go on"[..], false),
            _ => return Err(failed()),
        };
        self.is_established = is_established;
        Ok(ContextStep { reply: reply.to_vec(), is_established })
    }

    async fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, UserError> {
        assert!(self.is_established);
        Ok([message, b"!"].concat())
    }

    async fn unwrap(&mut self, message: &[u8]) -> Result<Vec<u8>, UserError> {
        message.strip_suffix(b"!").map(<[u8]>::to_vec).ok_or_else(failed)
    }

    async fn holder(self: Box<Self>) -> Result<TicketHolder, UserError> {
        assert!(self.is_established);
        Ok(TicketHolder { principal: Principal::user("ann"), name: "ann@A".to_owned() })
    }
}

/// Answers each message with the user. Accepts tickets, and passwords if it should.
struct Tickets {
    accepts_passwords: bool,
}

#[async_trait]
impl Authenticator for Tickets {
    async fn authenticate(&self, _: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        Ok(Principal::user(credentials.user.clone()))
    }

    fn begin_ticket_login(&self, _: SocketAddr) -> Result<Box<dyn SecurityContext>, UserError> {
        Ok(Box::new(Context::default()))
    }

    async fn authenticate_ticket(
        &self,
        _: SocketAddr,
        context: Box<dyn SecurityContext>,
        authzid: &str,
    ) -> Result<Principal, UserError> {
        let TicketHolder { principal, name } = context.holder().await?;
        let itself = authzid.is_empty() || authzid == name;
        Ok(if itself { principal } else { principal.impersonating(authzid, Vec::new()) })
    }

    fn http_schemes(&self) -> Vec<HttpScheme> {
        let mut schemes = vec![HttpScheme::Negotiate];
        schemes.extend(self.accepts_passwords.then_some(HttpScheme::Basic));
        schemes
    }

    fn issue_cookie(&self, principal: &Principal) -> Option<String> {
        Some(principal.user.clone())
    }
}

#[async_trait]
impl Handler for Tickets {
    async fn connection(self: Arc<Self>, connection: Connection, _: CancellationToken) {
        answer_with_principal(connection).await;
    }
}

async fn serve(accepts_passwords: bool) -> (SocketAddr, CancellationToken) {
    bearer::serve(Tickets { accepts_passwords }).await
}

async fn send(stream: &mut TcpStream, status: u8, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    stream.write_all(&[&[status][..], &length, payload].concat()).await.unwrap();
}

async fn receive(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let status = stream.read_u8().await.unwrap();
    let mut payload = vec![0; stream.read_u32().await.unwrap() as usize];
    stream.read_exact(&mut payload).await.unwrap();
    (status, payload)
}

/// Sends the client's messages of a negotiation, each after a challenge; the last message of the server.
async fn negotiate(address: SocketAddr, mechanism: &[u8], tokens: &[&[u8]]) -> (TcpStream, u8, Vec<u8>) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    send(&mut stream, START, mechanism).await;
    let mut last = (OK, Vec::new());
    for token in tokens {
        assert_eq!(last.0, OK, "{}", String::from_utf8_lossy(&last.1));
        send(&mut stream, OK, token).await;
        last = receive(&mut stream).await;
    }
    (stream, last.0, last.1)
}

#[tokio::test]
async fn a_ticket_over_sasl_logs_in_without_a_security_layer() {
    let (address, stop) = serve(true).await;
    let none = &b"\x01\0\0\0!"[..];
    for (tokens, user) in [
        (&[&b"ticket"[..], none][..], "user ann via -"),
        (&[b"mutual", b"", none], "user ann via -"),
        (&[b"more", b"more", b"ticket", none], "user ann via -"),
        (&[b"ticket", b"\x01\0\0\0ann@A!"], "user ann via -"),
        (&[b"ticket", b"\x01\0\0\0bob!"], "user bob via ann"),
    ] {
        let (mut stream, status, payload) = negotiate(address, b"GSSAPI", tokens).await;
        assert_eq!((status, payload.len()), (COMPLETE, 0), "{}", String::from_utf8_lossy(&payload));
        let call = get_info();
        let length = u32::try_from(call.len()).unwrap().to_be_bytes();
        stream.write_all(&[&length[..], &call].concat()).await.unwrap();
        let mut reply = vec![0; stream.read_u32().await.unwrap() as usize];
        stream.read_exact(&mut reply).await.unwrap();
        assert!(String::from_utf8_lossy(&reply).contains(user), "{user}");
    }
    stop.cancel();
}

#[tokio::test]
async fn the_server_offers_no_security_layer_and_proves_itself_first() {
    let (address, stop) = serve(true).await;
    let (_, status, offer) = negotiate(address, b"GSSAPI", &[b"ticket"]).await;
    assert_eq!((status, offer), (OK, b"\x01\0\0\0!".to_vec()));
    let (_, status, proof) = negotiate(address, b"GSSAPI", &[b"mutual"]).await;
    assert_eq!((status, proof), (OK, b"proof".to_vec()));
    stop.cancel();
}

#[tokio::test]
async fn a_negotiation_that_does_not_fit_is_refused_with_its_reason() {
    let (address, stop) = serve(true).await;
    let many = [&b"more"[..]; 8];
    for (tokens, text) in [
        (&[&b"other"[..]][..], "authentication failed"),
        (&[b""], "authentication failed"),
        (&[b"ticket", b"\x01\0\0\0"], "authentication failed"),
        (&[b"ticket", b"\x02\0\0\0!"], "security layers of SASL are not supported"),
        (&[b"ticket", b"\x01!"], "choice of a security layer is malformed"),
        (&[b"mutual", b"ticket"], "a token after the last one"),
        (&many, "too many tokens"),
    ] {
        let (mut stream, status, payload) = negotiate(address, b"GSSAPI", tokens).await;
        let shown = String::from_utf8_lossy(&payload);
        assert!(status == BAD && shown.contains(text), "{shown}");
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "closed");
    }
    stop.cancel();
}

#[tokio::test]
async fn a_client_that_insists_on_a_security_layer_is_referred_to_tls() {
    let (address, stop) = serve(true).await;
    // As Java aborts with saslQop=auth-conf.
    let reason = b"No common protection layer between client and server";
    for status in [BAD, ERROR] {
        let (mut stream, _, offer) = negotiate(address, b"GSSAPI", &[b"ticket"]).await;
        assert_eq!(offer, b"\x01\0\0\0!");
        send(&mut stream, status, reason).await;
        let (status, payload) = receive(&mut stream).await;
        let shown = String::from_utf8_lossy(&payload);
        assert!(status == BAD && shown.contains("no security layer of SASL is offered"), "{shown}");
        assert!(shown.contains("No common protection layer") && shown.contains("add ssl=true"), "{shown}");
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "closed");
    }
    let (_, status, payload) = negotiate(address, b"GSSAPI", &[b"ticket", b"\x04\0\xff\xff!"]).await;
    let shown = String::from_utf8_lossy(&payload);
    assert!(status == BAD && shown.contains("set it to auth. TLS protects the connection: add ssl=true."), "{shown}");
    // Before the offer, an abort has no answer.
    let (mut stream, _, _) = negotiate(address, b"GSSAPI", &[b"more"]).await;
    send(&mut stream, BAD, reason).await;
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "closed");
    stop.cancel();
}

#[tokio::test]
async fn a_mechanism_that_is_not_offered_names_those_that_are() {
    for (accepts_passwords, mechanism, text) in [
        (false, &b"PLAIN"[..], "\"PLAIN\" is not supported\nHint: Use GSSAPI: a Kerberos ticket."),
        (false, b"DIGEST-MD5", "Use GSSAPI"),
        (true, b"DIGEST-MD5", "Use PLAIN: a user name and a password; or GSSAPI: a Kerberos ticket."),
    ] {
        let (address, stop) = serve(accepts_passwords).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        send(&mut stream, START, mechanism).await;
        let (status, payload) = receive(&mut stream).await;
        let shown = String::from_utf8_lossy(&payload);
        assert!(status == BAD && shown.contains(text), "{shown}");
        stop.cancel();
    }
    let (address, stop) = serve(true).await;
    let (_, status, _) = negotiate(address, b"PLAIN", &[b"\0ann\0x"]).await;
    assert_eq!(status, COMPLETE);
    stop.cancel();
}

#[tokio::test]
async fn a_ticket_over_http_is_one_header_and_earns_the_cookie() {
    let (address, stop) = serve(true).await;
    // `ticket` and `mutual` in base64.
    for (header, proof) in
        [("Negotiate dGlja2V0", None), ("Negotiate : bXV0dWFs", Some("Www-Authenticate: Negotiate cHJvb2Y="))]
    {
        let (head, body) = call(address, "/", &format!("Authorization: {header}\r\n")).await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("Set-Cookie: hive.server2.auth=ann;"), "{head}");
        assert_eq!(head.lines().find(|line| line.starts_with("Www-Authenticate")), proof);
        assert!(body.contains("user ann via -"), "{body}");
    }
    let (head, body) = call(address, "/", "X-Hive-Token-Response-Port: 40001\r\n").await;
    let alternatives =
        "Hint: Log in with a Kerberos ticket (principal=hive/HOST@REALM), or with a user name and a password.\n";
    assert!(head.starts_with("HTTP/1.1 401") && body.ends_with(alternatives), "{head}{body}");
    let (_, body) = call(address, "/?doAs=bob", "Authorization: Negotiate dGlja2V0\r\n").await;
    assert!(body.contains("user bob via ann"), "{body}");
    // `other` is refused; `more` asks for a second token, which no request has.
    for (token, text) in [("b3RoZXI=", "authentication failed"), ("bW9yZQ==", "another mechanism before Kerberos")] {
        let (head, body) = call(address, "/", &format!("Authorization: Negotiate {token}\r\n")).await;
        assert!(head.starts_with("HTTP/1.1 401") && body.contains(text), "{head}{body}");
        let challenges: Vec<&str> = head.lines().filter(|line| line.starts_with("Www-Authenticate")).collect();
        assert_eq!(challenges, ["Www-Authenticate: Negotiate", "Www-Authenticate: Basic realm=\"enginehouse\""]);
    }
    stop.cancel();
}

#[tokio::test]
async fn outside_tls_a_ticket_is_accepted_over_sasl_if_the_listener_does() {
    let folder = tempfile::tempdir().unwrap();
    let files = Certificate::create(folder.path(), "server").unwrap();
    for accepts in [true, false] {
        let (tls, _) = server_tls(&files, TlsVersion::Tls12, true);
        let server = Server::bind("127.0.0.1:0", Limits::default()).await.unwrap();
        let server = server.with_tls(tls.with_plain_tickets(accepts));
        let (address, stop) = serve_on(server, Tickets { accepts_passwords: true });
        let (_, status, payload) = negotiate(address, b"GSSAPI", &[b"ticket"]).await;
        let shown = String::from_utf8_lossy(&payload);
        assert!(accepts == (status == OK) && (accepts || shown.contains("this login requires TLS")), "{shown}");
        let (_, status, payload) = negotiate(address, b"PLAIN", &[b"\0ann\0x"]).await;
        let shown = String::from_utf8_lossy(&payload);
        assert!(status == BAD && shown.contains("this login requires TLS"), "{shown}");
        let (head, _) = call(address, "/", "Authorization: Negotiate dGlja2V0\r\n").await;
        assert!(head.starts_with("HTTP/1.1 426"), "{head}");
        stop.cancel();
    }
}
