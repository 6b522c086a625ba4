//! The configuration of the separate processes: one TOML text for all roles.
//!
//! Unknown keys are refused with their line and the valid keys, before a port is bound. An environment variable
//! `ENGINEHOUSE_<SECTION>_<KEY>` overrides a key, such as `ENGINEHOUSE_DATABASE_URL`. Every key has a default,
//! which fits one machine on which everything runs as its documentation says.

mod sections;
mod span;

use std::path::Path;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

pub use sections::{
    Access, Authentication, ClusterSection, DatabaseSection, EnginesSection, MasterSection, MetadataAgentSection,
    OrchestratorSection, ProxySection, ZookeeperSection,
};
pub use span::Span;

/// The prefix of environment variables that override a key.
pub const ENVIRONMENT_PREFIX: &str = "ENGINEHOUSE_";
/// The largest configuration file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Configuration {
    /// Which installation.
    pub cluster: ClusterSection,
    /// Who may do what.
    pub access: Access,
    /// The coordination service.
    pub zookeeper: ZookeeperSection,
    /// The metadata database; only metadata agents and `migrate` read it.
    pub database: DatabaseSection,
    /// The gateway.
    pub proxy: ProxySection,
    /// The master inside a proxy.
    pub master: MasterSection,
    /// The metadata agent.
    pub metadata_agent: MetadataAgentSection,
    /// Where engines run.
    pub orchestrator: OrchestratorSection,
    /// What engines are given.
    pub engines: EnginesSection,
}

impl Configuration {
    /// Reads and checks a file; the environment overrides.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let length =
            std::fs::metadata(path).with_context(|| format!("can't read the configuration {}", path.display()))?.len();
        if length > MAX_FILE_BYTES {
            bail!("the configuration {} has {length} bytes and may have {MAX_FILE_BYTES}", path.display());
        }
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("can't read the configuration {}", path.display()))?;
        let overrides: Vec<(String, String)> = std::env::vars().collect();
        let configuration = Self::parse(&text, &overrides).with_context(|| format!("in {}", path.display()))?;
        configuration.check().with_context(|| format!("in {}", path.display()))?;
        Ok(configuration)
    }

    /// Reads a text; `environment` is what may override it.
    pub fn parse(text: &str, environment: &[(String, String)]) -> anyhow::Result<Self> {
        let configuration: Self = toml::from_str(text)?;
        let mut table: toml::Table = toml::from_str(text)?;
        let known = toml::Table::try_from(Self::default())?;
        let mut overridden = false;
        for (variable, value) in environment {
            overridden |= override_key(&mut table, &known, variable, value)?;
        }
        if !overridden {
            return Ok(configuration);
        }
        table.try_into().context("after the environment's overrides")
    }

    /// Checks what no single value can say.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.access.authentication == Authentication::None
            && !self.access.insecure
            && !self.proxy.listens_on_loopback()
        {
            bail!(
                "authentication = \"none\" believes every name, so it is accepted on a loopback address only, and \
                 proxy.listen is {}\nHint: listen on 127.0.0.1, or set access.insecure = true if this network is \
                 trusted",
                self.proxy.listen
            );
        }
        if self.zookeeper.session_timeout.0.as_millis() < 500 {
            bail!("zookeeper.session_timeout is below 500ms");
        }
        if self.metadata_agent.drain_grace.0 > self.metadata_agent.drain_grace_max.0 {
            bail!("metadata_agent.drain_grace is above metadata_agent.drain_grace_max");
        }
        Ok(())
    }
}

