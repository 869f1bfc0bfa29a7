//! Checks before the launch whether an agent's program can be started in its sandbox. The check is
//! useful because the error of a launch names neither the agent nor the missing program.

use std::path::{Path, PathBuf};

use ab_acp::catalog::{AgentCatalogEntry, OWN_EXECUTABLE_PLACEHOLDER};
use ab_api::RuntimeType;
use ab_host::{READABLE_SYSTEM_DIRS, SYSTEM_PROGRAM_DIRS, Toolchain};

pub(super) use ab_acp::launch::toolchain_for_agent_path;

/// Looks for the program in the directories that will be visible in the sandbox.
///
/// # Errors
///
/// Returns what is missing and what the session's user can do about it.
pub(super) fn check(
    entry: &AgentCatalogEntry,
    toolchains: &[Toolchain],
    runtime: RuntimeType,
) -> Result<(), String> {
    let Some(program) = entry.argv.first().filter(|program| *program != OWN_EXECUTABLE_PLACEHOLDER)
    else {
        return Ok(());
    };
    let agent = &entry.id;
    let found = if program.contains('/') {
        // A relative path is resolved in the workspace when the agent starts.
        if !program.starts_with('/') {
            return Ok(());
        }
        Some(PathBuf::from(program)).filter(|path| path.is_file())
    } else {
        let bins = toolchains
            .iter()
            .flat_map(|toolchain| toolchain.program_dirs.iter().map(PathBuf::as_path));
        let places = bins.chain(SYSTEM_PROGRAM_DIRS.iter().map(Path::new));
        places.map(|place| place.join(program)).find(|path| path.is_file())
    };
    let Some(found) = found else {
        return Err(format!(
            "agent {agent:?}: the program {program:?} was not found; install it, or name its directory in \
             \"toolchains\" of the agent's entry in the configuration file"
        ));
    };
    if runtime == RuntimeType::Disabled {
        return Ok(());
    }
    // The path must be visible in the sandbox. If it is a link, its target must be visible too.
    let real = found.canonicalize().unwrap_or_else(|_| found.clone());
    match [&found, &real].into_iter().find(|path| !is_visible(path, toolchains)) {
        None => Ok(()),
        Some(hidden) => Err(format!(
            "agent {agent:?}: the program {program:?} is at {}, which the sandbox does not show; name its \
             directory in \"toolchains\" of the agent's entry in the configuration file",
            hidden.display()
        )),
    }
}

fn is_visible(path: &Path, toolchains: &[Toolchain]) -> bool {
    let real = |directory: &PathBuf| directory.canonicalize().unwrap_or_else(|_| directory.clone());
    let shown = toolchains.iter().flat_map(|toolchain| &toolchain.readable_paths);
    READABLE_SYSTEM_DIRS.iter().any(|directory| path.starts_with(directory)) || { shown }
        .any(|shown| path.starts_with(shown) || path.starts_with(real(shown)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn entry(program: &str) -> AgentCatalogEntry {
        let catalog = ab_acp::catalog::AgentCatalog::default();
        let argv = vec![program.to_owned()];
        AgentCatalogEntry { id: "goose".to_owned(), argv, ..catalog.entries()[0].clone() }
    }

    #[test]
    fn program_is_found_where_the_sandbox_looks() {
        let keep = tempfile::tempdir().unwrap();
        let place = keep.path().join("goose");
        fs::create_dir(&place).unwrap();
        fs::write(place.join("run-goose"), "").unwrap();
        let elsewhere = keep.path().join("elsewhere");
        fs::write(&elsewhere, "").unwrap();
        symlink(&elsewhere, place.join("linked")).unwrap();
        let toolchains = [toolchain_for_agent_path(&place)];
        let why = |program: &str, toolchains: &[Toolchain]| {
            check(&entry(program), toolchains, RuntimeType::Local).err().unwrap_or_default()
        };
        assert_eq!(why("run-goose", &toolchains), "");
        assert_eq!(why("sh", &[]), "");
        assert_eq!(why(OWN_EXECUTABLE_PLACEHOLDER, &[]), "");
        let missing = why("run-goose", &[]);
        assert!(
            missing.contains("agent \"goose\"") && missing.contains("\"run-goose\" was not found"),
            "{missing}"
        );
        let linked = why("linked", &toolchains);
        assert!(linked.contains("does not show"), "{linked}");
        let absolute = why(elsewhere.to_str().unwrap(), &toolchains);
        assert!(absolute.contains("does not show"), "{absolute}");
        let gone = why("/no/such/goose", &toolchains);
        assert!(gone.contains("was not found"), "{gone}");
        assert!(check(&entry("linked"), &toolchains, RuntimeType::Disabled).is_ok());
    }
}
