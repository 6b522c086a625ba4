//! The owner of an engine: the group, user or session that it is dedicated to, and which of them share the engines of a unit.
//!
//! An engine has its owner from the start to the end. A stale proxy may route the session of another owner to it: its agent refuses
//! that session.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::engine_name::hex_prefix;
use crate::error::{ErrorKind, UserError};

/// Before the name of a user who is a group of its own; a group's name has no colon.
pub(crate) const SINGLE: &str = "user:";
/// Before the SHA-256 of such a name that is too long for its prefix.
pub(crate) const SINGLE_DIGEST: &str = "user-sha256:";

/// To whom an engine is dedicated. Its agent accepts sessions of no other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "name")]
pub enum Owner {
    /// The first group of a principal, or the principal as its own group: [`crate::sharing::group_of`].
    Group(String),
    User(String),
    /// The id of a session of the gateway.
    Session(String),
}

/// The hex digits of [`Owner::label`].
pub const OWNER_LABEL_DIGITS: usize = 16;

impl Owner {
    /// The owner of this kind, [`Owner::kind`], and name.
    pub fn from_parts(kind: &str, name: String) -> Option<Self> {
        match kind {
            "group" => Some(Self::Group(name)),
            "user" => Some(Self::User(name)),
            "session" => Some(Self::Session(name)),
            _ => None,
        }
    }

    /// What the name is: `group`, `user` or `session`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Group(_) => "group",
            Self::User(_) => "user",
            Self::Session(_) => "session",
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Group(name) | Self::User(name) | Self::Session(name) => name,
        }
    }

    /// The value of label `enginehouse.io/owner`: the first 16 hex digits of the SHA-256 of kind and name, because names of users
    /// are no label values.
    pub fn label(&self) -> String {
        hex_prefix(format!("{}\0{}", self.kind(), self.name()).as_bytes(), OWNER_LABEL_DIGITS)
    }
}

impl fmt::Display for Owner {
    /// `user "ann"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Group(group) = self {
            return write_group(f, group);
        }
        write!(f, "{} \"{}\"", self.kind(), self.name())
    }
}

/// Who shares the engines of a unit: option `SHARED_BY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedBy {
    #[default]
    Tenant,
    /// The principals with the same first group.
    Group,
    User,
    /// None: each session has an engine of its own.
    Session,
}

impl SharedBy {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Group => "group",
            Self::User => "user",
            Self::Session => "session",
        }
    }

    /// Whether engines are charged to the user and the client application that they are started for, and not to their tenant
    /// alone: those that one user has.
    pub const fn charges_users(self) -> bool {
        matches!(self, Self::User | Self::Session)
    }

    /// Whether this is the kind of the owner: `None` is the tenant.
    pub fn is_kind_of(self, owner: Option<&Owner>) -> bool {
        self.as_str() == owner.map_or(Self::Tenant.as_str(), Owner::kind)
    }
}

impl fmt::Display for SharedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for SharedBy {
    type Err = UserError;

    /// Parses the word in any case.
    fn from_str(text: &str) -> Result<Self, UserError> {
        [Self::Tenant, Self::Group, Self::User, Self::Session]
            .into_iter()
            .find(|shared_by| text.eq_ignore_ascii_case(shared_by.as_str()))
            .ok_or_else(|| {
                UserError::new(ErrorKind::InvalidValue, format!("invalid SHARED_BY \"{text}\""))
                    .detail("The engines of a unit are shared by tenant, group, user or session.")
                    .hint("Write 'tenant', 'group', 'user' or 'session'.")
            })
    }
}

/// A group as users read it.
fn write_group(f: &mut fmt::Formatter<'_>, group: &str) -> fmt::Result {
    match (group.strip_prefix(SINGLE), group.strip_prefix(SINGLE_DIGEST)) {
        (Some(user), _) => write!(f, "user \"{user}\" as a group"),
        (_, Some(digest)) => write!(f, "the user with SHA-256 {digest} as a group"),
        _ => write!(f, "group \"{group}\""),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_owner_is_read_as_it_is_written_and_labelled_by_kind_and_name() {
        let owners = [
            Owner::Group("ann".to_owned()),
            Owner::User("ann".to_owned()),
            Owner::Session("ann".to_owned()),
            Owner::User("Ann Ōe@example.org".to_owned()),
        ];
        for owner in &owners {
            assert_eq!(Owner::from_parts(owner.kind(), owner.name().to_owned()).as_ref(), Some(owner));
        }
        assert_eq!(Owner::from_parts("tenant", "t_1".to_owned()), None);
        let labels: BTreeSet<String> = owners.iter().map(Owner::label).collect();
        assert_eq!(labels.len(), owners.len());
        assert!(labels.iter().all(|label| label.len() == OWNER_LABEL_DIGITS));
        assert_eq!(owners[1].to_string(), "user \"ann\"");
    }

    #[test]
    fn sharing_is_a_word_in_any_case() {
        for shared_by in [SharedBy::Tenant, SharedBy::Group, SharedBy::User, SharedBy::Session] {
            assert_eq!(shared_by.as_str().to_uppercase().parse::<SharedBy>().unwrap(), shared_by);
        }
        let error = "server".parse::<SharedBy>().unwrap_err();
        assert_eq!(error.hint.as_deref(), Some("Write 'tenant', 'group', 'user' or 'session'."));
        let ann = Owner::User("ann".to_owned());
        assert!(SharedBy::User.is_kind_of(Some(&ann)) && SharedBy::Tenant.is_kind_of(None));
        assert!(!SharedBy::Group.is_kind_of(Some(&ann)) && !SharedBy::Tenant.is_kind_of(Some(&ann)));
    }

    #[test]
    fn a_principal_without_groups_is_its_own_group() {
        let groups = ["etl".to_owned(), "bi".to_owned()];
        let group = |name: &str| Some(Some(Owner::Group(name.to_owned())));
        assert_eq!(SharedBy::Group.owner_of("ann", &groups), group("etl"));
        assert_eq!(SharedBy::Group.owner_of("ann", &[]), group("user:ann"));
        assert_eq!(SharedBy::User.owner_of("ann", &groups), Some(Some(Owner::User("ann".to_owned()))));
        assert_eq!(
            (SharedBy::Tenant.owner_of("ann", &groups), SharedBy::Session.owner_of("ann", &[])),
            (Some(None), None)
        );
    }
}
