//! Section `[ldap]`: the directory of method `ldap`.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use authentication::{GroupSearch, LdapSettings, LdapUrl, SearchIdentity, Template, UserSource, is_open_to_others};
use hs2::ClientTls;
use serde::{Deserialize, Serialize};

use super::{Authentication, Configuration, Span};
use crate::output::with_causes;

/// The longest password file that is read, in bytes.
const MAX_PASSWORD_BYTES: u64 = 4 << 10;

/// A directory, and how users and groups are found in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LdapSection {
    /// `ldaps://host:port`, several separated by commas and tried in turn.
    pub url: String,
    /// The certificates that sign the directory's, in PEM; those of the machine if it is empty.
    pub ca_file: PathBuf,
    /// Whether a connection to `ldap://` begins with StartTLS.
    pub start_tls: bool,
    /// Permits passwords without encryption to a directory on another machine.
    pub insecure: bool,
    /// The name to bind with, such as `uid={user},ou=people,dc=x` or `{user}@corp.example`; this or `user_base`.
    pub bind_pattern: String,
    /// The identity for searches; anonymous if it is empty.
    pub bind_dn: String,
    /// The file with its password, mode 0600.
    pub bind_password_file: PathBuf,
    /// Where users are searched.
    pub user_base: String,
    /// The filter that finds a user.
    pub user_filter: String,
    /// The attribute with the user's name.
    pub user_attribute: String,
    /// Where groups are searched; they are not if it is empty.
    pub group_base: String,
    /// The filter that finds the groups of a user.
    pub group_filter: String,
    /// The attribute with a group's name.
    pub group_attribute: String,
    /// The attribute of a user with the DNs of its groups, such as `memberOf`.
    pub member_of: String,
    /// The connections for searches, and as many for logins.
    pub connections: usize,
    pub connect_timeout: Span,
    /// Of one operation.
    pub timeout: Span,
}

impl Default for LdapSection {
    fn default() -> Self {
        Self {
            url: String::new(),
            ca_file: PathBuf::new(),
            start_tls: false,
            insecure: false,
            bind_pattern: String::new(),
            bind_dn: String::new(),
            bind_password_file: PathBuf::new(),
            user_base: String::new(),
            user_filter: "(uid={user})".to_owned(),
            user_attribute: "uid".to_owned(),
            group_base: String::new(),
            group_filter: "(member={dn})".to_owned(),
            group_attribute: "cn".to_owned(),
            member_of: String::new(),
            connections: 8,
            connect_timeout: Span::seconds(3),
            timeout: Span::seconds(5),
        }
    }
}

fn is_set(path: &Path) -> bool {
    !path.as_os_str().is_empty()
}

impl LdapSection {
    fn urls(&self) -> anyhow::Result<Vec<LdapUrl>> {
        LdapUrl::parse_list(&self.url).context("ldap.url")
    }

    fn users(&self) -> anyhow::Result<UserSource> {
        match (self.bind_pattern.is_empty(), self.user_base.is_empty()) {
            (false, true) => {
                Ok(UserSource::Pattern(Template::pattern(&self.bind_pattern).context("ldap.bind_pattern")?))
            }
            (true, false) => {
                let filter = Template::user_filter(&self.user_filter).context("ldap.user_filter")?;
                Ok(UserSource::Search { base: self.user_base.clone(), filter })
            }
            (false, false) => bail!(
                "ldap.bind_pattern and ldap.user_base are both set\nHint: Set the pattern if the name to bind with follows from the user's name, and the base if the user's entry has to be found."
            ),
            (true, true) => bail!(
                "neither ldap.bind_pattern nor ldap.user_base is set\nHint: Set ldap.user_base to the entry below which users are, such as \"ou=people,dc=example\"."
            ),
        }
    }

    fn groups(&self) -> anyhow::Result<Option<GroupSearch>> {
        if self.group_base.is_empty() {
            return Ok(None);
        }
        let filter = Template::group_filter(&self.group_filter).context("ldap.group_filter")?;
        Ok(Some(GroupSearch { base: self.group_base.clone(), filter, attribute: self.group_attribute.clone() }))
    }

    /// The identity for searches, whose password is read from its file now and for each connection.
    fn identity(&self) -> anyhow::Result<Option<SearchIdentity>> {
        if self.bind_dn.is_empty() {
            return Ok(None);
        }
        let path = self.bind_password_file.clone();
        let read = move || password(&path).map_err(|error| with_causes(&error).into());
        Ok(Some(SearchIdentity::new(self.bind_dn.clone(), read).map_err(|error| anyhow::anyhow!("{error}"))?))
    }

    /// The settings of the method. Reads the certificates and the password.
    pub fn settings(&self, refresh: Span, stale: Span) -> anyhow::Result<LdapSettings> {
        let tls = if is_set(&self.ca_file) {
            ClientTls::from_ca_file(&self.ca_file)
                .with_context(|| format!("ldap.ca_file, {}", self.ca_file.display()))?
        } else {
            ClientTls::from_machine().context("the certificates of the machine; set ldap.ca_file")?
        };
        Ok(LdapSettings {
            urls: self.urls()?,
            tls,
            start_tls: self.start_tls,
            users: self.users()?,
            identity: self.identity()?,
            groups: self.groups()?,
            member_of: (!self.member_of.is_empty()).then(|| self.member_of.clone()),
            name_attribute: self.user_attribute.clone(),
            connections: self.connections,
            connect_timeout: self.connect_timeout.0,
            timeout: self.timeout.0,
            refresh: refresh.0,
            stale: stale.0,
        })
    }
}

