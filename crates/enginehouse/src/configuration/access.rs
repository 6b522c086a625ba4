//! Section `[access]`: who a client is, and what it may do.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use authentication::ImpersonationRules;
use model::rights::RoleLists;
use model::user_name::check_entries;
use serde::de::value::{SeqAccessDeserializer, StrDeserializer};
use serde::de::{self, IntoDeserializer as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{Configuration, Span};

/// A method by which clients are authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Authentication {
    /// The user name of the client is trusted.
    None,
    /// Passwords and groups of a users file.
    File,
    /// Passwords and groups of a directory.
    Ldap,
    /// Tokens of an issuer.
    Jwt,
    /// Tickets of a Kerberos realm.
    Kerberos,
}

/// Authentication and permissions of clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Access {
    /// The methods, tried in this order.
    #[serde(deserialize_with = "one_or_many")]
    pub authentication: Vec<Authentication>,
    /// Accepts method `none`, and passwords without encryption, on an address that is not loopback.
    pub insecure: bool,
    /// Users and `@groups` who may run every statement.
    pub admins: Vec<String>,
    /// Users and `@groups` who may start, stop and restart the engines of every tenant.
    pub operators: Vec<String>,
    /// Users and `@groups` who may see everything.
    pub auditors: Vec<String>,
    /// Users and `@groups` who may register the capacity of a pool, and reserve for other users.
    pub resource_providers: Vec<String>,
    /// The rules that permit users to impersonate others.
    pub impersonation: Vec<String>,
    /// The users file of method `file`, mode 0600.
    pub users_file: PathBuf,
    /// The time for which a successful login is cached, and for which groups are used; 0 caches none.
    pub login_cache: Span,
    /// The time for which groups are used while the directory does not respond.
    pub stale: Span,
    /// The time for which a user is refused from one address after 40 failed logins.
    pub lockout: Span,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            authentication: vec![Authentication::None],
            insecure: false,
            admins: vec!["admin".to_owned()],
            operators: Vec::new(),
            auditors: Vec::new(),
            resource_providers: Vec::new(),
            impersonation: Vec::new(),
            users_file: PathBuf::from("users"),
            login_cache: Span::seconds(60),
            stale: Span::seconds(3600),
            lockout: Span::seconds(300),
        }
    }
}

impl Access {
    /// Whether clients are authenticated by that method.
    pub fn uses(&self, method: Authentication) -> bool {
        self.authentication.contains(&method)
    }

    /// Whether a method receives passwords or tokens, which have to stay secret.
    pub fn receives_secrets(&self) -> bool {
        [Authentication::File, Authentication::Ldap, Authentication::Jwt].into_iter().any(|method| self.uses(method))
    }

    /// Whether a method knows the groups of a user who is not logging in.
    fn knows_groups(&self) -> bool {
        self.uses(Authentication::File) || self.uses(Authentication::Ldap)
    }

    /// Who has a role of the installation.
    pub fn roles(&self) -> RoleLists {
        RoleLists { admins: self.admins.clone(), operators: self.operators.clone(), auditors: self.auditors.clone() }
    }

    /// The rules of impersonation; the error names the position of an invalid rule.
    pub fn impersonation_rules(&self) -> anyhow::Result<ImpersonationRules> {
        ImpersonationRules::parse(&self.impersonation).map_err(|error| {
            anyhow::anyhow!(
                "access.impersonation, {error}\nHint: Write rules as in [\"superset: @analysts\", \"etl: etl_a, etl_b\"]."
            )
        })
    }

    /// A warning about rules that permit less than they say.
    pub fn warning_about_groups(&self) -> Option<&'static str> {
        let knows_no_groups = self.uses(Authentication::Jwt) && !self.knows_groups();
        let name_groups = self.impersonation_rules().is_ok_and(|rules| rules.name_groups());
        (knows_no_groups && name_groups).then_some(
            "access.impersonation names a group, but without method \"file\" or \"ldap\" nothing knows the groups of a user who is impersonated: the group permits no user",
        )
    }

    /// The lists of users and groups, with their keys.
    const fn lists(&self) -> [(&'static str, &Vec<String>); 4] {
        [
            ("admins", &self.admins),
            ("operators", &self.operators),
            ("auditors", &self.auditors),
            ("resource_providers", &self.resource_providers),
        ]
    }

    /// A key with a group, which no user is in without a method that has groups.
    fn key_with_groups(&self) -> Option<&'static str> {
        let named = self.lists().into_iter().find(|(_, list)| list.iter().any(|entry| entry.starts_with('@')));
        let rules = || self.impersonation_rules().is_ok_and(|rules| rules.name_groups()).then_some("impersonation");
        named.map(|(key, _)| key).or_else(rules)
    }
}

