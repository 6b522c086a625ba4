//! Whose sessions an engine serves: the owner in its permit, and the refusal of any other's session.
//!
//! The owner is that of the first permit that the agent has read for its own uid, and never changes: an engine that has served one
//! owner holds that owner's state. Before, no session is opened. A proxy with a stale registry, or of a version that does
//! not state whose session it is, is refused before anything is done.
//!
//! An engine that runs as a user is started so, and serves that user only, even if its permit names another owner or none.

use model::engine_name::EngineName;
use model::error::{ErrorKind, UserError};
use model::owner::Owner;
use model::sharing::Sharer;
use tracing::warn;

#[derive(Debug, Default)]
pub(super) struct Ownership {
    served: Served,
    /// The user that the engine runs as; `None`: the account of the installation.
    run_as: Option<String>,
    /// Whether a permit of another owner was logged.
    has_warned: bool,
}

/// Whose sessions the engine serves.
#[derive(Debug, Default, PartialEq, Eq)]
enum Served {
    /// The permit was not read yet.
    #[default]
    Unknown,
    Tenant,
    Owner(Owner),
}

impl Ownership {
    pub(super) fn new(run_as: Option<String>) -> Self {
        Self { run_as, ..Self::default() }
    }

    /// Applies the owner in a permit.
    pub(super) fn read(&mut self, owner: Option<&Owner>) {
        let permitted = owner.map_or(Served::Tenant, |owner| Served::Owner(owner.clone()));
        if self.served == Served::Unknown {
            self.served = permitted;
        } else if self.served != permitted && !self.has_warned {
            warn!(served = ?self.served, ?permitted, "the permit names another owner; ignored");
            self.has_warned = true;
        }
    }

    /// The owner to register.
    pub(super) const fn owner(&self) -> Option<&Owner> {
        match &self.served {
            Served::Owner(owner) => Some(owner),
            Served::Unknown | Served::Tenant => None,
        }
    }

    /// Refuses the session of another owner; `None` is a session of which that is not known.
    pub(super) fn check(&self, engine: &EngineName, sharer: Option<&Sharer>) -> Result<(), UserError> {
        let refusal = |message: String, detail: String| {
            Err(UserError::new(ErrorKind::EngineOwned, message)
                .detail(detail)
                .hint("Retry; the session will be opened on another engine."))
        };
        if let Some(user) = &self.run_as
            && sharer.is_none_or(|sharer| sharer.user != *user)
        {
            let detail = sharer.map_or_else(
                || "The proxy does not state whose session it is.".to_owned(),
                |sharer| format!("The session is of user \"{}\".", sharer.user),
            );
            return refusal(format!("engine \"{engine}\" runs as user \"{user}\""), detail);
        }
        let owner = match &self.served {
            Served::Tenant => return Ok(()),
            Served::Owner(owner) => owner,
            Served::Unknown => {
                let message = format!("engine \"{engine}\" has not read its permit");
                return refusal(message, "Whose sessions it may open is not known.".to_owned());
            }
        };
        let message = format!("engine \"{engine}\" is dedicated to {owner}");
        match sharer {
            Some(sharer) if sharer.is_owner(Some(owner)) => Ok(()),
            Some(sharer) => refusal(message, format!("The session is of user \"{}\".", sharer.user)),
            None => refusal(message, "The proxy does not state whose session it is.".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::owner::SharedBy;

    use super::*;

    #[test]
    fn only_the_owner_of_the_first_permit_may_open_sessions() {
        let engine = EngineName::new("e-1").unwrap();
        let (ann, bob) = (Sharer::new("ann", &[], "1"), Sharer::new("bob", &[], "2"));
        let mut ownership = Ownership::default();
        let refused = ownership.check(&engine, Some(&ann)).unwrap_err();
        assert_eq!((refused.kind, refused.sqlstate()), (ErrorKind::EngineOwned, "08S01"));
        let owner = ann.owner(SharedBy::User);
        ownership.read(owner.as_ref());
        assert_eq!(ownership.check(&engine, Some(&ann)), Ok(()));
        for later in [None, bob.owner(SharedBy::User)] {
            ownership.read(later.as_ref());
            assert_eq!(ownership.owner(), owner.as_ref(), "a permit of another owner changes nothing");
            for (sharer, detail) in [
                (Some(&bob), "The session is of user \"bob\"."),
                (None, "The proxy does not state whose session it is."),
            ] {
                let refused = ownership.check(&engine, sharer).unwrap_err();
                assert_eq!(refused.message, "engine \"e-1\" is dedicated to user \"ann\"");
                assert_eq!(refused.detail.as_deref(), Some(detail));
            }
        }
    }

    #[test]
    fn an_engine_that_runs_as_a_user_serves_no_other_whatever_its_permit_says() {
        let engine = EngineName::new("e-1").unwrap();
        let (ann, bob) = (Sharer::new("ann", &[], "1"), Sharer::new("bob", &[], "2"));
        for owner in [None, ann.owner(SharedBy::User), bob.owner(SharedBy::User), bob.owner(SharedBy::Session)] {
            let mut ownership = Ownership::new(Some("ann".to_owned()));
            ownership.read(owner.as_ref());
            for sharer in [Some(&bob), None] {
                let refused = ownership.check(&engine, sharer).unwrap_err();
                assert_eq!(refused.message, "engine \"e-1\" runs as user \"ann\"", "{owner:?}");
                assert_eq!(refused.kind, ErrorKind::EngineOwned);
            }
            assert_eq!(ownership.check(&engine, Some(&ann)).is_ok(), ann.is_owner(owner.as_ref()), "{owner:?}");
        }
    }

    #[test]
    fn an_engine_of_the_tenant_serves_every_session() {
        let engine = EngineName::new("e-1").unwrap();
        let mut ownership = Ownership::default();
        ownership.read(None);
        assert_eq!(ownership.check(&engine, None), Ok(()));
        assert_eq!(ownership.check(&engine, Some(&Sharer::new("ann", &[], "1"))), Ok(()));
    }
}
