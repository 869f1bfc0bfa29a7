//! Shows what a remote workspace offers, and its round-trip time.

use std::time::{Duration, Instant};

use ab_core::{Backend, Capabilities};
use serde_json::{Value, json};

use super::sentences::{LimitsOf, print_policy};
use super::{ASIDE, FAIR, GOOD, HEADING};
use crate::failure::Failure;
use crate::json as shapes;
use crate::terminal::{Format, Terminal};

/// Number of round trips that are measured. The median of them is shown.
const TRIPS: usize = 9;

pub(super) async fn tell(
    url: &str,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let trip = round_trip(backend).await?;
    let policy = backend.effective_policy().await;
    // Read the capabilities after the policy. With some servers, only the call for the policy shows
    // whether they can run commands.
    let info = backend.info();
    let all = abilities(info.capabilities);
    let ours = info.capabilities.jail;
    match terminal.format() {
        Format::Json => terminal.value(&json!({
            "url": shown(url),
            "kind": info.kind.as_str(),
            "server": if ours { "agent-backend" } else { "ssh" },
            "root": info.root_aliases.first(),
            "round_trip_us": u64::try_from(trip.as_micros()).unwrap_or(u64::MAX),
            "capabilities": all.iter().map(|(name, has, _)| ((*name).to_owned(), json!(has)))
                .collect::<serde_json::Map<String, Value>>(),
            "in_force": match &policy {
                Ok(policy) => shapes::effective(policy),
                Err(error) => json!({ "error": shapes::error(error) }),
            },
        })),
        Format::Text => {
            let server = if ours {
                "an agent-backend daemon"
            } else {
                "an SSH server without agent-backend"
            };
            let heading = terminal.painted(HEADING, &format!("{} is {server}", shown(url)));
            terminal.line(&heading)?;
            if let Some(root) = info.root_aliases.first() {
                terminal.line(&format!("root        {root}"))?;
            }
            terminal.line(&format!("round trip  {:.1} ms", trip.as_secs_f64() * 1000.0))?;
            terminal.line("")?;
            for (name, has, without) in all {
                let (word, style) = if has { ("yes", GOOD) } else { ("no", FAIR) };
                let word = terminal.painted(style, &format!("{word:<3}"));
                let aside = if has {
                    String::new()
                } else {
                    terminal.painted(ASIDE, &format!("  {without}"))
                };
                terminal.line(format!("{word}  {name:<12}{aside}").trim_end())?;
            }
            terminal.line("")?;
            match &policy {
                Ok(policy) => print_policy(policy, LimitsOf::AnyCommand, terminal),
                Err(error) => terminal.line(&format!("Commands cannot run there: {error}")),
            }
        }
    }
}

/// The URL without its query, which may contain a token.
fn shown(url: &str) -> &str {
    url.split('?').next().unwrap_or(url)
}

/// All capabilities. Each entry contains the name, whether the workspace has the capability, and
/// what it means for the user if the capability is missing.
fn abilities(has: Capabilities) -> [(&'static str, bool, &'static str); 9] {
    [
        ("exec", has.exec, "commands cannot run"),
        ("detached", has.detached_processes, "a command ends with its connection"),
        ("search", has.search, "files are copied to this machine to be searched"),
        ("links", has.symlinks, "symbolic links cannot be created"),
        ("modes", has.file_modes, "files have no permission bits"),
        ("empty_dirs", has.empty_dirs, "empty directories do not exist"),
        ("jail", has.jail, "symbolic links can lead out of the workspace"),
        ("atomic_write", has.atomic_write, "readers can see a partly written file"),
        ("exact_kinds", has.exact_error_kinds, "errors may not name the exact cause"),
    ]
}

async fn round_trip(backend: &Backend) -> Result<Duration, Failure> {
    let mut trips = [Duration::ZERO; TRIPS];
    for trip in &mut trips {
        let begun = Instant::now();
        backend.stat(".").await?;
        *trip = begun.elapsed();
    }
    trips.sort_unstable();
    Ok(trips[TRIPS / 2])
}
