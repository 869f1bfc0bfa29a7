//! What bwrap is told: a pure function of what a command may see.
//!
//! Later mounts cover earlier ones, so the order is the meaning: the system, the empty places, the
//! workspace, the neighbours, and last what is hidden or read-only.

use std::path::Path;

use ab_core::effective::Network;

/// Where the workspace is for commands, whatever the host calls it.
pub const SANDBOX_ROOT: &str = "/tmp/agentbe-workspace";

/// Bytes that a command may keep in its own `/tmp`, which is memory.
pub(crate) const TMP_SIZE: u64 = 1024 * 1024 * 1024;

/// Directories of the system that every command sees and none may change.
pub(crate) const SYSTEM: &[&str] =
    &["/usr", "/lib", "/lib64", "/lib32", "/libx32", "/bin", "/sbin"];

/// Settings that programs need: names of hosts, certificates, the loader's cache, alternatives.
pub(crate) const SETTINGS: &[&str] = &[
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/pki",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/mime.types",
    "/etc/terminfo",
    "/etc/inputrc",
    "/etc/fonts",
];

/// A directory of the system as it is on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SystemPlace {
    Directory(String),
    /// A link, as where everything is below `/usr`.
    Link {
        at: String,
        target: String,
    },
}

/// A directory of the host, and the paths at which it is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) source: String,
    pub(crate) at: Vec<String>,
    pub(crate) access: Access,
    /// What is covered inside, from the outside in.
    pub(crate) covers: Vec<Cover>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    ReadOnly,
    ReadWrite,
}

/// Something inside a [`Placed`] directory that is not as it is outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cover {
    /// From the directory.
    pub(crate) below: String,
    pub(crate) with: With,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum With {
    /// Itself, so that nobody can move it away from under what is covered below it.
    Itself,
    /// Itself, without the right to change it.
    ReadOnly,
    EmptyDirectory,
    EmptyFile,
}

/// All that a command may see, and how it runs.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    pub(crate) system: &'a [SystemPlace],
    /// Further directories of the host, read-only.
    pub(crate) toolchains: &'a [String],
    pub(crate) places: Vec<Placed>,
    pub(crate) network: Network,
    pub(crate) session: Session,
    pub(crate) directory: String,
    /// Numbers of the handles from which the filter and the names of users are read.
    pub(crate) filter: i32,
    pub(crate) users: i32,
    pub(crate) groups: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Session {
    /// Away from any terminal.
    Own,
    /// That of the terminal it was given.
    Terminals,
}

/// The arguments before `--` and the command.
pub(crate) fn arguments(view: &View<'_>) -> Vec<String> {
    let mut said = Said::default();
    said.word(["--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]);
    if view.network == Network::Shared {
        said.word(["--share-net"]);
    }
    if view.session == Session::Own {
        said.word(["--new-session"]);
    }
    for place in view.system {
        match place {
            SystemPlace::Directory(path) => said.word(["--ro-bind", path, path]),
            SystemPlace::Link { at, target } => said.word(["--symlink", target, at]),
        }
    }
    for path in SETTINGS {
        said.word(["--ro-bind-try", path, path]);
    }
    said.word(["--ro-bind-data", &view.users.to_string(), "/etc/passwd"]);
    said.word(["--ro-bind-data", &view.groups.to_string(), "/etc/group"]);
    said.word(["--dev", "/dev", "--proc", "/proc"]);
    said.word(["--size", &TMP_SIZE.to_string(), "--tmpfs", "/tmp"]);
    said.word(["--dir", "/run", "--dir", "/var", "--symlink", "../tmp", "/var/tmp"]);
    for path in view.toolchains {
        said.word(["--ro-bind", path, path]);
    }
    for place in &view.places {
        for at in &place.at {
            let bind = match place.access {
                Access::ReadOnly => "--ro-bind",
                Access::ReadWrite => "--bind",
            };
            said.word([bind, &place.source, at]);
        }
    }
    for place in &view.places {
        for at in &place.at {
            for cover in &place.covers {
                said.cover(&place.source, at, cover);
            }
        }
    }
    said.word(["--chdir", &view.directory]);
    said.word(["--seccomp", &view.filter.to_string()]);
    said.0
}

#[derive(Default)]
struct Said(Vec<String>);

impl Said {
    fn word<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.map(str::to_owned));
    }

    fn cover(&mut self, source: &str, at: &str, cover: &Cover) {
        let inside = join(at, &cover.below);
        let outside = join(source, &cover.below);
        match cover.with {
            With::Itself => self.word(["--bind", &outside, &inside]),
            With::ReadOnly => self.word(["--ro-bind", &outside, &inside]),
            With::EmptyDirectory => {
                self.word(["--perms", "0555", "--tmpfs", &inside, "--remount-ro", &inside]);
            }
            With::EmptyFile => self.word(["--ro-bind", "/dev/null", &inside]),
        }
    }
}

