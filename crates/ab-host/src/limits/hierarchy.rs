//! Finds out where control groups are mounted, which controllers they have, and which group our
//! process is in.
//!
//! cgroup v1 and v2 may both be mounted. So each controller is looked up separately. This module
//! only reads.

use std::io;
use std::path::{Path, PathBuf};

use crate::host_features::Lack;

/// The controllers that limit commands.
pub(crate) const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// The v1 controller that freezes processes.
pub(crate) const FREEZER: &str = "freezer";

/// A hierarchy of control groups that is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    pub(crate) place: PathBuf,
    /// The group that is mounted at `place`. In a container, this may be only a part of the
    /// hierarchy.
    pub(crate) top: String,
    /// The controllers of a v1 hierarchy. `None` for v2, which lists the controllers in each group.
    pub(crate) controllers: Option<Vec<String>>,
}

/// Returns the hierarchies that `mounts` lists, in the format of `/proc/self/mountinfo`.
pub(crate) fn mounted(mounts: &str) -> Vec<Hierarchy> {
    let hierarchies = mounts.lines().filter_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (top, place) = (mount.next()?.to_owned(), mount.next()?);
        let place = PathBuf::from(place.replace("\\040", " "));
        let mut file_system = file_system.split(' ');
        let (kind, options) = (file_system.next()?, file_system.nth(1)?);
        match kind {
            "cgroup2" => Some(Hierarchy { place, top, controllers: None }),
            "cgroup" => {
                let named = |option: &&str| !option.starts_with("name=");
                let controllers: Vec<String> = options
                    .split(',')
                    .filter(named)
                    .filter(|option| CONTROLLERS.contains(option) || *option == FREEZER)
                    .map(str::to_owned)
                    .collect();
                let useful = !controllers.is_empty();
                useful.then_some(Hierarchy { place, top, controllers: Some(controllers) })
            }
            _ => None,
        }
    });
    hierarchies.collect()
}

/// Returns the group of this process in a hierarchy, from text in the format of
/// `/proc/self/cgroup`. Returns `None` if the mount does not show the group.
pub(crate) fn own_group(hierarchy: &Hierarchy, memberships: &str) -> Option<PathBuf> {
    let group = memberships.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        let belongs = match &hierarchy.controllers {
            None => controllers.is_empty(),
            Some(wanted) => controllers.split(',').any(|each| wanted.iter().any(|it| it == each)),
        };
        belongs.then_some(group)
    })?;
    let below = Path::new(group).strip_prefix(&hierarchy.top).ok()?;
    let plain = |part: std::path::Component<'_>| matches!(part, std::path::Component::Normal(_));
    below.components().all(plain).then(|| hierarchy.place.join(below))
}

/// Returns the reason why no group can be made if our own group is not visible.
pub(crate) fn unseen(place: &Path) -> Lack {
    Lack::new(
        format!("the control group of this process is not visible in {}", place.display()),
        "give the container a cgroup namespace of its own (--cgroupns=private)",
    )
}

/// Returns the reason why no group can be made in `parent`.
pub(crate) fn refused(parent: &Path, error: &io::Error) -> Lack {
    let cause = format!("cannot create a control group in {}: {error}", parent.display());
    let remedy = match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "give the container a writable /sys/fs/cgroup of its own (--cgroupns=private)"
        }
        io::ErrorKind::PermissionDenied => {
            "run as root, or start with systemd-run --user --scope -p Delegate=yes"
        }
        _ => "check how the cgroup file system is mounted",
    };
    Lack::new(cause, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
22 27 0:21 / /proc rw,nosuid - proc proc rw
30 27 0:26 / /sys/fs/cgroup rw shared:4 - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:5 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 /docker/abc /sys/fs/cgroup/memory ro master:6 shared:7 - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
34 30 0:30 / /sys/fs/cgroup/my\\040unified rw - cgroup2 cgroup2 rw
";

    fn first(place: &str, top: &str, controllers: &[&str]) -> Hierarchy {
        let controllers = Some(controllers.iter().map(|each| (*each).to_owned()).collect());
        Hierarchy { place: place.into(), top: top.to_owned(), controllers }
    }

    fn second(place: &str, top: &str) -> Hierarchy {
        Hierarchy { place: place.into(), top: top.to_owned(), controllers: None }
    }

    #[test]
    fn hierarchies_of_both_versions_are_seen() {
        let expect = [
            first("/sys/fs/cgroup/cpu", "/", &["cpu"]),
            first("/sys/fs/cgroup/memory", "/docker/abc", &["memory"]),
            second("/sys/fs/cgroup/my unified", "/"),
        ];
        assert_eq!(mounted(HYBRID), expect);
        assert_eq!(mounted(""), []);
    }

    #[test]
    fn the_own_group_is_found_in_each_hierarchy() {
        let memberships =
            "4:memory:/docker/abc/d\n2:cpu,cpuacct:/\n1:name=systemd:/x\n0::/user.slice/c\n";
        for (hierarchy, group) in [
            (first("/g/memory", "/", &["memory"]), Some("/g/memory/docker/abc/d")),
            (first("/g/memory", "/docker/abc", &["memory"]), Some("/g/memory/d")),
            (first("/g/memory", "/docker/ab", &["memory"]), None),
            (first("/g/memory", "/elsewhere", &["memory"]), None),
            (first("/g/cpu", "/", &["cpu"]), Some("/g/cpu")),
            (first("/g/pids", "/", &["pids"]), None),
            (second("/g", "/"), Some("/g/user.slice/c")),
            (second("/g", "/user.slice/c"), Some("/g")),
        ] {
            let found = own_group(&hierarchy, memberships);
            assert_eq!(found.as_deref(), group.map(Path::new), "{hierarchy:?}");
        }
        // The group lies outside of the cgroup namespace.
        assert_eq!(own_group(&second("/g", "/"), "0::/../../system.slice\n"), None);
    }
}
