//! Runs a test command that tries to escape, before the first real command. The isolation counts as
//! working if the test command cannot read, write or signal anything outside.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ab_core::effective_policy::{Isolation, NetworkAccess};
use ab_core::process::{ExecRequest, OutputChannel};

use super::probe::ProbedIsolation;
use super::trouble::Unproven;
use super::visible_files::{self, Origin, Terms};
use super::{Runner, private};
use crate::local::Shared;
use crate::process::incarnation;
use crate::sandbox::landlock;

/// Time limit for the test command.
const TIME: Duration = Duration::from_secs(20);
/// Directories that can hold the test file which commands must not see, in addition to the
/// configured directory.
const OUTSIDE: &[&str] = &["/var/tmp", "/dev/shm", "/run"];

/// The result of a test in which the test command could not escape.
pub(super) struct Proof {
    pub(super) text: String,
    pub(super) restores_signals: bool,
}

pub(super) async fn send(
    runner: &Runner,
    shared: &Arc<Shared>,
    probed: &ProbedIsolation,
) -> Result<Proof, Unproven> {
    let bait = Bait::lay(&runner.settings.temporary_dir, shared, probed.isolation)?;
    let mut request = ExecRequest::shell(script(&bait));
    request.limits.wall_time = Some(TIME);
    let said = run(runner, shared, probed, request).await?;
    judge(&said, probed.isolation, runner.settings.network)?;
    if bait.taken.exists() {
        return Err(Unproven::impossible("a command wrote outside the workspace"));
    }
    let text = match probed.isolation {
        Isolation::Bwrap => {
            "namespaces differ; a file outside was not seen, nor one written; filter in force"
        }
        _ => "a file outside was not read, nor one written; rules and filter in force",
    };
    Ok(Proof { text: text.to_owned(), restores_signals: said.contains_key("restores") })
}

/// Returns the directories outside of the workspace where a test file may be made.
pub(super) fn outside<'a>(
    temporary: &'a Path,
    shared: &'a Shared,
) -> impl Iterator<Item = &'a Path> {
    let inside = |place: &Path| shared.aliases.iter().any(|root| place.starts_with(root));
    let places = std::iter::once(temporary).chain(OUTSIDE.iter().map(Path::new));
    places.filter(move |place| !inside(place))
}

/// A file outside the workspace that commands must not read, and a path that they must not create.
struct Bait {
    directory: PathBuf,
    seen: PathBuf,
    taken: PathBuf,
}

impl Bait {
    fn lay(temporary: &Path, shared: &Shared, isolation: Isolation) -> Result<Bait, Unproven> {
        let act = "no place outside the workspace where a test file can be made";
        let mut unproven = Unproven::impossible(act);
        for place in outside(temporary, shared) {
            let error = match Bait::lay_in(place) {
                Ok(bait) => return Ok(bait),
                Err(error) => error,
            };
            // Creating the test file failed, so the isolation could not be tested. The isolation
            // may still work.
            if matches!(unproven, Unproven::Impossible(_)) {
                unproven = Unproven::this_time(isolation, &format!("{act}: {error}"));
            }
        }
        Err(unproven)
    }

    fn lay_in(place: &Path) -> std::io::Result<Bait> {
        use std::os::unix::fs::DirBuilderExt;
        // A process that was killed leaves its test directory behind. The next process removes it
        // here.
        private::sweep(place);
        let directory = place.join(incarnation::next_name());
        std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
        let (seen, taken) = (directory.join("outside"), directory.join("taken"));
        let bait = Bait { directory, seen, taken };
        std::fs::write(&bait.seen, "outside")?;
        Ok(bait)
    }
}

