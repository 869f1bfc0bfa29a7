//! Agents that the first message installs, with the npm and the Node.js of the machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ab_testkit::host::report_skip;

use super::{Gateway, START};
use crate::escapes::stands;
use crate::stage::{BINARY, Stage};

/// Does what npm does for gemini. The agent says which Node.js runs it.
const NPM: &str = "#!/bin/sh
mkdir -p node_modules/@google/gemini-cli/bundle
cat > node_modules/@google/gemini-cli/bundle/gemini.js <<'END'
require('readline').createInterface({ input: process.stdin }).on('line', () =>
  console.log(JSON.stringify({ id: 1, result: process.execPath })));
END
";

fn add(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The Node.js of this machine.
fn node() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path).map(|directory| directory.join("node"));
    let found = programs.find_map(|program| program.canonicalize().ok());
    if found.is_none() {
        report_skip("Node.js", "it is not installed");
    }
    found
}

/// As with asdf, mise or nodenv: the program in `PATH` is a script that starts another one.
#[test]
fn node_behind_a_shim_runs_its_agents_in_a_sandbox() {
    let Some(node) = node() else { return };
    if !stands("bwrap") {
        return;
    }
    let stage = Stage::new();
    let own = stage.outside("versions/22/bin/node");
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    fs::copy(node, &own).unwrap();
    let own = own.canonicalize().unwrap();
    let shims = stage.outside("shims");
    add(&shims.join("node"), &format!("#!/bin/sh\nexec '{}' \"$@\"\n", own.display()));
    add(&shims.join("npm"), NPM);
    let mut command = stage.command(BINARY);
    command.env("PATH", format!("{}:/usr/bin:/bin", shims.display())).env("GEMINI_API_KEY", "k");
    command.env("XDG_STATE_HOME", stage.outside("state"));
    let gateway = Gateway::start_by(command, &stage, &["--isolation", "bwrap"]);
    let (status, answer) = gateway.ask("POST", "/v1/acp/a?agent=gemini", START);
    assert_eq!((status, answer["result"].as_str()), (200, own.to_str()), "{answer}");
}
