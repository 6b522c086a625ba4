//! Section `[hiveserver2]`: engines of type `hiveserver2`.

use std::collections::BTreeMap;

use anyhow::bail;
use model::secret::SecretKeys;
use serde::{Deserialize, Serialize};

use super::template::{CommandTemplate, TemplateError, TemplateText};

/// The name of the section.
pub const SECTION: &str = "hiveserver2";

/// The configuration of engines of type `hiveserver2`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HiveServer2Section {
    /// The command template. Without a word there are no engines of this type.
    pub command: Vec<String>,
    /// The arguments of one property, which the word `{properties}` of the command stands for.
    pub property_arguments: Vec<String>,
    /// The environment of the server; values are templates too.
    pub environment: BTreeMap<String, String>,
    /// Properties of every engine; those of its unit override them.
    pub properties: BTreeMap<String, String>,
    /// Whether the tables of an engine outlive it, in a metastore that all engines of the tenant share.
    pub shared_catalog: bool,
    /// Whether engines may be local processes, whose users may have all rights of this program's user.
    pub unconfined: bool,
}

impl HiveServer2Section {
    /// The texts of the template.
    pub fn text(&self) -> TemplateText {
        TemplateText {
            command: self.command.clone(),
            property_arguments: self.property_arguments.clone(),
            environment: self.environment.clone(),
        }
    }

    /// The template; `None` if none is configured.
    pub fn template(&self) -> Result<Option<CommandTemplate>, TemplateError> {
        if self.command.is_empty() {
            return Ok(None);
        }
        CommandTemplate::parse(SECTION, &self.text()).map(Some)
    }

    /// Refuses values with which no engine could start.
    pub fn check(&self, secret: &SecretKeys) -> anyhow::Result<()> {
        if self.properties.keys().any(String::is_empty) {
            bail!("{SECTION}.properties has an entry without a key");
        }
        let Some(template) = self.template().map_err(|error| anyhow::anyhow!("{error}"))? else {
            let others = [
                ("property_arguments", self.property_arguments.is_empty()),
                ("environment", self.environment.is_empty()),
                ("properties", self.properties.is_empty()),
            ];
            return match others.iter().find(|(_, is_empty)| !is_empty) {
                None => Ok(()),
                Some((key, _)) => bail!("{SECTION}.{key} is given, and {SECTION}.command is not"),
            };
        };
        if !self.properties.is_empty() && !template.has_property_arguments() && !template.has_properties_file() {
            bail!(
                "{SECTION}.properties is given, and {SECTION}.command has neither {{properties}} nor {{properties_file}}"
            );
        }
        if template.has_property_arguments()
            && let Some(key) = self.properties.keys().find(|key| secret.is_secret(key))
        {
            bail!(
                "{SECTION}.properties has the secret \"{key}\", which would be in the command line\nHint: Pass the properties \
                 in a file: {{properties_file}} instead of {{properties}}."
            );
        }
        Ok(())
    }

    /// A copy with masked secret values, for display.
    pub fn masked(mut self, secret: &SecretKeys) -> Self {
        self.environment = secret.mask(&self.environment);
        self.properties = secret.mask(&self.properties);
        self
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use crate::configuration::Configuration;

    fn check(text: &str) -> anyhow::Result<()> {
        Configuration::parse(&format!("[hiveserver2]\n{text}\n"), &[]).unwrap().check()
    }

    #[test]
    fn what_no_engine_could_start_from_is_refused_with_its_key() {
        for (text, expected) in [
            ("command = [\"/s\", \"{prot}\"]", "The placeholders are {host}, {port}"),
            ("command = [\"server\"]", "hiveserver2.command"),
            ("environment = { A = \"{port}\" }", "hiveserver2.environment is given, and hiveserver2.command is not"),
            ("command = [\"/s\"]\nproperties = { a = \"1\" }", "neither {properties} nor {properties_file}"),
            ("command = [\"/s\", \"{properties_file}\"]\nproperties = { \"\" = \"1\" }", "an entry without a key"),
            (
                "command = [\"/s\", \"{properties}\"]\nproperty_arguments = [\"{key}={value}\"]\n\
                 properties = { \"db.password\" = \"x\" }",
                "the secret \"db.password\"",
            ),
        ] {
            let error = check(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        for text in ["", "command = [\"/s\", \"--port={port}\"]", "unconfined = true"] {
            check(text).unwrap();
        }
    }

    #[test]
    fn secret_values_are_masked() {
        let text = "[hiveserver2]\ncommand = [\"/s\", \"{properties_file}\"]\nproperties = { \"a.password\" = \"hidden\" }\n\
                    environment = { AWS_SECRET_ACCESS_KEY = \"hidden\", B = \"shown\" }\n";
        let configuration = Configuration::parse(text, &[]).unwrap();
        let shown = format!("{:?}", configuration.hiveserver2.masked(&configuration.metadata_agent.secret_keys));
        assert!(shown.contains("shown") && !shown.contains("hidden"), "{shown}");
    }
}
