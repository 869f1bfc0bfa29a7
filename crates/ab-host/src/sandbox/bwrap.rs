//! Builds the arguments of bwrap. They depend only on what a command may see.
//!
//! Later mounts cover earlier mounts, so the order is important. The system comes first, then the
//! empty directories, then the workspace and the other workspaces beside it, and then the paths
//! that are hidden or read-only. Outer paths come before inner paths.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use ab_core::effective_policy::NetworkAccess;

/// A second path of the workspace for commands in bwrap. It does not depend on the workspace's path
/// on the host.
pub const SANDBOX_WORKSPACE_PATH: &str = "/tmp/agentbe-workspace";
/// The path at which commands in bwrap see their private caches.
pub(crate) const CACHES: &str = "/var/cache/agent-backend";

/// Size limit, in bytes, of a private `/tmp` and of `/dev/shm`. Both use memory.
pub(crate) const TMP_SIZE: u64 = 1024 * 1024 * 1024;

const TMP: &str = "/tmp";
const VAR_TMP: &str = "/var/tmp";

/// Directories of the system that every command can see, read-only.
pub(crate) const SYSTEM: &[&str] =
    &["/usr", "/lib", "/lib64", "/lib32", "/libx32", "/bin", "/sbin"];

/// Configuration files that programs need, for example for host names, certificates, the loader's
/// cache and alternatives.
const SETTINGS: &[&str] = &[
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/protocols",
    "/etc/services",
    // The whole directories are not listed, because they also contain private keys. A command that
    // runs as root could read these keys.
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/alternatives",
    // These files describe the kind of system. pip, apt's tools and installers read them.
    "/etc/os-release",
    "/etc/lsb-release",
    "/etc/debian_version",
    "/etc/redhat-release",
    "/etc/fedora-release",
    "/etc/centos-release",
    "/etc/rocky-release",
    "/etc/almalinux-release",
    "/etc/system-release",
    "/etc/SuSE-release",
    "/etc/arch-release",
    "/etc/gentoo-release",
    "/etc/alpine-release",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/mime.types",
    "/etc/terminfo",
    "/etc/inputrc",
    "/etc/fonts",
    // Only these files of Maven are listed, because `settings.xml` in the same directory can
    // contain passwords.
    "/etc/maven/m2.conf",
    "/etc/maven/logging",
];

/// Prefixes of further configuration files and directories, such as `java-17-openjdk`.
const SETTINGS_BEGINNING: &[&str] = &["/etc/java"];
/// Configuration files that programs read only if they exist. A program fails if it sees such a
/// file and may not read it. Landlock does not hide names, so these files are readable under
/// Landlock. bwrap does not mount them, because each mount makes every start slower.
const OPTIONAL_SETTINGS: &[&str] = &[
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/locale.gen",
    "/etc/default/locale",
    "/etc/magic",
    "/etc/magic.mime",
    "/etc/shells",
    "/etc/profile",
    "/etc/bashrc",
    "/etc/bash.bashrc",
    "/etc/nanorc",
    "/etc/rpc",
    "/etc/networks",
    "/etc/ethertypes",
    "/etc/xattr.conf",
    "/etc/wgetrc",
    "/etc/perl",
    "/etc/python3",
    "/etc/python3.9",
    "/etc/python3.10",
    "/etc/python3.11",
    "/etc/python3.12",
    "/etc/python3.13",
    "/etc/python3.14",
    "/etc/ImageMagick-6",
    "/etc/ImageMagick-7",
    "/etc/vulkan",
    "/etc/OpenCL",
    "/etc/dpkg/origins",
    "/etc/maven/toolchains.xml",
];
/// Maximum number of files that are examined below one of the configuration paths.
const MOST_SETTINGS: usize = 10_000;

