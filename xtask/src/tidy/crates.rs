//! The crate table. It contains the crates, our crates that each of them may use, and the settings
//! that all manifests share. A new edge in the table is a design decision.

use serde_json::Value;

use super::problem::Problem;
use crate::workspace;

const CORE: &str = "ab-core";
const HOST: &str = "ab-host";
const POLICY: &str = "ab-policy";
const REMOTE: &str = "ab-remote";
const MCP: &str = "ab-mcp";
const LOCAL: &str = "ab-local";
const LIBRARY: &str = "agent-backend";
const STORE: &str = "ab-store";
const SPACES: &str = "ab-spaces";
const ACP: &str = "ab-acp";
const SNAPSHOT: &str = "ab-snapshot";
const API: &str = "ab-api";
const EXECUTOR: &str = "ab-executor";
const CONTROL: &str = "ab-control";
const SERVER: &str = "ab-server";
const CLI: &str = "ab-cli";
const CONFORMANCE: &str = "ab-conformance";
const TESTKIT: &str = "ab-testkit";
const XTASK: &str = "xtask";

/// One row: a crate and which of our crates it may use.
struct Row {
    name: &'static str,
    may_use: &'static [&'static str],
}

const TABLE: &[Row] = &[
    Row { name: CORE, may_use: &[] },
    Row { name: HOST, may_use: &[CORE] },
    Row { name: POLICY, may_use: &[CORE] },
    Row { name: REMOTE, may_use: &[CORE] },
    Row { name: MCP, may_use: &[CORE] },
    Row { name: LOCAL, may_use: &[CORE, HOST, POLICY] },
    Row { name: LIBRARY, may_use: &[CORE, HOST, POLICY, LOCAL, REMOTE, MCP, API] },
    Row { name: STORE, may_use: &[CORE, API] },
    Row { name: API, may_use: &[] },
    Row { name: ACP, may_use: &[CORE, HOST, LOCAL, MCP] },
    Row { name: SPACES, may_use: &[CORE, POLICY, LOCAL, STORE, API, SNAPSHOT] },
    Row { name: SNAPSHOT, may_use: &[CORE, HOST, LOCAL] },
    Row { name: EXECUTOR, may_use: &[CORE, HOST, LOCAL, REMOTE, POLICY, ACP, MCP, SNAPSHOT, API] },
    Row { name: CONTROL, may_use: &[CORE, API, POLICY, STORE, EXECUTOR] },
    Row {
        name: SERVER,
        may_use: &[CORE, POLICY, REMOTE, MCP, API, STORE, ACP, SPACES, EXECUTOR, CONTROL],
    },
    Row {
        name: CLI,
        may_use: &[
            CORE, HOST, POLICY, REMOTE, MCP, LOCAL, LIBRARY, STORE, API, ACP, SPACES, SNAPSHOT,
            EXECUTOR, CONTROL, SERVER,
        ],
    },
    Row { name: CONFORMANCE, may_use: &[CORE, MCP] },
    Row { name: TESTKIT, may_use: &[CORE, API] },
    Row { name: XTASK, may_use: &[] },
];

/// Edges that only tests have. The MCP tools, the SSH server and the HTTP port are tested on a real
/// directory with real commands, but the crates themselves depend on no kind of workspace. Commands
/// under isolation `software` are tested with the analysis that the product uses, but the driver
/// depends on no shell parser.
const TESTS_MAY_ALSO_USE: &[Row] = &[
    Row { name: MCP, may_use: &[HOST, CONFORMANCE] },
    Row { name: REMOTE, may_use: &[LIBRARY] },
    Row { name: HOST, may_use: &[POLICY] },
    Row { name: SERVER, may_use: &[HOST] },
    Row { name: CLI, may_use: &[CONFORMANCE] },
];

/// A workspace member as cargo describes it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// The path of the member's folder, relative to the workspace root.
    pub(crate) folder: String,
    /// The members that it depends on.
    pub(crate) uses: Vec<String>,
    /// The members that only its tests depend on.
    pub(crate) tests_use: Vec<String>,
    /// The names of its integration test binaries.
    pub(crate) test_binaries: Vec<String>,
}

