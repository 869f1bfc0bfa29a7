//! What this host offers for keeping commands apart and for copying files, found out by trying.
//!
//! - A probe does the thing itself, on a small scale; it does not look for files that hint at it.
//! - A probe leaves the host as it was.
//! - A probe has [`PROBE_TIMEOUT`], and then counts as failed. All run at the same time.

mod bubblewrap;
mod cgroups;
mod kernel;
mod namespaces;
pub(crate) mod program;

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use program::Programs;

/// Longest that one probe may take.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// What a probe that ends its programs in time may need to say so.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What a caller knows about the surroundings that are to be probed.
#[derive(Clone, Debug)]
pub struct ProbeSettings {
    /// Directories to look for programs in.
    pub path: Vec<PathBuf>,
    /// The directory whose file system is tried.
    pub directory: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FacilityName {
    Kernel,
    Openat2,
    Pidfd,
    Landlock,
    Seccomp,
    UserNamespaces,
    Bubblewrap,
    Overlay,
    Cgroups,
    Reflink,
}

impl FacilityName {
    pub const ALL: [FacilityName; 10] = [
        FacilityName::Kernel,
        FacilityName::Openat2,
        FacilityName::Pidfd,
        FacilityName::Landlock,
        FacilityName::Seccomp,
        FacilityName::UserNamespaces,
        FacilityName::Bubblewrap,
        FacilityName::Overlay,
        FacilityName::Cgroups,
        FacilityName::Reflink,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            FacilityName::Kernel => "kernel",
            FacilityName::Openat2 => "openat2",
            FacilityName::Pidfd => "pidfd",
            FacilityName::Landlock => "landlock",
            FacilityName::Seccomp => "seccomp",
            FacilityName::UserNamespaces => "user-namespaces",
            FacilityName::Bubblewrap => "bwrap",
            FacilityName::Overlay => "overlayfs",
            FacilityName::Cgroups => "cgroups",
            FacilityName::Reflink => "reflink",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FacilityState {
    Working,
    /// Some of it works, see the cause.
    Partial,
    Missing,
}

impl FacilityState {
    pub fn as_str(self) -> &'static str {
        match self {
            FacilityState::Working => "working",
            FacilityState::Partial => "partial",
            FacilityState::Missing => "missing",
        }
    }
}

/// One thing that a host may offer. Whatever does not work in full has a cause and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facility {
    pub name: FacilityName,
    pub state: FacilityState,
    /// What was seen to work, or what its absence means.
    pub detail: String,
    pub cause: Option<String>,
    pub remedy: Option<String>,
}

impl Facility {
    fn working(name: FacilityName, detail: impl Into<String>) -> Facility {
        Facility {
            name,
            state: FacilityState::Working,
            detail: detail.into(),
            cause: None,
            remedy: None,
        }
    }

    fn partial(name: FacilityName, detail: impl Into<String>, lack: Lack) -> Facility {
        Facility { state: FacilityState::Partial, ..Facility::missing(name, detail, lack) }
    }

    fn missing(name: FacilityName, detail: impl Into<String>, lack: Lack) -> Facility {
        Facility {
            name,
            state: FacilityState::Missing,
            detail: detail.into(),
            cause: Some(lack.cause),
            remedy: Some(lack.remedy),
        }
    }
}

/// Why something is not there, and what would bring it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    pub(crate) cause: String,
    pub(crate) remedy: String,
}

impl Lack {
    pub(crate) fn new(cause: impl Into<String>, remedy: impl Into<String>) -> Lack {
        Lack { cause: cause.into(), remedy: remedy.into() }
    }
}

/// Tries everything. The answers come in the order of [`FacilityName::ALL`].
pub fn probe_facilities(surroundings: &ProbeSettings) -> Vec<Facility> {
    let deadline = Instant::now() + PROBE_TIMEOUT;
    let waiting: Vec<_> = FacilityName::ALL
        .into_iter()
        .map(|name| {
            let (sender, receiver) = mpsc::sync_channel(1);
            let surroundings = surroundings.clone();
            // Each on a thread of its own, since some probes restrict the thread they run on.
            let started =
                thread::Builder::new().name(format!("probe {}", name.as_str())).spawn(move || {
                    // Nobody waits any more once the time is up.
                    let _ = sender.send(try_one(name, &surroundings, deadline));
                });
            (name, started.map(|_| receiver))
        })
        .collect();
    let last = deadline + LAST_WORDS;
    let answers = waiting.into_iter().map(|(name, started)| match started {
        Ok(receiver) => {
            let left = last.saturating_duration_since(Instant::now());
            receiver.recv_timeout(left).unwrap_or_else(|_| silent(name))
        }
        Err(error) => {
            let lack = Lack::new(
                format!("no thread to try it on: {error}"),
                "raise the limit on processes and threads (ulimit -u, pids cgroup)",
            );
            Facility::missing(name, "not tried", lack)
        }
    });
    answers.collect()
}

fn try_one(name: FacilityName, surroundings: &ProbeSettings, deadline: Instant) -> Facility {
    let programs = Programs::new(&surroundings.path, deadline);
    match name {
        FacilityName::Kernel => kernel::version(),
        FacilityName::Openat2 => kernel::openat2(),
        FacilityName::Pidfd => kernel::pidfd(),
        FacilityName::Landlock => kernel::landlock(),
        FacilityName::Seccomp => kernel::seccomp(),
        FacilityName::UserNamespaces => namespaces::user(&programs),
        FacilityName::Bubblewrap => bubblewrap::start(&programs),
        FacilityName::Overlay => namespaces::overlay(&programs),
        FacilityName::Cgroups => cgroups::groups(),
        FacilityName::Reflink => kernel::reflink(&surroundings.directory),
    }
}

fn silent(name: FacilityName) -> Facility {
    let lack = Lack::new(
        format!("the probe gave no answer within {} s", PROBE_TIMEOUT.as_secs()),
        "run it again on a host that is less busy",
    );
    Facility::missing(name, "not known", lack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_probed_and_every_lack_is_explained() {
        let surroundings = ProbeSettings {
            path: ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
                .map(PathBuf::from)
                .to_vec(),
            directory: std::env::temp_dir(),
        };
        let started = Instant::now();
        let facilities = probe_facilities(&surroundings);
        assert!(started.elapsed() < PROBE_TIMEOUT + LAST_WORDS + Duration::from_secs(1));
        let names: Vec<FacilityName> = facilities.iter().map(|each| each.name).collect();
        assert_eq!(names, FacilityName::ALL);
        for facility in facilities {
            let explained = facility.cause.is_some() && facility.remedy.is_some();
            assert_eq!(explained, facility.state != FacilityState::Working, "{facility:?}");
            assert!(!facility.detail.is_empty(), "{facility:?}");
        }
    }

    #[test]
    fn without_programs_the_lack_of_them_is_the_cause() {
        let nowhere =
            ProbeSettings { path: Vec::new(), directory: PathBuf::from("/no/such/directory") };
        for facility in probe_facilities(&nowhere) {
            let program = match facility.name {
                FacilityName::UserNamespaces | FacilityName::Overlay => "unshare",
                FacilityName::Bubblewrap => "bwrap",
                FacilityName::Reflink => "No such file",
                _ => continue,
            };
            assert_eq!(facility.state, FacilityState::Missing, "{facility:?}");
            assert!(facility.cause.as_ref().unwrap().contains(program), "{facility:?}");
        }
    }
}
