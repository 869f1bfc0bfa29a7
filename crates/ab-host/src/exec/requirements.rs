//! Checks that the requirements that a caller requested by name can be enforced. If a requirement
//! cannot be enforced and the settings do not accept this, the command is refused.

use std::collections::BTreeSet;

use ab_core::effective_policy::{Isolation, NetworkAccess};
use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use ab_core::process::{ExecLimits, ExecRequest, PathRestrictions};
use ab_core::{Verb, WsPath};

use super::settings::LocalExecSettings;
use crate::host_features::Lack;
use crate::limits::cgroup::Wanted;

/// Something that a caller can request by name and that not every isolation or host can enforce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SandboxRequirement {
    /// No network: [`NetworkAccess::None`].
    NoNetwork,
    /// Paths that the command must not see.
    HiddenPaths,
    /// Paths that the command must not change.
    ReadOnlyPaths,
    /// A memory limit for all processes of a command together.
    MemoryLimit,
    /// A limit on the number of processes.
    ProcessLimit,
}

impl SandboxRequirement {
    pub fn as_str(self) -> &'static str {
        match self {
            SandboxRequirement::NoNetwork => "network",
            SandboxRequirement::HiddenPaths => "hide",
            SandboxRequirement::ReadOnlyPaths => "read-only",
            SandboxRequirement::MemoryLimit => "memory",
            SandboxRequirement::ProcessLimit => "processes",
        }
    }
}

/// Fails if the isolation cannot enforce a requirement of the command. Does not check limits, which
/// are checked when the control group is made.
pub(super) fn check(
    settings: &LocalExecSettings,
    isolation: Isolation,
    request: &ExecRequest,
) -> Result<()> {
    check_network(settings, isolation)?;
    let check = |root: &WsPath, restrictions| {
        check_path_restrictions_enforceable(settings, isolation, root, restrictions)
    };
    check(&request.cwd.innermost_scope_root(), &request.restrictions)?;
    for neighbour in &request.mount_layout.mounted {
        check(&neighbour.visible_path, &neighbour.restrictions)?;
    }
    Ok(())
}

/// Fails if the settings name an isolation that is weaker than the one that they require. On no host
/// could a command run with such settings.
pub(super) fn check_floor(settings: &LocalExecSettings) -> Result<()> {
    let LocalExecSettings { isolation, minimum_isolation: least, .. } = settings;
    if *isolation == Isolation::Auto || isolation.strength() >= least.strength() {
        return Ok(());
    }
    let message =
        format!("isolation '{isolation}' is weaker than the required isolation '{least}'");
    Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
        .with_verb(Verb::Exec)
        .with_hint(format!("remove --isolation {isolation}, or --floor {least}")))
}

pub(super) fn check_network(settings: &LocalExecSettings, isolation: Isolation) -> Result<()> {
    let open = matches!(isolation, Isolation::Auto | Isolation::Software | Isolation::None);
    let accepted = settings.allowed_unenforced.contains(&SandboxRequirement::NoNetwork);
    if settings.network == NetworkAccess::None && open && !accepted {
        Err(unenforced(settings, isolation, SandboxRequirement::NoNetwork, "network 'none'"))
    } else {
        Ok(())
    }
}

/// Fails if an isolation cannot enforce the restrictions for commands in `root`, unless the settings
/// accept that.
///
/// # Errors
/// Fails with [`ErrorKind::Unavailable`], or with [`ErrorKind::Invalid`] if the settings name the
/// isolation. The hint names the requirement that can be accepted.
pub fn check_path_restrictions_enforceable(
    settings: &LocalExecSettings,
    isolation: Isolation,
    root: &WsPath,
    restrictions: &PathRestrictions,
) -> Result<()> {
    let inside = |path: &WsPath| path.strip_prefix(root).is_some_and(|below| !below.is_root());
    let whole = |path: &WsPath| root.starts_with(path);
    let hides = restrictions.hidden.iter().any(inside);
    let keeps = |keeps: &dyn Fn(&WsPath) -> bool| restrictions.read_only.iter().any(keeps);
    let (hide, read_only) = match isolation {
        Isolation::Bwrap => (false, false),
        // Under Landlock, a path below a granted directory cannot be hidden or made read-only. Only
        // a whole directory can be granted for reading only.
        Isolation::Landlock => (hides, !keeps(&whole) && keeps(&inside)),
        Isolation::Auto | Isolation::Software | Isolation::None => {
            (hides, keeps(&inside) || keeps(&whole))
        }
    };
    for (requirement, missing, what) in [
        (SandboxRequirement::HiddenPaths, hide, "a hidden path"),
        (SandboxRequirement::ReadOnlyPaths, read_only, "a read-only path"),
    ] {
        if missing && !settings.allowed_unenforced.contains(&requirement) {
            return Err(unenforced(settings, isolation, requirement, what));
        }
    }
    Ok(())
}