pub(crate) fn join(directory: &str, below: &str) -> String {
    match below {
        "" | "." => directory.to_owned(),
        below => format!("{}/{below}", directory.trim_end_matches('/')),
    }
}

/// How the system's directories are on this host.
pub(crate) fn system() -> Vec<SystemPlace> {
    let place = |path: &&str| {
        let found = std::fs::symlink_metadata(path).ok()?;
        match std::fs::read_link(path) {
            Ok(target) => Some(SystemPlace::Link {
                at: (*path).to_owned(),
                target: target.to_str()?.to_owned(),
            }),
            Err(_) => found.is_dir().then(|| SystemPlace::Directory((*path).to_owned())),
        }
    };
    SYSTEM.iter().filter_map(place).collect()
}

/// Whether a bwrap changes its user when it starts: then it refuses to be without new privileges.
pub(crate) fn is_setuid(bwrap: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    bwrap.metadata().is_ok_and(|found| found.mode() & 0o6000 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(places: Vec<Placed>) -> View<'static> {
        View {
            system: &[],
            toolchains: &[],
            places,
            network: Network::Shared,
            session: Session::Own,
            directory: "/w".to_owned(),
            filter: 3,
            users: 4,
            groups: 5,
        }
    }

    fn index(said: &[String], words: &[&str]) -> usize {
        let found = said.windows(words.len()).position(|window| window == words);
        found.unwrap_or_else(|| panic!("{words:?} is not in {said:?}"))
    }

    #[test]
    fn the_empty_tmp_comes_before_what_is_in_it() {
        let place = Placed {
            source: "/srv/ws".to_owned(),
            at: vec![SANDBOX_ROOT.to_owned(), "/srv/ws".to_owned()],
            access: Access::ReadWrite,
            covers: vec![
                Cover { below: "a".to_owned(), with: With::Itself },
                Cover { below: "a/b".to_owned(), with: With::ReadOnly },
                Cover { below: "secret".to_owned(), with: With::EmptyFile },
            ],
        };
        let said = arguments(&view(vec![place]));
        let tmp = index(&said, &["--tmpfs", "/tmp"]);
        let workspace = index(&said, &["--bind", "/srv/ws", SANDBOX_ROOT]);
        let own = index(&said, &["--bind", "/srv/ws", "/srv/ws"]);
        let pinned = index(&said, &["--bind", "/srv/ws/a", "/srv/ws/a"]);
        let kept = index(&said, &["--ro-bind", "/srv/ws/a/b", "/srv/ws/a/b"]);
        let hidden = index(&said, &["--ro-bind", "/dev/null", "/srv/ws/secret"]);
        assert!(tmp < workspace && workspace < own && own < pinned);
        assert!(pinned < kept && kept < hidden);
    }

    #[test]
    fn everything_is_unshared_but_the_network_when_it_is_shared() {
        let shared = arguments(&view(Vec::new()));
        index(&shared, &["--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]);
        index(&shared, &["--share-net"]);
        index(&shared, &["--new-session"]);
        let alone =
            View { network: Network::None, session: Session::Terminals, ..view(Vec::new()) };
        let alone = arguments(&alone);
        for word in ["--share-net", "--new-session"] {
            assert!(!alone.iter().any(|said| said == word), "{word}");
        }
    }
}