impl Configuration {
    pub(super) fn check_access(&self) -> anyhow::Result<()> {
        let access = &self.access;
        if access.authentication.is_empty() {
            bail!(
                "access.authentication is empty\nHint: Set it to [\"none\"], [\"file\"], [\"ldap\"], [\"jwt\"] or [\"kerberos\"]."
            );
        }
        if access.uses(Authentication::None) && access.authentication.len() > 1 {
            bail!("access.authentication has \"none\" with another method, but \"none\" accepts every client");
        }
        let repeated =
            access.authentication.iter().enumerate().any(|(i, method)| access.authentication[..i].contains(method));
        if repeated {
            bail!("access.authentication has a method twice");
        }
        let position = |method| access.authentication.iter().position(|other| *other == method);
        for (method, word, source) in
            [(Authentication::Ldap, "ldap", "directory"), (Authentication::Jwt, "jwt", "issuer")]
        {
            if position(method) < position(Authentication::File) && access.uses(method) {
                bail!(
                    "access.authentication has \"{word}\" before \"file\": the {source} could log in as a user of the users file\nHint: Set it to [\"file\", \"{word}\"]."
                );
            }
        }
        if self.proxy.serves_clients && !access.insecure && !self.proxy.listens_on_loopback() {
            let listen = self.proxy.listen;
            if access.uses(Authentication::None) {
                bail!(
                    "authentication = \"none\" trusts every user name and requires a loopback address, but proxy.listen is {listen}\nHint: Listen on 127.0.0.1, or set access.insecure = true if this network is trusted."
                );
            }
            if access.receives_secrets() && !self.logins_require_tls() {
                bail!(
                    "clients send their passwords unencrypted, which requires a loopback address, but proxy.listen is {listen}\nHint: Set tls.mode = \"required\", tls.certificate_file and tls.key_file; or listen on 127.0.0.1, or set access.insecure = true if this network is trusted."
                );
            }
        }
        if access.lockout.0.is_zero() {
            bail!("access.lockout must be greater than 0s");
        }
        for (key, list) in access.lists() {
            check_entries(list).with_context(|| format!("access.{key}"))?;
        }
        access.impersonation_rules()?;
        let of_users_alone = match access.authentication.as_slice() {
            [Authentication::None] => Some(("none", "[\"file\"]")),
            [Authentication::Kerberos] => Some(("kerberos", "[\"kerberos\", \"ldap\"]")),
            _ => None,
        };
        if let Some((word, hint)) = of_users_alone
            && let Some(key) = access.key_with_groups()
        {
            bail!(
                "access.{key} names a group, but method \"{word}\" has no groups\nHint: Name users, or set access.authentication = {hint}."
            );
        }
        Ok(())
    }
}

