//! The configuration: one TOML text for all roles.
//!
//! Unknown keys are refused with their line and the valid keys, before a port is bound. An environment variable
//! `ENGINEHOUSE_<SECTION>_<KEY>` overrides a key, such as `ENGINEHOUSE_DATABASE_URL`. Every key has a default for one machine
//! with servers on their default ports: ZooKeeper on 2181, PostgreSQL on 5432. Secrets (the password in `database.url`) are
//! in no message.

mod access;
pub mod changed_defaults;
mod check;
mod cluster_tls;
mod conceal;
mod database;
mod engines;
mod jwt;
mod kerberos;
mod kubernetes;
mod ldap;
mod locations;
mod reservations;
mod sections;
mod span;
mod tls;
mod tls_mode;
mod unreadable_file;
mod zookeeper;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use conceal::without_passwords;

use crate::engine_types::hiveserver2::section::HiveServer2Section;
use crate::engine_types::spark::section::SparkSection;

pub use access::{Access, Authentication};
pub use conceal::without_password;
pub use database::DatabaseSection;
pub use engines::Catalogs;
pub use jwt::JwtSection;
pub use kerberos::KerberosSection;
pub use kubernetes::KubernetesSection;
pub use ldap::LdapSection;
pub use locations::resolved;
pub use reservations::ReservationsSection;
pub use sections::{
    ClusterSection, EnginesSection, MasterSection, MetadataAgentSection, OrchestratorKind, OrchestratorSection,
    ProxySection,
};
pub use span::Span;
pub use tls::TlsSection;
pub use tls_mode::TlsMode;
pub use unreadable_file::UnreadableFile;
pub use zookeeper::{ZookeeperSection, ZookeeperTlsMode, zookeeper_trust};

/// The prefix of environment variables that override a key.
pub const ENVIRONMENT_PREFIX: &str = "ENGINEHOUSE_";
/// The largest configuration file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Configuration {
    pub cluster: ClusterSection,
    pub access: Access,
    pub ldap: LdapSection,
    pub jwt: JwtSection,
    pub kerberos: KerberosSection,
    pub tls: TlsSection,
    pub zookeeper: ZookeeperSection,
    /// Read by metadata agents and `migrate` only.
    pub database: DatabaseSection,
    pub proxy: ProxySection,
    pub master: MasterSection,
    pub metadata_agent: MetadataAgentSection,
    pub orchestrator: OrchestratorSection,
    pub kubernetes: KubernetesSection,
    pub engines: EnginesSection,
    pub reservations: ReservationsSection,
    pub spark: SparkSection,
    pub hiveserver2: HiveServer2Section,
}

impl Configuration {
    /// Reads and validates a file; the environment overrides it.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        Self::load_with_keys(path).map(|(configuration, _)| configuration)
    }

    /// The same, with the table of the keys that the file or the environment sets.
    pub fn load_with_keys(path: &Path) -> anyhow::Result<(Self, toml::Table)> {
        let (configuration, keys) = Self::read(Some(path))?;
        configuration.check().with_context(|| format!("in {}", path.display()))?;
        Ok((configuration, keys))
    }

    /// Reads a file, if one is given, and the environment, which overrides it; not validated. The table has the keys that
    /// either of them sets.
    pub fn read(path: Option<&Path>) -> anyhow::Result<(Self, toml::Table)> {
        let text = path.map(read).transpose()?.unwrap_or_default();
        let readable = |(variable, value): (OsString, OsString)| {
            let variable = variable.into_string().ok().filter(|name| name.starts_with(ENVIRONMENT_PREFIX))?;
            Some((variable, value.to_string_lossy().into_owned()))
        };
        let overrides: Vec<(String, String)> = std::env::vars_os().filter_map(readable).collect();
        let parsed = Self::parse_with_keys(&text, &overrides);
        match path {
            Some(path) => parsed.with_context(|| format!("in {}", path.display())),
            None => parsed,
        }
    }

    /// The sections that a valid file or the environment sets.
    pub fn named_sections(path: &Path) -> anyhow::Result<BTreeSet<String>> {
        let text = read(path)?;
        let table: toml::Table = toml::from_str(&text).map_err(|error| readable(&text, &error))?;
        let mut sections: BTreeSet<String> = table.keys().cloned().collect();
        let known = toml::Table::try_from(Self::default())?;
        for (variable, _) in std::env::vars_os() {
            let variable = variable.to_string_lossy().into_owned();
            let Some(rest) = variable.strip_prefix(ENVIRONMENT_PREFIX).map(str::to_ascii_lowercase) else { continue };
            sections.extend(known.keys().filter(|section| rest.starts_with(&format!("{section}_"))).cloned());
        }
        Ok(sections)
    }

    #[cfg(test)]
    pub fn parse(text: &str, environment: &[(String, String)]) -> anyhow::Result<Self> {
        Self::parse_with_keys(text, environment).map(|(configuration, _)| configuration)
    }

    /// Reads a text, which `environment` overrides; not validated. The table has the keys that either of them sets.
    pub fn parse_with_keys(text: &str, environment: &[(String, String)]) -> anyhow::Result<(Self, toml::Table)> {
        let configuration: Self = toml::from_str(text).map_err(|error| readable(text, &error))?;
        let mut table: toml::Table = toml::from_str(text).map_err(|error| readable(text, &error))?;
        let known = toml::Table::try_from(Self::default())?;
        let mut overridden = configuration;
        for (variable, value) in environment {
            if override_key(&mut table, &known, variable, value)? {
                // One by one, so that an error names its variable.
                overridden = table.clone().try_into().map_err(|error: toml::de::Error| {
                    anyhow::anyhow!(
                        "environment variable {variable}: {}",
                        without_passwords(&in_words(error.message()))
                    )
                })?;
            }
        }
        Ok((overridden, table))
    }
}

