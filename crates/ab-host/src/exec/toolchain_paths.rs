//! Decides which paths of toolchains are shown to commands. A path is not shown if a command could
//! redirect it to another file.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use ab_core::process::HostDirectoryAccess;

use super::mounts;
use super::settings::LocalExecSettings;

/// Maximum number of links that are followed to resolve a path. The kernel has the same limit.
const MAX_LINKS: usize = 40;

/// The device and the inode of a file.
type Identity = (u64, u64);

/// Removes the paths that lie in the workspace or in a writable mount, and the paths that lead
/// through the workspace or a writable mount. A command could replace a directory on such a path by
/// a link to any other directory. Commands still see the paths in the workspace, because they see
/// the whole workspace.
///
/// If the workspace is the root of the file system, no path is removed, because no file lies
/// outside of the workspace.
pub(crate) fn remove_redirectable(settings: &mut LocalExecSettings, roots: &[PathBuf]) {
    let mounts = mounts::all(settings);
    let writable = mounts.iter().filter(|it| it.access == HostDirectoryAccess::ReadWrite);
    let writable = roots.iter().chain(writable.map(|mount| &mount.source));
    let mut writable: BTreeSet<Identity> =
        writable.filter_map(|path| identity(&path.canonicalize().ok()?)).collect();
    if let Some(top) = identity(Path::new("/")) {
        writable.remove(&top);
    }
    for toolchain in &mut settings.toolchains {
        toolchain.readable_paths.retain(|path| !leads_through(path, &writable));
    }
}

/// Returns the identity of the file at `path`. If it is a link, this is the identity of the link
/// itself.
fn identity(path: &Path) -> Option<Identity> {
    path.symlink_metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// Returns whether the kernel passes through one of the directories when it resolves the path and
/// all links in it. Also returns true if there are too many links.
fn leads_through(path: &Path, directories: &BTreeSet<Identity>) -> bool {
    let mut at = PathBuf::from("/");
    let mut rest = Vec::new();
    push(&mut rest, path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            at.pop();
        } else if let Ok(target) = at.join(&name).read_link() {
            links += 1;
            if links > MAX_LINKS {
                return true;
            }
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            push(&mut rest, &target);
        } else {
            at.push(name);
        }
        if identity(&at).is_some_and(|it| directories.contains(&it)) {
            return true;
        }
    }
    false
}

/// Pushes the components of a path on a stack, so that the first component is on top.
fn push(rest: &mut Vec<OsString>, path: &Path) {
    let name = |component: Component<'_>| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    rest.extend(path.components().rev().filter_map(name));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::exec::{SandboxMount, Toolchain};

    #[test]
    fn paths_that_a_command_could_redirect_are_removed() {
        let keep = tempfile::tempdir().unwrap();
        let base = keep.path().canonicalize().unwrap();
        for directory in ["home/w/bin", "home/private", "home/tools/bin", "opt/bin"] {
            fs::create_dir_all(base.join(directory)).unwrap();
        }
        for (link, target) in [
            ("home/into", "w/bin"),
            ("home/w/out", "../../opt"),
            ("home/past", "w/out"),
            ("home/beside", "../opt/bin"),
            ("home/round", "round"),
            ("alias", "home"),
        ] {
            symlink(target, base.join(link)).unwrap();
        }
        symlink(base.join("home/w"), base.join("opt/absolute")).unwrap();
        let mut settings = LocalExecSettings {
            mounts: vec![SandboxMount::read_write(base.join("home/private"))],
            ..LocalExecSettings::default()
        };
        for (path, kept) in [
            ("home/w", false),
            ("home/w/bin", false),
            ("home/w/out/bin", false),
            ("home/w/../tools/bin", false),
            ("home/into", false),
            ("home/past/bin", false),
            ("home/private/x", false),
            ("home/round", false),
            ("alias/w/bin", false),
            ("opt/absolute/bin", false),
            ("home/tools/bin", true),
            ("home/beside", true),
            ("alias/tools/bin", true),
            ("home/missing", true),
            ("home", true),
        ] {
            let path = base.join(path);
            settings.toolchains =
                vec![Toolchain { readable_paths: vec![path.clone()], ..Toolchain::default() }];
            remove_redirectable(&mut settings, &[base.join("alias/w")]);
            assert_eq!(settings.toolchains[0].readable_paths == [path.clone()], kept, "{path:?}");
            remove_redirectable(&mut settings, &[PathBuf::from("/")]);
            assert_eq!(settings.toolchains[0].readable_paths.len(), usize::from(kept), "{path:?}");
        }
    }
}