/// All members of this workspace.
pub(crate) fn members() -> Vec<Member> {
    let metadata = workspace::metadata().expect("read the workspace");
    let root = metadata["workspace_root"].as_str().expect("cargo metadata names the root");
    let packages = list(&metadata["packages"]);
    packages.iter().map(|package| member(package, root)).collect()
}

/// Whether the table has a crate called `name`.
pub(crate) fn is_known(name: &str) -> bool {
    row(name).is_some()
}

fn member(package: &Value, root: &str) -> Member {
    let manifest = string(&package["manifest_path"]);
    let folder = manifest.strip_prefix(root).unwrap_or(manifest);
    let folder = folder.trim_start_matches('/').trim_end_matches("Cargo.toml");
    let mut member = Member {
        name: string(&package["name"]).to_owned(),
        folder: folder.trim_end_matches('/').to_owned(),
        ..Member::default()
    };
    // A dependency with a path is one of our crates, because no other crate is vendored.
    for dependency in list(&package["dependencies"]).iter().filter(|it| it["path"].is_string()) {
        let name = string(&dependency["name"]).to_owned();
        match dependency["kind"].as_str() {
            Some("dev") => member.tests_use.push(name),
            _ => member.uses.push(name),
        }
    }
    for target in list(&package["targets"]) {
        if list(&target["kind"]).iter().any(|kind| kind == "test") {
            member.test_binaries.push(string(&target["name"]).to_owned());
        }
    }
    member
}

fn table_problems(member: &Member) -> Vec<Problem> {
    let path = format!("{}/Cargo.toml", member.folder);
    let Some(row) = row(&member.name) else {
        let message = format!("the crate table knows no `{}`", member.name);
        return vec![Problem::of_file(path, message)];
    };
    let mut problems = Vec::new();
    if member.folder.rsplit('/').next() != Some(row.name) {
        problems.push(Problem::of_file(&path, format!("the folder must be called `{}`", row.name)));
    }
    for used in member.uses.iter().filter(|used| !row.may_use.contains(&used.as_str())) {
        let message = format!("`{}` may not use `{used}`: see the crate table", row.name);
        problems.push(Problem::of_file(&path, message));
    }
    let also = TESTS_MAY_ALSO_USE.iter().find(|also| also.name == row.name);
    let also = also.map_or(&[][..], |also| also.may_use);
    let in_tests =
        |used: &str| used == TESTKIT || row.may_use.contains(&used) || also.contains(&used);
    for used in member.tests_use.iter().filter(|used| !in_tests(used)) {
        let message = format!("tests of `{}` may not use `{used}`: see the crate table", row.name);
        problems.push(Problem::of_file(&path, message));
    }
    problems
}

/// Checks the settings that every manifest inherits from the workspace.
fn manifest_problems(path: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let inherits = |table: &str, key: &str| {
        let mut current = "";
        text.lines().map(str::trim).any(|line| {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                current = name;
            }
            current == table && line.split_whitespace().collect::<String>() == key
        })
    };
    if !inherits("lints", "workspace=true") {
        problems.push(Problem::of_file(path, "take the lints from the workspace: `[lints]`"));
    }
    if !inherits("package", "license.workspace=true") {
        problems.push(Problem::of_file(path, "take the license from the workspace: `[package]`"));
    }
    problems
}

