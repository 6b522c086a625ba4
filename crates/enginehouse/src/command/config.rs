//! `enginehouse config check`: says whether a configuration is good, and what it says with all defaults.

use std::process::ExitCode;

use crate::cli::ConfigurationArgument;
use crate::configuration::Configuration;

pub fn check(arguments: &ConfigurationArgument) -> anyhow::Result<ExitCode> {
    let configuration = Configuration::load(&arguments.config)?;
    println!("# {} is good; with all defaults it says:", arguments.config.display());
    print!("{}", toml::to_string(&hidden(configuration))?);
    Ok(ExitCode::SUCCESS)
}

/// A URL may hold a password.
fn hidden(mut configuration: Configuration) -> Configuration {
    configuration.database.url = crate::configuration::without_password(&configuration.database.url);
    configuration
}
