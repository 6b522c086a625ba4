//! When the keys of an issuer are read, and from what.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use authentication::{JwtMethod, KeyLocation};
use hs2::ClientTls;
use model::clock::ManualClock;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tests::certificate::Certificate;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use super::signer::Signer;
use super::{NOW_S, ann, claims, header, login, settings};

/// An issuer's server, which sends the same response to each request.
struct Issuer {
    port: u16,
    response: Arc<Mutex<String>>,
    requests: Arc<AtomicUsize>,
    _task: AbortOnDropHandle<()>,
}

async fn respond(mut stream: impl AsyncRead + AsyncWrite + Unpin, response: String) {
    let mut buffer = vec![0; 4 << 10];
    let length = stream.read(&mut buffer).await.unwrap_or_default();
    assert!(buffer[..length].starts_with(b"GET /jwks?a=b HTTP/1.1\r\n"));
    let _ = stream.write_all(response.as_bytes()).await;
    let _ = stream.shutdown().await;
}

impl Issuer {
    async fn start(response: String, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (response, requests) = (Arc::new(Mutex::new(response)), Arc::new(AtomicUsize::new(0)));
        let task = tokio::spawn({
            let (response, requests) = (Arc::clone(&response), Arc::clone(&requests));
            async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let text = response.lock().clone();
                    match &tls {
                        None => {
                            requests.fetch_add(1, Ordering::Relaxed);
                            respond(stream, text).await;
                        }
                        // A client that does not trust the certificate sends no request.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                requests.fetch_add(1, Ordering::Relaxed);
                                respond(stream, text).await;
                            }
                        }
                    }
                }
            }
        });
        Self { port, response, requests, _task: AbortOnDropHandle::new(task) }
    }

    fn location(&self, scheme: &str, tls: ClientTls) -> KeyLocation {
        let url = KeyLocation::parse_url(&format!("{scheme}://localhost:{}/jwks?a=b", self.port)).unwrap();
        KeyLocation::Url { url, tls }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

fn response(keys: &[Value]) -> String {
    let body = json!({ "keys": keys }).to_string();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Roots that are not used.
fn no_tls(folder: &tempfile::TempDir) -> ClientTls {
    let certificate = Certificate::create(folder.path(), "unused").unwrap();
    ClientTls::from_ca_file(&certificate.certificate).unwrap()
}

fn method(location: KeyLocation) -> (JwtMethod, Arc<ManualClock>) {
    let clock = ManualClock::at(NOW_S * 1_000);
    (JwtMethod::new(settings(location), clock.clone()), clock)
}

/// A token with this id of its key, which no cache has.
fn token(signer: &Signer, key_id: &str, jti: &str) -> String {
    let mut header = header("EdDSA");
    header["kid"] = key_id.into();
    signer.token(&header, &claims(&json!({ "jti": jti, "exp": NOW_S + 1_000_000 })))
}

#[tokio::test]
async fn an_unknown_key_is_looked_for_once_in_ten_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (Signer::ed25519(), Signer::ed25519());
    let issuer = Issuer::start(response(&[old.jwk("old")]), None).await;
    let (method, clock) = method(issuer.location("http", no_tls(&folder)));
    assert_eq!(login(&method, &token(&old, "old", "1")).await, ann(""), "the first login waits for the keys");
    let unknown = Err("token with an unknown key");
    for kid in 0..1_000 {
        assert_eq!(login(&method, &token(&old, &kid.to_string(), "1")).await, unknown);
    }
    assert_eq!(issuer.requests(), 1);
    // The issuer uses another key.
    *issuer.response.lock() = response(&[old.jwk("old"), new.jwk("new")]);
    assert_eq!(login(&method, &token(&new, "new", "1")).await, unknown);
    clock.advance(Duration::from_secs(10));
    let logins = (0..100).map(async |number: usize| login(&method, &token(&new, "new", &number.to_string())).await);
    assert!(futures::future::join_all(logins).await.iter().all(|login| *login == ann("")));
    assert_eq!(issuer.requests(), 2);
}

#[tokio::test]
async fn keys_are_used_for_a_day_while_they_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let signer = Signer::ed25519();
    let issuer = Issuer::start(response(&[signer.jwk("0")]), None).await;
    let (method, clock) = method(issuer.location("http", no_tls(&folder)));
    assert_eq!(login(&method, &token(&signer, "0", "1")).await, ann(""));
    "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".clone_into(&mut issuer.response.lock());
    clock.advance(Duration::from_hours(24) - Duration::from_secs(1));
    assert_eq!(login(&method, &token(&signer, "0", "2")).await, ann(""));
    assert_eq!(login(&method, &token(&signer, "1", "2")).await, Err("unavailable"), "it could be a new one");
    clock.advance(Duration::from_secs(10));
    assert_eq!(login(&method, &token(&signer, "0", "3")).await, Err("unavailable"));
    assert_eq!(login(&method, &token(&signer, "0", "2")).await, ann(""), "it was verified before");
    *issuer.response.lock() = response(&[signer.jwk("0")]);
    clock.advance(Duration::from_secs(10));
    assert_eq!(login(&method, &token(&signer, "0", "3")).await, ann(""));
}

