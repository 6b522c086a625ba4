//! The program: one binary with a subcommand for each role, and the composition of the roles.
//!
//! This is the only crate that depends on all others. It reads the configuration, starts logging, assembles the parts and
//! stops them in the right order. As a library it has the program and what its fuzz targets read, and nothing else.

mod cli;
mod client_authentication;
mod command;
mod configuration;
mod core_files;
mod engine_file;
mod engine_types;
#[doc(hidden)]
pub mod fuzzing;
mod key_files;
mod keytab;
mod launch;
mod listener_tls;
mod machine;
mod open_files;
mod orchestrators;
mod output;
mod roles;
mod sql;
mod telemetry;
mod termination;

use std::process::ExitCode;

use clap::Parser as _;

/// Runs the command that the arguments of the process name.
pub fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    hs2::tls::install_provider();
    match command::run(arguments) {
        Ok(code) => code,
        Err(error) => {
            output::print_error(&format!("enginehouse: {}", output::with_causes(&error)));
            ExitCode::FAILURE
        }
    }
}
