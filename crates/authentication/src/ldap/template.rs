//! Filters, patterns and DNs with `{user}` and `{dn}`, which are escaped for the place where they stand.

use std::borrow::Cow;

use ldap3::{dn_escape, ldap_escape};

/// A text with the name of a user, and in filters of groups with the user's DN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(String);

/// A template cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("it has no {{user}}")]
    NoUser,
    #[error("it has neither {{user}} nor {{dn}}")]
    NoUserOrDn,
    #[error("it has an unknown placeholder {{{0}}}: valid are {{user}} and {{dn}}")]
    Unknown(String),
    #[error("it is no filter: a filter is enclosed in parentheses")]
    NoFilter,
}

impl Template {
    /// A pattern for the DN that a user binds with.
    pub fn pattern(text: &str) -> Result<Self, TemplateError> {
        Self::checked(text, &["user"])?.has("user").ok_or(TemplateError::NoUser)
    }

    /// A filter that finds the entry of a user.
    pub fn user_filter(text: &str) -> Result<Self, TemplateError> {
        Self::filter(text, &["user"])?.has("user").ok_or(TemplateError::NoUser)
    }

    /// A filter that finds the groups of a user.
    pub fn group_filter(text: &str) -> Result<Self, TemplateError> {
        let filter = Self::filter(text, &["user", "dn"])?;
        let found = filter.clone().has("user").or_else(|| filter.has("dn"));
        found.ok_or(TemplateError::NoUserOrDn)
    }

    fn filter(text: &str, valid: &[&str]) -> Result<Self, TemplateError> {
        if !text.starts_with('(') || !text.ends_with(')') {
            return Err(TemplateError::NoFilter);
        }
        Self::checked(text, valid)
    }

    fn checked(text: &str, valid: &[&str]) -> Result<Self, TemplateError> {
        let mut rest = text;
        while let Some((_, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').unwrap_or((after, ""));
            if !valid.contains(&name) {
                return Err(TemplateError::Unknown(name.to_owned()));
            }
            rest = after;
        }
        Ok(Self(text.to_owned()))
    }

    fn has(self, name: &str) -> Option<Self> {
        self.0.contains(&format!("{{{name}}}")).then_some(self)
    }

    /// Whether it is a DN. Otherwise it is a name such as `{user}@corp.example`.
    pub fn is_dn(&self) -> bool {
        self.0.contains('=')
    }

    /// The DN or name to bind with; `None` if the user's name cannot be a part of it.
    pub fn bind_name(&self, user: &str) -> Option<String> {
        // A leading or trailing space is escaped by its position in the value, which only a whole value has.
        let escaped: Cow<'_, str> = if self.is_dn() {
            dn_escape(user)
        } else if user.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
            user.into()
        } else {
            return None;
        };
        Some(self.0.replace("{user}", &escaped))
    }

    /// The filter for this user (RFC 4515).
    pub fn filter_for(&self, user: &str, dn: &str) -> String {
        // One pass, so that a name that contains a placeholder is taken literally.
        let mut filter = String::with_capacity(self.0.len() + user.len() + dn.len());
        let mut rest = self.0.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            filter.push_str(before);
            let (name, after) = after.split_once('}').unwrap_or((after, ""));
            filter.push_str(&ldap_escape(if name == "dn" { dn } else { user }));
            rest = after;
        }
        filter.push_str(rest);
        filter
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_escaped_for_their_place() {
        let filter = Template::user_filter("(&(objectClass=person)(uid={user}))").unwrap();
        assert_eq!(filter.filter_for("ann", ""), "(&(objectClass=person)(uid=ann))");
        assert_eq!(filter.filter_for("*)(uid=*", ""), "(&(objectClass=person)(uid=\\2a\\29\\28uid=\\2a))");
        let groups = Template::group_filter("(|(member={dn})(memberUid={user}))").unwrap();
        assert_eq!(groups.filter_for("{dn}", "cn=a(b"), "(|(member=cn=a\\28b)(memberUid={dn}))");
        let pattern = Template::pattern("uid={user},ou=people,dc=x").unwrap();
        assert_eq!(pattern.bind_name("alice,ou=admins").unwrap(), "uid=alice\\2cou\\3dadmins,ou=people,dc=x");
        let name = Template::pattern("{user}@corp.example").unwrap();
        assert_eq!(name.bind_name("ann").as_deref(), Some("ann@corp.example"));
        assert_eq!(name.bind_name("ann@other"), None);
    }

    #[test]
    fn a_template_without_a_user_is_refused() {
        assert_eq!(Template::pattern("uid=x"), Err(TemplateError::NoUser));
        assert_eq!(Template::user_filter("uid={user}"), Err(TemplateError::NoFilter));
        assert_eq!(Template::user_filter("(uid={name})"), Err(TemplateError::Unknown("name".to_owned())));
        assert_eq!(Template::user_filter("(member={dn})"), Err(TemplateError::Unknown("dn".to_owned())));
        assert_eq!(Template::group_filter("(cn=admins)"), Err(TemplateError::NoUserOrDn));
        assert_eq!(TemplateError::NoUser.to_string(), "it has no {user}");
    }
}
