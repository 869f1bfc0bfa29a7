//! Finds out what this host offers for isolating commands and copying files, by trying it.
//!
//! - A probe performs the operation itself, on a small scale. It does not conclude from the
//!   existence of files that the operation would work.
//! - A probe leaves no changes on the host.
//! - The time limit of a probe is [`HOST_FEATURE_PROBE_TIMEOUT`]. A probe that exceeds this limit
//!   counts as failed. All probes run at the same time.

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

/// Time limit for one probe.
pub const HOST_FEATURE_PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Additional time for a probe to report its result after it has killed its programs at the
/// deadline.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The settings that the caller passes to the probes.
#[derive(Clone, Debug)]
pub struct HostFeatureProbeSettings {
    /// Directories in which programs are looked up.
    pub program_search_path: Vec<PathBuf>,
    /// The directory whose file system is tested.
    pub tested_directory: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostFeature {
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

impl HostFeature {
    pub const ALL: [HostFeature; 10] = [
        HostFeature::Kernel,
        HostFeature::Openat2,
        HostFeature::Pidfd,
        HostFeature::Landlock,
        HostFeature::Seccomp,
        HostFeature::UserNamespaces,
        HostFeature::Bubblewrap,
        HostFeature::Overlay,
        HostFeature::Cgroups,
        HostFeature::Reflink,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            HostFeature::Kernel => "kernel",
            HostFeature::Openat2 => "openat2",
            HostFeature::Pidfd => "pidfd",
            HostFeature::Landlock => "landlock",
            HostFeature::Seccomp => "seccomp",
            HostFeature::UserNamespaces => "user-namespaces",
            HostFeature::Bubblewrap => "bwrap",
            HostFeature::Overlay => "overlayfs",
            HostFeature::Cgroups => "cgroups",
            HostFeature::Reflink => "reflink",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFeatureState {
    Working,
    /// The feature works only in part. The report's cause says what is missing.
    Partial,
    Missing,
}

impl HostFeatureState {
    pub fn as_str(self) -> &'static str {
        match self {
            HostFeatureState::Working => "working",
            HostFeatureState::Partial => "partial",
            HostFeatureState::Missing => "missing",
        }
    }
}

/// The result for one feature. If the feature does not work completely, the report has a cause and
/// a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFeatureReport {
    pub feature: HostFeature,
    pub state: HostFeatureState,
    /// What was found to work, or the consequence if the feature is missing.
    pub detail: String,
    pub cause: Option<String>,
    pub remedy: Option<String>,
}

impl HostFeatureReport {
    fn working(name: HostFeature, detail: impl Into<String>) -> HostFeatureReport {
        HostFeatureReport {
            feature: name,
            state: HostFeatureState::Working,
            detail: detail.into(),
            cause: None,
            remedy: None,
        }
    }

    fn partial(name: HostFeature, detail: impl Into<String>, lack: Lack) -> HostFeatureReport {
        HostFeatureReport {
            state: HostFeatureState::Partial,
            ..HostFeatureReport::missing(name, detail, lack)
        }
    }

    fn missing(name: HostFeature, detail: impl Into<String>, lack: Lack) -> HostFeatureReport {
        HostFeatureReport {
            feature: name,
            state: HostFeatureState::Missing,
            detail: detail.into(),
            cause: Some(lack.cause),
            remedy: Some(lack.remedy),
        }
    }
}

/// Why something is missing on this host, and how to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    pub(crate) cause: String,
    pub(crate) remedy: String,
}

impl Lack {
    pub(crate) fn new(cause: impl Into<String>, remedy: impl Into<String>) -> Lack {
        let cause = ab_core::error::without_os_error_numbers(cause.into());
        Lack { cause, remedy: remedy.into() }
    }
}

/// Runs all probes. The reports have the same order as [`HostFeature::ALL`].
pub fn probe_host_features(settings: &HostFeatureProbeSettings) -> Vec<HostFeatureReport> {
    let deadline = Instant::now() + HOST_FEATURE_PROBE_TIMEOUT;
    let waiting: Vec<_> = HostFeature::ALL
        .into_iter()
        .map(|name| {
            let (sender, receiver) = mpsc::sync_channel(1);
            let settings = settings.clone();
            // Each probe runs on its own thread, because some probes restrict the thread that they
            // run on.
            let started =
                thread::Builder::new().name(format!("probe {}", name.as_str())).spawn(move || {
                    // If the time is up, the receiver is gone and the result is dropped.
                    let _ = sender.send(try_one(name, &settings, deadline));
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
            HostFeatureReport::missing(name, "not tried", lack)
        }
    });
    answers.collect()
}

fn try_one(
    name: HostFeature,
    settings: &HostFeatureProbeSettings,
    deadline: Instant,
) -> HostFeatureReport {
    let programs = Programs::new(&settings.program_search_path, deadline);
    match name {
        HostFeature::Kernel => kernel::version(),
        HostFeature::Openat2 => kernel::openat2(),
        HostFeature::Pidfd => kernel::pidfd(),
        HostFeature::Landlock => kernel::landlock(),
        HostFeature::Seccomp => kernel::seccomp(),
        HostFeature::UserNamespaces => namespaces::user(&programs),
        HostFeature::Bubblewrap => bubblewrap::start(&programs),
        HostFeature::Overlay => namespaces::overlay(&programs),
        HostFeature::Cgroups => cgroups::groups(),
        HostFeature::Reflink => kernel::reflink(&settings.tested_directory),
    }
}

fn silent(name: HostFeature) -> HostFeatureReport {
    let lack = Lack::new(
        format!("the test did not end within {} s", HOST_FEATURE_PROBE_TIMEOUT.as_secs()),
        "run it again when the machine is less busy",
    );
    HostFeatureReport::missing(name, "not known", lack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_probed_and_every_lack_is_explained() {
        let settings = HostFeatureProbeSettings {
            program_search_path: ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
                .map(PathBuf::from)
                .to_vec(),
            tested_directory: std::env::temp_dir(),
        };
        let started = Instant::now();
        let facilities = probe_host_features(&settings);
        assert!(
            started.elapsed() < HOST_FEATURE_PROBE_TIMEOUT + LAST_WORDS + Duration::from_secs(1)
        );
        let names: Vec<HostFeature> = facilities.iter().map(|each| each.feature).collect();
        assert_eq!(names, HostFeature::ALL);
        for facility in facilities {
            let explained = facility.cause.is_some() && facility.remedy.is_some();
            assert_eq!(explained, facility.state != HostFeatureState::Working, "{facility:?}");
            assert!(!facility.detail.is_empty(), "{facility:?}");
        }
    }

    #[test]
    fn without_programs_the_lack_of_them_is_the_cause() {
        let nowhere = HostFeatureProbeSettings {
            program_search_path: Vec::new(),
            tested_directory: PathBuf::from("/no/such/directory"),
        };
        for facility in probe_host_features(&nowhere) {
            let program = match facility.feature {
                HostFeature::UserNamespaces | HostFeature::Overlay => "unshare",
                HostFeature::Bubblewrap => "bwrap",
                HostFeature::Reflink => "no such file",
                _ => continue,
            };
            assert_eq!(facility.state, HostFeatureState::Missing, "{facility:?}");
            assert!(facility.cause.as_ref().unwrap().contains(program), "{facility:?}");
        }
    }
}
