//! The launch of an engine of type `hiveserver2`: the template for its agent, or why no engine can be launched.

use std::collections::BTreeMap;

use model::configuration::Configuration;
use model::error::{ErrorKind, UserError};
use model::instance::InstanceKind;
use orchestrator::InstanceOptions;
use serde::{Deserialize, Serialize};

use super::section::HiveServer2Section;
use super::template::{CommandTemplate, TemplateText};
use crate::engine_file::EngineFile;
use crate::engine_types::LaunchPart;

/// What the agent's file has for its connector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerLaunch {
    pub pool: String,
    pub unit: String,
    pub template: TemplateText,
    /// The properties of the installation and the unit.
    pub properties: BTreeMap<String, String>,
}

/// The launch part of type `hiveserver2`.
#[derive(Debug)]
pub struct HiveServer2Launch {
    section: HiveServer2Section,
    instances: InstanceKind,
}

impl HiveServer2Launch {
    pub fn new(section: &HiveServer2Section, instances: InstanceKind) -> Self {
        Self { section: section.clone(), instances }
    }

    /// The template, or why no engine can be launched.
    fn template(&self) -> Result<CommandTemplate, UserError> {
        let template = self.section.template().map_err(|error| {
            UserError::new(ErrorKind::WrongState, "the command template of engines of type 'hiveserver2' is invalid")
                .detail(format!("The error is: {}.", error.message))
                .hint(error.hint)
        })?;
        let Some(template) = template else {
            return Err(UserError::new(ErrorKind::WrongState, "engines of type 'hiveserver2' are not configured")
                .detail("The installation has no command template for them.")
                .hint(
                    "Set hiveserver2.command in the configuration of masters and metadata agents, and restart them.",
                ));
        };
        if self.instances == InstanceKind::Process && !self.section.unconfined {
            return Err(UserError::new(
                ErrorKind::NotSupported,
                "engines of type 'hiveserver2' are not accepted as local processes",
            )
            .detail(
                "Users of a server may have all rights of its operating system process, such as reading the keys of the roles.",
            )
            .hint(
                "Run engines as pods (orchestrator.kind), or set hiveserver2.unconfined = true if all users are trusted.",
            ));
        }
        Ok(template)
    }

    /// The properties by precedence: the unit's, the configuration's. Refuses properties that the template does not pass, and
    /// secret ones in the command line.
    fn properties(
        &self,
        template: &CommandTemplate,
        configuration: &Configuration,
        unit: &str,
    ) -> Result<BTreeMap<String, String>, UserError> {
        let own = &configuration.properties;
        let refuse = |key: &str, detail: &str, hint: &str| {
            let message = format!("property \"{key}\" of resource unit \"{unit}\" cannot be passed to its engine");
            Err(UserError::new(ErrorKind::InvalidValue, message).detail(detail).hint(hint))
        };
        if let Some(key) = own.keys().next()
            && !template.has_property_arguments()
            && !template.has_properties_file()
        {
            return refuse(
                key,
                "The command template has no place for properties.",
                "Add {properties} or {properties_file} to hiveserver2.command, or remove the property from the unit.",
            );
        }
        let secret = configuration.secrets.as_ref().and_then(|secrets| secrets.keys.first());
        if let Some(key) = secret.filter(|_| template.has_property_arguments()) {
            return refuse(
                key,
                "It is secret, and the command template passes properties in the command line, which every user of the \
                 machine can read.",
                "Use {properties_file} instead of {properties} in hiveserver2.command.",
            );
        }
        let mut properties = self.section.properties.clone();
        properties.extend(own.clone());
        Ok(properties)
    }
}

impl LaunchPart for HiveServer2Launch {
    fn complete(
        &self,
        launch: &master::Launch<'_>,
        file: &mut EngineFile,
        _options: &mut InstanceOptions,
    ) -> Result<(), UserError> {
        let template = self.template()?;
        let server = ServerLaunch {
            pool: launch.slot.pool.to_string(),
            unit: launch.slot.unit.to_string(),
            template: self.section.text(),
            properties: self.properties(&template, launch.configuration, launch.slot.unit.as_str())?,
        };
        file.has_metastore = self.section.shared_catalog;
        file.set_connector(&server)
    }

    fn refusal(&self) -> Option<UserError> {
        self.template().err()
    }
}
