//! The binary `agent-backend`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ab_cli::main()
}
