//! Keeps commands in bwrap from connecting to sockets in directories that they may only read.
//!
//! A read-only mount does not prevent a connection to a socket in it. In an overlay file system, a
//! socket has another inode than the one on which its program listens, so the kernel refuses the
//! connection. Before bwrap starts, each of the directories is covered with an overlay of itself.
//! This holds for sockets that are created later too.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ab_core::error::Result;
use ab_core::process::{ExecRequest, HostDirectoryAccess};

use super::mounts::{self, MountedSockets};
use super::settings::LocalExecSettings;
use super::unstarted;
use super::visible_files::VisibleFiles;
use crate::process::child::{EMPTY_LAYER, Overlay, can_mount_overlays};
use crate::sandbox::bwrap::SystemPlace;
use crate::sandbox::seccomp::LocalSockets;

/// Maximum length, in bytes, of the options of a mount. The kernel reads one page.
const LONGEST_OPTIONS: usize = 4000;
/// The directory of the configuration files that commands see.
const CONFIGURATION: &str = "/etc";

/// The overlays that the commands of one driver get.
#[derive(Debug, Default)]
pub(super) struct SocketOverlays {
    covered: Vec<PathBuf>,
    overlays: Arc<[Overlay]>,
    /// Directories that the settings show to commands and that cannot be covered.
    open: Vec<PathBuf>,
    /// Whether a system directory cannot be covered. Only root can create a socket there.
    system_open: bool,
}

impl SocketOverlays {
    /// Finds out which directories can be covered, by trying it. `roots` are the paths of the
    /// workspace.
    ///
    /// # Errors
    /// Fails if the attempt failed for a temporary reason.
    pub(super) fn find(
        settings: &LocalExecSettings,
        system: &[SystemPlace],
        roots: &[String],
    ) -> Result<Self> {
        let mounts = mounts::all(settings);
        let read_only = |sockets: MountedSockets| {
            let wanted = mounts.iter().filter(move |it| {
                it.access == HostDirectoryAccess::ReadOnly && it.sockets == sockets
            });
            wanted.map(|it| it.source.as_path())
        };
        let read_write = mounts.iter().filter(|it| it.access == HostDirectoryAccess::ReadWrite);
        let read_write = read_write.map(|it| it.source.as_path());
        let toolchains = settings.toolchains.iter().flat_map(|toolchain| &toolchain.readable_paths);
        let toolchains = toolchains.map(PathBuf::as_path);
        let mut shown = directories(toolchains.chain(read_only(MountedSockets::Refused)));
        let system = system.iter().filter_map(|place| match place {
            SystemPlace::Directory(path) => Some(Path::new(path)),
            SystemPlace::Link { .. } => None,
        });
        let mut system = directories(system.chain([Path::new(CONFIGURATION)]));
        let roots = roots.iter().map(Path::new);
        let writable: Vec<PathBuf> = roots.chain(read_write).filter_map(real).collect();
        // What lies in the workspace is reachable there.
        for directories in [&mut shown, &mut system] {
            directories.retain(|path| !writable.iter().any(|it| path.starts_with(it)));
        }
        let ours = [Some(&settings.temporary_dir), settings.cache_dir.as_ref()];
        let ours = ours.into_iter().flatten().filter_map(|path| real(path));
        // An overlay does not show what is mounted below its directory, and no process can write to
        // it.
        let with_socket = read_only(MountedSockets::Allowed).filter_map(real);
        let below = writable.into_iter().chain(with_socket).chain(ours).chain(mount_points());
        let below: Vec<PathBuf> = below.collect();
        let mut wanted: Vec<(PathBuf, Overlay)> = Vec::new();
        let mut all: Vec<&PathBuf> = shown.iter().chain(&system).collect();
        all.sort();
        for directory in all {
            let covered = wanted.last().is_some_and(|(outer, _)| directory.starts_with(outer));
            let holds = |it: &PathBuf| it != directory && it.starts_with(directory);
            if !covered
                && !below.iter().any(holds)
                && let Some(overlay) = overlay(directory)
            {
                wanted.push((directory.clone(), overlay));
            }
        }
        let wanted = mountable(wanted)?;
        let (covered, overlays): (Vec<PathBuf>, Vec<Overlay>) = wanted.into_iter().unzip();
        let is_open = |path: &PathBuf| !covered.iter().any(|it| path.starts_with(it));
        let system_open = system.iter().any(is_open);
        shown.retain(is_open);
        Ok(Self { covered, overlays: overlays.into(), open: shown, system_open })
    }

    /// Returns the overlays for a command, and whether it may use local sockets.
    pub(super) fn for_command(
        &self,
        request: &ExecRequest,
        visible_files: &VisibleFiles,
    ) -> (Arc<[Overlay]>, LocalSockets) {
        let neighbours = visible_files.visible.iter().skip(1).map(|it| Path::new(&it.path));
        let collides = |path: &Path| {
            self.covered.iter().any(|it| it.starts_with(path) || path.starts_with(it))
        };
        // The directories that a caller binds may be writable, so they have no overlay.
        if request.restrictions.host_directories.is_empty() && !neighbours.into_iter().any(collides)
        {
            (self.overlays.clone(), LocalSockets::Allowed)
        } else {
            (Arc::default(), LocalSockets::Refused)
        }
    }

