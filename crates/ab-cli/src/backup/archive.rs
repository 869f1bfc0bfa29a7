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
/// What programs say about a full disk.
const NO_SPACE: &str = "No space left on device";

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
    Ok(match (output.code, reason(&output.stderr)) {
        (Some(0), _) => Ok(()),
        (_, Some(line)) => Err(line.to_owned()),
        (Some(code), None) => {
            Err(format!("tar ended with the exit code {code} and gave no reason"))
        }
        (None, None) => Err("tar was ended by a signal".to_owned()),
    })
}

fn failed(act: &str, archive: &Path, why: &str) -> Failure {
    let kind = if why.contains(NO_SPACE) { ErrorKind::NoSpace } else { ErrorKind::CommandFailed };
    let message = format!("cannot {act} the archive {}: {why}", archive.display());
    Error::new(ErrorCode::ExecFailed, kind, message).into()
}

/// The line of the output that says what is wrong. A full disk goes before its consequences.
/// Decompressors begin their lines with an empty one, and tar adds lines that say only that it failed.
fn reason(stderr: &str) -> Option<&str> {
    const WITHOUT_REASON: [&str; 4] = [
        "Child returned status",
        "Child died with signal",
        "Error is not recoverable",
        "Exiting with failure status",
    ];
    let mut lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let full = lines.clone().find(|line| line.contains(NO_SPACE));
    full.or_else(|| lines.find(|line| !WITHOUT_REASON.iter().any(|text| line.contains(text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_the_line_that_says_what_is_wrong() {
        for (stderr, expect) in [
            (
                "\ngzip: stdin: unexpected end of file\ntar: Child returned status 1\n",
                Some("gzip: stdin: unexpected end of file"),
            ),
            (
                "tar: ./a: Wrote only 3072 of 10240 bytes\ntar: ./a: Cannot write: No space left on device\n",
                Some("tar: ./a: Cannot write: No space left on device"),
            ),
            ("tar: Error is not recoverable: exiting now\n", None),
            ("", None),
        ] {
            assert_eq!(reason(stderr), expect, "{stderr:?}");
        }
    }
}
