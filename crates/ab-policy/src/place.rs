//! Where a path of a command leads: inside the workspace, outside of it, or nobody knows.
//!
//! Everything is lexical: links are the business of the walls. Unlike a path that is given to a
//! backend, an absolute path in a command means what it says.

use std::collections::BTreeMap;
use std::sync::Arc;

use ab_core::EnforcedControls;

/// What a command's surroundings are.
#[derive(Clone, Debug, Default)]
pub struct CommandCheckContext {
    /// Absolute paths that mean the root of what the command may use.
    aliases: Vec<String>,
    /// Absolute paths of the workspace around a scope.
    around: Vec<String>,
    /// The working directory, from the root.
    cwd: String,
    home: HomeLocation,
    /// Variables that the caller gives the command.
    env: Arc<BTreeMap<String, String>>,
    input: CommandStdin,
    enforced: EnforcedControls,
}

/// What the standard input of a command says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CommandStdin {
    /// It has none.
    #[default]
    Closed,
    /// All of it is given with the command.
    Text(Arc<str>),
    /// It is typed or sent while the command runs, or it is no text.
    Unseen,
}

/// What `~` and `$HOME` stand for when a command starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HomeLocation {
    /// Somebody's home: not the workspace.
    #[default]
    Elsewhere,
    /// The directory that the command starts in, as for every command of a local backend.
    StartDirectory,
}

/// A place that a word of a command leads to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathLocation {
    /// Below the root, as text without a leading slash; empty for the root itself.
    Inside(String),
    /// An absolute path, or a name for what cannot be told more exactly.
    Outside(String),
    Unknown,
}

/// Directories that anyone may use: what lies *below* them is nobody's in particular.
const SCRATCH: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// Devices and streams that take and give without harm.
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
/// Where people's own files are kept.
const HOMES: [&str; 3] = ["/home", "/root", "/Users"];
/// Where programs and what they need are kept.
const SYSTEM: [&str; 8] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/nix", "/etc/alternatives"];

impl CommandCheckContext {
    /// A workspace whose root has no other name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an absolute path that means the root; other text is ignored.
    pub fn with_root_alias(mut self, alias: &str) -> Self {
        // `/` for a root would make everything inside.
        if let Some(path) = absolute(alias).filter(|path| path.len() > 1)
            && !self.aliases.contains(&path)
        {
            self.aliases.push(path);
        }
        self
    }

    pub fn with_home(mut self, home: HomeLocation) -> Self {
        self.home = home;
        self
    }

    /// Variables that the caller gives the command; `HOME` and `PATH` among them are what words of
    /// the command are judged with.
    pub fn with_env(mut self, env: &BTreeMap<String, String>) -> Self {
        self.env = Arc::new(env.clone());
        self
    }

    pub fn with_stdin(mut self, input: CommandStdin) -> Self {
        self.input = input;
        self
    }

    /// The same behind walls: rules that those enforce do not count in profile `guarded`.
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

    /// The same workspace seen from a directory of it.
    pub fn in_directory(&self, cwd: &str) -> Self {
        Self { cwd: cwd.trim_matches('/').to_owned(), ..self.clone() }
    }

    /// A scope: all that a command may use is below `scope`.
    pub fn in_scope(&self, scope: &str) -> Self {
        let scope = scope.trim_matches('/');
        if scope.is_empty() {
            return self.clone();
        }
        let aliases = self.aliases.iter().map(|alias| format!("{alias}/{scope}")).collect();
        Self { aliases, around: self.aliases.clone(), cwd: String::new(), ..self.clone() }
    }

    pub(crate) fn start(&self) -> PathLocation {
        PathLocation::Inside(self.cwd.clone())
    }

    pub(crate) fn home(&self) -> HomeLocation {
        self.home
    }