/// The password that the file has now.
fn password(path: &Path) -> anyhow::Result<String> {
    let read = || -> anyhow::Result<String> {
        let metadata = std::fs::metadata(path)?;
        if is_open_to_others(metadata.mode(), metadata.uid()) {
            bail!("other users can read {}\nHint: chmod 600 {}", path.display(), path.display());
        }
        let length = metadata.len();
        if length > MAX_PASSWORD_BYTES {
            bail!("{} has {length} bytes, and a password has at most {MAX_PASSWORD_BYTES}", path.display());
        }
        let password = std::fs::read_to_string(path)?;
        Ok(password.trim_end_matches(['\r', '\n']).to_owned())
    };
    let password = read().context("ldap.bind_password_file")?;
    if password.is_empty() {
        bail!("ldap.bind_password_file is empty: a bind without a password is anonymous");
    }
    Ok(password)
}

impl Configuration {
    /// Checks the keys, if method `ldap` is used; the files are read by the proxies and by `config check`.
    pub(super) fn check_ldap(&self) -> anyhow::Result<()> {
        let section = &self.ldap;
        if !self.access.uses(Authentication::Ldap) {
            return Ok(());
        }
        let urls = section.urls()?;
        if urls.is_empty() {
            bail!("access.authentication has \"ldap\", but ldap.url is not set\nHint: Set it to ldaps://HOST:636.");
        }
        let is_sent_in_clear =
            |url: &&LdapUrl| !url.is_tls() && !section.start_tls && !section.insecure && !url.is_loopback();
        if let Some(url) = urls.iter().find(is_sent_in_clear) {
            bail!(
                "passwords are sent to {url} unencrypted\nHint: Use ldaps://, or set ldap.start_tls = true; or set ldap.insecure = true if this network is trusted."
            );
        }
        section.users()?;
        section.groups()?;
        if section.bind_dn.is_empty() == is_set(&section.bind_password_file) {
            bail!("ldap.bind_dn and ldap.bind_password_file need each other");
        }
        for (key, text) in [("user_attribute", &section.user_attribute), ("group_attribute", &section.group_attribute)]
        {
            if text.is_empty() {
                bail!("ldap.{key} is empty");
            }
        }
        if section.connections == 0 {
            bail!("ldap.connections must be at least 1");
        }
        for (key, span) in [("connect_timeout", section.connect_timeout), ("timeout", section.timeout)] {
            if span.0.is_zero() {
                bail!("ldap.{key} must be greater than 0s");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::configuration::check::checked;

    const LDAP: &str = "[access]\nauthentication = [\"file\", \"ldap\"]\n[ldap]\n";

    #[test]
    fn a_directory_needs_a_url_and_one_way_to_find_users() {
        checked(&format!("{LDAP}url = \"ldaps://d.example\"\nuser_base = \"dc=x\"\n")).unwrap();
        checked(&format!("{LDAP}url = \"ldap://127.0.0.1\"\nbind_pattern = \"uid={{user}},dc=x\"\n")).unwrap();
        checked("[ldap]\nurl = \"nonsense\"\n").unwrap();
        for (text, expected) in [
            ("", "ldap.url is not set"),
            ("url = \"ldap:x\"\nuser_base = \"dc=x\"", "ldap.url: \"ldap:x\" is no URL"),
            ("url = \"ldap://d.example\"\nuser_base = \"dc=x\"", "passwords are sent to ldap://d.example unencrypted"),
            ("url = \"ldaps://d\"", "neither ldap.bind_pattern nor ldap.user_base"),
            ("url = \"ldaps://d\"\nuser_base = \"dc=x\"\nbind_pattern = \"{user}@x\"", "both set"),
            ("url = \"ldaps://d\"\nbind_pattern = \"cn=x\"", "ldap.bind_pattern: it has no {user}"),
            (
                "url = \"ldaps://d\"\nuser_base = \"dc=x\"\nuser_filter = \"(uid={name})\"",
                "ldap.user_filter: it has an unknown",
            ),
            (
                "url = \"ldaps://d\"\nuser_base = \"dc=x\"\ngroup_base = \"dc=x\"\ngroup_filter = \"(a=b)\"",
                "ldap.group_filter",
            ),
            ("url = \"ldaps://d\"\nuser_base = \"dc=x\"\nbind_dn = \"cn=r\"", "need each other"),
            ("url = \"ldaps://d\"\nuser_base = \"dc=x\"\nconnections = 0", "ldap.connections"),
            ("url = \"ldaps://d\"\nuser_base = \"dc=x\"\ntimeout = \"0s\"", "ldap.timeout"),
        ] {
            let error = format!("{:#}", checked(&format!("{LDAP}{text}\n")).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn the_password_of_searches_is_read_from_a_file_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let section =
            LdapSection { bind_dn: "cn=reader".to_owned(), bind_password_file: path.clone(), ..LdapSection::default() };
        let error = |section: &LdapSection| format!("{:#}", section.identity().unwrap_err());
        assert!(error(&section).starts_with("ldap.bind_password_file"), "{}", error(&section));
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        write("secret\n", 0o644);
        assert!(error(&section).contains("other users can read"), "{}", error(&section));
        write("\n", 0o600);
        assert!(error(&section).contains("is empty"));
        write("secret\n", 0o600);
        assert_eq!(password(&path).unwrap(), "secret");
        assert!(section.identity().unwrap().is_some() && LdapSection::default().identity().unwrap().is_none());
    }
}
