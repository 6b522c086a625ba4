//! The entries of a control statement's configuration overlay: what a proxy passes to a metadata agent with the statement.
//!
//! Both sides ignore entries that they do not know, so an entry may be added while proxies and agents of two versions run.

use model::error::{ErrorKind, UserError};
use model::user_name::{MAX_GROUPS, is_group_name};

/// The id of the request.
pub const REQUEST_ID: &str = "enginehouse.request.id";
/// The remaining time, in milliseconds, before the transaction has to begin.
pub const REQUEST_DEADLINE_MS: &str = "enginehouse.request.deadline_ms";
/// A text about the systems that the proxy cannot reach; SHOW reports it with the engines.
pub const REQUEST_PROXY_LACKS: &str = "enginehouse.request.proxy_lacks";
/// The user who impersonates the user of the statement, for the audit like the following ones. Absent if there is none.
pub const REQUEST_VIA: &str = "enginehouse.request.via";
/// The method that authenticated the user.
pub const REQUEST_METHOD: &str = "enginehouse.request.method";
/// The groups of the user, in the form of [`groups_text`]. Absent if there are none.
pub const REQUEST_GROUPS: &str = "enginehouse.request.groups";
/// The address of the proxy.
pub const REQUEST_PROXY: &str = "enginehouse.request.proxy";
/// The address of the client.
pub const REQUEST_CLIENT: &str = "enginehouse.request.client";

/// The client application that engines are started for. Absent if it is not known.
pub const REQUEST_CREATOR: &str = "enginehouse.request.creator";

/// The groups of a user as an entry: a JSON list of names without `@`.
pub fn groups_text(groups: &[String]) -> String {
    serde_json::Value::from(groups.to_vec()).to_string()
}

/// Reads such an entry. Fails with SQLSTATE 22023 if it is no list of at most [`MAX_GROUPS`] names of groups.
pub fn groups_of(text: &str) -> Result<Vec<String>, UserError> {
    let groups: Option<Vec<String>> = serde_json::from_str(text).ok();
    let valid = groups.filter(|groups| groups.len() <= MAX_GROUPS && groups.iter().all(|group| is_group_name(group)));
    valid.ok_or_else(|| UserError::new(ErrorKind::InvalidValue, format!("invalid {REQUEST_GROUPS}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn groups_are_read_as_they_were_written_and_others_are_refused() {
        let groups = vec!["analysts".to_owned(), "a \"b\"".to_owned()];
        assert_eq!(groups_of(&groups_text(&groups)).unwrap(), groups);
        let many = groups_text(&vec!["a".to_owned(); MAX_GROUPS + 1]);
        for bad in ["", "analysts", "[1]", "[\"@a\"]", "[\"a,b\"]", many.as_str()] {
            assert_eq!(groups_of(bad).unwrap_err().sqlstate(), "22023");
        }
    }
}
