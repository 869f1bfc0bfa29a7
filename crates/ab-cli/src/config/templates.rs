//! Templates of workspaces in the configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::setting::Words;

/// Directories from which tasks without a repository can start, by template name.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    pub(crate) directories: BTreeMap<String, PathBuf>,
}

impl Templates {
    /// Reads entries of the form `name=directory`.
    pub(super) fn read(words: &Words<'_>) -> Result<Templates, String> {
        let mut directories = BTreeMap::new();
        for entry in words.list() {
            let form = || format!("{entry:?} is not like name=directory");
            let (name, path) = entry.split_once('=').ok_or_else(form)?;
            let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            if !(1..=64).contains(&name.len()) || !name.chars().all(is_allowed) {
                return Err(format!(
                    "{name:?} must be 1 to 64 letters, digits, dots, hyphens or underscores"
                ));
            }
            let path = words.resolved(path);
            let path = path
                .canonicalize()
                .ok()
                .filter(|path| path.is_dir())
                .ok_or_else(|| format!("{} is not a directory", path.display()))?;
            if path.to_str().is_none() {
                return Err(format!("{} is not valid UTF-8", path.display()));
            }
            if directories.insert(name.to_owned(), path).is_some() {
                return Err(format!("{name:?} is named twice"));
            }
        }
        Ok(Templates { directories })
    }
}
