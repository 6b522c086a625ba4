//! The program `enginehouse`.

use std::process::ExitCode;

fn main() -> ExitCode {
    enginehouse::main()
}
