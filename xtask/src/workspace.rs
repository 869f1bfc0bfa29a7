//! The location of this workspace on disk, according to cargo.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The directory of the root manifest.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable for programs and tests that it runs. The value from compile time is
    // used for a binary that is started by hand.
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// The cargo that started us, so that every step uses the same toolchain.
pub(crate) fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"))
}

/// Cargo's metadata of the workspace members. Needs neither network nor lock file.
pub(crate) fn metadata() -> Result<Value> {
    let output = Command::new(cargo())
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .context("run cargo metadata")?;
    ensure!(
        output.status.success(),
        "run cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    serde_json::from_slice(&output.stdout).context("parse the output of cargo metadata")
}

/// The target directory of cargo.
pub(crate) fn target_directory() -> Result<PathBuf> {
    metadata()?["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .context("find target_directory in the output of cargo metadata")
}

/// The path of the program `name` built by `cargo build`.
pub(crate) fn development_binary(name: &str) -> Result<PathBuf> {
    let file = format!("{name}{}", env::consts::EXE_SUFFIX);
    Ok(target_directory()?.join("debug").join(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_holds_the_manifest() {
        assert!(root().join("Cargo.toml").is_file());
        assert!(root().join("xtask/Cargo.toml").is_file());
    }

    #[test]
    fn development_binary_is_in_the_target_directory() {
        let path = development_binary("agent-backend").unwrap();
        assert!(path.is_absolute());
        assert!(path.parent().unwrap().ends_with("debug"));
    }
}
