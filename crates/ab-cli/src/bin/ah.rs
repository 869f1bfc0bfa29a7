//! The binary `ah`: `agent-backend` under its short name.

use std::process::ExitCode;

fn main() -> ExitCode {
    ab_cli::main()
}
