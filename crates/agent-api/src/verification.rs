//! The server's side of authentication: metadata agents and engine agents accept proxies and masters with the key of their
//! role. All refusals have the same text.

use hs2::{Credentials, Principal, ServiceProof};
use keys::{Callers, KeyGeneration, Role};
use model::error::{ErrorKind, UserError};

use crate::caller::Audience;

/// The user name of a master.
pub const SERVICE_MASTER: &str = Role::Master.name();
/// The user name of a proxy, which acts for a user.
pub const SERVICE_PROXY: &str = Role::Proxy.name();

/// Accepts a proxy or master whose signature names this server.
pub fn authenticate(callers: &Callers, audience: Audience<'_>, proof: &ServiceProof) -> Result<Principal, UserError> {
    let role = caller(&proof.role).ok_or_else(|| refusal(audience))?;
    let message = proof.message(&audience.to_string());
    if callers.verify(role, KeyGeneration(proof.generation), &message, &proof.signature) {
        return Ok(Principal::service(role.name(), proof.user.clone()));
    }
    Err(refusal(audience))
}

/// Accepts a proxy or master with the key of generation 0, as long as that is accepted.
pub fn authenticate_password(
    callers: &Callers,
    audience: Audience<'_>,
    credentials: &Credentials,
) -> Result<Principal, UserError> {
    match caller(&credentials.user) {
        Some(role) if callers.accepts_password(&credentials.password) => {
            Ok(Principal::service(role.name(), credentials.authzid.clone()))
        }
        _ => Err(refusal(audience)),
    }
}

fn caller(role: &str) -> Option<Role> {
    [Role::Master, Role::Proxy].into_iter().find(|known| known.name() == role)
}

fn refusal(audience: Audience<'_>) -> UserError {
    let text = match audience {
        Audience::MetadataAgent => "a metadata agent accepts only proxies and masters",
        Audience::Engine { .. } => "an engine accepts only connections of proxies",
    };
    UserError::new(ErrorKind::InvalidAuthorization, text).hint("Connect to a proxy.")
}
