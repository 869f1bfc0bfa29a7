//! Finds toolchains that a user has installed outside the system's directories, and the parts of
//! them that commands may read.
//!
//! Commands can read only directories that are known to contain programs and their libraries. Other
//! files near these directories, such as `~/.cargo/credentials.toml`, `~/.npmrc` and
//! `~/.m2/settings.xml`, are not visible to commands.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ab_host::Toolchain;
use clap::Args;

use crate::failure::Failure;

const AUTO: &str = "auto";
const NONE: &str = "none";

#[derive(Args, Debug)]
pub(crate) struct ToolchainFlags {
    /// Directory of a toolchain that commands can read; auto: toolchains that you installed
    ///
    /// auto finds toolchains such as those of rustup, nvm and Go in your home directory. With none, commands can read no
    /// such toolchains.
    #[arg(long, value_name = "DIR|auto|none")]
    toolchain: Vec<OsString>,
}

impl ToolchainFlags {
    pub(crate) fn are_given(&self) -> bool {
        !self.toolchain.is_empty()
    }

    /// The toolchains that commands may use: first the directories in the flags, then the
    /// toolchains that were found.
    pub(crate) fn chosen(&self) -> Result<Vec<Toolchain>, Failure> {
        chosen(&self.toolchain).map_err(|why| {
            Failure::usage(format!("cannot use --toolchain: {why}"))
                .with_hint("name an existing directory, auto or none")
        })
    }
}

/// The directories in `words`, followed by the toolchains that are found on this machine. With the
/// word `none`, nothing is searched.
///
/// # Errors
///
/// Fails with the cause if a word is not a directory, or if the words contradict each other.
pub(crate) fn chosen(words: &[OsString]) -> Result<Vec<Toolchain>, String> {
    let is = |word: &str| words.iter().any(|given| given == word);
    if is(AUTO) && is(NONE) {
        return Err("auto and none cannot be used together".to_owned());
    }
    let named = words.iter().filter(|given| *given != AUTO && *given != NONE);
    let mut chosen: Vec<Toolchain> = named.map(in_directory).collect::<Result<_, _>>()?;
    if !is(NONE) {
        let found = find(&Surroundings::of_process());
        chosen.extend(found.into_iter().map(|found| found.toolchain));
    }
    Ok(chosen)
}

fn in_directory(given: &OsString) -> Result<Toolchain, String> {
    let refused = |cause: String| format!("{}: {cause}", Path::new(given).display());
    let directory = std::path::absolute(given).map_err(|error| refused(error.to_string()))?;
    let found = directory.metadata().map_err(|error| refused(error.to_string()))?;
    if found.is_dir() {
        Ok(Toolchain::from_directory(directory))
    } else {
        Err(refused("it is not a directory".to_owned()))
    }
}

/// A toolchain of the user.
#[derive(Debug)]
pub(crate) struct FoundToolchain {
    pub(crate) name: &'static str,
    pub(crate) toolchain: Toolchain,
}

/// The places where toolchains are searched.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    home: Option<PathBuf>,
    path: Vec<PathBuf>,
    /// Environment variables that set the directory of a toolchain.
    variables: BTreeMap<&'static str, PathBuf>,
}

/// A toolchain that is installed in a single directory.
struct Known {
    name: &'static str,
    /// The environment variable with the directory of the toolchain. Commands get this variable
    /// too.
    variable: Option<&'static str>,
    /// The path of the directory relative to the home directory. Used if the variable is not set.
    directory: &'static str,
    /// The paths in the directory that commands may read. A star matches any name.
    readable: &'static [&'static str],
    /// The directories of programs. A path with a star can have several matches. The match in the
    /// user's `PATH` is used. If no match is in `PATH`, the newest one is used.
    bin: &'static [&'static str],
}

const fn known(name: &'static str, directory: &'static str) -> Known {
    Known { name, variable: None, directory, readable: &["bin"], bin: &["bin"] }
}

