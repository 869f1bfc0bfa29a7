//! Opens a link in the browser of the desktop.

use std::env;
use std::time::Duration;

use ab_host::host_program::{HostProgram, HostProgramRequest};

/// Time limit for the program that opens links. On some desktops it runs until the browser is
/// closed.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
const MAX_OUTPUT: usize = 64 * 1024;

/// Opens a link. Does nothing if there is no desktop or no program that opens links. The user can
/// still open the link, because the caller has already printed it.
pub(crate) async fn open(link: &str) {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    if !is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY") {
        return;
    }
    let path: Vec<_> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    let Ok(opener) = HostProgram::find("xdg-open", &path) else { return };
    let run = HostProgramRequest {
        arguments: vec![link.into()],
        directory: "/".into(),
        environment: env::vars_os().collect(),
        input: Vec::new(),
        timeout: LONGEST,
        max_output: MAX_OUTPUT,
    };
    if let Err(error) = opener.run(run).await {
        tracing::warn!(%error, "cannot open the browser");
    }
}
