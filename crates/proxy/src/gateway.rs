//! The state that all sessions of a proxy share.

use std::sync::Arc;

use authentication::{Cookies, RefusalLog};
use hs2::{HttpApi, Principal};
use model::clock::SharedClock;
use model::error::{ErrorKind, UserError};
use model::rights::Subject;
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::agents::Agents;
use crate::api::admission::ApiCalls;
use crate::budget::Budget;
use crate::catalog::CatalogView;
use crate::demand::DemandCount;
use crate::routes::Routes;
use crate::session::table::Sessions;
use crate::settings::Settings;
use crate::staleness::ZooKeeperStatus;
use crate::usage::Usage;

pub(crate) struct Gateway {
    pub(crate) settings: Settings,
    /// The advertised address, or the listen address without one: the name of this proxy in the audit.
    pub(crate) address: String,
    pub(crate) clock: SharedClock,
    pub(crate) cookies: Cookies,
    /// The log of refused impersonations.
    pub(crate) refused_impersonations: Arc<RefusalLog>,
    pub(crate) agents: Agents,
    pub(crate) catalog: Arc<CatalogView>,
    pub(crate) routes: Routes,
    /// The sessions that wait for an engine.
    pub(crate) demand: Arc<DemandCount>,
    pub(crate) zookeeper: ZooKeeperStatus,
    pub(crate) sessions: Sessions,
    /// The sessions of each tenant, and the running statements of each user and tenant.
    pub(crate) usage: Usage,
    /// The bytes that sessions make the proxy keep.
    pub(crate) budget: Arc<Budget>,
    /// What is served below `/api/`.
    pub(crate) api: Arc<dyn HttpApi>,
    /// The REST calls that are being served.
    pub(crate) api_calls: Arc<ApiCalls>,
    /// Counts since the last summary in the log.
    pub(crate) activity: Arc<Activity>,
    /// Cancelled when the proxy begins to drain: no session is opened and no REST call is served after that.
    pub(crate) draining: CancellationToken,
}

impl Gateway {
    /// The user with its current groups and roles: a session may outlive a membership of its user.
    pub(crate) async fn subject(&self, principal: &Principal) -> Result<Subject, UserError> {
        Ok(Subject::new(principal.user.clone(), self.groups(principal).await?, &self.settings.roles))
    }

    /// The current groups of a user, or 28000 if the user, or the one who impersonates it, was removed since the login, or if the
    /// proof of the login has expired. Where names are trusted, and with such a proof, the groups of the login.
    pub(crate) async fn groups(&self, principal: &Principal) -> Result<Vec<String>, UserError> {
        let Some(chain) = &self.settings.authentication else { return Ok(principal.groups.clone()) };
        let is_by_token = principal.expires_ms.is_some();
        if principal.expires_ms.is_some_and(|at| at <= self.clock.wall_ms()) {
            return Err(expired(principal.login()));
        }
        match &principal.via {
            None if is_by_token => Ok(principal.groups.clone()),
            None => chain
                .groups_since_login(&principal.user, principal.method)
                .await
                .ok_or_else(|| removed(&principal.user)),
            Some(via) => {
                if !is_by_token {
                    chain.groups_since_login(via, principal.method).await.ok_or_else(|| removed(via))?;
                }
                chain.groups_if_possible(&principal.user).await.ok_or_else(|| removed(&principal.user))
            }
        }
    }
}

fn expired(user: &str) -> UserError {
    UserError::new(ErrorKind::InvalidAuthorization, format!("the token of user \"{user}\" has expired"))
        .hint("Log in with a new token.")
}

fn removed(user: &str) -> UserError {
    UserError::new(ErrorKind::InvalidAuthorization, format!("user \"{user}\" was removed"))
        .detail("The session was opened before that.")
        .hint("Close the session.")
}
