//! Tells the caller which paths a call has used, if they differ from what the caller probably
//! meant.
//!
//! Models write paths such as `/tmp/x.py` and `~/notes` as they would in a shell. An absolute path
//! outside the workspace is taken relative to the root of the workspace. `~` stands for the root,
//! because the root is the home directory of commands. In both cases the answer contains the path
//! that was used, and the path at which commands find the file.

use ab_core::error::escape_unprintable;
use ab_core::path::PathParser;
use ab_core::{Backend, WsPath};

use crate::answer::ToolAnswer;
use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::tools::Outcome;

/// Words that a shell expands to the home directory.
const HOMES: [&str; 3] = ["~", "$HOME", "${HOME}"];

/// Notes about the paths that a call has used, if they differ from what the caller probably meant.
#[derive(Debug, Default)]
pub(crate) struct UsedPaths {
    notes: Vec<String>,
    fields: Vec<(String, String)>,
}

impl UsedPaths {
    /// Examines the arguments with these names, and replaces `~` by the root.
    pub(crate) fn of(backend: &Backend, names: &[&str], arguments: &mut Arguments) -> UsedPaths {
        let mut used = UsedPaths::default();
        let root = CommandRoot::of(backend);
        for name in names {
            for given in arguments.texts_mut(name) {
                let slip = Slip::of(backend, given);
                if let Slip::Home(below) = &slip {
                    let below = below.clone();
                    used.notes.extend(note(backend, given, &below, &slip, &root));
                    *given = below;
                } else {
                    used.notes.extend(note(backend, given, given, &slip, &root));
                }
                if let (Ok(path), "path" | "source" | "destination") =
                    (backend.parse_path(&*given), *name)
                {
                    used.fields.push(((*name).to_owned(), path.to_string()));
                }
            }
        }
        if let ([(_, path)], ["path"], Some(root)) = (used.fields.as_slice(), names, &root.0) {
            used.fields.push(("commandPath".to_owned(), below(root, path)));
        }
        used
    }

    /// Adds notes about the used paths to the outcome of a call.
    pub(crate) fn told(self, outcome: Outcome) -> Outcome {
        let note = (!self.notes.is_empty()).then(|| self.notes.join("; "));
        match outcome {
            Ok(answer) => Ok(self
                .fields
                .into_iter()
                .fold(with(answer, note), |answer, field| answer.with(&field.0, field.1))),
            Err(Failure::Ran(answer)) => Err(Failure::Ran(Box::new(with(*answer, note)))),
            Err(failure) => Err(match note {
                Some(note) => failure.noted(note),
                None => failure,
            }),
        }
    }
}

fn with(answer: ToolAnswer, note: Option<String>) -> ToolAnswer {
    match note {
        Some(note) => answer.and_note(note),
        None => answer,
    }
}

/// A path as answers show it: relative to the root, with special characters escaped.
pub(crate) fn shown(backend: &Backend, path: &str) -> String {
    match backend.parse_path(path) {
        Ok(path) => escape_unprintable(&path.to_string()),
        Err(_) => escape_unprintable(path),
    }
}

/// The absolute path of the workspace root in commands. `None` if commands cannot run.
struct CommandRoot(Option<String>);

impl CommandRoot {
    fn of(backend: &Backend) -> CommandRoot {
        let info = backend.info();
        let root = info.root_aliases.into_iter().next();
        CommandRoot(root.filter(|_| info.capabilities.exec))
    }
}

/// How the meaning of a path differs from what its caller probably meant.
#[derive(Debug, PartialEq, Eq)]
enum Slip {
    None,
    /// The path begins with the home directory. Contains the rest of the path.
    Home(String),
    /// The path is absolute and not below the root.
    Outside,
}

impl Slip {
    fn of(backend: &Backend, given: &str) -> Slip {
        for home in HOMES {
            let Some(rest) = given.strip_prefix(home) else { continue };
            if rest.is_empty() || rest.starts_with('/') {
                let below = rest.trim_start_matches('/');
                return Slip::Home(if below.is_empty() { "." } else { below }.to_owned());
            }
        }
        let is_root = |alias: &String| alias.bytes().all(|byte| byte == b'/');
        if !given.starts_with('/') || backend.info().root_aliases.iter().any(is_root) {
            return Slip::None;
        }
        // If the path were below the root, the workspace would have removed the root from it.
        match (PathParser::lenient().parse(given), backend.parse_path(given)) {
            (Ok(whole), Ok(used)) if whole == used => Slip::Outside,
            _ => Slip::None,
        }
    }
}

fn note(
    backend: &Backend,
    given: &str,
    text: &str,
    slip: &Slip,
    root: &CommandRoot,
) -> Option<String> {
    let used: WsPath = backend.parse_path(text).ok()?;
    let shown = escape_unprintable(&used.to_string());
    let given = escape_unprintable(given);
    let taken = match slip {
        Slip::None => return None,
        Slip::Home(_) => format!("'{given}' was taken as '{shown}': ~ is the workspace root"),
        Slip::Outside => format!(
            "'{given}' is not below the workspace root and was taken as '{shown}' of the workspace"
        ),
    };
    Some(match &root.0 {
        Some(root) => {
            format!(
                "{taken}; commands find it at '{}'",
                escape_unprintable(&below(root, used.as_str()))
            )
        }
        None => taken,
    })
}

fn below(root: &str, path: &str) -> String {
    match path {
        "" | "." => root.to_owned(),
        path => format!("{}/{path}", root.trim_end_matches('/')),
    }
}

#[cfg(test)]
mod tests {
    use ab_core::{MemoryDriver, MemoryDriverOptions};

    use super::*;

    #[test]
    fn slips_are_told_from_paths_of_the_workspace() {
        let options =
            MemoryDriverOptions { root: "/srv/work".to_owned(), ..MemoryDriverOptions::default() };
        let backend = Backend::new(MemoryDriver::with_options(options).unwrap());
        let home = |below: &str| Slip::Home(below.to_owned());
        for (given, expect) in [
            ("a/b", Slip::None),
            ("/srv/work", Slip::None),
            ("/srv/work/a", Slip::None),
            ("/srv/workshop", Slip::Outside),
            ("/", Slip::Outside),
            ("/tmp/x.py", Slip::Outside),
            ("//tmp/./x", Slip::Outside),
            ("~", home(".")),
            ("~/", home(".")),
            ("~/n", home("n")),
            ("~//n", home("n")),
            ("$HOME/n", home("n")),
            ("${HOME}/n", home("n")),
            ("./~/n", Slip::None),
            ("~user/n", Slip::None),
            ("~$draft.doc", Slip::None),
            ("$HOMES", Slip::None),
        ] {
            assert_eq!(Slip::of(&backend, given), expect, "{given}");
        }
        let whole = Backend::new(MemoryDriver::new());
        assert_eq!(Slip::of(&whole, "/tmp/x.py"), Slip::None, "its root is /");
    }
}