const KNOWN: &[Known] = &[
    // Cargo's own directory also contains credentials. Commands use another directory for their
    // caches.
    known("cargo", ".cargo"),
    Known {
        variable: Some("RUSTUP_HOME"),
        readable: &["toolchains", "update-hashes", "settings.toml"],
        bin: &[],
        ..known("rustup", ".rustup")
    },
    Known {
        variable: Some("PYENV_ROOT"),
        readable: &["bin", "libexec", "shims", "versions", "version", "pyenv.d", "plugins"],
        bin: &["shims", "bin"],
        ..known("pyenv", ".pyenv")
    },
    Known {
        variable: Some("NVM_DIR"),
        // `etc` is not included, because npm stores tokens there.
        readable: &[
            "versions/node/*/bin",
            "versions/node/*/lib",
            "versions/node/*/include",
            "versions/node/*/share",
            "alias",
            "nvm.sh",
            "nvm-exec",
        ],
        bin: &["versions/node/*/bin"],
        ..known("nvm", ".nvm")
    },
    Known {
        variable: Some("FNM_DIR"),
        readable: &[
            "node-versions/*/installation/bin",
            "node-versions/*/installation/lib",
            "node-versions/*/installation/include",
            "node-versions/*/installation/share",
        ],
        bin: &["node-versions/*/installation/bin"],
        ..known("fnm", ".local/share/fnm")
    },
    Known {
        variable: Some("VOLTA_HOME"),
        readable: &["tools/image"],
        bin: &["tools/image/node/*/bin", "tools/image/yarn/*/bin", "tools/image/pnpm/*/bin"],
        ..known("volta", ".volta")
    },
    Known { variable: Some("BUN_INSTALL"), ..known("bun", ".bun") },
    Known { variable: Some("DENO_INSTALL"), ..known("deno", ".deno") },
    known("go programs", "go"),
    Known { readable: &["*"], bin: &["*/bin"], ..known("go", "sdk") },
    Known {
        variable: Some("SDKMAN_DIR"),
        readable: &[
            "candidates/java",
            "candidates/kotlin",
            "candidates/scala",
            "candidates/gradle",
            "candidates/maven/*/bin",
            "candidates/maven/*/boot",
            "candidates/maven/*/lib",
        ],
        bin: &[
            "candidates/java/current/bin",
            "candidates/kotlin/current/bin",
            "candidates/scala/current/bin",
            "candidates/gradle/current/bin",
        ],
        ..known("sdkman", ".sdkman")
    },
    Known {
        variable: Some("UV_PYTHON_INSTALL_DIR"),
        readable: &["*"],
        bin: &[],
        ..known("uv python", ".local/share/uv/python")
    },
    Known { readable: &["*"], bin: &[], ..known("uv tools", ".local/share/uv/tools") },
    Known { readable: &["*"], bin: &[], ..known("pipx", ".local/share/pipx/venvs") },
    known("user programs", ".local"),
    Known {
        readable: &["bin", "condabin", "lib", "include", "share", "envs", "ssl"],
        ..known("miniconda", "miniconda3")
    },
    Known {
        readable: &["bin", "condabin", "lib", "include", "share", "envs", "ssl"],
        ..known("miniforge", "miniforge3")
    },
];

/// Directories of programs below `/usr` that are not in the system's `PATH`. Commands can always
/// read them.
const ELSEWHERE: &[(&str, &str)] = &[("go", "/usr/local/go/bin"), ("cuda", "/usr/local/cuda/bin")];

/// Maximum number of names that the star in a path may match.
const MOST_VERSIONS: usize = 64;