/// Files and directories of `/proc` that change settings of the machine. Root may write to them
/// even without any capability, and a command may run as root.
const MACHINE: &[&str] = &[
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/proc/mtrr",
    "/proc/pressure",
    "/proc/acpi",
    "/proc/scsi",
    "/proc/fs",
    "/proc/driver",
    "/proc/dynamic_debug",
];

/// A directory of the system, in the form that it has on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SystemPlace {
    Directory(String),
    /// The directory is a link, as on systems where everything is below `/usr`.
    Link {
        at: String,
        target: String,
    },
}

/// A directory of the host, with the paths at which commands see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) source: String,
    pub(crate) at: Vec<String>,
    pub(crate) access: Access,
    /// The paths inside the directory that are covered, outer paths first.
    pub(crate) covers: Vec<Cover>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    ReadOnly,
    ReadWrite,
}

/// A path inside a [`Placed`] directory that commands see with other content or rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cover {
    /// The path relative to the directory.
    pub(crate) below: String,
    pub(crate) with: With,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum With {
    /// The same file, mounted over itself. This is used for a directory that contains a covered
    /// path, because commands cannot move a mount point.
    Itself,
    /// The same file, mounted over itself, but read-only.
    ReadOnly,
    EmptyDirectory,
    EmptyFile,
}

/// Everything that a command may see, and how it is run.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    pub(crate) system: &'a [SystemPlace],
    /// The files and directories of `/etc` that exist on this host.
    pub(crate) settings: &'a [String],
    /// Further directories of the host, which are read-only.
    pub(crate) toolchains: &'a [String],
    pub(crate) tmp: Tmp<'a>,
    /// A directory of the host for caches. Commands see it at [`CACHES`].
    pub(crate) caches: Option<&'a str>,
    pub(crate) places: Vec<Placed>,
    pub(crate) network: NetworkAccess,
    pub(crate) session: Session,
    pub(crate) directory: String,
    /// The numbers of the handles from which bwrap reads the filter, and the names of users and
    /// groups.
    pub(crate) filter: i32,
    pub(crate) users: i32,
    pub(crate) groups: i32,
}

/// What a command sees at `/tmp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tmp<'a> {
    /// An empty tmpfs that only this command uses.
    Fresh,
    /// A directory of the host that several commands share. It contains a directory for every name
    /// that [`mount_points`] returns.
    Kept(&'a str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Session {
    /// The command gets a new session without a terminal.
    Own,
    /// The command stays in the session of its terminal.
    Terminals,
}

