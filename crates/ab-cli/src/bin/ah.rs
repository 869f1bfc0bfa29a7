//! The binary `ah`, a short name for `agent-backend`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ab_cli::main()
}