/// A login that leaves must not end the reading that it began, nor start another one.
#[tokio::test]
async fn a_client_that_leaves_ends_no_reading() {
    let folder = tempfile::tempdir().unwrap();
    let signer = Signer::ed25519();
    let issuer = Issuer::start(response(&[signer.jwk("0")]), None).await;
    let (method, clock) = method(issuer.location("http", no_tls(&folder)));
    assert_eq!(login(&method, &token(&signer, "0", "1")).await, ann(""));
    clock.advance(Duration::from_secs(10));
    let of_unknown = token(&signer, "1", "1");
    for _ in 0..100 {
        let mut left = Box::pin(login(&method, &of_unknown));
        assert!(futures::poll!(&mut left).is_pending());
    }
    assert_eq!(login(&method, &of_unknown).await, Err("token with an unknown key"));
    assert_eq!(issuer.requests(), 2);
}

#[tokio::test]
async fn what_is_no_key_set_makes_logins_unavailable() {
    let folder = tempfile::tempdir().unwrap();
    let signer = Signer::ed25519();
    let long = format!("HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n{}", "x".repeat(300_000));
    let elsewhere = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/jwks\r\nContent-Length: 0\r\n\r\n".to_owned();
    for (text, expected) in [
        (long, "it has more than 262144 bytes"),
        (elsewhere, "responds with 302 Found"),
        (response(&[]), "it has no key that can verify tokens"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".to_owned(), "it is no key set"),
        ("nonsense".to_owned(), "invalid HTTP version"),
        (String::new(), "connection closed"),
    ] {
        let issuer = Issuer::start(text, None).await;
        let location = issuer.location("http", no_tls(&folder));
        let error = JwtMethod::probe(&settings(location.clone())).await.unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("http://localhost"), "{expected}: {error}");
        let (method, _) = method(location);
        assert_eq!(login(&method, &token(&signer, "0", "1")).await, Err("unavailable"));
    }
    let missing = KeyLocation::File(folder.path().join("missing"));
    let error = JwtMethod::probe(&settings(missing)).await.unwrap_err().to_string();
    assert!(error.contains("missing: No such file"), "{error}");
}

#[tokio::test]
async fn keys_over_tls_come_from_a_server_with_the_certificate_only() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Certificate::create(folder.path(), "issuer").unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_file(&certificate.certificate).unwrap()],
            PrivateKeyDer::from_pem_file(&certificate.key).unwrap(),
        )
        .unwrap();
    let signer = Signer::ed25519();
    let issuer = Issuer::start(response(&[signer.jwk("0")]), Some(TlsAcceptor::from(Arc::new(config)))).await;
    let trusted = ClientTls::from_ca_file(&certificate.certificate).unwrap();
    assert_eq!(JwtMethod::probe(&settings(issuer.location("https", trusted))).await.unwrap(), 1);
    let error = JwtMethod::probe(&settings(issuer.location("https", no_tls(&folder)))).await.unwrap_err().to_string();
    assert!(error.contains("invalid peer certificate"), "{error}");
    assert_eq!(issuer.requests(), 1);
}