/// Returns the arguments of bwrap that come before `--` and the command.
pub(crate) fn arguments(view: &View<'_>) -> Vec<String> {
    let mut said = Said::default();
    said.word(["--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]);
    if view.network == NetworkAccess::Shared {
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
    for path in view.settings {
        said.word(["--ro-bind-try", path, path]);
    }
    said.word(["--ro-bind-data", &view.users.to_string(), "/etc/passwd"]);
    said.word(["--ro-bind-data", &view.groups.to_string(), "/etc/group"]);
    said.word(["--dev", "/dev", "--proc", "/proc"]);
    for path in MACHINE {
        said.word(["--ro-bind-try", path, path]);
    }
    said.word(["--size", &TMP_SIZE.to_string(), "--tmpfs", "/dev/shm"]);
    match view.tmp {
        Tmp::Fresh => said.word(["--size", &TMP_SIZE.to_string(), "--tmpfs", TMP]),
        Tmp::Kept(source) => said.word(["--bind", source, TMP]),
    }
    let points = mount_points(&view.places, view.toolchains);
    let below: Vec<String> = points.iter().map(|name| join(TMP, name)).collect();
    let is_whole = |point: &String| {
        view.toolchains.contains(point) || view.places.iter().any(|place| place.at.contains(point))
    };
    let shells: Vec<&String> = below.iter().filter(|point| !is_whole(point)).collect();
    for point in &shells {
        said.word(["--perms", "0755", "--tmpfs", point]);
    }
    said.word(["--dir", "/run", "--dir", "/var"]);
    let var_tmp = |path: &String| Path::new(path).starts_with(VAR_TMP);
    let in_var_tmp = view.places.iter().flat_map(|place| &place.at).chain(view.toolchains);
    if in_var_tmp.into_iter().any(var_tmp) {
        // If `/var/tmp` is a link, the mount would be made below `/tmp`.
        said.word(["--size", &TMP_SIZE.to_string(), "--tmpfs", VAR_TMP]);
    } else {
        said.word(["--symlink", "../tmp", VAR_TMP]);
    }
    if let Some(caches) = view.caches {
        said.word(["--bind", caches, CACHES]);
    }
    for path in view.toolchains {
        said.word(["--ro-bind", path, path]);
    }
    let mut mounts: Vec<(String, Said)> = Vec::new();
    for place in &view.places {
        for at in &place.at {
            let bind = match place.access {
                Access::ReadOnly => "--ro-bind",
                Access::ReadWrite => "--bind",
            };
            let mut said = Said::default();
            said.word([bind, &place.source, at]);
            mounts.push((at.clone(), said));
        }
    }
    for place in &view.places {
        for at in &place.at {
            for cover in &place.covers {
                let mut said = Said::default();
                said.cover(&place.source, at, cover);
                mounts.push((join(at, &cover.below), said));
            }
        }
    }
    // Mount outer paths first, because a later mount would cover an earlier mount inside it.
    mounts.sort_by_key(|(at, _)| Path::new(at).components().count());
    said.0.extend(mounts.into_iter().flat_map(|(_, said)| said.0));
    for point in &shells {
        said.word(["--remount-ro", point]);
    }
    // Make the tmpfs of `/dev` and of `/` read-only. By writing to them, commands could use an
    // unlimited amount of memory.
    said.word(["--remount-ro", "/dev", "--remount-ro", "/"]);
    said.word(["--chdir", &view.directory]);
    said.word(["--seccomp", &view.filter.to_string()]);
    said.0
}

/// Returns the names directly below `/tmp` at which, or below which, something is mounted.
///
/// Commands can write to a shared `/tmp`. If bwrap mounts at a path, it follows links in the path,
/// even links that lead out of the sandbox. To prevent such links, each of these names is a mount
/// point in every command that has the same `/tmp`. The kernel refuses to rename or remove a mount
/// point. Deeper paths lie on a separate read-only file system.
pub(crate) fn mount_points(places: &[Placed], toolchains: &[String]) -> BTreeSet<String> {
    let paths = places.iter().flat_map(|place| &place.at).chain(toolchains);
    paths
        .filter_map(|path| Path::new(path).strip_prefix(TMP).ok()?.components().next())
        .filter_map(|name| name.as_os_str().to_str().map(str::to_owned))
        .collect()
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

/// Returns whether a mount at `path` would cover a path that the sandbox itself needs.
pub(crate) fn is_taken(path: &str) -> bool {
    let own = ["/proc", "/dev", CACHES];
    covers_own(path) || own.iter().any(|own| Path::new(path).starts_with(own))
}

/// Returns whether a mount at `path` would replace a mount of the sandbox itself.
pub(crate) fn covers_own(path: &str) -> bool {
    let own = [SANDBOX_WORKSPACE_PATH, CACHES, VAR_TMP, "/proc", "/dev"];
    own.iter().any(|own| Path::new(own).starts_with(path))
}

pub(crate) fn join(directory: &str, below: &str) -> String {
    match below {
        "" | "." => directory.to_owned(),
        below => format!("{}/{below}", directory.trim_end_matches('/')),
    }
}

/// Returns the system's directories in the form that they have on this host.
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

/// The configuration files of this host that a command may read. Files that other users may not
/// read are left out, because a command that runs as root could read them.
pub(crate) static PUBLIC_SETTINGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let listed = SETTINGS.iter().map(PathBuf::from);
    let entries = std::fs::read_dir("/etc").into_iter().flatten().flatten();
    let begins = |path: &PathBuf| {
        let path = path.to_string_lossy();
        SETTINGS_BEGINNING.iter().any(|begin| path.starts_with(begin))
    };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(begins).collect();
    found.sort();
    listed.chain(found).flat_map(|path| public_parts(&path)).collect()
});

/// The files of [`OPTIONAL_SETTINGS`] that a command may read.
pub(crate) static PUBLIC_OPTIONAL_SETTINGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let listed = OPTIONAL_SETTINGS.iter().flat_map(|path| public_parts(Path::new(path)));
    let text = std::fs::read_to_string(MAVEN_SETTINGS).unwrap_or_default();
    let maven = Some(MAVEN_SETTINGS).filter(|_| !has_credentials(&text));
    listed.chain(maven.into_iter().flat_map(|path| public_parts(Path::new(path)))).collect()
});