impl Surroundings {
    pub(crate) fn of_process() -> Self {
        let absolute = |name: &str| {
            let value = env::var_os(name).map(PathBuf::from);
            value.filter(|path| path.is_absolute() && path.components().count() > 1)
        };
        let named = KNOWN.iter().filter_map(|known| known.variable);
        let path = env::var_os("PATH").unwrap_or_default();
        Self {
            home: absolute("HOME"),
            path: env::split_paths(&path).collect(),
            variables: named.filter_map(|name| Some((name, absolute(name)?))).collect(),
        }
    }

    fn directory(&self, known: &Known) -> Option<PathBuf> {
        let named = known.variable.and_then(|variable| self.variables.get(variable));
        named.cloned().or_else(|| Some(self.home.as_ref()?.join(known.directory)))
    }

    /// The position of a directory in the user's `PATH`. Directories that are not in it come last.
    fn rank(&self, bin: &Path) -> usize {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let bin = real(bin);
        let found = self.path.iter().position(|entry| real(entry) == bin);
        found.unwrap_or(usize::MAX)
    }
}

/// The installed toolchains, in the order of the user's `PATH`.
pub(crate) fn find(surroundings: &Surroundings) -> Vec<FoundToolchain> {
    let mut found: Vec<(usize, FoundToolchain)> = Vec::new();
    for known in KNOWN {
        let Some(directory) = surroundings.directory(known) else { continue };
        let readable: Vec<PathBuf> =
            known.readable.iter().flat_map(|below| expanded(&directory, below)).collect();
        if readable.is_empty() {
            continue;
        }
        let newest = |below: &&str| {
            let all = expanded(&directory, below).into_iter().filter(|bin| bin.is_dir());
            all.min_by_key(|bin| (surroundings.rank(bin), std::cmp::Reverse(version_of(bin))))
        };
        let bin: Vec<PathBuf> = known.bin.iter().filter_map(newest).collect();
        let rank = bin.iter().map(|bin| surroundings.rank(bin)).min().unwrap_or(usize::MAX);
        let variable = known.variable.and_then(|name| Some((name, directory.to_str()?)));
        let environment = variable.map(|(name, path)| (name.to_owned(), path.to_owned()));
        let toolchain = Toolchain {
            readable_paths: readable,
            program_dirs: bin,
            environment: environment.into_iter().collect(),
        };
        found.push((rank, FoundToolchain { name: known.name, toolchain }));
    }
    for (name, bin) in ELSEWHERE {
        let bin = PathBuf::from(bin);
        let rank = surroundings.rank(&bin);
        if rank != usize::MAX && bin.is_dir() {
            let toolchain = Toolchain { program_dirs: vec![bin], ..Toolchain::default() };
            found.push((rank, FoundToolchain { name, toolchain }));
        }
    }
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, found)| found).collect()
}

/// The existing paths below `directory` that match a pattern.
fn expanded(directory: &Path, below: &str) -> Vec<PathBuf> {
    let mut paths = vec![directory.to_owned()];
    for part in below.split('/') {
        paths = match part {
            "*" => paths.iter().flat_map(|path| entries(path)).collect(),
            part => paths.into_iter().map(|path| path.join(part)).collect(),
        };
    }
    paths.retain(|path| path.exists() && path.to_str().is_some());
    paths
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort_by_cached_key(|path| std::cmp::Reverse(version_of(path)));
    paths.truncate(MOST_VERSIONS);
    paths
}

