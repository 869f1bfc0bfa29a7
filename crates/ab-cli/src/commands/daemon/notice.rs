//! The one line that says what is served, where, and behind which walls.

use ab_core::effective::Isolation;
use ab_server::Running;

use super::Daemon;
use super::logs::LogFormat;
use crate::failure::Failure;
use crate::terminal::talk;

/// Says it, once it is known that commands can run as they were asked to.
pub(crate) async fn tell(
    daemon: &Daemon,
    opened: &Running,
    encrypted: bool,
) -> Result<(), Failure> {
    let policy = opened.in_force().await?;
    let address = opened.address();
    let isolation = policy.isolation.map_or("no commands", Isolation::as_str);
    let scheme = if encrypted { "https" } else { "http" };
    let access = match daemon.access.is_guarded() {
        true => "token required",
        false => "no token",
    };
    let safety = match policy.isolation {
        Some(_) => daemon.commands.safety.as_str(),
        None => "none",
    };
    let root = daemon.root_dir.display().to_string();
    let scope = daemon.scope_path.as_deref();
    match daemon.log_format {
        LogFormat::Json => tracing::info!(
            root,
            scope,
            url = format!("{scheme}://{address}"),
            isolation,
            safety,
            access,
            "serving"
        ),
        LogFormat::Text => {
            let scope = scope.map(|scope| format!(" (scope {scope})")).unwrap_or_default();
            talk(&format!(
                "agent-backend serves {root}{scope} at {scheme}://{address}/mcp, \
                 isolation {isolation}, safety {safety}, {access}\n"
            ));
        }
    }
    Ok(())
}