fn row(name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.name == name)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::problem::{expect_none, expect_one};
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn the_workspace_follows_the_table() {
        let members = members();
        assert!(members.iter().any(|member| member.name == XTASK), "{members:?}");
        expect_none(&members.iter().flat_map(table_problems).collect::<Vec<_>>());
    }

    #[test]
    fn every_manifest_takes_from_the_workspace() {
        let tree = Tree::load();
        let mut problems = Vec::new();
        for member in members() {
            let path = format!("{}/Cargo.toml", member.folder);
            let text = tree.text(&path).unwrap_or_default();
            problems.extend(manifest_problems(&path, &text));
        }
        expect_none(&problems);
    }

    #[test]
    fn the_table_is_whole_and_has_no_cycle() {
        for row in TABLE {
            let same = TABLE.iter().filter(|other| other.name == row.name).count();
            assert_eq!(same, 1, "{} has one row", row.name);
            assert!(row.may_use.iter().all(|used| is_known(used)), "{}", row.name);
            for tests in [TESTKIT, CONFORMANCE] {
                assert!(!row.may_use.contains(&tests), "{} builds on tests", row.name);
            }
            assert!(!reaches(row, row.name), "{} uses itself", row.name);
        }
    }

    fn reaches(from: &Row, name: &str) -> bool {
        from.may_use
            .iter()
            .any(|&used| used == name || row(used).is_some_and(|row| reaches(row, name)))
    }

    fn check(name: &str, folder: &str, uses: &[&str], tests_use: &[&str]) -> Vec<Problem> {
        let strings = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        table_problems(&Member {
            name: name.to_owned(),
            folder: folder.to_owned(),
            uses: strings(uses),
            tests_use: strings(tests_use),
            test_binaries: Vec::new(),
        })
    }

    #[test]
    fn allowed_edges_pass() {
        expect_none(&check("ab-core", "crates/ab-core", &[], &["ab-testkit"]));
        expect_none(&check("ab-host", "crates/ab-host", &["ab-core"], &["ab-core", "ab-testkit"]));
        expect_none(&check("ab-mcp", "crates/ab-mcp", &["ab-core"], &["ab-host"]));
        expect_none(&check(
            "ab-local",
            "crates/ab-local",
            &["ab-core", "ab-host", "ab-policy"],
            &[],
        ));
        expect_none(&check("xtask", "xtask", &[], &[]));
    }

    #[test]
    fn other_edges_fail() {
        let host = "crates/ab-host";
        expect_one(&check("ab-host", host, &["ab-policy"], &[]), "may not use `ab-policy`");
        expect_one(&check("ab-host", host, &["ab-testkit"], &[]), "may not use `ab-testkit`");
        expect_one(&check("ab-host", host, &[], &["ab-mcp"]), "tests of `ab-host`");
        expect_one(&check("ab-mcp", "crates/ab-mcp", &["ab-host"], &[]), "may not use `ab-host`");
        expect_one(&check("ab-server", "crates/ab-server", &["ab-host"], &[]), "may not use");
        expect_one(&check("ab-local", "crates/ab-local", &["ab-server"], &[]), "may not use");
        expect_one(&check("ab-host", "crates/host", &[], &[]), "must be called `ab-host`");
        expect_one(&check("ab-moon", "crates/ab-moon", &[], &[]), "knows no `ab-moon`");
    }

    #[test]
    fn a_member_is_read_from_metadata() {
        let package = serde_json::json!({
            "name": "ab-host",
            "manifest_path": "/x/crates/ab-host/Cargo.toml",
            "dependencies": [
                { "name": "ab-core", "kind": null, "path": "/x/crates/ab-core" },
                { "name": "ab-testkit", "kind": "dev", "path": "/x/crates/ab-testkit" },
                { "name": "bytes", "kind": null },
            ],
            "targets": [
                { "name": "ab_host", "kind": ["lib"] },
                { "name": "main", "kind": ["test"] },
            ],
        });
        let member = member(&package, "/x");
        assert_eq!(member.folder, "crates/ab-host");
        assert_eq!(member.uses, ["ab-core"]);
        assert_eq!(member.tests_use, ["ab-testkit"]);
        assert_eq!(member.test_binaries, ["main"]);
    }

    #[test]
    fn manifests_must_inherit() {
        let good = "[package]\nlicense.workspace = true\n\n[lints]\nworkspace = true\n";
        expect_none(&manifest_problems("Cargo.toml", good));
        let no_lints = "[package]\nlicense.workspace = true\n\n[x]\nworkspace = true\n";
        expect_one(&manifest_problems("Cargo.toml", no_lints), "lints");
        let no_license = "[package]\nlicense = \"MIT\"\n[lints]\nworkspace = true\n";
        expect_one(&manifest_problems("Cargo.toml", no_license), "license");
    }
}