/// The file with Maven's settings. If the file is visible, Maven does not start without reading it.
/// It may contain passwords of servers, so commands may read it only if it contains none.
const MAVEN_SETTINGS: &str = "/etc/maven/settings.xml";

/// Returns whether Maven settings contain credentials outside of comments.
fn has_credentials(settings: &str) -> bool {
    let mut rest = settings;
    let mut text = String::new();
    while let Some((before, comment)) = rest.split_once("<!--") {
        text.push_str(before);
        rest = comment.split_once("-->").map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let signs = ["<server>", "<proxy>", "<password", "<passphrase", "<privateKey", "<username"];
    // A URL can contain a user name and a password too.
    let names_user = |url: &str| {
        let host = url.split(['/', '<', '"', '\'', ' ', '\n']).next();
        host.is_some_and(|host| host.contains('@'))
    };
    signs.iter().any(|sign| text.contains(sign)) || text.split("://").skip(1).any(names_user)
}

/// Returns the path itself if other users may read everything in it. Otherwise returns the parts
/// that other users may read.
fn public_parts(path: &Path) -> Vec<String> {
    let mut left = MOST_SETTINGS;
    match parts(path, &mut left) {
        Parts::All => path.to_str().map(str::to_owned).into_iter().collect(),
        Parts::Some(parts) => parts,
    }
}

enum Parts {
    All,
    Some(Vec<String>),
}

fn parts(path: &Path, left: &mut usize) -> Parts {
    use std::os::unix::fs::PermissionsExt;
    const READ_BY_OTHERS: u32 = 0o004;
    let none = Parts::Some(Vec::new());
    let Ok(found) = std::fs::metadata(path) else { return none };
    if *left == 0 || found.permissions().mode() & READ_BY_OTHERS == 0 {
        return none;
    }
    *left -= 1;
    if !found.is_dir() {
        return if found.is_file() { Parts::All } else { none };
    }
    let Ok(entries) = std::fs::read_dir(path) else { return none };
    let (mut all, mut some) = (true, Vec::new());
    for entry in entries.flatten() {
        // Links are skipped, because it depends on the target itself whether the target is visible.
        if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            continue;
        }
        match parts(&entry.path(), left) {
            Parts::All => some.extend(entry.path().to_str().map(str::to_owned)),
            Parts::Some(parts) => {
                all = false;
                some.extend(parts);
            }
        }
    }
    if all { Parts::All } else { Parts::Some(some) }
}