/// The numbers in a path. Versions are compared by these numbers, so that `v20.9.0` comes before
/// `v20.11.1`.
fn version_of(path: &Path) -> Vec<u64> {
    let text = path.to_string_lossy();
    let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    numbers.filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[&str], path: &[&str]) -> (tempfile::TempDir, Surroundings) {
        let home = tempfile::tempdir().unwrap();
        for file in files {
            let file = home.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        let surroundings = Surroundings {
            home: Some(home.path().to_owned()),
            path: path.iter().map(|entry| home.path().join(entry)).collect(),
            variables: BTreeMap::new(),
        };
        (home, surroundings)
    }

    fn below(home: &Path, paths: &[PathBuf]) -> Vec<String> {
        let text = |path: &PathBuf| path.strip_prefix(home).unwrap().to_str().unwrap().to_owned();
        paths.iter().map(text).collect()
    }

    #[test]
    fn programs_are_offered_and_what_lies_beside_them_is_not() {
        let files = [
            ".cargo/bin/cargo",
            ".cargo/credentials.toml",
            ".rustup/toolchains/stable/bin/rustc",
            ".rustup/settings.toml",
            ".npmrc",
            ".pyenv/.git/config",
            ".pyenv/shims/python3",
            ".pyenv/versions/3.12.4/bin/python3",
            ".ssh/id_ed25519",
            ".local/bin/uv",
            ".local/share/uv/credentials/credentials.toml",
            ".local/share/uv/python/cpython-3.12.4-linux-x86_64-gnu/bin/python3.12",
            ".local/share/keyrings/login",
            "go/bin/gopls",
            "go/src/secret/main.go",
        ];
        let (home, surroundings) = host(&files, &[".local/bin", ".cargo/bin"]);
        let found = find(&surroundings);
        let names: Vec<&str> = found.iter().map(|found| found.name).collect();
        let expected = ["user programs", "cargo", "rustup", "pyenv", "go programs", "uv python"];
        assert_eq!(names, expected);
        let readable: Vec<PathBuf> =
            found.iter().flat_map(|found| found.toolchain.readable_paths.clone()).collect();
        let offered = [
            ".local/bin",
            ".cargo/bin",
            ".rustup/toolchains",
            ".rustup/settings.toml",
            ".pyenv/shims",
            ".pyenv/versions",
            "go/bin",
            ".local/share/uv/python/cpython-3.12.4-linux-x86_64-gnu",
        ];
        assert_eq!(below(home.path(), &readable), offered);
        let shims = home.path().join(".pyenv/shims");
        assert_eq!(found[3].toolchain.program_dirs, [shims]);
        let rustup = home.path().join(".rustup").to_str().unwrap().to_owned();
        assert_eq!(found[2].toolchain.environment["RUSTUP_HOME"], rustup);
        assert!(found[1].toolchain.environment.is_empty());
    }

    #[test]
    fn of_several_versions_the_one_on_the_path_is_taken_else_the_newest() {
        let files = [
            ".nvm/versions/node/v9.1.0/bin/node",
            ".nvm/versions/node/v20.11.1/bin/node",
            ".nvm/versions/node/v20.9.0/bin/node",
            ".nvm/versions/node/v20.9.0/etc/npmrc",
        ];
        let bin = |path: &[&str]| {
            let (home, surroundings) = host(&files, path);
            let found = find(&surroundings);
            let readable = below(home.path(), &found[0].toolchain.readable_paths);
            assert!(!readable.iter().any(|path| path.contains("etc")), "{readable:?}");
            below(home.path(), &found[0].toolchain.program_dirs).remove(0)
        };
        assert_eq!(bin(&[]), ".nvm/versions/node/v20.11.1/bin");
        let chosen = ".nvm/versions/node/v9.1.0/bin";
        assert_eq!(bin(&[chosen]), chosen);
    }

    #[test]
    fn a_directory_that_is_missing_or_a_file_is_refused() {
        let chosen = |words: &[&str]| {
            let toolchain = words.iter().map(OsString::from).collect();
            ToolchainFlags { toolchain }.chosen()
        };
        for words in [&["/no/such/directory"][..], &["/etc/passwd"], &["auto", "none"]] {
            assert!(chosen(words).is_err(), "{words:?}");
        }
        assert!(chosen(&["none"]).unwrap().is_empty());
        let named = chosen(&["none", "/usr"]).unwrap();
        assert_eq!(named[0].readable_paths, [PathBuf::from("/usr")]);
        assert_eq!(named[0].program_dirs, [PathBuf::from("/usr/bin")]);
    }
}
