//! The paths of `--hide` and `--read-only`, and of the settings with the same names.

use std::path::Path;

use ab_core::{Backend, WsPath};

use crate::failure::Failure;

/// The paths of one flag.
#[derive(Debug, Default)]
pub(crate) struct RestrictedPaths {
    pub(crate) paths: Vec<WsPath>,
    /// A note for each path that does not exist.
    pub(crate) notes: Vec<String>,
}

impl RestrictedPaths {
    /// Parses the paths that were given as `name`, such as `--hide`.
    ///
    /// # Errors
    /// A usage error if a path is absolute and lies outside of the workspace, or if it looks like a
    /// pattern and no file has that name. Such a path would restrict nothing.
    pub(crate) async fn parse(
        name: &str,
        given: impl IntoIterator<Item = &str>,
        backend: &Backend,
    ) -> Result<RestrictedPaths, Failure> {
        let roots = backend.info().root_aliases;
        let mut parsed = RestrictedPaths::default();
        for text in given {
            let is_below = |root: &String| Path::new(text).starts_with(root);
            if text.starts_with('/') && !roots.is_empty() && !roots.iter().any(is_below) {
                let message = format!("{name} {text} is outside the workspace");
                return Err(Failure::usage(message)
                    .with_hint("name a path in the workspace, such as config/secrets"));
            }
            let path = backend.parse_path(text)?;
            // If the workspace cannot be asked, the command reports why.
            if backend.exists(&path).await.unwrap_or(true) {
                parsed.paths.push(path);
                continue;
            }
            if text.contains(['*', '?', '[']) {
                let message = format!("{name} takes a path, and '{text}' is a pattern");
                return Err(Failure::usage(message)
                    .with_hint("name each path; a directory stands for everything below it"));
            }
            parsed.notes.push(format!("{name} {text}: nothing has that name yet"));
            parsed.paths.push(path);
        }
        Ok(parsed)
    }
}
