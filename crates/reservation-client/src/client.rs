//! The calls, each with retries over the list of proxies.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use model::ledger::{RegistrationStatus, ReservationStatus, State};
use model::resource::Resource;
use model::span;
use rustls::ClientConfig;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::error::{Error, Problem};
use crate::exchange::exchange;
use crate::request::{Claim, ListFilter, PoolCapacity, RequestKey, ReservationRequest, ReservationsPage};

/// The longest wait for another state that a proxy accepts.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// How long one proxy is waited for, in addition to a wait for another state.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(10);
/// The pause after all proxies have failed once; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// How a client reaches the proxies.
#[derive(Clone)]
pub struct ClientOptions {
    /// The addresses of proxies, as `host:port`.
    pub proxies: Vec<String>,
    pub user: String,
    pub password: String,
    /// The TLS settings; `None`: without TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// How long a call is repeated while no proxy decides it.
    pub deadline: Duration,
}

impl ClientOptions {
    /// Without TLS, and with a deadline of one minute.
    pub fn new(proxies: Vec<String>, user: impl Into<String>, password: impl Into<String>) -> Self {
        let deadline = Duration::from_mins(1);
        Self { proxies, user: user.into(), password: password.into(), tls: None, deadline }
    }
}

/// A client of the reservations API.
pub struct Client {
    options: ClientOptions,
    authorization: String,
    /// The position of the proxy that replied last.
    preferred: AtomicUsize,
}

/// A request that can be sent again.
struct Prepared {
    method: Method,
    path: String,
    /// The same with every attempt.
    key: Option<RequestKey>,
    body: Option<Value>,
    /// How long the proxy may hold the response back.
    wait: Duration,
}

/// What an attempt led to.
enum Attempt {
    Reply(Response<Bytes>),
    /// Not decided: another attempt follows.
    Undecided(String),
}

impl Client {
    pub fn new(options: ClientOptions) -> Self {
        let credentials = STANDARD.encode(format!("{}:{}", options.user, options.password));
        Self { options, authorization: format!("Basic {credentials}"), preferred: AtomicUsize::new(0) }
    }

    /// Requests a reservation. It is `locked` if it was granted, and `waiting` if it is queued; the reservation of a key
    /// that was used before is returned in whatever state it is.
    pub async fn reserve(&self, request: &ReservationRequest, key: &RequestKey) -> Result<ReservationStatus, Error> {
        self.post("/api/v1/reservations".to_owned(), request.to_json(), key.clone()).await
    }

    /// Requests a reservation, and waits until it is granted or has ended ([`Error::Ended`]).
    pub async fn obtain(&self, request: &ReservationRequest, key: &RequestKey) -> Result<ReservationStatus, Error> {
        let mut reservation = self.reserve(request, key).await?;
        while reservation.state == State::Waiting {
            reservation = self.wait(&reservation.id, State::Waiting, MAX_WAIT).await?;
        }
        if reservation.state.is_ended() { Err(Error::Ended(Box::new(reservation))) } else { Ok(reservation) }
    }

    /// A reservation as it is now.
    pub async fn reservation(&self, id: &str) -> Result<ReservationStatus, Error> {
        self.get(path_of(id, ""), Duration::ZERO).await
    }

    /// A reservation once its state is not `known`, or after the wait, which is at most 30 s.
    pub async fn wait(&self, id: &str, known: State, wait: Duration) -> Result<ReservationStatus, Error> {
        let wait = wait.min(MAX_WAIT);
        let query = format!("?wait={}&state={known}", span::print(wait));
        self.get(path_of(id, "") + &query, wait).await
    }

    /// A page of the reservations that the user may see.
    pub async fn list(&self, filter: &ListFilter) -> Result<ReservationsPage, Error> {
        let mut path = "/api/v1/reservations".to_owned();
        for (at, (name, value)) in filter.parameters().into_iter().enumerate() {
            let _ = write!(path, "{}{name}={}", if at == 0 { '?' } else { '&' }, encoded(&value));
        }
        self.get(path, Duration::ZERO).await
    }

    /// Confirms that the instance of the claim uses the reservation, and what it uses if that is not what was requested.
    /// The lease is that of the installation unless it is given.
    pub async fn confirm(
        &self,
        claim: &Claim,
        actual: Option<&Resource>,
        lease: Option<Duration>,
    ) -> Result<ReservationStatus, Error> {
        self.post(path_of(&claim.id, "/confirm"), claim.to_json(actual, lease), RequestKey::random()).await
    }

    /// Extends the lease of a confirmed reservation.
    pub async fn renew(&self, claim: &Claim, lease: Option<Duration>) -> Result<ReservationStatus, Error> {
        self.post(path_of(&claim.id, "/renew"), claim.to_json(None, lease), RequestKey::random()).await
    }

