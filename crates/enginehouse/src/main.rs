//! The program: one binary, one subcommand per role, and the composition of the roles.
//!
//! Only this crate sees everything. It reads the configuration, starts logging, puts the parts together and stops them
//! in the right order; what a part does is the part's crate.

mod cli;
mod command;
mod configuration;
mod launch;
mod machine;
mod open_files;
mod orchestrators;
mod output;
mod roles;
mod spark;
mod sql;
mod telemetry;
mod termination;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    match command::run(arguments) {
        Ok(code) => code,
        Err(error) => {
            output::print_error(&format!("enginehouse: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
