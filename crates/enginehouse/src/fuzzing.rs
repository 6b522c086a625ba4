//! What fuzz targets read: the text of a configuration file.

use crate::command::config::concealed;
use crate::configuration::Configuration;
use crate::output::with_causes;

/// A valid configuration, with all defaults, in TOML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadConfiguration {
    /// With its secrets.
    pub whole: String,
    /// As `config check` prints it.
    pub printed: String,
}

/// Reads and validates the text of a file, without the environment. An error is the text that the program prints.
pub fn configuration(text: &str) -> Result<ReadConfiguration, String> {
    let read = || -> anyhow::Result<ReadConfiguration> {
        let (configuration, _) = Configuration::parse_with_keys(text, &[])?;
        configuration.check()?;
        let whole = toml::to_string(&configuration)?;
        Ok(ReadConfiguration { whole, printed: toml::to_string(&concealed(configuration))? })
    };
    read().map_err(|error| with_causes(&error))
}
