//! `OpenSession`: a session of the proxy's own, at once and without an engine, so that a tenant that has no engine yet
//! can say START ENGINE.

use std::collections::BTreeMap;
use std::sync::Arc;

use hs2::tcli::{TOpenSessionReq, TOpenSessionResp};
use hs2::{Connection, Credentials, Mechanism, Message, Method, protocol, status};
use model::error::{ErrorKind, UserError};
use tracing::info;

use super::keys::SessionKeys;
use super::{Gone, Session, answer, close, connection_of, queue, refuse};
use crate::Gateway;
use crate::failpoints;

/// How many rows clients fetch at once unless they say otherwise.
const FETCH_SIZE: &str = "10000";

pub(super) async fn open(gateway: &Arc<Gateway>, connection: &mut Connection, message: &Message) -> Result<(), Gone> {
    let seqid = message.seqid();
    match opened(gateway, connection, message).await {
        Ok(response) => {
            model::failpoint!(failpoints::SESSION_OPENED);
            answer(connection, Method::OpenSession, seqid, &response).await
        }
        Err(error) => refuse(connection, Method::OpenSession, seqid, &error).await,
    }
}

async fn opened(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    message: &Message,
) -> Result<TOpenSessionResp, UserError> {
    let request: TOpenSessionReq = message.call().decode().map_err(|error| error.user_error("the client"))?;
    let version = protocol::negotiate(request.client_protocol)?;
    if connection.mechanism() == Mechanism::PlainThrift {
        // Plain Thrift has no other place for a name.
        let credentials = Credentials {
            mechanism: Mechanism::PlainThrift,
            authzid: String::new(),
            user: request.username.clone().unwrap_or_default(),
            password: request.password.clone().unwrap_or_default(),
        };
        let principal = Arc::clone(connection.authenticator()).authenticate(connection.peer(), &credentials).await?;
        if connection.principal().is_some_and(|known| *known != principal) {
            return Err(UserError::new(
                ErrorKind::InvalidAuthorization,
                "this connection belongs to another user already",
            )
            .hint("open another connection"));
        }
        connection.set_principal(principal);
    }
    let Some(principal) = connection.principal() else {
        return Err(UserError::new(ErrorKind::InvalidAuthorization, "the connection is not authenticated"));
    };
    gateway.admits()?;
    let user = principal.user.clone();
    let keys = SessionKeys::read(&request.configuration.unwrap_or_default())?;
    queue::check(gateway, &user, &keys).await?;
    let (handle, evicted) = gateway.sessions.insert(
        Session::new(user.clone(), keys),
        connection_of(connection),
        connection.peer().ip().to_canonical(),
        gateway.clock.boottime(),
    )?;
    if let Some(evicted) = evicted {
        close::end_entry(evicted);
    }
    info!(user, "session opened");
    Ok(TOpenSessionResp {
        status: status::success(),
        server_protocol_version: version,
        session_handle: Some(handle.session()),
        configuration: Some(BTreeMap::from([(protocol::FETCH_SIZE_KEY.to_owned(), FETCH_SIZE.to_owned())])),
    })
}