/// Sets the key that the variable names; `false` if the variable is none of ours. A variable with our prefix that
/// names no key is refused, because a typo there would silently change nothing.
fn override_key(table: &mut toml::Table, known: &toml::Table, variable: &str, value: &str) -> anyhow::Result<bool> {
    let Some(rest) = variable.strip_prefix(ENVIRONMENT_PREFIX).map(str::to_ascii_lowercase) else { return Ok(false) };
    if NOT_OVERRIDES.contains(&rest.as_str()) {
        return Ok(false);
    }
    let section = known.keys().filter(|section| rest.starts_with(&format!("{section}_"))).max_by_key(|it| it.len());
    let Some(section) = section else {
        bail!("environment variable {variable} names no section of the configuration");
    };
    let key = &rest[section.len() + 1..];
    let entry = table.entry(section.clone()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
    let Some(entry) = entry.as_table_mut() else { bail!("section {section} is no table") };
    // A value that reads as TOML (a number, a list, a boolean) is taken as such, everything else as text.
    let parsed = toml::from_str::<toml::Table>(&format!("v = {value}")).ok().and_then(|mut it| it.remove("v"));
    let value = match (parsed, entry.get(key)) {
        (Some(_), Some(toml::Value::String(_))) | (None, _) => toml::Value::String(value.to_owned()),
        (Some(parsed), _) => parsed,
    };
    entry.insert(key.to_owned(), value);
    Ok(true)
}

/// A URL with its password replaced, for people to read.
pub fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let authority_end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    match authority.rsplit_once('@') {
        Some((login, host)) => {
            let user = login.split_once(':').map_or(login, |(user, _)| user);
            let mask = if login.contains(':') { ":******" } else { "" };
            format!("{scheme}://{user}{mask}@{host}{path}")
        }
        None => url.to_owned(),
    }
}

/// Variables with our prefix that are no keys of the configuration.
const NOT_OVERRIDES: [&str; 5] = ["log", "log_format", "failpoints", "history", "config"];

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
    fn the_environment_overrides_a_key_and_a_typo_in_it_is_refused() {
        let env = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let text = "[database]\nurl = \"sqlite:///tmp/x\"\n";
        let read = Configuration::parse(text, &env("ENGINEHOUSE_DATABASE_URL", "postgres://h/db")).unwrap();
        assert_eq!(read.database.url, "postgres://h/db");
        let read = Configuration::parse(text, &env("ENGINEHOUSE_MASTER_CANDIDATE", "false")).unwrap();
        assert!(!read.master.candidate);
        let read = Configuration::parse(text, &env("ENGINEHOUSE_METADATA_AGENT_ALTER_WAIT", "3s")).unwrap();
        assert_eq!(read.metadata_agent.alter_wait.0.as_secs(), 3);
        assert!(Configuration::parse(text, &env("ENGINEHOUSE_DATABSE_URL", "x")).is_err());
        assert!(Configuration::parse(text, &env("ENGINEHOUSE_DATABASE_URI", "x")).is_err());
    }

    #[test]
    fn authentication_none_is_refused_off_the_loopback_unless_said_to_be_insecure() {
        let text = "[proxy]\nlisten = \"0.0.0.0:10009\"\n";
        let error = Configuration::parse(text, &[]).unwrap().check().unwrap_err().to_string();
        assert!(error.contains("insecure = true"), "{error}");
        Configuration::parse(&format!("{text}[access]\ninsecure = true\n"), &[]).unwrap().check().unwrap();
    }

    #[test]
    fn a_password_in_a_url_is_never_shown() {
        assert_eq!(without_password("postgres://u:p@h:1/db"), "postgres://u:******@h:1/db");
        assert_eq!(without_password("postgres://u:p@x@h/db"), "postgres://u:******@h/db");
        assert_eq!(without_password("postgres://u@h/db"), "postgres://u@h/db");
        assert_eq!(without_password("sqlite:///tmp/a@b"), "sqlite:///tmp/a@b");
    }

    #[test]
    fn the_defaults_survive_the_way_through_toml() {
        let defaults = Configuration::default();
        let text = toml::to_string(&defaults).unwrap();
        assert_eq!(Configuration::parse(&text, &[]).unwrap(), defaults);
        defaults.check().unwrap();
    }
}