/// Reads a file of limited length.
fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        bail!("the configuration file {} has more than {MAX_FILE_BYTES} bytes", path.display());
    }
    Ok(text)
}

/// Sets the key that the variable names; returns `false` for other variables. A variable with our prefix but without a key is
/// refused, because a typo would be ignored silently.
fn override_key(table: &mut toml::Table, known: &toml::Table, variable: &str, value: &str) -> anyhow::Result<bool> {
    let Some(rest) = variable.strip_prefix(ENVIRONMENT_PREFIX).map(str::to_ascii_lowercase) else { return Ok(false) };
    if NOT_OVERRIDES.contains(&rest.as_str()) {
        return Ok(false);
    }
    let section =
        known.keys().filter(|section| rest.starts_with(&format!("{section}_"))).max_by_key(|section| section.len());
    let Some(section) = section else {
        let sections = known.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        bail!(
            "environment variable {variable} names no section of the configuration\nHint: {ENVIRONMENT_PREFIX}<SECTION>\
             _<KEY> overrides a key. The sections are {sections}."
        );
    };
    let key = &rest[section.len() + 1..];
    let keys = known.get(section).and_then(toml::Value::as_table);
    if keys.is_none_or(|keys| !keys.contains_key(key)) {
        let keys = keys.map(|keys| keys.keys().map(String::as_str).collect::<Vec<_>>().join(", ")).unwrap_or_default();
        bail!("environment variable {variable}: section {section} has no key {key}\nHint: Its keys are {keys}.");
    }
    let entry = table.entry(section.clone()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
    let Some(entry) = entry.as_table_mut() else { bail!("section {section} is not a table") };
    // A value in TOML syntax (a number, a list, a boolean) is parsed, everything else is text.
    let parsed = toml::from_str::<toml::Table>(&format!("v = {value}")).ok().and_then(|mut table| table.remove("v"));
    // A number for a key of text is text, such as the version 1.2.
    let is_text = keys.and_then(|keys| keys.get(key)).is_some_and(toml::Value::is_str);
    let value = match (parsed, entry.get(key)) {
        (Some(_), Some(toml::Value::String(_))) | (None, _) => toml::Value::String(value.to_owned()),
        (Some(parsed), _) if is_text && !parsed.is_str() => toml::Value::String(value.to_owned()),
        (Some(parsed), _) => parsed,
    };
    entry.insert(key.to_owned(), value);
    Ok(true)
}

/// An error with its position, but without the text of the line, which may contain a password.
fn readable(text: &str, error: &toml::de::Error) -> anyhow::Error {
    let message = without_passwords(&in_words(error.message()));
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => {
            let line = before.matches('\n').count() + 1;
            let begun = before.rsplit('\n').next().unwrap_or_default();
            let column = begun.chars().count() + 1;
            let key = begun.split_once('=').map_or("", |(key, _)| key).trim();
            let key = if key.is_empty() { String::new() } else { format!("key {key}: ") };
            anyhow::anyhow!("line {line}, column {column}: {key}{message}")
        }
        None => anyhow::anyhow!("{message}"),
    }
}

/// Translates messages of the TOML parser into terms of the configuration.
fn in_words(message: &str) -> String {
    message
        .replace("expected a sequence", "expected a list, such as [\"a\", \"b\"]")
        .replace("expected a map", "expected a table, such as { a = \"1\", b = \"2\" }")
        .replace("unknown variant ", "unknown value ")
}