    /// Ends the reservation, once nothing uses it any more.
    pub async fn release(&self, claim: &Claim) -> Result<ReservationStatus, Error> {
        self.post(path_of(&claim.id, "/release"), claim.to_json(None, None), RequestKey::random()).await
    }

    /// Registers the capacity of a pool, or replaces what the same instance has registered. The lease begins now. A program that
    /// may restart before the reply stores the key: a repeat under it never replaces newer numbers.
    pub async fn register(&self, capacity: &PoolCapacity, key: &RequestKey) -> Result<RegistrationStatus, Error> {
        let (key, body) = (Some(key.clone()), Some(capacity.to_json()));
        let path = registration_of(&capacity.pool, "");
        self.call(Prepared { method: Method::PUT, path, key, body, wait: Duration::ZERO }).await
    }

    /// Extends the lease of the capacity that the instance has registered ([`Error::is_unregistered`] if it has not).
    pub async fn renew_registration(
        &self,
        pool: &str,
        instance: &str,
        lease: Option<Duration>,
    ) -> Result<RegistrationStatus, Error> {
        let body = PoolCapacity::renewal(instance, lease);
        self.post(registration_of(pool, "/renew"), body, RequestKey::random()).await
    }

    /// The registered capacity of a pool as it is now.
    pub async fn registration(&self, pool: &str) -> Result<RegistrationStatus, Error> {
        self.get(registration_of(pool, ""), Duration::ZERO).await
    }

    /// Ends the registration of the instance, and closes the pool. Reservations stay until they are released, or with `force`
    /// those of programs end as lost.
    pub async fn unregister(&self, pool: &str, instance: &str, force: bool) -> Result<RegistrationStatus, Error> {
        let path = registration_of(pool, "") + &format!("?instance={}&force={force}", encoded(instance));
        let key = Some(RequestKey::random());
        self.call(Prepared { method: Method::DELETE, path, key, body: None, wait: Duration::ZERO }).await
    }

    async fn get<T: DeserializeOwned>(&self, path: String, wait: Duration) -> Result<T, Error> {
        self.call(Prepared { method: Method::GET, path, key: None, body: None, wait }).await
    }

    async fn post<T: DeserializeOwned>(&self, path: String, body: Value, key: RequestKey) -> Result<T, Error> {
        let body = Some(body);
        self.call(Prepared { method: Method::POST, path, key: Some(key), body, wait: Duration::ZERO }).await
    }

    /// Sends the request to one proxy after the other until one decides it.
    async fn call<T: DeserializeOwned>(&self, prepared: Prepared) -> Result<T, Error> {
        let deadline = self.options.deadline + prepared.wait;
        let until = Instant::now() + deadline;
        let (mut reason, mut pause) = ("the list of proxies is empty".to_owned(), FIRST_PAUSE);
        loop {
            for _ in 0..self.options.proxies.len() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let at = self.preferred.load(Ordering::Relaxed) % self.options.proxies.len();
                let patience = (ATTEMPT_DEADLINE + prepared.wait).min(left);
                match self.attempt(&self.options.proxies[at], &prepared, patience).await? {
                    Attempt::Reply(response) => return decoded(&response),
                    Attempt::Undecided(why) => {
                        reason = format!("{}: {why}", self.options.proxies[at]);
                        tracing::debug!(reason, path = prepared.path, "sending a call to the next proxy");
                        // Unless a concurrent call has chosen another one.
                        let next = (at + 1) % self.options.proxies.len();
                        let _ = self.preferred.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
                    }
                }
            }
            if Instant::now() + pause >= until {
                return Err(Error::NoResponse { deadline, reason });
            }
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    async fn attempt(&self, proxy: &str, prepared: &Prepared, patience: Duration) -> Result<Attempt, Error> {
        let mut request = Request::builder()
            .method(&prepared.method)
            .uri(&prepared.path)
            .header(HOST, proxy)
            .header(AUTHORIZATION, &self.authorization);
        if let Some(key) = &prepared.key {
            request = request.header("Idempotency-Key", key.as_str());
        }
        let mut body = Bytes::new();
        if let Some(json) = &prepared.body {
            request = request.header(CONTENT_TYPE, "application/json");
            body = json.to_string().into();
        }
        let request = request.body(Full::new(body)).map_err(|error| Error::Protocol(error.to_string()))?;
        let response = match timeout(patience, exchange(proxy, self.options.tls.as_ref(), request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Ok(Attempt::Undecided(error.to_string())),
            Err(_) => return Ok(Attempt::Undecided("no response".to_owned())),
        };
        Ok(match undecided(&response) {
            Some(reason) => Attempt::Undecided(reason),
            None => Attempt::Reply(response),
        })
    }
}

/// Why the response decides nothing; `None` if it does.
fn undecided(response: &Response<Bytes>) -> Option<String> {
    let status = response.status();
    let decides_nothing = match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::INTERNAL_SERVER_ERROR
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => true,
        // Another transaction came first.
        StatusCode::CONFLICT => problem(response).is_ok_and(|problem| problem.sqlstate == "40001"),
        _ => false,
    };
    decides_nothing.then(|| problem(response).map_or_else(|_| status.to_string(), |problem| problem.to_string()))
}

fn problem(response: &Response<Bytes>) -> Result<Problem, serde_json::Error> {
    serde_json::from_slice(response.body())
}

fn decoded<T: DeserializeOwned>(response: &Response<Bytes>) -> Result<T, Error> {
    if response.status().is_success() {
        return serde_json::from_slice(response.body()).map_err(|error| Error::Protocol(error.to_string()));
    }
    match problem(response) {
        Ok(problem) => Err(Error::Refused(Box::new(problem))),
        Err(_) => Err(Error::Protocol(response.status().to_string())),
    }
}

fn registration_of(pool: &str, action: &str) -> String {
    format!("/api/v1/pools/{}/registration{action}", encoded(pool))
}

fn path_of(id: &str, action: &str) -> String {
    format!("/api/v1/reservations/{}{action}", encoded(id))
}

/// A text with every byte escaped that a segment of a path or a value of a query cannot have.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// More requests than a test sends.
    const MAX_REQUESTS: usize = 64;

