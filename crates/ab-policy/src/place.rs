//! Determines whether a path in a command is inside the workspace, outside of it, or unknown.
//!
//! Paths are resolved lexically. This module does not follow links, because the isolation handles
//! them. An absolute path in a command is a path of the host. An absolute path that is passed to a
//! backend is a path of the workspace.

use std::collections::BTreeMap;
use std::sync::Arc;

use ab_core::EnforcedControls;

/// The context in which a command is judged.
#[derive(Clone, Debug, Default)]
pub struct CommandCheckContext {
    /// The absolute paths that name the root, which is the directory that the command may use.
    aliases: Vec<String>,
    /// If the command runs in a scope, the absolute paths of the whole workspace around the scope.
    around: Vec<String>,
    /// The working directory, relative to the root.
    cwd: String,
    home: HomeDirectoryMeaning,
    /// Environment variables that the caller passes to the command.
    env: Arc<BTreeMap<String, String>>,
    input: CommandStdin,
    enforced: EnforcedControls,
}

/// What is known about the standard input of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CommandStdin {
    /// The command has no standard input.
    #[default]
    Closed,
    /// The whole input is known in advance.
    Text(Arc<str>),
    /// The input is typed or sent while the command runs, or it is not text.
    Unknown,
}

/// The directory that `~` and `$HOME` stand for when a command starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HomeDirectoryMeaning {
    /// A home directory outside of the workspace.
    #[default]
    OutsideWorkspace,
    /// `HOME` is the directory in which the command starts. This is the case for every command of a
    /// local backend.
    StartDirectory,
}

/// The location of a path that a command uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CommandPathLocation {
    /// A path below the root, without a leading slash. Empty for the root itself.
    Inside(String),
    /// An absolute path outside the root, or a description if the exact path is not known.
    Outside(String),
    Unknown,
}

/// Shared directories for temporary files. Every program may use the files *below* them.
const SCRATCH: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// Devices and streams that can be read and written without harm.
const HARMLESS: [&str; 11] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/tty",
    "/dev/fd",
    "/dev/pts",
];
/// Directories that contain the private files of users.
const HOMES: [&str; 3] = ["/home", "/root", "/Users"];
/// Directories that contain programs and the files that programs need.
const SYSTEM: [&str; 8] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/nix", "/etc/alternatives"];

impl CommandCheckContext {
    /// A context for a workspace whose root has no absolute path.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an absolute path of the root. Text that is not an absolute path is ignored.
    pub fn with_root_alias(mut self, alias: &str) -> Self {
        // `/` is ignored, because every path would be inside it.
        if let Some(path) = absolute(alias).filter(|path| path.len() > 1)
            && !self.aliases.contains(&path)
        {
            self.aliases.push(path);
        }
        self
    }

    pub fn with_home(mut self, home: HomeDirectoryMeaning) -> Self {
        self.home = home;
        self
    }

    /// Sets the environment variables that the caller passes. The values of `HOME` and `PATH`
    /// affect how the words of the command are judged.
    pub fn with_env(mut self, env: &BTreeMap<String, String>) -> Self {
        self.env = Arc::new(env.clone());
        self
    }

    pub fn with_stdin(mut self, input: CommandStdin) -> Self {
        self.input = input;
        self
    }

    /// Sets the controls that are enforced. In the profile `guarded`, rules that these controls
    /// make unnecessary do not apply.
    pub fn with_enforced_controls(mut self, enforced: EnforcedControls) -> Self {
        self.enforced = enforced;
        self
    }

    pub(crate) fn enforced(&self) -> EnforcedControls {
        self.enforced
    }

    pub(crate) fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    pub(crate) fn input(&self) -> &CommandStdin {
        &self.input
    }

    /// Returns the same context, but with another working directory.
    pub fn in_directory(&self, cwd: &str) -> Self {
        Self { cwd: cwd.trim_matches('/').to_owned(), ..self.clone() }
    }

