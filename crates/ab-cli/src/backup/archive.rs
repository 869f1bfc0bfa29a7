//! Packs and unpacks archives with the host's `tar`. This module is used only for directories that
//! agents cannot change at the same time.

use std::env;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ab_core::{Error, ErrorCode, ErrorKind};
use ab_host::host_program::{HostProgram, HostProgramRequest};

use crate::failure::Failure;

/// Time limit for packing or unpacking an archive.
const TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
const MAX_OUTPUT: usize = 64 * 1024;

/// Packs the contents of `directory` into the new private file `archive`. The name of the archive
/// determines the compression.
pub(super) async fn pack(directory: &Path, archive: &Path) -> Result<(), Failure> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(archive);
    made.map_err(|error| Failure::input(format!("create {}", archive.display()), error))?;
    // The posix format keeps file times in full precision, because git compares them with its
    // index.
    let flags = ["--create", "--auto-compress", "--format=posix", "--file"];
    let packed = tar(directory, &flags, archive, &["."]).await?;
    packed.map_err(|why| failed("pack", archive, &why))
}

/// Unpacks `archive` into `directory`, which must be empty.
pub(super) async fn unpack(archive: &Path, directory: &Path) -> Result<(), Failure> {
    let flags = ["--extract", "--no-same-owner", "--preserve-permissions", "--file"];
    let unpacked = tar(directory, &flags, archive, &[]).await?;
    unpacked.map_err(|why| failed("unpack", archive, &why))
}

/// Runs tar. The inner error is what tar complained about.
async fn tar(
    directory: &Path,
    flags: &[&str],
    archive: &Path,
    members: &[&str],
) -> Result<Result<(), String>, Failure> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = env::split_paths(&path).collect();
    let program = HostProgram::find("tar", &directories)?;
    let mut arguments: Vec<_> = flags.iter().map(Into::into).collect();
    arguments.push(archive.as_os_str().to_owned());
    arguments.extend(members.iter().map(Into::into));
    let request = HostProgramRequest {
        arguments,
        directory: directory.to_owned(),
        environment: vec![("PATH".into(), path), ("LC_ALL".into(), "C".into())],
        input: Vec::new(),
        timeout: TIMEOUT,
        max_output: MAX_OUTPUT,
    };
    let output = program.run(request).await?;
    if output.code == Some(0) {
        return Ok(Ok(()));
    }
    Ok(Err(output.stderr.lines().next().unwrap_or("tar gave no reason").to_owned()))
}

fn failed(act: &str, archive: &Path, why: &str) -> Failure {
    let message = format!("cannot {act} the archive {}: {why}", archive.display());
    Error::new(ErrorCode::ExecFailed, ErrorKind::CommandFailed, message).into()
}
