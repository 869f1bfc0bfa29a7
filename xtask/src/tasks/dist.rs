//! `dist`: the program as one optimised, stripped file.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use crate::failure::Failure;
use crate::sequence::Sequence;
use crate::step::Step;
use crate::workspace;

/// The program that is built.
const PROGRAM: &str = "agent-backend";
/// The profile of `Cargo.toml` for programs that are handed out.
const PROFILE: &str = "dist";

pub(crate) fn run() -> Result<(), Failure> {
    let mut sequence = Sequence::default();
    sequence.run(&build())?;
    let file = file()?;
    let size = fs::metadata(&file).with_context(|| format!("find {}", file.display()))?.len();
    println!("{}", sequence.report());
    println!("{} ({} MiB)", file.display(), size.div_ceil(1 << 20));
    Ok(())
}

fn build() -> Step {
    let arguments =
        ["build", "--locked", "--profile", PROFILE, "--package", "ab-cli", "--bin", PROGRAM];
    Step::cargo("build", &arguments)
}

fn file() -> Result<PathBuf, Failure> {
    Ok(workspace::target_directory()?.join(PROFILE).join(PROGRAM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_names_what_is_needed_and_how_long_it_takes() {
        let read = |file: &str| fs::read_to_string(workspace::root().join(file)).unwrap();
        let manifest = read("Cargo.toml");
        let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
        let version = version.unwrap().trim_matches('"');
        let readme = read("README.md");
        for text in [
            &format!("Rust {version}"),
            "a C compiler",
            "bubblewrap",
            "The first build",
            "`cargo xtask dist`",
            "target/dist/agent-backend",
        ] {
            assert!(readme.contains(text), "{text}");
        }
    }

    #[test]
    fn the_profile_makes_one_stripped_file() {
        let manifest = fs::read_to_string(workspace::root().join("Cargo.toml")).unwrap();
        let (_, profile) = manifest.split_once("[profile.dist]\n").unwrap();
        let profile = profile.split("\n\n").next().unwrap();
        assert!(profile.contains("strip = \"symbols\""), "{profile}");
        let line = build().command_line();
        assert!(line.ends_with("--profile dist --package ab-cli --bin agent-backend"), "{line}");
        assert!(file().unwrap().ends_with("dist/agent-backend"));
    }
}
