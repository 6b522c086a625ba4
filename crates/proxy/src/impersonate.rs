//! Impersonation: a user who may act for another one, by the rules of the configuration.
//!
//! The user is named by SASL's authorization id, by `doAs` in the URL over HTTP, or by a setting of `OpenSession`. The
//! session then belongs to that user, with that user's groups. Admins, operators and auditors are never impersonated, and
//! an impersonated user cannot impersonate another. Every refusal has one text, whatever the reason: it does not reveal which
//! users exist. It is a line of target `audit`, like a failed login.

use std::net::IpAddr;

use hs2::Principal;
use model::error::{ErrorKind, UserError};
use model::rights::Subject;
use model::text::cut;
use model::user_name::{MAX_USER_NAME_BYTES, is_user_name};

use crate::gateway::Gateway;
use crate::session::settings::{self, SessionSettings};
use crate::session::state::Session;

/// The principal of a session with these settings, which a client at `peer` opens.
pub(crate) async fn named_by(
    gateway: &Gateway,
    principal: Principal,
    peer: IpAddr,
    settings: &SessionSettings,
) -> Result<Principal, UserError> {
    let mut named = settings.proxy_users.iter();
    match (named.next(), named.next()) {
        (None, _) => Ok(principal),
        (Some(user), None) => on_behalf_of(gateway, principal, peer, user).await,
        (Some(user), Some(_)) => {
            Err(refuse(gateway, &principal, peer, user).detail("The session names several users."))
        }
    }
}

/// The principal as the user, if it may act for that one.
pub(crate) async fn on_behalf_of(
    gateway: &Gateway,
    principal: Principal,
    peer: IpAddr,
    user: &str,
) -> Result<Principal, UserError> {
    if user == principal.user {
        return Ok(principal);
    }
    match groups_if_permitted(gateway, &principal, user).await {
        Some(groups) => {
            tracing::debug!(user, via = principal.user, "impersonating");
            Ok(principal.impersonating(user, groups))
        }
        None => Err(refuse(gateway, &principal, peer, user)),
    }
}

/// The groups of the user; `None` if the principal must not act for that one.
async fn groups_if_permitted(gateway: &Gateway, principal: &Principal, user: &str) -> Option<Vec<String>> {
    if principal.via.is_some() || !is_user_name(user) {
        return None;
    }
    let groups = match &gateway.settings.authentication {
        Some(chain) => chain.groups_if_possible(user).await?,
        None => Vec::new(),
    };
    let subject = Subject::new(user, groups, &gateway.settings.roles);
    let permitted = gateway.settings.impersonation.permit(&principal.user, user, &subject.groups);
    (permitted && !subject.has_role_of_installation()).then_some(subject.groups)
}

/// Refuses a setting that would change the user of an open session.
pub(crate) fn check_setting(gateway: &Gateway, session: &Session, key: &str, value: &str) -> Result<(), UserError> {
    if !settings::is_proxy_user(key) {
        return Ok(());
    }
    let user = settings::unquoted(value).unwrap_or_default();
    if user == session.principal.user {
        return Ok(());
    }
    Err(refuse(gateway, &session.principal, session.client, user)
        .detail("The user of a session is named when the session is opened."))
}

/// Logs a refusal. Its error is the same for every reason.
fn refuse(gateway: &Gateway, principal: &Principal, peer: IpAddr, user: &str) -> UserError {
    let user = cut(user, MAX_USER_NAME_BYTES).escape_debug().to_string();
    let address = peer.to_canonical();
    if gateway.refused_impersonations.has_line(address) {
        let via = principal.login();
        tracing::info!(
            target: "audit",
            event = "impersonation_refused",
            user,
            via,
            %address,
            "impersonation refused"
        );
    }
    UserError::new(
        ErrorKind::InvalidAuthorization,
        format!("user \"{}\" is not allowed to impersonate \"{user}\"", principal.user),
    )
    .hint("An admin adds a rule to access.impersonation. Admins, operators and auditors cannot be impersonated.")
}