/// A list of methods; a single word stands for a list of one.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Authentication>, D::Error> {
    struct OneOrMany;

    impl<'de> Visitor<'de> for OneOrMany {
        type Value = Vec<Authentication>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of methods, such as [\"file\"]")
        }

        fn visit_str<E: de::Error>(self, word: &str) -> Result<Self::Value, E> {
            let word: StrDeserializer<'_, E> = word.into_deserializer();
            Ok(vec![Authentication::deserialize(word)?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, words: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(words))
        }
    }

    deserializer.deserialize_any(OneOrMany)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::configuration::check::checked;

    #[test]
    fn methods_are_a_list_or_one_word() {
        for (text, methods) in [
            ("", [Authentication::None]),
            ("authentication = \"none\"", [Authentication::None]),
            ("authentication = \"file\"", [Authentication::File]),
            ("authentication = [\"file\"]", [Authentication::File]),
        ] {
            let parsed = Configuration::parse(&format!("[access]\n{text}\n"), &[]).unwrap();
            assert_eq!(parsed.access.authentication, methods);
        }
    }

    #[test]
    fn methods_that_do_not_fit_are_refused() {
        for (text, expected) in [
            ("authentication = []", "access.authentication is empty"),
            ("authentication = [\"none\", \"file\"]", "\"none\" with another method"),
            ("authentication = [\"file\", \"file\"]", "twice"),
            ("authentication = [\"ldap\", \"file\"]", "\"ldap\" before \"file\""),
            ("authentication = [\"jwt\", \"file\"]", "\"jwt\" before \"file\": the issuer could"),
            (
                "authentication = [\"pam\"]",
                "unknown value `pam`, expected one of `none`, `file`, `ldap`, `jwt`, `kerberos`",
            ),
            ("lockout = \"0s\"", "access.lockout"),
            ("authentication = 5", "a list of methods"),
        ] {
            let error = format!("{:#}", checked(&format!("[access]\n{text}\n")).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_rule_with_a_group_that_only_tokens_name_is_a_warning() {
        for (authentication, rule, warns) in [
            ("[\"jwt\"]", "superset: @analysts", true),
            ("[\"jwt\"]", "superset: ann", false),
            ("[\"file\", \"jwt\"]", "superset: @analysts", false),
        ] {
            let text = format!("[access]\nauthentication = {authentication}\nimpersonation = [\"{rule}\"]\n");
            let parsed = Configuration::parse(&text, &[]).unwrap();
            assert_eq!(parsed.access.warning_about_groups().is_some(), warns, "{text}");
        }
    }

    #[test]
    fn passwords_off_loopback_need_insecure() {
        let text = "[proxy]\nlisten = \"0.0.0.0:10009\"\n[access]\nauthentication = \"file\"\n";
        let error = checked(text).unwrap_err().to_string();
        assert!(
            error.contains("passwords unencrypted") && error.contains("tls.mode") && error.contains("insecure = true"),
            "{error}"
        );
        checked(&format!("{text}insecure = true\n")).unwrap();
    }

    #[test]
    fn a_proxy_without_clients_may_listen_anywhere() {
        for access in ["", "[access]\nauthentication = \"file\"\n"] {
            let text = format!("[proxy]\nlisten = \"10.0.0.1:10009\"\nserves_clients = false\n{access}");
            checked(&text).unwrap();
            assert!(checked(&text.replace("false", "true")).is_err());
        }
    }

    #[test]
    fn roles_name_users_and_groups() {
        let file = "authentication = \"file\"\n";
        checked(&format!(
            "[access]\n{file}admins = [\"root\"]\noperators = [\"@ops\", \"olga\"]\nauditors = [\"@audit\"]\n"
        ))
        .unwrap();
        for (text, expected) in [
            ("admins = [\"root\", \"\"]", "access.admins: entry 2 (\"\")"),
            ("operators = [\"@\"]", "access.operators: entry 1 (\"@\")"),
            ("auditors = [\"@a,b\"]", "access.auditors: entry 1"),
            ("resource_providers = [\"\"]", "access.resource_providers: entry 1"),
            ("operators = \"@ops\"", "expected a list"),
        ] {
            let error = format!("{:#}", checked(&format!("[access]\n{file}{text}\n")).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
        let error = checked("[access]\noperators = [\"@ops\"]\n").unwrap_err().to_string();
        assert!(error.starts_with("access.operators names a group, but method \"none\""), "{error}");
    }

    #[test]
    fn an_impersonation_rule_that_is_invalid_is_named_by_its_position() {
        let rules = "impersonation = [\"superset: @analysts\", \"etl: etl_a, etl_b\", \"hue: *\"]";
        checked(&format!("[access]\nauthentication = \"file\"\n{rules}\n")).unwrap();
        let error = checked("[access]\nimpersonation = [\"hue: *\", \"superset\"]\n").unwrap_err().to_string();
        assert!(error.starts_with("access.impersonation, rule 2: expected"), "{error}");
        let error = checked(&format!("[access]\n{rules}\n")).unwrap_err().to_string();
        assert!(error.starts_with("access.impersonation names a group"), "{error}");
    }
}
