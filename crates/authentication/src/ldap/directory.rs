//! The operations on a directory: finding a user, checking a password, reading groups.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use ldap3::adapters::EntriesOnly;
use ldap3::{Ldap, Scope, SearchEntry, SearchOptions};
use model::user_name::{MAX_GROUPS, is_group_name, is_user_name};

use super::Account;
use super::failure::Failure;
use super::pool::{Pool, SUCCESS};
use super::settings::{GroupSearch, LdapSettings, UserSource};

/// Result codes (RFC 4511, section 4.1.9).
const SIZE_LIMIT_EXCEEDED: u32 = 4;
const REFERRAL: u32 = 10;
const NO_SUCH_OBJECT: u32 = 32;
/// Busy, unavailable, other, and the library's code of a server that is down: the password is neither right nor wrong.
const NOT_NOW: [u32; 4] = [51, 52, 80, 81];

/// A search for a user asks for no more entries: two are too many already.
const MAX_ENTRIES: i32 = 2;

/// A user's entry.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Or another name to bind with.
    pub dn: String,
    /// `None` if the entry was not read, because its name follows from a pattern.
    attributes: Option<Attributes>,
}

#[derive(Debug, Clone, Default)]
struct Attributes {
    names: Vec<String>,
    member_of: Vec<String>,
}

/// How many entries a user's name has.
#[derive(Debug)]
pub(super) enum Found {
    None,
    One(Entry),
    Several,
}

/// What the directory says about a password.
#[derive(Debug)]
pub(super) enum Bound {
    Accepted,
    Refused,
}

pub(super) struct Directory {
    users: UserSource,
    name_attribute: String,
    member_of: Option<String>,
    groups: Option<GroupSearch>,
    /// Bound with the identity for searches.
    searches: Pool,
    /// Bound with users' DNs, one login after the other.
    logins: Pool,
}

/// The entries that a search found, and its result.
struct Searched {
    entries: Vec<SearchEntry>,
    code: u32,
    text: String,
}

impl Directory {
    pub fn new(settings: LdapSettings) -> Self {
        let preferred = Arc::<AtomicUsize>::default();
        Self {
            searches: Pool::new(&settings, Arc::clone(&preferred), settings.identity.clone()),
            logins: Pool::new(&settings, preferred, None),
            users: settings.users,
            name_attribute: settings.name_attribute,
            member_of: settings.member_of,
            groups: settings.groups,
        }
    }

    /// Opens a connection, and reads the entry below which users are searched, or that of the directory itself.
    pub async fn probe(&self) -> Result<(), Failure> {
        let base = match &self.users {
            UserSource::Search { base, .. } => base.as_str(),
            UserSource::Pattern(_) => "",
        };
        let searched = self.search(base, Scope::Base, "(objectClass=*)".to_owned(), Vec::new(), 1).await?;
        match searched.code {
            SUCCESS if !searched.entries.is_empty() || base.is_empty() => Ok(()),
            SUCCESS | NO_SUCH_OBJECT => Err(Failure::NoBase(base.to_owned())),
            // Who binds by a pattern needs no search.
            code if base.is_empty() && !NOT_NOW.contains(&code) => Ok(()),
            code => Err(Failure::Result(code, searched.text)),
        }
    }

    /// The entry of the user with this name.
    pub async fn find(&self, user: &str) -> Result<Found, Failure> {
        match &self.users {
            UserSource::Pattern(pattern) => {
                let entry = pattern.bind_name(user).map(|dn| Entry { dn, attributes: None });
                Ok(entry.map_or(Found::None, Found::One))
            }
            UserSource::Search { base, filter } => {
                let filter = filter.filter_for(user, "");
                let searched = self.search(base, Scope::Subtree, filter, self.attributes(), MAX_ENTRIES).await?;
                match searched.code {
                    SUCCESS | SIZE_LIMIT_EXCEEDED => {}
                    NO_SUCH_OBJECT | REFERRAL => return Ok(Found::None),
                    code => return Err(Failure::Result(code, searched.text)),
                }
                let mut entries = searched.entries;
                match (entries.pop(), entries.is_empty()) {
                    (None, _) => Ok(Found::None),
                    (Some(entry), true) if searched.code == SUCCESS => Ok(Found::One(self.entry(entry))),
                    (Some(_), _) => Ok(Found::Several),
                }
            }
        }
    }

    /// Whether the password is right.
    pub async fn bind(&self, dn: &str, password: &str) -> Result<Bound, Failure> {
        let result = self.logins.run(|mut ldap: Ldap| {
            let (dn, password) = (dn.to_owned(), password.to_owned());
            async move {
                let result = ldap.simple_bind(&dn, &password).await?;
                Ok((ldap, result))
            }
        });
        let result = result.await?;
        match result.rc {
            SUCCESS => Ok(Bound::Accepted),
            code if NOT_NOW.contains(&code) => Err(Failure::Result(code, result.text)),
            // Wrong, locked, expired, or not permitted to bind: the user learns no difference.
            _ => Ok(Bound::Refused),
        }
    }

    /// The name and the groups of a user whose entry was found; `None` if the entry has no name that can be used. What was typed
    /// is no substitute: the filter may have found it in an attribute that users write themselves.
    pub async fn account(&self, user: &str, entry: Entry) -> Result<Option<Account>, Failure> {
        let typed = user.to_lowercase();
        let (attributes, substitute) = match entry.attributes {
            Some(attributes) => (attributes, None),
            // The name to bind with was made of what was typed; it does not depend on case.
            None => (self.read_attributes(&entry.dn).await?, Some(&typed)),
        };
        let same = |name: &&String| name.to_lowercase() == typed;
        let name = attributes.names.iter().find(same).or(attributes.names.first()).or(substitute);
        let Some(name) = name.filter(|name| is_user_name(name)).cloned() else {
            return Ok(None);
        };
        let mut groups: Vec<String> = attributes.member_of.iter().filter_map(|dn| first_value(dn)).collect();
        if let Some(search) = &self.groups {
            groups.extend(self.search_groups(search, &name, &entry.dn).await?);
        }
        groups.retain(|group| is_group_name(group));
        groups.sort_unstable();
        groups.dedup();
        groups.truncate(MAX_GROUPS);
        Ok(Some(Account { name, groups }))
    }