    /// A proxy that sends the same response to each request, which it returns; without a response it cuts connections.
    async fn proxy(response: Option<String>) -> (String, tokio::sync::mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, received) = tokio::sync::mpsc::channel(MAX_REQUESTS);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut buffer = vec![0; 64 << 10];
                let length = socket.read(&mut buffer).await.unwrap();
                let _ = sender.try_send(String::from_utf8_lossy(&buffer[..length]).into_owned());
                if let Some(response) = &response {
                    socket.write_all(response.as_bytes()).await.unwrap();
                }
            }
        });
        (address, received)
    }

    fn response(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    fn request() -> ReservationRequest {
        ReservationRequest::on_pool("t_1", "rp_1", Resource::Cpu { cpu_m: 1 }, "i")
    }

    #[tokio::test]
    async fn a_call_is_repeated_under_its_key_at_the_next_proxy() {
        let (dead, mut at_dead) = proxy(None).await;
        let busy = r#"{"title": "busy", "status": 503, "sqlstate": "57P03"}"#;
        let (busy, mut at_busy) = proxy(Some(response("503 Service Unavailable", busy))).await;
        let page = r#"{"rows": [], "warnings": [], "next": null}"#;
        let (alive, mut at_alive) = proxy(Some(response("200 OK", page))).await;
        let client = Client::new(ClientOptions::new(vec![dead, busy, alive], "ann", "x"));
        let key = RequestKey::new("k-1").unwrap();
        // The last one replies with something that is no reservation.
        let error = client.reserve(&request(), &key).await.unwrap_err();
        assert!(matches!(error, Error::Protocol(_)), "{error}");
        for received in [&mut at_dead, &mut at_busy, &mut at_alive] {
            let sent = received.recv().await.unwrap();
            assert!(sent.to_ascii_lowercase().contains("idempotency-key: k-1\r\n"), "{sent}");
        }
        // The one that replied is asked first from then on.
        assert_eq!(client.list(&ListFilter::default()).await.unwrap().next, None);
        assert!(at_alive.recv().await.unwrap().starts_with("GET /api/v1/reservations HTTP/1.1"));
        assert!(at_dead.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_refusal_is_not_repeated_and_silence_ends_at_the_deadline() {
        let refused = r#"{"title": "no", "status": 409, "sqlstate": "53000"}"#;
        let (address, mut received) = proxy(Some(response("409 Conflict", refused))).await;
        let client = Client::new(ClientOptions::new(vec![address], "ann", "x"));
        let error = client.reserve(&request(), &RequestKey::random()).await.unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error}");
        received.recv().await.unwrap();
        assert!(received.try_recv().is_err());
        let (dead, _received) = proxy(None).await;
        let mut options = ClientOptions::new(vec![dead], "ann", "x");
        options.deadline = Duration::from_millis(300);
        let error = Client::new(options).reservation("r").await.unwrap_err();
        assert!(matches!(error, Error::NoResponse { .. }) && error.is_retryable(), "{error}");
        let none = Client::new(ClientOptions { deadline: Duration::ZERO, ..ClientOptions::new(Vec::new(), "", "") });
        assert!(none.reservation("r").await.is_err());
    }

    #[test]
    fn ids_and_values_are_escaped() {
        assert_eq!(path_of("a/b ?", "/renew"), "/api/v1/reservations/a%2Fb%20%3F/renew");
        assert_eq!(encoded("\u{e4}-1.2_~"), "%C3%A4-1.2_~");
    }
}
