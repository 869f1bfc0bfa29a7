//! Validates the agents in the configuration file.

use std::env;
use std::path::{Component, Path, PathBuf};

use ab_acp::catalog::{AgentCatalog, AgentCatalogEntry};

use super::file::ConfigFile;
use super::setting::resolved;
use crate::failure::Failure;

/// The catalog with the built-in agents and the agents in the file. An entry with the id of a
/// built-in agent replaces it.
///
/// # Errors
///
/// A usage error with the line, if an entry is invalid.
pub(super) fn catalog(file: Option<&ConfigFile>, data_dir: &Path) -> Result<AgentCatalog, Failure> {
    let mut catalog = AgentCatalog::default();
    let Some(file) = file else { return Ok(catalog) };
    for (index, (entry, line)) in file.agents.iter().enumerate() {
        let mut entry = entry.clone();
        let invalid = |why: String| file.failure(*line, why);
        let earlier = file.agents.iter().take(index).find(|(other, _)| other.id == entry.id);
        if let Some((_, first)) = earlier {
            let why = format!("the agent id {:?} is used twice, first in line {first}", entry.id);
            return Err(invalid(why).with_hint("give one of them another id, or remove it"));
        }
        for directory in &mut entry.toolchains {
            let text = directory.to_string_lossy().into_owned();
            let path = resolved(&text, file.path.parent());
            *directory = toolchain(&entry.id, path, data_dir).map_err(invalid)?;
        }
        check_names(&entry).map_err(invalid)?;
        check_fields(&entry).map_err(invalid)?;
        catalog.add_or_change(entry).map_err(|error| invalid(error.to_string()))?;
    }
    Ok(catalog)
}

/// Checks a directory that an agent may read. It must not contain the server's token or the
/// operator's home.
fn toolchain(agent: &str, path: PathBuf, data_dir: &Path) -> Result<PathBuf, String> {
    let refused = |why: &str| format!("agent {agent:?}: the toolchain {} {why}", path.display());
    let real = path.canonicalize().map_err(|error| refused(&format!("cannot be used: {error}")))?;
    if !real.is_dir() {
        return Err(refused("is not a directory"));
    }
    let shows = |secret: &Path| {
        secret.canonicalize().unwrap_or_else(|_| secret.to_owned()).starts_with(&real)
    };
    if shows(data_dir) || data_dir.starts_with(&real) {
        return Err(refused("contains the data directory, where the server's token is"));
    }
    if env::var_os("HOME").is_some_and(|home| !home.is_empty() && shows(Path::new(&home))) {
        return Err(refused(
            "contains the home directory: name the directory of the programs only",
        ));
    }
    Ok(path)
}

/// Refuses fields that only built-in agents may have, and paths outside the home directory.
fn check_fields(entry: &AgentCatalogEntry) -> Result<(), String> {
    if entry.package.is_some() || entry.tested {
        let id = &entry.id;
        return Err(format!("agent {id:?}: package and tested are fields of built-in agents"));
    }
    let leaves = |file: &&String| {
        file.is_empty()
            || !Path::new(file.as_str())
                .components()
                .all(|part| matches!(part, Component::Normal(_)))
    };
    if let Some(directory) = entry.skills_dir.as_ref().filter(leaves) {
        return Err(format!(
            "agent {:?}: skills-dir {directory:?} must be a path below the home directory",
            entry.id
        ));
    }
    match entry.login_files.iter().find(leaves) {
        Some(file) => Err(format!(
            "agent {:?}: the login file {file:?} must be a path below the home directory",
            entry.id
        )),
        None => Ok(()),
    }
}

fn check_names(entry: &AgentCatalogEntry) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let names = std::iter::once(&entry.id).chain(&entry.aliases);
    for name in names {
        if name.is_empty() || !name.chars().all(fits) {
            return Err(format!(
                "invalid name of an agent {name:?}: letters, digits, '-', '_' and '.' only"
            ));
        }
    }
    if let Some(name) =
        entry.settings.keys().find(|name| name.is_empty() || !name.chars().all(fits))
    {
        return Err(format!("agent {:?}: {name:?} is not the name of a setting", entry.id));
    }
    let is_variable = |name: &str| {
        let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
        name.starts_with(is_start) && name.chars().all(|c| is_start(c) || c.is_ascii_digit())
    };
    let inherited = entry.credentials.iter().chain(&entry.inherit);
    let set = entry.settings.values().map(|rule| &rule.variable);
    let variables = inherited.clone().chain(entry.env.keys()).chain(set.clone());
    if let Some(name) = { variables }.find(|name| !is_variable(name)) {
        return Err(format!("agent {:?}: {name:?} is not the name of a variable", entry.id));
    }
    let is_reserved = |name: &&String| name.starts_with(ab_core::environment::RESERVED_ENV_PREFIX);
    if let Some(name) = inherited.chain(set).find(is_reserved) {
        return Err(format!("agent {:?}: {name} is a variable of the server itself", entry.id));
    }
    Ok(())
}
