//! Where control groups are mounted, which controllers are there, and where this process is.
//!
//! First and second version may be mounted side by side, so each controller is looked up on its
//! own. All of this is reading; nothing is made here.

use std::io;
use std::path::{Path, PathBuf};

use crate::facilities::Lack;

/// The controllers whose limits bounded commands need.
pub(crate) const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// A mounted hierarchy of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    pub(crate) place: PathBuf,
    /// Controllers of a first-version hierarchy; nothing for the second version, which says so in
    /// each group.
    pub(crate) controllers: Option<Vec<String>>,
}

/// The hierarchies among `mounts`, in the form of `/proc/self/mounts`.
pub(crate) fn mounted(mounts: &str) -> Vec<Hierarchy> {
    let hierarchies = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (place, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let place = PathBuf::from(place.replace("\\040", " "));
        match kind {
            "cgroup2" => Some(Hierarchy { place, controllers: None }),
            "cgroup" => {
                let named = |option: &&str| !option.starts_with("name=");
                let controllers: Vec<String> = options
                    .split(',')
                    .filter(named)
                    .filter(|option| CONTROLLERS.contains(option))
                    .map(str::to_owned)
                    .collect();
                let useful = !controllers.is_empty();
                useful.then_some(Hierarchy { place, controllers: Some(controllers) })
            }
            _ => None,
        }
    });
    hierarchies.collect()
}

/// The group of this process in a hierarchy, from text in the form of `/proc/self/cgroup`.
pub(crate) fn own_group(hierarchy: &Hierarchy, memberships: &str) -> PathBuf {
    let group = memberships.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        let belongs = match &hierarchy.controllers {
            None => controllers.is_empty(),
            Some(wanted) => controllers.split(',').any(|each| wanted.iter().any(|it| it == each)),
        };
        belongs.then_some(group)
    });
    hierarchy.place.join(group.unwrap_or_default().trim_start_matches('/'))
}

/// Why no group can be made in `parent`.
pub(crate) fn refused(parent: &Path, error: &io::Error) -> Lack {
    let cause = format!("no group can be made in {}: {error}", parent.display());
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
proc /proc proc rw 0 0
tmpfs /sys/fs/cgroup tmpfs rw,mode=755 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0
cgroup2 /sys/fs/cgroup/my\\040unified cgroup2 rw 0 0
";

    fn first(place: &str, controllers: &[&str]) -> Hierarchy {
        let controllers = Some(controllers.iter().map(|each| (*each).to_owned()).collect());
        Hierarchy { place: place.into(), controllers }
    }

    fn second(place: &str) -> Hierarchy {
        Hierarchy { place: place.into(), controllers: None }
    }

    #[test]
    fn hierarchies_of_both_versions_are_seen() {
        let expect = [
            first("/sys/fs/cgroup/cpu", &["cpu"]),
            first("/sys/fs/cgroup/memory", &["memory"]),
            second("/sys/fs/cgroup/my unified"),
        ];
        assert_eq!(mounted(HYBRID), expect);
        assert_eq!(mounted(""), []);
    }

    #[test]
    fn the_own_group_is_found_in_each_hierarchy() {
        let memberships = "4:memory:/a/b\n2:cpu,cpuacct:/\n1:name=systemd:/x\n0::/user.slice/c\n";
        for (hierarchy, group) in [
            (first("/g/memory", &["memory"]), "/g/memory/a/b"),
            (first("/g/cpu", &["cpu"]), "/g/cpu/"),
            (first("/g/pids", &["pids"]), "/g/pids/"),
            (second("/g"), "/g/user.slice/c"),
        ] {
            assert_eq!(own_group(&hierarchy, memberships), Path::new(group));
        }
    }
}