    /// The account of a user who does not log in now; `None` if there is none.
    pub async fn read(&self, user: &str) -> Result<Option<Account>, Failure> {
        match self.find(user).await? {
            Found::One(entry) => self.account(user, entry).await,
            Found::None | Found::Several => Ok(None),
        }
    }

    fn attributes(&self) -> Vec<String> {
        self.member_of.iter().chain([&self.name_attribute]).cloned().collect()
    }

    /// The attributes of an entry whose DN follows from a pattern. What is no DN, or may not be read, has none.
    async fn read_attributes(&self, dn: &str) -> Result<Attributes, Failure> {
        if !dn.contains('=') {
            return Ok(Attributes::default());
        }
        let filter = "(objectClass=*)".to_owned();
        let mut searched = self.search(dn, Scope::Base, filter, self.attributes(), 1).await?;
        if NOT_NOW.contains(&searched.code) {
            return Err(Failure::Result(searched.code, searched.text));
        }
        let entry = searched.entries.pop().map(|entry| self.entry(entry));
        Ok(entry.and_then(|entry| entry.attributes).unwrap_or_default())
    }

    async fn search_groups(&self, search: &GroupSearch, user: &str, dn: &str) -> Result<Vec<String>, Failure> {
        let (filter, attribute) = (search.filter.filter_for(user, dn), search.attribute.clone());
        let most = i32::try_from(MAX_GROUPS).unwrap_or(i32::MAX);
        let searched = self.search(&search.base, Scope::Subtree, filter, vec![attribute], most).await?;
        match searched.code {
            SUCCESS | SIZE_LIMIT_EXCEEDED | NO_SUCH_OBJECT | REFERRAL => {}
            code => return Err(Failure::Result(code, searched.text)),
        }
        let names = searched.entries.iter().flat_map(|entry| values(entry, &search.attribute));
        Ok(names.cloned().collect())
    }

    async fn search(
        &self,
        base: &str,
        scope: Scope,
        filter: String,
        attributes: Vec<String>,
        most: i32,
    ) -> Result<Searched, Failure> {
        let searched = self.searches.run(|mut ldap: Ldap| {
            let (base, filter, attributes) = (base.to_owned(), filter.clone(), attributes.clone());
            async move {
                let options = SearchOptions::new().sizelimit(most);
                let searching = ldap.with_search_options(options);
                let only = EntriesOnly::new();
                let mut found = searching.streaming_search_with(only, &base, scope, &filter, attributes).await?;
                let (mut entries, mut has_more) = (Vec::new(), false);
                while let Some(entry) = found.next().await? {
                    // A server that sends more than it was asked for takes no memory with them.
                    has_more = entries.len() >= usize::try_from(most).unwrap_or_default();
                    if !has_more {
                        entries.push(SearchEntry::construct(entry));
                    }
                }
                let result = found.finish().await;
                let code = if has_more && result.rc == SUCCESS { SIZE_LIMIT_EXCEEDED } else { result.rc };
                Ok((ldap, Searched { entries, code, text: result.text }))
            }
        });
        searched.await
    }

    fn entry(&self, entry: SearchEntry) -> Entry {
        let names = values(&entry, &self.name_attribute).cloned().collect();
        let member_of = self.member_of.iter().flat_map(|attribute| values(&entry, attribute)).cloned().collect();
        Entry { dn: entry.dn, attributes: Some(Attributes { names, member_of }) }
    }
}

/// The values of an attribute, whose name a directory may return in another case.
fn values<'a>(entry: &'a SearchEntry, attribute: &str) -> impl Iterator<Item = &'a String> {
    let is_it = |name: &str| name.eq_ignore_ascii_case(attribute);
    entry.attrs.iter().filter(move |(name, _)| is_it(name)).flat_map(|(_, values)| values)
}

/// The value of the first name in a DN (RFC 4514): `analysts` of `cn=analysts,ou=groups,dc=x`.
fn first_value(dn: &str) -> Option<String> {
    let (_, value) = dn.split_once('=')?;
    let (mut bytes, mut rest) = (Vec::new(), value.as_bytes().iter().copied());
    while let Some(byte) = rest.next() {
        match byte {
            b',' | b'+' => break,
            b'\\' => {
                let first = rest.next()?;
                match (
                    char::from(first).to_digit(16),
                    rest.clone().next().and_then(|byte| char::from(byte).to_digit(16)),
                ) {
                    (Some(high), Some(low)) => {
                        rest.next();
                        bytes.push(u8::try_from(high * 16 + low).ok()?);
                    }
                    _ => bytes.push(first),
                }
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_a_dn_is_a_group() {
        for (dn, group) in [
            ("cn=analysts,ou=groups,dc=x", Some("analysts")),
            ("CN=Data Team,DC=corp", Some("Data Team")),
            ("cn=a\\,b+ou=c,dc=x", Some("a,b")),
            ("cn=J\\C3\\BCrgen,dc=x", Some("Jürgen")),
            ("cn=", None),
            ("analysts", None),
            ("cn=a\\", None),
        ] {
            assert_eq!(first_value(dn).as_deref(), group, "{dn}");
        }
    }
}
