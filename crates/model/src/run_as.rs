//! The user that an engine runs as: option `RUN_AS` of a unit.
//!
//! Either all engines run as the account of the installation, or each as its owner. The user of an engine follows from its slot alone: a
//! slot's owner, and the user that it was started for, change only together with its incarnation. So no permit, label or stale plan can
//! choose another user for an engine that exists.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, UserError};
use crate::owner::Owner;
use crate::slot::StartedFor;

/// As whom the engines of a unit run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunAs {
    /// The account of the installation, for every user.
    #[default]
    Service,
    /// The user who owns the engine, or whose session does.
    Owner,
}

impl RunAs {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Owner => "owner",
        }
    }
}

impl fmt::Display for RunAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for RunAs {
    type Err = UserError;

    /// Parses the word in any case.
    fn from_str(text: &str) -> Result<Self, UserError> {
        [Self::Service, Self::Owner].into_iter().find(|run_as| text.eq_ignore_ascii_case(run_as.as_str())).ok_or_else(
            || {
                UserError::new(ErrorKind::InvalidValue, format!("invalid RUN_AS \"{text}\""))
                    .detail("The engines of a unit run as the account of the service or as their owner.")
                    .hint("Write 'service' or 'owner'.")
            },
        )
    }
}

/// The user of a slot's engine that runs as its owner: the owner itself, or the user whose session owns it. `None` if no single user
/// owns it.
pub fn user_of<'a>(owner: Option<&'a Owner>, started_for: Option<&'a StartedFor>) -> Option<&'a str> {
    match owner {
        Some(Owner::User(user)) => Some(user),
        Some(Owner::Session(_)) => started_for.map(|started_for| started_for.user.as_str()),
        Some(Owner::Group(_)) | None => None,
    }
}

/// The refusal to run engines as users whose names anyone can claim. The message says what is refused.
pub fn unproven(message: &str) -> UserError {
    UserError::new(ErrorKind::NotSupported, message)
        .detail(
            "With access.authentication = \"none\" a client can claim any name, and the name would choose the account.",
        )
        .hint("Set access.authentication = [\"file\"], or RUN_AS 'service'.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn run_as_is_a_word_in_any_case() {
        for run_as in [RunAs::Service, RunAs::Owner] {
            assert_eq!(run_as.as_str().to_uppercase().parse::<RunAs>().unwrap(), run_as);
        }
        let error = "root".parse::<RunAs>().unwrap_err();
        assert_eq!((error.sqlstate(), error.hint.as_deref()), ("22023", Some("Write 'service' or 'owner'.")));
    }

    #[test]
    fn an_engine_runs_as_its_user_or_the_user_of_its_session() {
        let bob = StartedFor { user: "bob".to_owned(), creator: "IDE".to_owned() };
        let (user, session) = (Owner::User("ann".to_owned()), Owner::Session("s-1".to_owned()));
        assert_eq!(user_of(Some(&user), Some(&bob)), Some("ann"), "the owner, also if another user has started it");
        assert_eq!(user_of(Some(&user), None), Some("ann"));
        assert_eq!(user_of(Some(&session), Some(&bob)), Some("bob"));
        assert_eq!(user_of(Some(&session), None), None);
        assert_eq!(user_of(Some(&Owner::Group("ann".to_owned())), Some(&bob)), None, "a group is no user");
        assert_eq!(user_of(None, Some(&bob)), None);
    }
}
