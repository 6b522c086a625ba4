//! The typed server: decodes the calls of each connection for a [`Service`] and sends its responses.
//!
//! Calls of one connection run one after the other, as clients send them. An error becomes the call's own response
//! with `TStatus` ERROR; an unknown method gets `UNKNOWN_METHOD`, and the connection stays open. A call whose client
//! hangs up runs to its end; [`Context::hung_up`] signals it.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use model::error::{ErrorKind, UserError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

use crate::answer::encode_refusal;
use crate::auth::{Authenticator, Credentials, Mechanism, Principal};
use crate::connection::Connection;
use crate::dispatch::dispatch;
use crate::error::{WireError, WireErrorKind};
use crate::message::{ExceptionKind, Message, encode_exception};
use crate::method::Method;
use crate::scan::MessageKind;
use crate::server::{Handler, Server};
use crate::service::{Context, Service};
use crate::service_proof::ServiceProof;
use crate::tcli::TOpenSessionReq;

impl Server {
    /// Serves typed calls until `stop` is cancelled and all connections have ended.
    pub async fn serve<S: Service>(self, service: Arc<S>, stop: CancellationToken) {
        self.serve_connections(Arc::new(Typed { service }), stop).await;
    }
}

/// Serves a [`Service`] over connections.
struct Typed<S> {
    service: Arc<S>,
}

#[async_trait]
impl<S: Service> Authenticator for Typed<S> {
    async fn authenticate(&self, peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        self.service.authenticate(peer, credentials).await
    }

    fn accepts_services(&self) -> bool {
        self.service.accepts_services()
    }

    async fn authenticate_service(&self, peer: SocketAddr, proof: &ServiceProof) -> Result<Principal, UserError> {
        self.service.authenticate_service(peer, proof).await
    }

    fn serves_host(&self, name: &str) -> bool {
        self.service.serves_host(name)
    }

    fn unready(&self) -> Option<String> {
        self.service.unready()
    }
}

#[async_trait]
impl<S: Service> Handler for Typed<S> {
    async fn connection(self: Arc<Self>, connection: Connection, stop: CancellationToken) {
        let known = Arc::new(OnceLock::new());
        let calls = tokio::spawn(serve(Arc::clone(&self.service), connection, Arc::clone(&known), stop));
        let ended = AbortOnDropHandle::new(calls).await;
        if let Some(cx) = known.get() {
            self.service.connection_closed(cx).await;
        }
        if let Err(error) = ended
            && error.is_panic()
        {
            tracing::error!(%error, "call panicked");
        }
    }
}

/// Serves one call after the other. `known` receives the context once the client is authenticated.
async fn serve<S: Service>(
    service: Arc<S>,
    mut connection: Connection,
    known: Arc<OnceLock<Context>>,
    stop: CancellationToken,
) {
    let hung_up = CancellationToken::new();
    let _end = hung_up.clone().drop_guard();
    if let Some(principal) = connection.principal() {
        let _ = known.set(context(&connection, principal.clone(), &hung_up));
    }
    loop {
        let next = tokio::select! {
            () = stop.cancelled() => return,
            next = connection.next() => next,
        };
        let message = match next {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(error) => {
                lost(&connection, &error);
                return;
            }
        };
        let reply = match principal_of(&mut connection, &message).await {
            Ok(principal) => {
                let cx = context(&connection, principal, &hung_up);
                let _ = known.set(cx.clone());
                // Boxed, so that an idle connection does not hold the future of all calls.
                let answered = Box::pin(answer(&*service, &cx, &message));
                let watched = async {
                    connection.closed().await;
                    hung_up.cancel();
                    std::future::pending::<()>().await;
                };
                tokio::select! { reply = answered => reply, () = watched => return }
            }
            Err(reply) => reply,
        };
        if let Err(error) = connection.send(&reply).await {
            lost(&connection, &error);
            return;
        }
    }
}

/// At debug level: a client can cause any number of these lines.
fn lost(connection: &Connection, error: &WireError) {
    let what = if error.kind() == WireErrorKind::Gone { "connection lost" } else { "connection refused" };
    debug!(connection = connection.id(), peer = %connection.peer(), %error, "{what}");
}

fn context(connection: &Connection, principal: Principal, hung_up: &CancellationToken) -> Context {
    Context {
        connection: connection.id(),
        peer: connection.peer(),
        mechanism: connection.mechanism(),
        principal,
        hung_up: hung_up.clone(),
    }
}

/// The principal of a call. Over plain Thrift `OpenSession` authenticates; a second one must have the same principal.
async fn principal_of(connection: &mut Connection, message: &Message) -> Result<Principal, Vec<u8>> {
    let method = message.method();
    if connection.mechanism() != Mechanism::PlainThrift || method != Some(Method::OpenSession) {
        return connection.principal().cloned().ok_or_else(|| {
            let error = UserError::new(ErrorKind::InvalidAuthorization, "no session is open on this connection");
            refusal(message, method, &error)
        });
    }
    let call = message.call();
    let request: TOpenSessionReq = call.decode().map_err(|error| call.malformed(&error))?;
    let credentials = open_session_credentials(&request);
    let authenticator = Arc::clone(connection.authenticator());
    let principal = authenticator
        .authenticate(connection.peer(), &credentials)
        .await
        .map_err(|error| refusal(message, method, &error))?;
    match connection.principal() {
        Some(known) if *known != principal => {
            let error = UserError::new(ErrorKind::InvalidAuthorization, "this connection belongs to another user");
            Err(refusal(message, method, &error))
        }
        _ => {
            connection.set_principal(principal.clone());
            Ok(principal)
        }
    }
}

/// The credentials in a plain Thrift client's `OpenSession`; without a user name it is `anonymous`.
fn open_session_credentials(request: &TOpenSessionReq) -> Credentials {
    let user = request.username.clone().filter(|user| !user.is_empty());
    Credentials {
        mechanism: Mechanism::PlainThrift,
        authzid: String::new(),
        user: user.unwrap_or_else(|| "anonymous".to_owned()),
        password: request.password.clone().unwrap_or_default(),
    }
}

fn refusal(message: &Message, method: Option<Method>, error: &UserError) -> Vec<u8> {
    match method {
        Some(method) => encode_refusal(method, message.seqid(), error),
        None => encode_exception(message.name(), message.seqid(), ExceptionKind::InternalError, &error.text()),
    }
}

async fn answer<S: Service>(service: &S, cx: &Context, message: &Message) -> Vec<u8> {
    let call = message.call();
    if message.header().kind != MessageKind::Call {
        return encode_exception(call.name, call.seqid, ExceptionKind::InvalidMessageType, "a call was expected");
    }
    match message.method() {
        Some(method) => dispatch(service, cx, method, &call).await,
        None => service.extension(cx, &call).await.unwrap_or_else(|| call.unknown()),
    }
}