    /// Returns the directories that the settings show to commands, and in which commands can reach
    /// sockets.
    pub(super) fn open_directories(&self) -> &[PathBuf] {
        &self.open
    }

    /// Returns whether commands can reach sockets in a system directory.
    pub(super) fn is_system_open(&self) -> bool {
        self.system_open
    }
}

/// Returns the paths of those that are directories, with all links resolved.
fn directories<'a>(paths: impl Iterator<Item = &'a Path>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = paths.filter_map(real).filter(|path| path.is_dir()).collect();
    found.sort();
    found.dedup();
    found
}

fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

/// Returns the overlay that covers a directory with itself. Returns `None` if the kernel would not
/// accept the path as an option.
fn overlay(directory: &Path) -> Option<Overlay> {
    let mut options = b"xino=off,index=off,metacopy=off,redirect_dir=nofollow,lowerdir=".to_vec();
    for byte in directory.as_os_str().as_bytes() {
        if matches!(byte, b'\\' | b':' | b',') {
            options.push(b'\\');
        }
        options.push(*byte);
    }
    // An overlay without a writable layer needs two layers.
    options.push(b':');
    options.extend_from_slice(EMPTY_LAYER.to_bytes());
    if options.len() > LONGEST_OPTIONS {
        return None;
    }
    let at = CString::new(directory.as_os_str().as_bytes()).ok()?;
    Some(Overlay { at, options: CString::new(options).ok()? })
}

/// Keeps the overlays that can be mounted.
fn mountable(wanted: Vec<(PathBuf, Overlay)>) -> Result<Vec<(PathBuf, Overlay)>> {
    let can = |overlays: &[(PathBuf, Overlay)]| {
        let overlays = overlays.iter().map(|(_, overlay)| overlay.clone()).collect();
        can_mount_overlays(overlays).map_err(|error| unstarted(&error))
    };
    if wanted.is_empty() || can(&wanted)? {
        return Ok(wanted);
    }
    let mut mountable = Vec::new();
    for one in wanted {
        if can(std::slice::from_ref(&one))? {
            mountable.push(one);
        }
    }
    Ok(mountable)
}

/// Returns the paths at which something is mounted.
fn mount_points() -> Vec<PathBuf> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter_map(|line| Some(plain(line.split(|byte| *byte == b' ').nth(4)?))).collect()
}

/// Replaces the octal escapes for spaces, tabs, newlines and backslashes.
fn plain(field: &[u8]) -> PathBuf {
    let mut text = Vec::new();
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *byte == b'\\');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(code) => {
                text.push(code);
                rest = &after[3..];
            }
            None => {
                text.push(*byte);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped_as_options_of_an_overlay() {
        let overlay = overlay(Path::new("/a,b:c\\d")).unwrap();
        let options = overlay.options.to_str().unwrap();
        assert!(options.contains("lowerdir=/a\\,b\\:c\\\\d:/proc/fs"), "{options}");
        assert_eq!(overlay.at.to_str(), Ok("/a,b:c\\d"));
        assert!(super::overlay(Path::new(&format!("/{}", "x".repeat(4090)))).is_none());
    }

    #[test]
    fn escapes_in_the_table_of_mounts_are_decoded() {
        for (field, path) in [("/a", "/a"), ("/a\\040b\\134", "/a b\\"), ("/a\\x", "/a\\x")] {
            assert_eq!(plain(field.as_bytes()), Path::new(path), "{field}");
        }
    }

    #[test]
    fn directories_around_the_workspace_are_not_covered() {
        let keep = tempfile::tempdir().unwrap();
        let base = keep.path().canonicalize().unwrap();
        for name in ["tools/w", "other/bin", "home"] {
            std::fs::create_dir_all(base.join(name)).unwrap();
        }
        let mut settings = LocalExecSettings {
            home: Some(base.join("home")),
            temporary_dir: base.join("home"),
            ..LocalExecSettings::default()
        };
        let readable = ["tools", "other", "other/bin"].map(|name| base.join(name)).to_vec();
        settings.toolchains =
            vec![super::super::Toolchain { readable_paths: readable, ..Default::default() }];
        let root = base.join("tools/w").to_string_lossy().into_owned();
        let found = SocketOverlays::find(&settings, &[], &[root]).unwrap();
        assert!(found.open.contains(&base.join("tools")), "{found:?}");
        assert!(!found.covered.contains(&base.join("other/bin")), "{found:?}");
        // Only root can mount.
        if rustix::process::geteuid().is_root() {
            assert!(found.covered.contains(&base.join("other")), "{found:?}");
            assert_eq!(found.open, [base.join("tools")]);
        }
    }
}
