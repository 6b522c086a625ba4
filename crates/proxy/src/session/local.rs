//! What the proxy answers itself: `GetInfo`, USE and SET while no engine is bound.
//!
//! Name and version of the server are those of the configuration ([`Product`](crate::Product)), whether an engine is
//! bound or not: drivers ask for them one by one, at any time, and keep some of the answers.
//!
//! `PyHive` and impyla send USE while they connect. What was said is remembered and replayed when an engine is bound; a
//! name that the engine then refuses is the error of the statement that bound.

use std::sync::Arc;

use ddl::SessionStatement;
use hs2::tcli::{TGetInfoReq, TGetInfoResp, TGetInfoType, TGetInfoValue, TSetClientInfoResp};
use hs2::{Column, Connection, Handle, Message, Method, SqlType, Value, status};
use model::error::{ErrorKind, UserError};

use super::operation::Local;
use super::{Entry, Gone, Session, answer, refuse, settings, statement};
use crate::Gateway;
use crate::budget::Held;

/// What SET reports of a key that only an engine knows.
const UNKNOWN: &str = "<unknown until the session has an engine>";
/// The longest identifier, as `CLI_MAX_*_LEN` tells it.
const MAX_IDENTIFIER: i64 = 128;

pub(super) async fn get_info(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    message: Message,
) -> Result<(), Gone> {
    let seqid = message.seqid();
    let request: TGetInfoReq = match message.call().decode() {
        Ok(request) => request,
        Err(error) => return refuse(connection, Method::GetInfo, seqid, &error.user_error("the client")).await,
    };
    let is_identity = matches!(
        request.info_type,
        TGetInfoType::CLI_SERVER_NAME | TGetInfoType::CLI_DBMS_NAME | TGetInfoType::CLI_DBMS_VER
    );
    if !is_identity && entry.state.lock().await.present.is_some() {
        return statement::metadata_call(gateway, connection, entry, message).await;
    }
    let product = &gateway.settings.product;
    let text = |text: &str| Some(TGetInfoValue::StringValue(text.to_owned()));
    let value = match request.info_type {
        TGetInfoType::CLI_SERVER_NAME | TGetInfoType::CLI_DBMS_NAME => text(&product.name),
        TGetInfoType::CLI_DBMS_VER => text(&product.version),
        TGetInfoType::CLI_ODBC_KEYWORDS => text(""),
        TGetInfoType::CLI_MAX_COLUMN_NAME_LEN
        | TGetInfoType::CLI_MAX_SCHEMA_NAME_LEN
        | TGetInfoType::CLI_MAX_TABLE_NAME_LEN => Some(TGetInfoValue::LenValue(MAX_IDENTIFIER)),
        _ => None,
    };
    if let Some(info_value) = value {
        let response = TGetInfoResp { status: status::success(), info_value };
        return answer(connection, Method::GetInfo, seqid, &response).await;
    }
    let error = UserError::new(ErrorKind::NotSupported, "this kind of information is not known")
        .detail(format!("info type {}", i32::from(&request.info_type)));
    refuse(connection, Method::GetInfo, seqid, &error).await
}

/// The client's name is of no use to us; clients that tell it must not fail.
pub(super) async fn set_client_info(connection: &mut Connection, seqid: i32) -> Result<(), Gone> {
    answer(connection, Method::SetClientInfo, seqid, &TSetClientInfoResp { status: status::success() }).await
}

/// Whether an engine that is ready should answer a USE or SET, and not the proxy: it alone knows its settings, and what it
/// refuses is then refused at once. `USE default`, with which clients connect, is none.
pub(super) fn is_for_ready_engine(issued: &SessionStatement<'_>) -> bool {
    match issued {
        SessionStatement::Use { database } => {
            settings::given(database).is_some_and(|name| !name.eq_ignore_ascii_case(settings::DEFAULT_DATABASE))
        }
        SessionStatement::Set { key, .. } | SessionStatement::ShowSetting { key } => settings::own_key(key).is_none(),
        SessionStatement::ListSettings { .. } => true,
    }
}

/// Answers a USE or SET here, if it is ours to answer: our own settings always, everything else while no engine is
/// bound.
pub(super) fn answer_here(
    session: &mut Session,
    text: &str,
    said: &SessionStatement<'_>,
    held: &mut Held,
) -> Result<Option<Local>, UserError> {
    if let SessionStatement::Set { key, value } = said
        && let Some(own) = settings::own_key(key)
    {
        if session.is_pinned() {
            return Err(UserError::new(ErrorKind::WrongState, format!("setting \"{key}\" can't be changed now"))
                .detail("the session has state of its own at its engine, which would be lost")
                .hint("open a new session"));
        }
        session.settings.set_own(&own, value)?;
        // What is bound may not fit any longer: the next statement chooses again.
        session.unbind();
        return Ok(Some(setting(key, value)));
    }
    let own = matches!(said, SessionStatement::ShowSetting { key } if settings::own_key(key).is_some());
    if !own && (session.present.is_some() || session.lost.is_some()) {
        return Ok(None);
    }
    Ok(Some(match said {
        SessionStatement::Use { .. } => {
            remember(session, text, said, None)?;
            Local::nothing()
        }
        SessionStatement::Set { key, value } => {
            remember(session, text, said, None)?;
            session.settings.show(key, value);
            setting(key, value)
        }
        SessionStatement::ShowSetting { key } => {
            held.resize(held.bytes() + session.settings.setting(key).map_or(0, str::len))?;
            let value = session.settings.setting(key).unwrap_or(if own { "<undefined>" } else { UNKNOWN });
            setting(key, value)
        }
        SessionStatement::ListSettings { .. } => {
            held.resize(held.bytes() + session.settings.bytes())?;
            let rows = session.settings.shown.iter();
            Local::table(pair_columns(), rows.map(|(key, value)| pair(key, value)).collect())
        }
    }))
}

/// Keeps what an engine would have to be told again; `pending`: an engine still works on it.
pub(super) fn remember(
    session: &mut Session,
    text: &str,
    said: &SessionStatement<'_>,
    pending: Option<Handle>,
) -> Result<(), UserError> {
    let subject = match said {
        SessionStatement::Use { .. } => settings::USE.to_owned(),
        SessionStatement::Set { key, .. } => format!("set {key}"),
        SessionStatement::ShowSetting { .. } | SessionStatement::ListSettings { .. } => return Ok(()),
    };
    session.settings.remember(subject, text.to_owned(), pending)
}

fn pair_columns() -> Vec<Column> {
    vec![Column::new("key", SqlType::String), Column::new("value", SqlType::String)]
}

fn pair(key: &str, value: &str) -> Vec<Value> {
    vec![Value::Text(key.to_owned()), Value::Text(value.to_owned())]
}

fn setting(key: &str, value: &str) -> Local {
    Local::table(pair_columns(), vec![pair(key, value)])
}
