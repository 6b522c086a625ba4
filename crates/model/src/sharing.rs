//! Whose engines a session may use: its user, the user's group and the session itself, each as the owner of an engine.
//!
//! The group of a user is the first of its groups; a user without groups is a group of its own, under a name that no group can
//! have. So a user is never taken for a group of the same name.
//!
//! A [`Sharer`] is of the moment at which its session is bound: a session whose user changes the group keeps its engine until it
//! is bound again.

use sha2::{Digest as _, Sha256};

use crate::engine_name::hex;
use crate::owner::{Owner, SINGLE, SINGLE_DIGEST, SharedBy};
use crate::user_name::MAX_USER_NAME_BYTES;

/// Who shares engines: the owners that a session may act for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharer {
    pub user: String,
    /// As [`Owner::Group`] names it.
    pub group: String,
    /// The id of the gateway's session.
    pub session: String,
}

impl Sharer {
    pub fn new(user: &str, groups: &[String], session: impl Into<String>) -> Self {
        Self { user: user.to_owned(), group: group_of(user, groups), session: session.into() }
    }

    /// The owner of the session's engines where they are shared like this; `None`: the tenant.
    pub fn owner(&self, shared_by: SharedBy) -> Option<Owner> {
        match shared_by {
            SharedBy::Tenant => None,
            SharedBy::Group => Some(Owner::Group(self.group.clone())),
            SharedBy::User => Some(Owner::User(self.user.clone())),
            SharedBy::Session => Some(Owner::Session(self.session.clone())),
        }
    }

    /// Whether the session may use engines of the owner; everyone may use those of the tenant.
    pub fn is_owner(&self, owner: Option<&Owner>) -> bool {
        match owner {
            None => true,
            Some(Owner::Group(group)) => *group == self.group,
            Some(Owner::User(user)) => *user == self.user,
            Some(Owner::Session(session)) => *session == self.session,
        }
    }
}

impl SharedBy {
    /// The owner of an engine that a user with these groups starts: `Some(None)` if the tenant shares it. `None` if each session
    /// has an engine of its own.
    pub fn owner_of(self, user: &str, groups: &[String]) -> Option<Option<Owner>> {
        match self {
            Self::Tenant => Some(None),
            Self::Group => Some(Some(Owner::Group(group_of(user, groups)))),
            Self::User => Some(Some(Owner::User(user.to_owned()))),
            Self::Session => None,
        }
    }
}

/// The group of a user with these groups.
pub fn group_of(user: &str, groups: &[String]) -> String {
    if let Some(first) = groups.first() {
        return first.clone();
    }
    let name = format!("{SINGLE}{user}");
    if name.len() <= MAX_USER_NAME_BYTES { name } else { format!("{SINGLE_DIGEST}{}", hex(&Sha256::digest(user))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user_name::is_group_name;

    fn sharer(user: &str, groups: &[&str]) -> Sharer {
        Sharer::new(user, &groups.iter().map(|group| (*group).to_owned()).collect::<Vec<_>>(), "5e551")
    }

    #[test]
    fn a_session_may_use_the_engines_of_its_own_owners_and_of_the_tenant() {
        let ann = sharer("ann", &["etl", "bi"]);
        for shared_by in [SharedBy::Tenant, SharedBy::Group, SharedBy::User, SharedBy::Session] {
            let owner = ann.owner(shared_by);
            assert!(shared_by.is_kind_of(owner.as_ref()) && ann.is_owner(owner.as_ref()), "{shared_by}");
        }
        for (other, of_group) in [(sharer("bob", &["etl"]), true), (sharer("ann", &["bi", "etl"]), false)] {
            let other = Sharer { session: "0ther".to_owned(), ..other };
            assert_eq!(other.is_owner(ann.owner(SharedBy::Group).as_ref()), of_group, "only the first group counts");
            assert!(!other.is_owner(ann.owner(SharedBy::Session).as_ref()));
            assert_eq!(other.is_owner(ann.owner(SharedBy::User).as_ref()), other.user == "ann");
        }
    }

    #[test]
    fn a_user_without_groups_is_a_group_that_no_other_can_be() {
        let long = "n".repeat(MAX_USER_NAME_BYTES);
        let longer = format!("{}m", &long[1..]);
        let single = sharer("etl", &[]);
        assert_ne!(single.group, sharer("ann", &["etl"]).group);
        for user in ["etl", &long, &longer, "user:etl"] {
            let group = group_of(user, &[]);
            assert!(group.len() <= MAX_USER_NAME_BYTES && !is_group_name(&group), "{group}");
        }
        assert_ne!(group_of(&long, &[]), group_of(&longer, &[]));
        let owner = single.owner(SharedBy::Group).map(|owner| owner.to_string());
        assert_eq!(owner.as_deref(), Some("user \"etl\" as a group"));
        assert_eq!(Owner::Group("etl".to_owned()).to_string(), "group \"etl\"");
        let digest = Owner::Group(group_of(&long, &[])).to_string();
        assert!(digest.starts_with("the user with SHA-256 ") && digest.ends_with(" as a group"), "{digest}");
    }
}