/// Returns whether bwrap is setuid or setgid. Such a bwrap does not work with `no_new_privs`.
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
            settings: &[],
            toolchains: &[],
            tmp: Tmp::Fresh,
            caches: None,
            places,
            network: NetworkAccess::Shared,
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
            at: vec![SANDBOX_WORKSPACE_PATH.to_owned(), "/srv/ws".to_owned()],
            access: Access::ReadWrite,
            covers: vec![
                Cover { below: "a".to_owned(), with: With::Itself },
                Cover { below: "a/b".to_owned(), with: With::ReadOnly },
                Cover { below: "secret".to_owned(), with: With::EmptyFile },
            ],
        };
        let said = arguments(&view(vec![place]));
        let tmp = index(&said, &["--tmpfs", "/tmp"]);
        let workspace = index(&said, &["--bind", "/srv/ws", SANDBOX_WORKSPACE_PATH]);
        let own = index(&said, &["--bind", "/srv/ws", "/srv/ws"]);
        let pinned = index(&said, &["--bind", "/srv/ws/a", "/srv/ws/a"]);
        let kept = index(&said, &["--ro-bind", "/srv/ws/a/b", "/srv/ws/a/b"]);
        let hidden = index(&said, &["--ro-bind", "/dev/null", "/srv/ws/secret"]);
        assert!(tmp < workspace && workspace < own && own < pinned);
        assert!(pinned < kept && own < hidden);
    }

    fn place(source: &str, at: &[&str]) -> Placed {
        Placed {
            source: source.to_owned(),
            at: at.iter().map(|at| (*at).to_owned()).collect(),
            access: Access::ReadWrite,
            covers: Vec::new(),
        }
    }

    /// If a name were not a mount, a command could put a link where the next command has a mount.
    #[test]
    fn every_name_below_a_kept_tmp_with_mounts_is_a_mount_itself() {
        let scope = place("/tmp/work/a", &["/tmp/agentbe-workspace/a", "/tmp/work/a"]);
        let bound = place("/tmp/data", &["/tmp/data"]);
        let toolchains = ["/tmp/tools/deep/gcc".to_owned(), "/opt/go".to_owned()];
        let points = mount_points(&[scope.clone(), bound.clone()], &toolchains);
        assert_eq!(Vec::from_iter(points), ["agentbe-workspace", "data", "tools", "work"]);
        let kept = View {
            tmp: Tmp::Kept("/private/tmp"),
            toolchains: &toolchains,
            ..view(vec![scope, bound])
        };
        let said = arguments(&kept);
        let tmp = index(&said, &["--bind", "/private/tmp", "/tmp"]);
        for point in ["/tmp/agentbe-workspace", "/tmp/work", "/tmp/tools"] {
            let shell = index(&said, &["--tmpfs", point]);
            let fixed = index(&said, &["--remount-ro", point]);
            let mounts = said.iter().enumerate();
            let mut inside = mounts.filter(|(_, word)| word.starts_with(&format!("{point}/")));
            assert!(inside.all(|(place, _)| shell < place && place < fixed), "{point}");
            assert!(tmp < shell);
        }
        assert!(!said.windows(2).any(|words| words == ["--tmpfs", "/tmp/data"]));
    }

    #[test]
    fn a_workspace_below_var_tmp_is_not_mounted_through_the_link() {
        let link = ["--symlink", "../tmp", "/var/tmp"];
        index(&arguments(&view(vec![place("/srv/w", &["/srv/w"])])), &link);
        let said = arguments(&view(vec![place("/var/tmp/w", &["/var/tmp/w"])]));
        assert!(!said.windows(3).any(|words| words == link));
        assert!(index(&said, &["--tmpfs", "/var/tmp"]) < index(&said, &["--bind", "/var/tmp/w"]));
    }

    #[test]
    fn paths_that_the_sandbox_needs_are_taken() {
        for path in ["/", "/tmp", "/var", "/var/tmp", "/var/cache", "/proc/1", "/dev", "/dev/shm/x"]
        {
            assert!(is_taken(path), "{path}");
        }
        for path in ["/tmp/w", "/var/tmp/w", "/srv/u", "/usr/src", "/developer"] {
            assert!(!is_taken(path), "{path}");
        }
    }

    #[test]
    fn settings_that_others_may_not_read_are_left_out() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let etc = tempfile::tempdir().unwrap();
        let path = |name: &str| etc.path().join(name);
        let text = |name: &str| path(name).to_str().unwrap().to_owned();
        let mode = |name: &str, mode| {
            std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        std::fs::create_dir_all(path("java/management")).unwrap();
        std::fs::write(path("java/java.cfg"), "").unwrap();
        std::fs::write(path("java/management/policy"), "").unwrap();
        symlink("/etc/shadow", path("java/link")).unwrap();
        mode("java", 0o755);
        mode("java/management", 0o755);
        mode("java/java.cfg", 0o644);
        mode("java/management/policy", 0o644);
        assert_eq!(public_parts(&path("java")), [text("java")]);
        std::fs::write(path("java/management/password"), "").unwrap();
        mode("java/management/password", 0o600);
        let mut parts = public_parts(&path("java"));
        parts.sort();
        assert_eq!(parts, [text("java/java.cfg"), text("java/management/policy")]);
        assert!(public_parts(&path("java/management/password")).is_empty());
        assert!(public_parts(&path("missing")).is_empty());
        // These are paths that most hosts have, and paths that must never be visible.
        for public in ["/etc/alternatives", "/etc/passwd", "/etc/shadow", "/etc/maven/settings.xml"]
        {
            let listed = PUBLIC_SETTINGS.iter().any(|path| path == public);
            assert_eq!(listed, public == "/etc/alternatives", "{public}");
        }
    }

    #[test]
    fn settings_of_maven_are_public_without_credentials() {
        let plain = "<settings><!-- <server><password>x</password></server> --><servers>\n\
                     </servers><mirrors><url>https://example.org/x@y</url></mirrors></settings>";
        assert!(!has_credentials(plain));
        for secret in [
            "<settings><servers><server><id>a</id></server></servers></settings>",
            "<settings><!-- a --><proxies><proxy><host>h</host></proxy></proxies></settings>",
            "<settings><profile><password>x</password></profile></settings>",
            "<settings><url>https://user:token@example.org/</url></settings>",
        ] {
            assert!(has_credentials(secret), "{secret}");
        }
    }

    #[test]
    fn what_lies_in_another_comes_after_it() {
        let placed = |at: &str, covers: Vec<Cover>| Placed {
            source: format!("/srv{at}"),
            at: vec![at.to_owned()],
            access: Access::ReadWrite,
            covers,
        };
        let pin = Cover { below: "mnt".to_owned(), with: With::Itself };
        let places = vec![placed("/w/mnt/data", Vec::new()), placed("/w", vec![pin])];
        let said = arguments(&view(places));
        let whole = index(&said, &["--bind", "/srv/w", "/w"]);
        let pinned = index(&said, &["--bind", "/srv/w/mnt", "/w/mnt"]);
        let inner = index(&said, &["--bind", "/srv/w/mnt/data", "/w/mnt/data"]);
        assert!(whole < pinned && pinned < inner);
    }

    #[test]
    fn what_changes_the_machine_is_read_only_and_memory_has_bounds() {
        let said = arguments(&view(Vec::new()));
        let proc = index(&said, &["--proc", "/proc"]);
        assert!(proc < index(&said, &["--ro-bind-try", "/proc/sys", "/proc/sys"]));
        for place in ["/tmp", "/dev/shm"] {
            index(&said, &["--size", &TMP_SIZE.to_string(), "--tmpfs", place]);
        }
        index(&said, &["--remount-ro", "/dev", "--remount-ro", "/"]);
        // These directories contain private keys.
        assert!(!said.iter().any(|word| word == "/etc/ssl" || word == "/etc/pki"));
    }

    #[test]
    fn everything_is_unshared_but_the_network_when_it_is_shared() {
        let shared = arguments(&view(Vec::new()));
        index(&shared, &["--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]);
        index(&shared, &["--share-net"]);
        index(&shared, &["--new-session"]);
        let alone =
            View { network: NetworkAccess::None, session: Session::Terminals, ..view(Vec::new()) };
        let alone = arguments(&alone);
        for word in ["--share-net", "--new-session"] {
            assert!(!alone.iter().any(|said| said == word), "{word}");
        }
    }
}
