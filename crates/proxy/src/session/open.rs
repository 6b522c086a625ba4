//! `OpenSession`: a session of the proxy's own, at once and without an engine, so that a tenant that has no engine yet
//! can say START ENGINE.

use std::collections::BTreeMap;
use std::sync::Arc;

use hs2::tcli::{TOpenSessionReq, TOpenSessionResp};
use hs2::{Connection, Credentials, Mechanism, Message, Method, protocol, status};
use model::error::{ErrorKind, UserError};
use tracing::debug;

use super::settings::SessionSettings;
use super::{Gone, Session, answer, binding, close, connection_of, pool, refuse};
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
    let configuration = request.configuration.unwrap_or_default();
    let keys = SessionSettings::read(&configuration, &gateway.settings.limits, &gateway.budget)?;
    drop(configuration);
    pool::check(gateway, &user, &keys).await?;
    let mut session = Session::new(user.clone(), keys);
    if session.settings.may_be_refused() {
        tokio::select! {
            checked = binding::bind_if_ready(gateway, &mut session) => drop(checked?),
            () = connection.closed() => {
                return Err(UserError::new(ErrorKind::ConnectionLost, "the client closed its connection"));
            }
        }
    }
    let (handle, evicted) = gateway.sessions.insert(
        session,
        connection_of(connection),
        connection.peer().ip().to_canonical(),
        gateway.clock.boottime(),
    )?;
    if let Some(evicted) = evicted {
        close::end_entry(gateway, evicted);
    }
    gateway.activity.opened.add();
    debug!(user, session = %handle, "session opened");
    Ok(TOpenSessionResp {
        status: status::success(),
        server_protocol_version: version,
        session_handle: Some(handle.session()),
        configuration: Some(BTreeMap::from([(protocol::FETCH_SIZE_KEY.to_owned(), FETCH_SIZE.to_owned())])),
    })
}