    /// An absolute path of a place inside, when the root has one.
    pub(crate) fn absolute(&self, place: &PathLocation) -> Option<String> {
        match place {
            PathLocation::Inside(below) => {
                let root = self.aliases.first()?;
                Some(if below.is_empty() { root.clone() } else { format!("{root}/{below}") })
            }
            PathLocation::Outside(path) if path.starts_with('/') => Some(path.clone()),
            PathLocation::Outside(_) | PathLocation::Unknown => None,
        }
    }

    /// Where `text` leads from `cwd`.
    pub(crate) fn resolve(&self, text: &str, cwd: &PathLocation) -> PathLocation {
        if text.starts_with('/') {
            return self.place(normal(text));
        }
        match cwd {
            PathLocation::Unknown => PathLocation::Unknown,
            PathLocation::Outside(from) => self.place(normal(&format!("{from}/{text}"))),
            PathLocation::Inside(from) => {
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
                            None => PathLocation::Outside("..".to_owned()),
                        };
                    }
                }
                PathLocation::Inside(below.join("/"))
            }
        }
    }

    /// Whether anyone may use `path`, which is outside.
    pub(crate) fn is_open(&self, path: &str) -> bool {
        let holds_root = |root: &String| is_below(root, path) || root == path;
        is_scratch(path)
            && !self.is_private(path)
            && !self.aliases.iter().any(holds_root)
            && !self.around.iter().any(holds_root)
    }

    fn place(&self, path: String) -> PathLocation {
        let below = |alias: &String| {
            let rest = path.strip_prefix(alias.as_str())?;
            (rest.is_empty() || rest.starts_with('/'))
                .then(|| rest.trim_start_matches('/').to_owned())
        };
        match self.aliases.iter().find_map(below) {
            Some(rest) => PathLocation::Inside(rest),
            None => PathLocation::Outside(path),
        }
    }

    /// Whether reading `path`, which is outside, reaches for what belongs to somebody.
    pub(crate) fn is_private(&self, path: &str) -> bool {
        let homes = HOMES.iter().any(|home| is_below(path, home) || path == *home);
        homes || self.around.iter().any(|root| is_below(path, root) || path == root)
    }
}

/// Whether `path` may be written by anyone without harm.
pub(crate) fn is_scratch(path: &str) -> bool {
    SCRATCH.iter().any(|scratch| is_below(path, scratch)) || is_harmless(path)
}

/// Whether `path` is a directory that anyone may write into.
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

/// An absolute path without `.`, `..` and empty parts.
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
        let src = PathLocation::Inside("src".to_owned());
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
            ("a", &PathLocation::Unknown, "?"),
            ("/etc", &PathLocation::Unknown, "out:/etc"),
            ("x", &PathLocation::Outside("/tmp".to_owned()), "out:/tmp/x"),
        ] {
            let found = match scene.resolve(text, cwd) {
                PathLocation::Inside(path) => format!("in:{path}"),
                PathLocation::Outside(path) => format!("out:{path}"),
                PathLocation::Unknown => "?".to_owned(),
            };
            assert_eq!(found, expect, "{text} from {cwd:?}");
        }
        let nameless = CommandCheckContext::new();
        assert_eq!(
            nameless.resolve("..", &nameless.start()),
            PathLocation::Outside("..".to_owned())
        );
    }

    #[test]
    fn a_scope_is_all_there_is() {
        let scene = CommandCheckContext::new().with_root_alias("/srv/ws").in_scope("tenants/a");
        let start = scene.start();
        assert_eq!(
            scene.resolve("/srv/ws/tenants/a/x", &start),
            PathLocation::Inside("x".to_owned())
        );
        assert_eq!(
            scene.resolve("../b", &start),
            PathLocation::Outside("/srv/ws/tenants/b".to_owned())
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
            // Bash's way to the network is no file.
            ("/dev/tcp/localhost/80", false, false),
            ("/etc/passwd", false, false),
        ] {
            assert_eq!((is_scratch(path), is_device(path)), (scratch, device), "{path}");
        }
    }
}