/// Variables with our prefix that are not keys of the configuration. The last two are for `sql`, and may be set in the shells
/// of its users.
const NOT_OVERRIDES: [&str; 6] = ["log", "log_format", "failpoints", "failpoints_folder", "history", "password"];

/// Refuses other variables with our prefix: an engine agent reads only these, and a typo would be ignored silently.
pub fn refuse_other_variables(read: &[&str]) -> anyhow::Result<()> {
    for (variable, _) in std::env::vars_os() {
        let variable = variable.to_string_lossy().into_owned();
        let Some(rest) = variable.strip_prefix(ENVIRONMENT_PREFIX).map(str::to_ascii_lowercase) else { continue };
        if !read.contains(&variable.as_str()) && !NOT_OVERRIDES.contains(&rest.as_str()) {
            bail!("environment variable {variable} has no effect here");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_typo_is_named_with_its_line_and_the_valid_keys() {
        let error =
            format!("{:#}", Configuration::parse("[proxy]\nlisten = \"127.0.0.1:1\"\nlisen = 1\n", &[]).unwrap_err());
        assert!(error.contains("line 3") && error.contains("lisen") && error.contains("`listen`"), "{error}");
    }

    #[test]
    fn an_error_in_the_line_of_the_database_does_not_show_its_password() {
        for text in ["[database]\nurll = \"mysql://u:hidden@h/d\"\n", "\ndatabase = \"mysql://u:hidden@h/d\"\n"] {
            let error = format!("{:#}", Configuration::parse(text, &[]).unwrap_err());
            assert!(error.contains("line 2") && !error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn a_type_error_names_its_key_in_the_words_of_the_configuration() {
        for (text, expected) in [
            (
                "[engines]\nallowed_locations = \"/srv\"\n",
                "line 2, column 21: key allowed_locations: invalid type: string \"/srv\", expected a list, such as",
            ),
            (
                "[access]\nauthentication = \"pam\"\n",
                "key authentication: unknown value `pam`, expected one of `none`, `file`, `ldap`, `jwt`",
            ),
            ("[engines]\nimages = 5\n", "expected a table, such as { a ="),
        ] {
            let error = format!("{:#}", Configuration::parse(text, &[]).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_list_or_a_table_in_a_variable_is_written_as_in_the_file() {
        let environment = [
            ("ENGINEHOUSE_ENGINES_ALLOWED_LOCATIONS", "[\"/srv/a\", \"/srv/b\"]"),
            ("ENGINEHOUSE_SPARK_PROPERTIES", "{ \"spark.ui.enabled\" = \"true\" }"),
        ];
        let environment = environment.map(|(variable, value)| (variable.to_owned(), value.to_owned()));
        let read = Configuration::parse("", &environment).unwrap();
        assert_eq!(read.engines.allowed_locations.len(), 2);
        assert_eq!(read.spark.properties["spark.ui.enabled"], "true");
    }

    #[test]
    fn the_environment_overrides_a_key_and_a_typo_in_it_is_refused() {
        let env = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let text = "[database]\nurl = \"sqlite:///tmp/x\"\n";
        let read = Configuration::parse(text, &env("ENGINEHOUSE_DATABASE_URL", "postgres://h/db")).unwrap();
        assert_eq!(read.database.url, "postgres://h/db");
        let read = Configuration::parse(text, &env("ENGINEHOUSE_MASTER_CANDIDATE", "false")).unwrap();
        assert!(!read.master.candidate);
        let read = Configuration::parse(text, &env("ENGINEHOUSE_METADATA_AGENT_ALTER_WAIT", "3s")).unwrap();
        assert_eq!(read.metadata_agent.alter_wait.0.as_secs(), 3);
        for (name, value, expected) in [
            ("ENGINEHOUSE_DATABSE_URL", "x", "metadata_agent"),
            ("ENGINEHOUSE_DATABASE_URI", "x", "Its keys are ca_file, password_file, tls, url"),
            ("ENGINEHOUSE_PROXY_MAX_CONNECTIONS", "x", "ENGINEHOUSE_PROXY_MAX_CONNECTIONS: invalid type"),
        ] {
            let error = format!("{:#}", Configuration::parse(text, &env(name, value)).unwrap_err());
            assert!(error.contains(name) && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_defaults_survive_the_way_through_toml() {
        let defaults = Configuration::default();
        let text = toml::to_string(&defaults).unwrap();
        assert_eq!(Configuration::parse(&text, &[]).unwrap(), defaults);
        defaults.check().unwrap();
    }
}
