//! A command that tries to get out, sent before the first real one: walls are believed when it
//! comes back without having seen, written or signalled anything outside.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ab_core::effective::{Isolation, Network};
use ab_core::process::{Cause, Channel, ExecRequest};

use super::Runner;
use super::standing::Standing;
use crate::local::Shared;
use crate::sandbox::landlock;

/// How long it may take.
const TIME: Duration = Duration::from_secs(10);
/// Places for a file that commands must not see, besides the configured one.
const OUTSIDE: &[&str] = &["/var/tmp", "/dev/shm", "/run"];

/// What came back.
pub(super) struct Proof {
    pub(super) text: String,
    pub(super) restores_signals: bool,
}

pub(super) async fn send(
    runner: &Runner,
    shared: &Arc<Shared>,
    standing: &Standing,
) -> Result<Proof, String> {
    let bait = Bait::lay(&runner.settings.temporary, shared)?;
    let mut request = ExecRequest::shell(script(&bait));
    request.limits.wall = Some(TIME);
    let said = run(runner, shared, standing, request).await?;
    judge(&said, standing.isolation, runner.settings.network)?;
    if bait.taken.exists() {
        return Err("a command wrote outside the workspace".to_owned());
    }
    let text = match standing.isolation {
        Isolation::Bwrap => {
            "namespaces differ; a file outside was not seen, nor one written; filter in force"
        }
        _ => "a file outside was not read, nor one written; rules and filter in force",
    };
    Ok(Proof { text: text.to_owned(), restores_signals: said.contains_key("restores") })
}

/// A file outside, and one that must not come to be.
struct Bait {
    directory: PathBuf,
    seen: PathBuf,
    taken: PathBuf,
}

impl Bait {
    fn lay(temporary: &Path, shared: &Shared) -> Result<Bait, String> {
        use std::hash::{BuildHasher, Hasher};
        use std::os::unix::fs::DirBuilderExt;
        let random = std::hash::RandomState::new().build_hasher().finish();
        let inside = |place: &Path| shared.aliases.iter().any(|root| place.starts_with(root));
        let places = std::iter::once(temporary).chain(OUTSIDE.iter().map(Path::new));
        for place in places.filter(|place| !inside(place)) {
            let directory = place.join(format!("agent-backend-canary-{random:016x}"));
            if std::fs::DirBuilder::new().mode(0o700).create(&directory).is_err() {
                continue;
            }
            let bait =
                Bait { seen: directory.join("outside"), taken: directory.join("taken"), directory };
            if std::fs::write(&bait.seen, "outside").is_ok() {
                return Ok(bait);
            }
        }
        Err("no place outside the workspace where a test file can be made".to_owned())
    }
}

impl Drop for Bait {
    fn drop(&mut self) {
        // Ours alone, and small.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Says, a line each, what it found. Plain words of any shell, and three programs.
fn script(bait: &Bait) -> String {
    let (seen, taken) = (bait.seen.display(), bait.taken.display());
    let parent = std::process::id();
    format!(
        r#"
for n in pid mnt ipc uts net; do echo "$n $(readlink /proc/self/ns/$n 2>/dev/null)"; done
(read -r x < '{seen}') 2>/dev/null && echo "saw it"
(: > '{taken}') 2>/dev/null && echo "wrote it"
(: > /usr/.agent-backend-canary) 2>/dev/null && echo "system it"
kill -0 {parent} 2>/dev/null && echo "signalled {parent}"
(unshare -U true) 2>/dev/null && echo "unshared it"
/usr/bin/env --default-signal=INT,QUIT true 2>/dev/null && echo "restores yes"
[ -r /proc/self/status ] && while read -r k v; do
  case $k in Seccomp:|NoNewPrivs:|CapEff:) echo "$k $v";; esac
done < /proc/self/status
echo "done yes"
"#
    )
}

/// Runs it as any command would be, and gathers its lines.
async fn run(
    runner: &Runner,
    shared: &Arc<Shared>,
    standing: &Standing,
    request: ExecRequest,
) -> Result<HashMap<String, String>, String> {
    let standing = Arc::new(standing.clone());
    let place = runner.table.enter().map_err(|error| error.message().to_owned())?;
    // Not those of the settings: too little memory or time for it says nothing about walls.
    let launched = runner.launch(shared, &standing, &request, request.limits, &place).await;
    let launched = launched.map_err(|error| error.message().to_owned())?;
    let mut process = runner.held(launched, &request, place);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    while let Some(output) = process.output.recv().await {
        match output.channel {
            Channel::Stdout => stdout.extend_from_slice(&output.bytes),
            Channel::Stderr => stderr.extend_from_slice(&output.bytes),
        }
    }
    let exit = process.wait().await.ok_or("the test command was lost")?;
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    let said: HashMap<String, String> = stdout
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
        .collect();
    if exit.cause == Cause::Timeout {
        return Err(format!("a test command did not end within {TIME:?}"));
    }
    if !said.contains_key("done") {
        let stderr = String::from_utf8_lossy(&stderr);
        let stderr = stderr.trim();
        return Err(match stderr.is_empty() {
            true => format!("a test command ended with {:?} {:?}", exit.code, exit.signal),
            false => stderr.lines().collect::<Vec<_>>().join("; "),
        });
    }
    Ok(said)
}

fn judge(
    said: &HashMap<String, String>,
    isolation: Isolation,
    network: Network,
) -> Result<(), String> {
    for (deed, words) in [
        ("saw", "read a file outside the workspace"),
        ("wrote", "wrote outside the workspace"),
        ("system", "changed a directory of the system"),
        ("unshared", "made a user namespace"),
    ] {
        if said.contains_key(deed) {
            return Err(format!("a test command {words}"));
        }
    }
    let signals_kept =
        isolation == Isolation::Bwrap || landlock::version() >= Some(landlock::SCOPES);
    if signals_kept && said.contains_key("signalled") {
        return Err("a test command could signal a process outside".to_owned());
    }
    if isolation == Isolation::Bwrap {
        let mut own = vec!["pid", "mnt", "ipc", "uts"];
        if network == Network::None {
            own.push("net");
        }
        for name in own {
            let ours = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap_or_default();
            if said.get(name).is_none_or(|theirs| theirs.is_empty() || ours == Path::new(theirs)) {
                return Err(format!("a test command was in our own {name} namespace"));
            }
        }
        // Landlock hides the file that says so; there, the calls themselves would have failed.
        for (line, value) in
            [("Seccomp:", "2"), ("NoNewPrivs:", "1"), ("CapEff:", "0000000000000000")]
        {
            if said.get(line).map(String::as_str) != Some(value) {
                return Err(format!("a test command ran with '{line} {:?}'", said.get(line)));
            }
        }
    }
    Ok(())
}