    /// The context of a scope: everything that the command may use is below `scope`.
    pub fn in_scope(&self, scope: &str) -> Self {
        let scope = scope.trim_matches('/');
        if scope.is_empty() {
            return self.clone();
        }
        let aliases = self.aliases.iter().map(|alias| format!("{alias}/{scope}")).collect();
        Self { aliases, around: self.aliases.clone(), cwd: String::new(), ..self.clone() }
    }

    pub(crate) fn start(&self) -> CommandPathLocation {
        CommandPathLocation::Inside(self.cwd.clone())
    }

    pub(crate) fn home(&self) -> HomeDirectoryMeaning {
        self.home
    }

    /// The absolute path of a location, if it has one.
    pub(crate) fn absolute(&self, place: &CommandPathLocation) -> Option<String> {
        match place {
            CommandPathLocation::Inside(below) => {
                let root = self.aliases.first()?;
                Some(if below.is_empty() { root.clone() } else { format!("{root}/{below}") })
            }
            CommandPathLocation::Outside(path) if path.starts_with('/') => Some(path.clone()),
            CommandPathLocation::Outside(_) | CommandPathLocation::Unknown => None,
        }
    }

    /// The location to which the path `text` leads from `cwd`.
    pub(crate) fn resolve(&self, text: &str, cwd: &CommandPathLocation) -> CommandPathLocation {
        if text.starts_with('/') {
            return self.place(normal(text));
        }
        match cwd {
            CommandPathLocation::Unknown => CommandPathLocation::Unknown,
            CommandPathLocation::Outside(from) => self.place(normal(&format!("{from}/{text}"))),
            CommandPathLocation::Inside(from) => {
                let mut below: Vec<&str> =
                    from.split('/').filter(|part| !part.is_empty()).collect();
                let mut parts = text.split('/').filter(|part| !part.is_empty() && *part != ".");
                while let Some(part) = parts.next() {
                    if part != ".." {
                        below.push(part);
                    } else if below.pop().is_none() {
                        let rest: Vec<&str> = parts.collect();
                        return match self.aliases.first() {
                            Some(root) => {
                                self.place(normal(&format!("{root}/../{}", rest.join("/"))))
                            }
                            None => CommandPathLocation::Outside("..".to_owned()),
                        };
                    }
                }
                CommandPathLocation::Inside(below.join("/"))
            }
        }
    }

    /// Whether any command may use `path`, which is outside the root.
    pub(crate) fn is_open(&self, path: &str) -> bool {
        let holds_root = |root: &String| is_below(root, path) || root == path;
        is_scratch(path)
            && !self.is_private(path)
            && !self.aliases.iter().any(holds_root)
            && !self.around.iter().any(holds_root)
    }

    fn place(&self, path: String) -> CommandPathLocation {
        let below = |alias: &String| {
            let rest = path.strip_prefix(alias.as_str())?;
            (rest.is_empty() || rest.starts_with('/'))
                .then(|| rest.trim_start_matches('/').to_owned())
        };
        match self.aliases.iter().find_map(below) {
            Some(rest) => CommandPathLocation::Inside(rest),
            None => CommandPathLocation::Outside(path),
        }
    }

    /// Whether `path`, which is outside the root, is private. A path is private if it is in a home
    /// directory, or in the workspace around the scope.
    pub(crate) fn is_private(&self, path: &str) -> bool {
        let homes = HOMES.iter().any(|home| is_below(path, home) || path == *home);
        homes || self.around.iter().any(|root| is_below(path, root) || path == root)
    }
}

/// Whether any command may write to `path`.
pub(crate) fn is_scratch(path: &str) -> bool {
    SCRATCH.iter().any(|scratch| is_below(path, scratch)) || is_harmless(path)
}

/// Whether `path` is a shared directory for temporary files.
pub(crate) fn is_scratch_directory(path: &str) -> bool {
    SCRATCH.contains(&path)
}

