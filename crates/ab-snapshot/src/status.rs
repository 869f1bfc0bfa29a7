//! Counts the uncommitted changes of a local source, without running anything that the source
//! configures and without changing the source.
//!
//! `git status` in the source would run the source's filters and fsmonitor, and write its index.
//! Instead, git examines the same files from a repository of ours, which has a copy of the index.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::area;
use crate::error::Result;
use crate::git::{Authority, Git};

/// Maximum size, in bytes, of the list of changes. Of a longer list, only a part is counted.
const MAX_LIST: usize = 4 * 1024 * 1024;
/// Maximum size, in bytes, of the source's index file.
const MAX_INDEX: u64 = 1024 * 1024 * 1024;
const TIME: Duration = Duration::from_secs(60);
/// The settings of the source that affect whether a file counts as changed.
const KEPT: &[&str] = &["core.autocrlf", "core.eol", "core.filemode", "core.symlinks"];

/// The changes in a source's working tree that a clone would not contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uncommitted {
    pub(crate) changed: u64,
    pub(crate) untracked: u64,
}

/// Counts the changes in the working tree of `source`. The result is zero for a bare repository.
/// `probe` is the path of a temporary directory.
pub(crate) async fn count(git: &Git, source: &Path, probe: &Path) -> Result<Uncommitted> {
    let ask = || git.at(source, Authority::Clean);
    let bare = ask().args(["rev-parse", "--is-bare-repository"]).stdout().await?;
    if bare.trim() == "true" {
        return Ok(Uncommitted::default());
    }
    let paths = ["--git-path", "index", "--git-path", "objects", "--git-path", "info"];
    let paths = ask().args(["rev-parse"]).args(paths).args(["HEAD"]).stdout().await?;
    let mut paths = paths.lines();
    let mut next = || -> PathBuf { source.join(paths.next().unwrap_or_default()) };
    let (index, objects, info) = (next(), next(), next());
    let head = paths.next().unwrap_or_default().to_owned();
    let format = ask().args(["rev-parse", "--show-object-format"]).stdout().await?;
    git.init(probe, &["--bare", &format!("--object-format={}", format.trim())]).await?;
    let file = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(parent) = index.parent() {
        ab_host::directory::copy_file(parent, &file(&index), &probe.join("index"), MAX_INDEX)
            .await?;
    }
    area::make_dir(&probe.join("info"))?;
    // An error is ignored, because the file may be missing.
    let exclude = probe.join("info/exclude");
    let _ = ab_host::directory::copy_file(&info, "exclude", &exclude, MAX_LIST as u64).await;
    let alternates = probe.join("objects/info");
    if !area::exists(&alternates) {
        area::make_dir(&alternates)?;
    }
    area::write(&alternates.join("alternates"), &format!("{}\n", objects.display()))?;
    let ours = || git.at(source, Authority::Clean).env("GIT_DIR", probe).timeout(TIME);
    ours().args(["update-ref", "--no-deref", "HEAD", &head]).stdout().await?;
    let mut settings = Vec::new();
    for name in KEPT {
        let value = ask().args(["config", "--get", name]).run().await?;
        if value.code == Some(0) {
            let value = String::from_utf8_lossy(&value.stdout).trim().to_owned();
            settings.extend(["-c".to_owned(), format!("{name}={value}")]);
        }
    }
    let status = ["status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=all"];
    let run = ours().env("GIT_WORK_TREE", source).max_output(MAX_LIST);
    let output = run.args(["-c", "core.bare=false"]).args(settings).args(status).run().await?;
    if output.code != Some(0) && !output.output_limit_exceeded {
        return Err(crate::git::failure("status", &output));
    }
    let mut counted = Uncommitted::default();
    for entry in output.stdout.split(|byte| *byte == 0).filter(|entry| entry.len() > 3) {
        if entry.starts_with(b"??") { counted.untracked += 1 } else { counted.changed += 1 }
    }
    Ok(counted)
}
