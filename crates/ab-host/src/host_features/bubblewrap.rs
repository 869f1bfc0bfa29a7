//! Tests whether bwrap exists, whether it can start a program, and how much isolation it provides.

use super::namespaces::refusal;
use super::program::Programs;
use super::{HostFeature, HostFeatureReport, Lack};

const ABSENCE: &str = "commands cannot be isolated by namespaces";

/// The arguments of bwrap for one level of isolation. [`WAYS`] lists the levels, the strongest
/// first.
struct Way {
    lacks: &'static str,
    arguments: &'static [&'static str],
}

const WAYS: &[Way] = &[
    Way {
        lacks: "",
        arguments: &["--unshare-all", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"],
    },
    Way {
        lacks: "a network of its own",
        arguments: &[
            "--unshare-all",
            "--share-net",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--tmpfs",
            "/tmp",
        ],
    },
    Way {
        lacks: "a /proc of its own",
        arguments: &["--unshare-all", "--dev", "/dev", "--tmpfs", "/tmp"],
    },
    Way {
        lacks: "a network and a /proc of its own",
        arguments: &["--unshare-all", "--share-net", "--dev", "/dev", "--tmpfs", "/tmp"],
    },
];

pub(super) fn start(programs: &Programs) -> HostFeatureReport {
    let Some(bwrap) = programs.find("bwrap") else {
        let lack = Lack::new("no program 'bwrap' on the path", "install bubblewrap");
        return HostFeatureReport::missing(HostFeature::Bubblewrap, ABSENCE, lack);
    };
    let Some(program) = programs.find("true") else {
        let lack = Lack::new("no program 'true' on the path to start", "install coreutils");
        return HostFeatureReport::missing(HostFeature::Bubblewrap, ABSENCE, lack);
    };
    tried(&program.to_string_lossy(), |arguments| {
        programs.run(&bwrap, arguments).map_err(|complaint| complaint.text)
    })
}

/// Runs bwrap with each set of arguments until one of them starts `program`. Reports what works.
fn tried(program: &str, bwrap: impl Fn(&[&str]) -> Result<String, String>) -> HostFeatureReport {
    let version = match bwrap(&["--version"]) {
        Ok(version) => version.trim().to_owned(),
        Err(complaint) => {
            let lack = Lack::new(format!("it does not run: {complaint}"), "install it again");
            return HostFeatureReport::missing(HostFeature::Bubblewrap, ABSENCE, lack);
        }
    };
    let mut first_complaint = None;
    for way in WAYS {
        let base = ["--die-with-parent", "--ro-bind", "/", "/"];
        let arguments = [&base, way.arguments, &["--", program]].concat();
        match (bwrap(&arguments), first_complaint.take()) {
            (Ok(_), None) => {
                let detail = format!("{version}, starts programs in namespaces of their own");
                return HostFeatureReport::working(HostFeature::Bubblewrap, detail);
            }
            (Ok(_), Some(complaint)) => {
                let detail = format!("{version}, starts programs without {}", way.lacks);
                return HostFeatureReport::partial(
                    HostFeature::Bubblewrap,
                    detail,
                    weakened(complaint),
                );
            }
            (Err(complaint), earlier) => first_complaint = Some(earlier.unwrap_or(complaint)),
        }
    }
    let complaint = first_complaint.unwrap_or_default();
    HostFeatureReport::missing(HostFeature::Bubblewrap, ABSENCE, refusal(&complaint))
}

fn weakened(complaint: String) -> Lack {
    let remedy = if complaint.contains("proc") {
        "in a container: unmask /proc (docker: --security-opt systempaths=unconfined)"
    } else {
        "allow bwrap to set up a network namespace: an AppArmor profile or CAP_NET_ADMIN inside it"
    };
    Lack::new(complaint, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_features::HostFeatureState;

    /// Simulates a bwrap that fails if it gets any of the arguments in `refuses`.
    fn hindered(refuses: &[&str]) -> HostFeatureReport {
        tried("/bin/true", |arguments| {
            if arguments == ["--version"] {
                return Ok("bubblewrap 0.9\n".to_owned());
            }
            assert!(arguments.ends_with(&["--", "/bin/true"]), "{arguments:?}");
            let isolates_net = !arguments.contains(&"--share-net");
            let refused = refuses.iter().find(|refused| match **refused {
                "net" => isolates_net,
                argument => arguments.contains(&argument),
            });
            match refused {
                Some(refused) => Err(format!("cannot do {refused}")),
                None => Ok(String::new()),
            }
        })
    }

    #[test]
    fn what_a_host_hinders_is_named() {
        let free = hindered(&[]);
        assert_eq!(free.state, HostFeatureState::Working);
        assert_eq!(free.detail, "bubblewrap 0.9, starts programs in namespaces of their own");
        for (refuses, lacks, cause, remedy) in [
            (&["net"][..], "without a network of its own", "cannot do net", "AppArmor"),
            (&["--proc"], "without a /proc of its own", "cannot do --proc", "unmask /proc"),
            (&["net", "--proc"], "a network and a /proc of its own", "cannot do net", "AppArmor"),
        ] {
            let facility = hindered(refuses);
            assert_eq!(facility.state, HostFeatureState::Partial);
            assert!(facility.detail.ends_with(lacks), "{facility:?}");
            assert_eq!(facility.cause.as_deref(), Some(cause));
            assert!(facility.remedy.unwrap().contains(remedy));
        }
        let barred = hindered(&["--unshare-all"]);
        assert_eq!(barred.state, HostFeatureState::Missing);
        assert!(barred.cause.unwrap().contains("cannot do --unshare-all"));
    }

    #[test]
    fn a_broken_bwrap_is_told_from_a_hindered_one() {
        let broken = tried("/bin/true", |_| Err("no loader".to_owned()));
        assert_eq!(broken.state, HostFeatureState::Missing);
        assert_eq!(broken.cause.as_deref(), Some("it does not run: no loader"));
    }
}
