//! The settings that no statement may change: the user of its session, and how engines are launched.
//!
//! `OpenSession` decides about the first, and refuses the second. Here SET and the settings of a statement (`confOverlay`)
//! are refused before they have an effect, so a session keeps its user and no engine receives such a setting.

use hs2::Message;
use hs2::scan::Request;
use model::error::UserError;

use super::settings;
use super::state::Session;
use crate::gateway::Gateway;
use crate::impersonate;

/// Checks a SET in every form that an engine may understand.
pub(super) fn check_statement(gateway: &Gateway, session: &Session, statement: &[u8]) -> Result<(), UserError> {
    match str::from_utf8(statement).ok().and_then(ddl::assignment) {
        Some((key, value)) => check(gateway, session, settings::unquoted(key).unwrap_or_default(), value),
        None => Ok(()),
    }
}

pub(super) fn check_overlay(
    gateway: &Gateway,
    session: &Session,
    message: &Message,
    request: &Request,
) -> Result<(), UserError> {
    for (key, value) in request.overlay_in(message.bytes()) {
        check(gateway, session, &String::from_utf8_lossy(key), &String::from_utf8_lossy(value))?;
    }
    Ok(())
}

fn check(gateway: &Gateway, session: &Session, key: &str, value: &str) -> Result<(), UserError> {
    settings::check_not_of_launch(key)?;
    impersonate::check_setting(gateway, session, key, value)
}
