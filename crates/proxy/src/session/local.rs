//! Calls that the proxy answers itself: `GetInfo`, `SetClientInfo`, our own settings, and USE and SET while no engine is
//! bound.
//!
//! Name and version of the server are those of the configuration ([`Product`](crate::Product)) at all times: drivers ask
//! for them one by one and cache some of the answers. `PyHive` and impyla send USE while they connect. Such statements
//! are replayed when an engine is bound; if the engine then refuses one, the statement that caused the binding fails.

use ddl::SessionStatement;
use hs2::tcli::{TGetInfoReq, TGetInfoResp, TGetInfoType, TGetInfoValue, TSetClientInfoResp};
use hs2::{Column, Message, Method, SqlType, Value, status};
use model::error::{ErrorKind, UserError};

use super::operation::LocalResult;
use super::reply::{Reply, malformed};
use super::settings;
use super::state::Session;
use super::table::Entry;
use crate::budget::BudgetGuard;
use crate::gateway::Gateway;

/// The value that SET shows for a key that only an engine knows.
const UNKNOWN: &str = "<unknown until the session has an engine>";
/// The longest identifier, reported as `CLI_MAX_*_LEN`.
const MAX_IDENTIFIER: i64 = 128;

/// Answers a `GetInfo`; `None` if the bound engine has to, or the next one of a session that was unbound because it was idle.
pub(crate) async fn get_info(gateway: &Gateway, entry: &Entry, message: &Message) -> Result<Option<Reply>, UserError> {
    let request: TGetInfoReq = message.call().decode().map_err(|error| malformed(Method::GetInfo, &error))?;
    let is_identity = matches!(
        request.info_type,
        TGetInfoType::CLI_SERVER_NAME | TGetInfoType::CLI_DBMS_NAME | TGetInfoType::CLI_DBMS_VER
    );
    if !is_identity {
        let session = entry.state.lock().await;
        if session.current.is_some() || session.is_released() {
            return Ok(None);
        }
    }
    let product = &gateway.settings.product;
    let info_value = match request.info_type {
        TGetInfoType::CLI_SERVER_NAME | TGetInfoType::CLI_DBMS_NAME => TGetInfoValue::StringValue(product.name.clone()),
        TGetInfoType::CLI_DBMS_VER => TGetInfoValue::StringValue(product.version.clone()),
        TGetInfoType::CLI_ODBC_KEYWORDS => TGetInfoValue::StringValue(String::new()),
        TGetInfoType::CLI_MAX_COLUMN_NAME_LEN
        | TGetInfoType::CLI_MAX_SCHEMA_NAME_LEN
        | TGetInfoType::CLI_MAX_TABLE_NAME_LEN => TGetInfoValue::LenValue(MAX_IDENTIFIER),
        _ => {
            return Err(UserError::new(ErrorKind::NotSupported, "unsupported info type")
                .detail(format!("The info type is {}.", i32::from(&request.info_type))));
        }
    };
    Ok(Some(TGetInfoResp { status: status::success(), info_value }.into()))
}

/// Accepts the client's name, which is not used.
pub(crate) fn set_client_info() -> Reply {
    TSetClientInfoResp { status: status::success() }.into()
}

/// The result of a USE or SET that the proxy answers: of our own settings always, of everything else while no engine is
/// bound. `None`: the engine has to execute it.
pub(crate) fn execute(
    session: &mut Session,
    text: &str,
    statement: &SessionStatement<'_>,
    budget_guard: &mut BudgetGuard,
) -> Result<Option<LocalResult>, UserError> {
    if let SessionStatement::Set { key, value } = statement
        && let Some(own) = settings::own_key(key)
    {
        if session.is_pinned() {
            return Err(UserError::new(ErrorKind::WrongState, format!("setting \"{key}\" cannot be changed now"))
                .detail("The engine holds state of the session that would be lost.")
                .hint("Open a new session."));
        }
        session.settings.set_own(&own, value)?;
        // The bound engine may not match the new value: the next statement is bound again.
        session.unbind();
        return Ok(Some(setting(key, value)));
    }
    let own = matches!(statement, SessionStatement::ShowSetting { key } if settings::own_key(key).is_some());
    if !own && !session.is_unbound() {
        return Ok(None);
    }
    Ok(Some(match statement {
        SessionStatement::Use { .. } => {
            session.settings.remember_statement(text, statement, None)?;
            LocalResult::none()
        }
        SessionStatement::Set { key, value } => {
            session.settings.remember_statement(text, statement, None)?;
            session.settings.show(key, value);
            setting(key, value)
        }
        SessionStatement::ShowSetting { key } => {
            budget_guard.resize(budget_guard.bytes() + session.settings.setting(key).map_or(0, str::len))?;
            let value = session.settings.setting(key).unwrap_or(if own { "<undefined>" } else { UNKNOWN });
            setting(key, value)
        }
        SessionStatement::ListSettings { .. } => {
            budget_guard.resize(budget_guard.bytes() + session.settings.bytes())?;
            let rows = session.settings.shown.iter();
            LocalResult::table(setting_columns(), rows.map(|(key, value)| setting_row(key, value)).collect())
        }
    }))
}

fn setting_columns() -> Vec<Column> {
    vec![Column::new("key", SqlType::String), Column::new("value", SqlType::String)]
}

fn setting_row(key: &str, value: &str) -> Vec<Value> {
    vec![Value::Text(key.to_owned()), Value::Text(value.to_owned())]
}

fn setting(key: &str, value: &str) -> LocalResult {
    LocalResult::table(setting_columns(), vec![setting_row(key, value)])
}