/// Returns the requirements that may be left unenforced for a command whose own limits are `own`.
pub(super) fn accepted(
    settings: &LocalExecSettings,
    own: &ExecLimits,
) -> BTreeSet<SandboxRequirement> {
    let asks = |requirement: &&SandboxRequirement| match requirement {
        SandboxRequirement::MemoryLimit => own.memory.is_some(),
        SandboxRequirement::ProcessLimit => own.processes.is_some(),
        SandboxRequirement::NoNetwork
        | SandboxRequirement::HiddenPaths
        | SandboxRequirement::ReadOnlyPaths => true,
    };
    let unasked = settings.optional_limits.iter().filter(|requirement| !asks(requirement));
    settings.allowed_unenforced.iter().chain(unasked).copied().collect()
}

/// Returns the limits that must be enforced, because the settings do not accept their absence.
pub(super) fn needed(wanted: Wanted, accepted: &BTreeSet<SandboxRequirement>) -> Wanted {
    Wanted {
        memory: wanted.memory.filter(|_| !accepted.contains(&SandboxRequirement::MemoryLimit)),
        processes: wanted
            .processes
            .filter(|_| !accepted.contains(&SandboxRequirement::ProcessLimit)),
    }
}

/// Creates the error for the case that limits need a control group but none can be made.
pub(super) fn unlimited(needed: Wanted, lack: &Lack) -> Error {
    let names: Vec<&str> = [
        needed.memory.map(|_| SandboxRequirement::MemoryLimit.as_str()),
        needed.processes.map(|_| SandboxRequirement::ProcessLimit.as_str()),
    ]
    .into_iter()
    .flatten()
    .collect();
    let (code, kind) = (ErrorCode::MissingUtilities, ErrorKind::Unavailable);
    let error = Error::new(code, kind, lack.cause.clone());
    refused(error, &format!("{}; or ", lack.remedy), &names.join(","))
}

fn unenforced(
    settings: &LocalExecSettings,
    isolation: Isolation,
    requirement: SandboxRequirement,
    what: &str,
) -> Error {
    let message = format!("isolation '{isolation}' cannot enforce {what} for commands");
    let stronger = match (settings.isolation, requirement) {
        (Isolation::Auto, SandboxRequirement::NoNetwork) => {
            "run where bwrap or Landlock works; or "
        }
        (Isolation::Auto, _) => "run where bwrap works; or ",
        // The host may well have a stronger isolation.
        (_, SandboxRequirement::NoNetwork) => "use --isolation auto, bwrap or landlock; or ",
        (_, _) => "use --isolation auto or bwrap; or ",
    };
    let (code, kind) = match settings.isolation {
        Isolation::Auto => (ErrorCode::MissingUtilities, ErrorKind::Unavailable),
        // The settings contradict each other on every host.
        _ => (ErrorCode::InvalidConfiguration, ErrorKind::Invalid),
    };
    refused(Error::new(code, kind, message), stronger, requirement.as_str())
}