pub(crate) fn is_harmless(path: &str) -> bool {
    HARMLESS.iter().any(|device| path == *device || is_below(path, device))
}

/// Whether `path` is a device that holds data.
pub(crate) fn is_device(path: &str) -> bool {
    let network = ["/dev/tcp", "/dev/udp"].iter().any(|way| is_below(path, way));
    is_below(path, "/dev") && !is_scratch(path) && !network
}

pub(crate) fn is_system(path: &str) -> bool {
    SYSTEM.iter().any(|system| path == *system || is_below(path, system))
}

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
}

fn absolute(text: &str) -> Option<String> {
    (text.starts_with('/') && !text.split('/').any(|part| part == "..")).then(|| normal(text))
}

/// Normalizes an absolute path: removes `.`, `..` and empty parts.
fn normal(text: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_where_a_shell_would_go() {
        let scene = CommandCheckContext::new().with_root_alias("/srv/ws");
        let root = scene.start();
        let src = CommandPathLocation::Inside("src".to_owned());
        for (text, cwd, expect) in [
            (".", &root, "in:"),
            ("src/../a", &root, "in:a"),
            ("..", &src, "in:"),
            ("../..", &src, "out:/srv"),
            ("..", &root, "out:/srv"),
            ("../ws/a", &root, "in:a"),
            ("../ws-evil/a", &root, "out:/srv/ws-evil/a"),
            ("/srv/ws", &root, "in:"),
            ("/srv/ws/./a//b", &src, "in:a/b"),
            ("/srv/ws/../x", &src, "out:/srv/x"),
            ("/", &src, "out:/"),
            ("/etc/../..", &src, "out:/"),
            ("a", &CommandPathLocation::Unknown, "?"),
            ("/etc", &CommandPathLocation::Unknown, "out:/etc"),
            ("x", &CommandPathLocation::Outside("/tmp".to_owned()), "out:/tmp/x"),
        ] {
            let found = match scene.resolve(text, cwd) {
                CommandPathLocation::Inside(path) => format!("in:{path}"),
                CommandPathLocation::Outside(path) => format!("out:{path}"),
                CommandPathLocation::Unknown => "?".to_owned(),
            };
            assert_eq!(found, expect, "{text} from {cwd:?}");
        }
        let nameless = CommandCheckContext::new();
        assert_eq!(
            nameless.resolve("..", &nameless.start()),
            CommandPathLocation::Outside("..".to_owned())
        );
    }

    #[test]
    fn a_scope_is_all_there_is() {
        let scene = CommandCheckContext::new().with_root_alias("/srv/ws").in_scope("tenants/a");
        let start = scene.start();
        assert_eq!(
            scene.resolve("/srv/ws/tenants/a/x", &start),
            CommandPathLocation::Inside("x".to_owned())
        );
        assert_eq!(
            scene.resolve("../b", &start),
            CommandPathLocation::Outside("/srv/ws/tenants/b".to_owned())
        );
        assert!(scene.is_private("/srv/ws/tenants/b/secret") && scene.is_private("/srv/ws"));
        let low = CommandCheckContext::new().with_root_alias("/tmp/a/ws");
        assert!(low.is_open("/tmp/b") && !low.is_open("/tmp/a") && !low.is_open("/etc"));
        assert!(!scene.is_private("/srv/other") && !scene.is_private("/usr/include"));
    }

    #[test]
    fn kinds_of_places_outside() {
        for (path, scratch, device) in [
            ("/tmp", false, false),
            ("/tmp/a", true, false),
            ("/tmpfile", false, false),
            ("/dev/null", true, false),
            ("/dev/fd/3", true, false),
            ("/dev/sda", false, true),
            ("/dev/shm/x", true, false),
            // These names of bash are network connections, not files.
            ("/dev/tcp/localhost/80", false, false),
            ("/etc/passwd", false, false),
        ] {
            assert_eq!((is_scratch(path), is_device(path)), (scratch, device), "{path}");
        }
    }
}