impl Drop for Bait {
    fn drop(&mut self) {
        // Removing it here does not take long, because the directory is small.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Returns a script that prints one line for each finding. It uses POSIX shell syntax and a few
/// common programs.
fn script(bait: &Bait) -> String {
    let (seen, taken) = (bait.seen.display(), bait.taken.display());
    let parent = std::process::id();
    format!(
        r#"
for n in pid mnt ipc uts net; do echo "$n $(readlink /proc/self/ns/$n 2>/dev/null)"; done
(echo "reads it"; read -r x < '{seen}' && echo "saw it") 2>/dev/null
(echo "writes it"; : > '{taken}' && echo "wrote it") 2>/dev/null
(echo "changes it"; : > /usr/.agent-backend-canary && echo "system it") 2>/dev/null
kill -0 {parent} 2>/dev/null && echo "signalled {parent}"
(echo "unshares it"; unshare -U true && echo "unshared it") 2>/dev/null
/usr/bin/env --default-signal=INT,QUIT true 2>/dev/null && echo "restores yes"
[ -r /proc/self/status ] && while read -r k v; do
  case $k in Seccomp:|NoNewPrivs:|CapEff:) echo "$k $v";; esac
done < /proc/self/status
echo "done yes"
"#
    )
}

/// Runs the script in the same way as any other command, and collects the lines that it prints.
async fn run(
    runner: &Runner,
    shared: &Arc<Shared>,
    probed: &ProbedIsolation,
    request: ExecRequest,
) -> Result<HashMap<String, String>, Unproven> {
    let isolation = probed.isolation;
    let probed = Arc::new(probed.clone());
    let place = runner.table.enter().map_err(Unproven::Failed)?;
    // The limits of the settings do not apply here. If the test command ran out of memory or time,
    // this would say nothing about the isolation.
    let (limits, accepted, origin) = (request.limits, BTreeSet::new(), Origin::Caller);
    // The mounts of the settings are left out. A mount that fails is an error in the settings, not
    // a limitation of the host.
    let (mounts, total) = (Arc::new([]), None);
    let terms = Terms { isolation, limits, accepted, origin, mounts, total };
    // If this directory cannot be opened, the test would fail with every isolation.
    let visible_files =
        visible_files::open(shared, &request, terms).await.map_err(Unproven::Failed)?;
    let launched = runner.launch_in(shared, visible_files, &probed, &request, &place).await;
    let launched = launched.map_err(|error| Unproven::by_error(isolation, &error))?;
    let mut process = runner.held(launched, &request, place);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    while let Some(output) = process.output.recv().await {
        match output.channel {
            OutputChannel::Stdout => stdout.extend_from_slice(&output.bytes),
            OutputChannel::Stderr => stderr.extend_from_slice(&output.bytes),
        }
    }
    let lost = || Unproven::this_time(isolation, "a test command was lost");
    let exit = process.wait().await.ok_or_else(lost)?;
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    let said: HashMap<String, String> = stdout
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
        .collect();
    if said.contains_key("done") {
        return Ok(said);
    }
    Err(Unproven::by_end(isolation, &exit, &String::from_utf8_lossy(&stderr)))
}

/// Evaluates the lines that the script printed. If an access to something outside succeeded, the
/// isolation does not work. If a line is missing, nothing is proven, and the result is a temporary
/// failure.
fn judge(
    said: &HashMap<String, String>,
    isolation: Isolation,
    network: NetworkAccess,
) -> Result<(), Unproven> {
    for (deed, words) in [
        ("saw", "read a file outside the workspace"),
        ("wrote", "wrote outside the workspace"),
        ("system", "changed a directory of the system"),
        ("unshared", "made a user namespace"),
    ] {
        if said.contains_key(deed) {
            return Err(Unproven::Impossible(format!("a test command {words}")));
        }
    }
    // Inside a pid namespace, the id of our process belongs to another process or to none. A
    // successful signal would then not prove an escape.
    let signals_kept =
        isolation == Isolation::Landlock && landlock::version() >= Some(landlock::SCOPES);
    if signals_kept && said.contains_key("signalled") {
        return Err(Unproven::impossible("a test command could signal a process outside"));
    }
    let untried = |what: &str| {
        let cause = format!("a test command could not try everything: '{what}' is missing");
        Unproven::this_time(isolation, &cause)
    };
    for deed in ["reads", "writes", "changes", "unshares"] {
        if !said.contains_key(deed) {
            return Err(untried(deed));
        }
    }
    if isolation == Isolation::Bwrap {
        let mut own = vec!["pid", "mnt", "ipc", "uts"];
        if network == NetworkAccess::None {
            own.push("net");
        }
        for name in own {
            let ours = std::fs::read_link(format!("/proc/self/ns/{name}"));
            let ours = ours.map_err(|_| untried(name))?;
            match said.get(name).filter(|theirs| !theirs.is_empty()) {
                None => return Err(untried(name)),
                Some(theirs) if ours == Path::new(theirs) => {
                    let cause = format!("a test command was in our own {name} namespace");
                    return Err(Unproven::Impossible(cause));
                }
                Some(_) => {}
            }
        }
        // Under Landlock, commands cannot read this file. This check is not needed there, because a
        // start fails if the filter cannot be installed.
        for (line, value) in
            [("Seccomp:", "2"), ("NoNewPrivs:", "1"), ("CapEff:", "0000000000000000")]
        {
            match said.get(line) {
                None => return Err(untried(line)),
                Some(other) if other != value => {
                    let cause = format!("a test command ran with '{line} {other}'");
                    return Err(Unproven::Impossible(cause));
                }
                Some(_) => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_ours_inside_another_pid_namespace_says_nothing() {
        let mut said: HashMap<String, String> = [
            ("reads", "it"),
            ("writes", "it"),
            ("changes", "it"),
            ("unshares", "it"),
            ("pid", "pid:[1]"),
            ("mnt", "mnt:[1]"),
            ("ipc", "ipc:[1]"),
            ("uts", "uts:[1]"),
            ("Seccomp:", "2"),
            ("NoNewPrivs:", "1"),
            ("CapEff:", "0000000000000000"),
            ("signalled", "7"),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
        judge(&said, Isolation::Bwrap, NetworkAccess::Shared).unwrap();
        let ours = std::fs::read_link("/proc/self/ns/pid").unwrap();
        said.insert("pid".to_owned(), ours.to_string_lossy().into_owned());
        let refused = judge(&said, Isolation::Bwrap, NetworkAccess::Shared).unwrap_err();
        assert!(matches!(refused, Unproven::Impossible(cause) if cause.contains("our own pid")));
    }

    #[test]
    fn directory_left_by_a_killed_process_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let pid = std::process::id();
        // This number is larger than any process id.
        let dead = incarnation::next_name().replacen(&format!("-{pid}-"), "-4194999-", 1);
        let dead = place.path().join(dead);
        std::fs::create_dir(&dead).unwrap();
        std::fs::write(dead.join("outside"), "outside").unwrap();
        let bait = Bait::lay_in(place.path()).unwrap();
        assert!(!dead.exists());
        let name = bait.directory.file_name().unwrap().to_str().unwrap();
        assert_eq!(incarnation::maker(name), Some(pid));
    }
}
