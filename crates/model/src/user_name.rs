//! Names of users and groups, and the lists that name both.
//!
//! A list such as `USER_LIST` or `access.admins` names users as they are and groups after `@`. No user name begins with
//! `@`, so that no client can log in as a group.

use crate::catalog::MAX_LIST;

/// The longest name of a user or a group, in bytes.
pub const MAX_USER_NAME_BYTES: usize = 255;
/// The most groups of one user.
pub const MAX_GROUPS: usize = 1_000;

/// Whether a client may have that name. A name that begins with `@` would denote a group in a list of users.
pub fn is_user_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_USER_NAME_BYTES
        && !name.starts_with('@')
        && !name.chars().any(char::is_control)
}

/// Whether a group may have that name, which is given without its `@`.
pub fn is_group_name(name: &str) -> bool {
    is_user_name(name) && name.trim() == name && !name.contains([',', ':'])
}

/// Whether a list may have that entry: a user, or `@` and a group.
pub fn is_entry(entry: &str) -> bool {
    match entry.strip_prefix('@') {
        Some(group) => is_group_name(group),
        None => is_user_name(entry) && !entry.trim().is_empty(),
    }
}

/// Whether the list names the user or one of its groups.
pub fn is_listed(list: &[String], user: &str, groups: &[String]) -> bool {
    list.iter().any(|entry| match entry.strip_prefix('@') {
        Some(group) => groups.iter().any(|of_user| of_user == group),
        None => entry == user,
    })
}

/// Why a list of users and groups is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    #[error("entry {position} (\"{}\") is not the name of a user, or of a group after @", .entry.escape_debug())]
    Entry {
        /// Counts from 1.
        position: usize,
        entry: String,
    },
    #[error("it has {0} entries, and the limit is {MAX_LIST}")]
    TooLong(usize),
}

/// Refuses a list with an invalid entry, or with more than [`MAX_LIST`].
pub fn check_entries(list: &[String]) -> Result<(), ListError> {
    if list.len() > MAX_LIST {
        return Err(ListError::TooLong(list.len()));
    }
    match list.iter().position(|entry| !is_entry(entry)) {
        None => Ok(()),
        Some(index) => Err(ListError::Entry {
            position: index + 1,
            entry: crate::text::cut(&list[index], MAX_USER_NAME_BYTES).to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(of: &[&str]) -> Vec<String> {
        of.iter().map(|entry| (*entry).to_owned()).collect()
    }

    #[test]
    fn groups_control_characters_and_long_names_are_no_users() {
        for name in ["ann", "etl/host", "müller", "a b"] {
            assert!(is_user_name(name), "{name}");
        }
        for name in ["", "@admins", "ann\nroot", "a\0b", "x".repeat(256).as_str()] {
            assert!(!is_user_name(name), "{name}");
        }
        assert!(is_group_name("analysts") && !is_group_name("a,b") && !is_group_name(" a") && !is_group_name("@a"));
    }

    #[test]
    fn an_entry_is_a_user_or_a_group_after_an_at_sign() {
        assert_eq!(check_entries(&list(&["ann", "@analysts", "a,b"])), Ok(()));
        for bad in ["", " ", "@", "@@a", "@a,b", "@ a", "a\nb"] {
            let error = check_entries(&list(&["ann", bad]));
            assert!(matches!(error, Err(ListError::Entry { position: 2, .. })), "{bad}: {error:?}");
        }
        assert_eq!(check_entries(&vec!["a".to_owned(); MAX_LIST + 1]), Err(ListError::TooLong(MAX_LIST + 1)));
    }

    #[test]
    fn a_list_names_users_by_name_and_by_group() {
        let listed = list(&["ann", "@etl"]);
        let groups = list(&["etl"]);
        assert!(is_listed(&listed, "ann", &[]) && is_listed(&listed, "bob", &groups));
        // A group is no user, and a user of a group's name is not in the group.
        for (user, groups) in [("bob", list(&["ann"])), ("etl", Vec::new()), ("@etl", Vec::new())] {
            assert!(!is_listed(&listed, user, &groups), "{user} {groups:?}");
        }
    }
}
