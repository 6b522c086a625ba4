//! `enginehouse migrate`: creates or upgrades the tables of the metadata database.

use std::process::ExitCode;

use crate::cli::ConfigurationArgument;
use crate::configuration::{Configuration, without_password};
use crate::output::print_line;
use crate::{roles, telemetry};

pub async fn run(arguments: &ConfigurationArgument) -> anyhow::Result<ExitCode> {
    telemetry::start(telemetry::DEFAULT_FILTER)?;
    let configuration = Configuration::load(&arguments.config)?;
    let version = roles::migrate(&configuration).await?;
    print_line(&format!("{} is at schema version {version}", without_password(&configuration.database.url)));
    Ok(ExitCode::SUCCESS)
}