/// Adds the hint to the error for something that is not enforced.
fn refused(error: Error, remedy: &str, accept: &str) -> Error {
    let hint = format!("{remedy}accept missing enforcement with --accept-unenforced {accept}");
    error.with_verb(Verb::Exec).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use ab_core::PathParser;

    use super::*;

    #[test]
    fn a_default_limit_may_be_missing_unless_a_command_asks_for_it() {
        let settings = LocalExecSettings {
            allowed_unenforced: [SandboxRequirement::NoNetwork].into(),
            optional_limits: [SandboxRequirement::MemoryLimit, SandboxRequirement::ProcessLimit]
                .into(),
            ..LocalExecSettings::default()
        };
        let check = |own: ExecLimits, expect: &[SandboxRequirement]| {
            assert_eq!(accepted(&settings, &own), expect.iter().copied().collect(), "{own:?}");
        };
        let both = [
            SandboxRequirement::NoNetwork,
            SandboxRequirement::MemoryLimit,
            SandboxRequirement::ProcessLimit,
        ];
        check(ExecLimits::default(), &both);
        check(ExecLimits { memory: Some(1), ..ExecLimits::default() }, &[both[0], both[2]]);
        check(ExecLimits { processes: Some(1), ..ExecLimits::default() }, &both[..2]);
    }

    #[test]
    fn what_an_isolation_cannot_enforce_is_refused_unless_accepted() {
        let path = |text: &str| PathParser::lenient().parse(text).unwrap();
        let check = |isolation, hidden: &[&str], read_only: &[&str], expect: Option<&str>| {
            let paths = |paths: &[&str]| paths.iter().map(|it| path(it)).collect();
            let restrictions = PathRestrictions {
                hidden: paths(hidden),
                read_only: paths(read_only),
                host_directories: Vec::new(),
            };
            let root = path("scope");
            let mut settings = LocalExecSettings::default();
            let enforceable = |settings: &LocalExecSettings| {
                check_path_restrictions_enforceable(settings, isolation, &root, &restrictions)
            };
            let refused = enforceable(&settings).err();
            let hint = refused.as_ref().and_then(Error::hint).unwrap_or_default();
            match expect {
                Some(name) => assert!(hint.ends_with(name), "{isolation}: {refused:?}"),
                None => assert!(refused.is_none(), "{isolation}: {refused:?}"),
            }
            settings.allowed_unenforced =
                [SandboxRequirement::HiddenPaths, SandboxRequirement::ReadOnlyPaths].into();
            enforceable(&settings).unwrap();
        };
        check(Isolation::Bwrap, &["scope/a"], &["scope/b"], None);
        for isolation in [Isolation::Landlock, Isolation::Software, Isolation::None] {
            check(isolation, &["scope/a"], &[], Some("--accept-unenforced hide"));
            check(isolation, &[], &["scope/b"], Some("--accept-unenforced read-only"));
            // The scope contains neither path.
            check(isolation, &["other"], &["elsewhere"], None);
        }
        check(Isolation::Landlock, &[], &["scope"], None);
        check(Isolation::Landlock, &[], &["scope", "scope/b"], None);
        check(Isolation::None, &[], &["scope"], Some("--accept-unenforced read-only"));
    }

    #[test]
    fn an_isolation_below_the_floor_is_refused_on_every_host() {
        let check = |isolation, minimum_isolation, expect: bool| {
            let settings =
                LocalExecSettings { isolation, minimum_isolation, ..LocalExecSettings::default() };
            assert_eq!(check_floor(&settings).is_ok(), expect, "{isolation} {minimum_isolation}");
        };
        check(Isolation::Auto, Isolation::Bwrap, true);
        check(Isolation::Bwrap, Isolation::Bwrap, true);
        check(Isolation::Bwrap, Isolation::Landlock, true);
        check(Isolation::None, Isolation::None, true);
        check(Isolation::Landlock, Isolation::Bwrap, false);
        check(Isolation::Software, Isolation::Landlock, false);
        check(Isolation::None, Isolation::Software, false);
    }

    #[test]
    fn the_hint_names_the_flag_if_the_isolation_was_chosen() {
        let check = |isolation, expect: &str| {
            let network = NetworkAccess::None;
            let settings = LocalExecSettings { isolation, network, ..LocalExecSettings::default() };
            let refused = check_network(&settings, Isolation::None).unwrap_err();
            let accept = "accept missing enforcement with --accept-unenforced network";
            assert_eq!(refused.hint(), Some(format!("{expect}; or {accept}").as_str()));
        };
        check(Isolation::None, "use --isolation auto, bwrap or landlock");
        check(Isolation::Auto, "run where bwrap or Landlock works");
    }
}
