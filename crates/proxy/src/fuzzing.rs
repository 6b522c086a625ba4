//! What fuzz targets read: the settings with which a client opens a session, and SET.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::error::UserError;

use crate::budget::Budget;
use crate::session::settings::{SessionSettings, check_not_of_launch, is_proxy_user, unquoted};
use crate::settings::Limits;

/// The most bytes that are kept of the settings here.
pub const MAX_BYTES: usize = 32 << 10;

/// What the settings of a session mean.
#[derive(Debug)]
pub struct SessionKeys {
    /// What the engine receives.
    pub forwarded: BTreeMap<String, String>,
    /// The users whom the session asks to impersonate.
    pub proxy_users: BTreeSet<String>,
    /// The bytes that are kept.
    pub bytes: usize,
}

/// Reads the configuration of an `OpenSession`.
pub fn open_session_keys(configuration: &BTreeMap<String, String>) -> Result<SessionKeys, UserError> {
    let limits = Limits { session_settings_bytes: MAX_BYTES, ..Limits::default() };
    let budget = Budget::new(limits.held_bytes, Arc::default());
    let settings = SessionSettings::read(configuration, &limits, &budget)?;
    let bytes = settings.bytes();
    Ok(SessionKeys { forwarded: settings.forwarded, proxy_users: settings.proxy_users, bytes })
}

/// Whether a statement is a SET that no session may run, except one that names the session's own user.
pub fn set_is_refused(statement: &str) -> bool {
    ddl::assignment(statement).is_some_and(|(key, _)| {
        let key = unquoted(key).unwrap_or_default();
        check_not_of_launch(key).is_err() || is_proxy_user(key)
    })
}
