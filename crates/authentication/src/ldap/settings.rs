//! The settings of a directory: where it is, and how a user and its groups are found in it.

use std::fmt;
use std::time::Duration;

use hs2::ClientTls;

use super::identity::SearchIdentity;
use super::template::Template;

/// The settings of the method.
#[derive(Debug, Clone)]
pub struct LdapSettings {
    /// Tried in turn for each connection. Not empty.
    pub urls: Vec<LdapUrl>,
    /// The roots for `ldaps://` and StartTLS.
    pub tls: ClientTls,
    /// Whether a connection to `ldap://` begins with StartTLS. If that is refused, nothing else is sent.
    pub start_tls: bool,
    pub users: UserSource,
    /// The identity for searches; `None`: anonymous.
    pub identity: Option<SearchIdentity>,
    /// Groups by a search.
    pub groups: Option<GroupSearch>,
    /// The attribute of a user's entry with the DNs of its groups, such as `memberOf`.
    pub member_of: Option<String>,
    /// The attribute with the user's name.
    pub name_attribute: String,
    /// The connections of each of both pools.
    pub connections: usize,
    pub connect_timeout: Duration,
    /// Of one operation.
    pub timeout: Duration,
    /// How long groups are used without being read again.
    pub refresh: Duration,
    /// How long they are used while the directory does not respond.
    pub stale: Duration,
}

/// How a user is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserSource {
    /// The name to bind with follows from the user's name.
    Pattern(Template),
    /// The one entry below `base` that the filter finds.
    Search { base: String, filter: Template },
}

/// How the groups of a user are found: entries below `base`, named by an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSearch {
    pub base: String,
    pub filter: Template,
    pub attribute: String,
}

/// The address of a directory, with a scheme that the library accepts and a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LdapUrl {
    text: String,
    is_tls: bool,
    is_loopback: bool,
}

/// A URL cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    #[error("\"{0}\" is no URL such as ldaps://directory.example:636")]
    NoUrl(String),
    #[error("\"{0}\" has another scheme than ldap and ldaps")]
    Scheme(String),
    #[error("\"{0}\" has more than a host and a port")]
    More(String),
}

impl LdapUrl {
    /// Several URLs, separated by commas.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, SettingError> {
        text.split(',').map(str::trim).filter(|url| !url.is_empty()).map(Self::parse).collect()
    }

    fn parse(text: &str) -> Result<Self, SettingError> {
        let url = url::Url::parse(text).map_err(|_| SettingError::NoUrl(text.to_owned()))?;
        let is_tls = match url.scheme() {
            "ldaps" => true,
            "ldap" => false,
            _ => return Err(SettingError::Scheme(text.to_owned())),
        };
        // The library panics without a host.
        let host =
            url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| SettingError::NoUrl(text.to_owned()))?;
        let has_path = !matches!(url.path(), "" | "/");
        if has_path || url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
            return Err(SettingError::More(text.to_owned()));
        }
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
        let is_loopback = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
        Ok(Self { text: text.to_owned(), is_tls, is_loopback })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether passwords on this connection are encrypted without StartTLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Whether it does not leave the machine.
    pub fn is_loopback(&self) -> bool {
        self.is_loopback
    }
}

impl fmt::Display for LdapUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn urls_have_a_scheme_and_a_host() {
        let urls = LdapUrl::parse_list("ldaps://one.example:636, ldap://127.0.0.1:389").unwrap();
        assert_eq!(urls.iter().map(LdapUrl::is_tls).collect::<Vec<_>>(), [true, false]);
        assert_eq!(urls.iter().map(LdapUrl::is_loopback).collect::<Vec<_>>(), [false, true]);
        assert!(LdapUrl::parse_list("ldap://[::1]:389").unwrap()[0].is_loopback());
        for (text, error) in [
            ("ldap:x", SettingError::NoUrl("ldap:x".to_owned())),
            ("directory", SettingError::NoUrl("directory".to_owned())),
            ("https://x", SettingError::Scheme("https://x".to_owned())),
            ("ldap://x/dc=y", SettingError::More("ldap://x/dc=y".to_owned())),
        ] {
            assert_eq!(LdapUrl::parse_list(text), Err(error));
        }
    }
}
