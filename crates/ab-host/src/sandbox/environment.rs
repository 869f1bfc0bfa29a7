//! Builds the environment of a child from a small fixed set of variables and the caller's
//! variables.
//!
//! - Nothing is inherited from the environment of this process.
//! - Variables that load code or name programs are refused if no kernel mechanism isolates the
//!   command, see [`ab_core::environment`].

use std::collections::BTreeMap;

use ab_core::environment::{CodeLoadingEnvVariablePolicy, check_env_variable, env_variable_bytes};
use ab_core::{Error, ErrorCode, ErrorKind, Verb};

use crate::exec::Toolchain;

/// Maximum number of environment variables of one child.
pub(crate) const MAX_VARIABLES: usize = 1_000;
/// Maximum size of all variables together, in bytes. The arguments need space on the same stack.
pub(crate) const MAX_BYTES: usize = 1024 * 1024;
/// The variable that marks a command and all processes that it starts. Its value is unique for each
/// command.
pub(crate) const PROCESS_VARIABLE: &str = "AGENT_BACKEND_PROCESS";

/// The values of the variables that every child has unless the caller sets them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base<'a> {
    pub(crate) path: &'a str,
    pub(crate) home: &'a str,
    /// The working directory, as the child sees it.
    pub(crate) cwd: &'a str,
    /// The shell that runs commands. Without this variable, a shell would look itself up in
    /// `/etc/passwd`.
    pub(crate) shell: &'a str,
    pub(crate) term: &'a str,
    pub(crate) tmpdir: Option<&'a str>,
    /// A directory for caches and histories. Without it, they would be in the home directory.
    pub(crate) caches: Option<&'a str>,
    pub(crate) toolchains: &'a [Toolchain],
    /// The value of [`PROCESS_VARIABLE`], by which processes of the command are found. The caller
    /// cannot change it.
    pub(crate) process: &'a str,
    /// Whether variables that load code are accepted.
    pub(crate) code: CodeLoadingEnvVariablePolicy,
}

/// Builds the whole environment of a child, sorted by name.
pub(crate) fn assemble(
    base: &Base<'_>,
    given: &BTreeMap<String, String>,
) -> Result<Vec<(String, String)>, Error> {
    let mut whole = BTreeMap::from([
        ("PATH", base.path),
        ("HOME", base.home),
        ("PWD", base.cwd),
        ("SHELL", base.shell),
        ("LANG", "C"),
        ("TERM", base.term),
        (PROCESS_VARIABLE, base.process),
    ]);
    if !given.contains_key("LANG") {
        // `LANG=C.UTF-8` would have the same effect, but would make every program open a dozen
        // files when it starts.
        whole.insert("LC_CTYPE", "C.UTF-8");
    }
    if let Some(tmpdir) = base.tmpdir {
        whole.insert("TMPDIR", tmpdir);
    }
    let caches = base.caches.map_or_else(BTreeMap::new, |caches| away_from_home(caches, base.home));
    whole.extend(caches.iter().map(|(name, value)| (*name, value.as_str())));
    for toolchain in base.toolchains {
        whole.extend(toolchain.environment.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    }
    for (name, value) in given {
        check_env_variable(name, value, base.code)?;
        whole.insert(name, value);
    }
    if whole.len() > MAX_VARIABLES {
        let count = whole.len();
        return Err(invalid(format!("{count} environment variables are given"))
            .with_hint(format!("a command takes at most {MAX_VARIABLES}")));
    }
    let total: usize = whole.iter().map(|(name, value)| env_variable_bytes(name, value)).sum();
    if total > MAX_BYTES {
        return Err(invalid(format!("the environment is {total} bytes long"))
            .with_hint(format!("a command takes at most {MAX_BYTES}; put long texts into files")));
    }
    Ok(whole.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// Returns variables that make programs put caches and histories outside of the home directory. The
/// home directory is the workspace, and caches in the workspace would appear as changes in its
/// repository.
///
/// Most programs follow the `XDG` variables (pip, uv, Go's build cache, Yarn 1, Deno, ccache).
/// Three variables are not set. `XDG_DATA_HOME` and `GOPATH` are not set because later commands
/// look up installed programs there. `PYTHONPYCACHEPREFIX` is not set because `__pycache__` is
/// expected beside its source.
fn away_from_home(caches: &str, home: &str) -> BTreeMap<&'static str, String> {
    const BELOW: &[(&str, &str)] = &[
        ("XDG_CACHE_HOME", "xdg"),
        ("XDG_STATE_HOME", "state"),
        ("XDG_CONFIG_HOME", "config"),
        ("npm_config_cache", "npm"),
        ("PNPM_HOME", "pnpm"),
        ("YARN_GLOBAL_FOLDER", "yarn"),
        ("PIP_CACHE_DIR", "pip"),
        ("UV_CACHE_DIR", "uv"),
        ("CARGO_HOME", "cargo"),
        ("GOCACHE", "go-build"),
        ("GOMODCACHE", "go-mod"),
        ("GRADLE_USER_HOME", "gradle"),
        ("NUGET_PACKAGES", "nuget"),
        ("DOTNET_CLI_HOME", "dotnet"),
        ("COMPOSER_HOME", "composer"),
        ("PUPPETEER_CACHE_DIR", "puppeteer"),
        ("HISTFILE", "shell_history"),
        ("LESSHISTFILE", "less_history"),
        ("NODE_REPL_HISTORY", "node_history"),
        ("PYTHON_HISTORY", "python_history"),
        ("SQLITE_HISTORY", "sqlite_history"),
        ("PSQL_HISTORY", "psql_history"),
        ("MYSQL_HISTFILE", "mysql_history"),
        ("REDISCLI_HISTFILE", "redis_history"),
    ];
    let below = BELOW.iter().map(|(name, below)| (*name, format!("{caches}/{below}")));
    let mut whole: BTreeMap<&'static str, String> = below.collect();
    // Java reads the home directory from the list of users, and Maven has no variable for its
    // repository. So options set both. The options are separated by spaces, so the paths must not
    // contain spaces.
    if ![caches, home].iter().any(|path| path.contains(char::is_whitespace)) {
        let options = format!("-Dmaven.repo.local={caches}/maven -Duser.home={home}");
        whole.insert("MAVEN_OPTS", options);
    }
    whole
}

fn invalid(message: String) -> Error {
    Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message).with_verb(Verb::Exec)
}

#[cfg(test)]
mod tests {
    use ab_core::environment::MAX_ENV_VARIABLE_BYTES;

    use super::*;

    const BASE: Base<'static> = Base {
        path: "/usr/bin:/bin",
        home: "/tmp/home",
        cwd: "/workspace/src",
        shell: "/bin/bash",
        term: "dumb",
        tmpdir: None,
        caches: None,
        toolchains: &[],
        process: "p1",
        code: CodeLoadingEnvVariablePolicy::Refused,
    };

    fn given(name: &str, value: &str) -> BTreeMap<String, String> {
        [(name.to_owned(), value.to_owned())].into()
    }

    fn value(whole: &[(String, String)], name: &str) -> Option<String> {
        whole.iter().find(|(each, _)| each == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn starts_from_the_base() {
        let whole = assemble(&BASE, &BTreeMap::new()).unwrap();
        let flat: Vec<String> = whole.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            flat,
            [
                "AGENT_BACKEND_PROCESS=p1",
                "HOME=/tmp/home",
                "LANG=C",
                "LC_CTYPE=C.UTF-8",
                "PATH=/usr/bin:/bin",
                "PWD=/workspace/src",
                "SHELL=/bin/bash",
                "TERM=dumb",
            ]
        );
        let whole =
            assemble(&Base { tmpdir: Some("/tmp"), ..BASE }, &given("HOME", "/else")).unwrap();
        assert_eq!(value(&whole, "TMPDIR").as_deref(), Some("/tmp"));
        assert_eq!(value(&whole, "HOME").as_deref(), Some("/else"));
        assert_eq!(whole.len(), 9);
    }

    #[test]
    fn caches_go_away_from_home_and_given_values_win() {
        let toolchain = Toolchain {
            environment: [("RUSTUP_HOME".to_owned(), "/r".to_owned())].into(),
            ..Toolchain::default()
        };
        let toolchains = [toolchain];
        let base = Base { caches: Some("/c"), toolchains: &toolchains, ..BASE };
        let whole = assemble(&base, &given("XDG_CACHE_HOME", "/mine")).unwrap();
        assert_eq!(value(&whole, "XDG_CACHE_HOME").as_deref(), Some("/mine"));
        assert_eq!(value(&whole, "npm_config_cache").as_deref(), Some("/c/npm"));
        assert_eq!(value(&whole, "CARGO_HOME").as_deref(), Some("/c/cargo"));
        assert_eq!(value(&whole, "RUSTUP_HOME").as_deref(), Some("/r"));
        let maven = value(&whole, "MAVEN_OPTS").unwrap();
        assert_eq!(maven, "-Dmaven.repo.local=/c/maven -Duser.home=/tmp/home");
        let spaced = Base { home: "/tmp/my home", ..base };
        assert_eq!(value(&assemble(&spaced, &BTreeMap::new()).unwrap(), "MAVEN_OPTS"), None);
    }

    #[test]
    fn a_language_that_is_given_is_whole() {
        let whole = assemble(&BASE, &given("LANG", "de_DE.ISO-8859-1")).unwrap();
        assert_eq!(value(&whole, "LANG").as_deref(), Some("de_DE.ISO-8859-1"));
        assert_eq!(value(&whole, "LC_CTYPE"), None);
    }

    #[test]
    fn refused_ones_are_refused() {
        let whole = assemble(&BASE, &given("FOO", "bar")).unwrap();
        assert_eq!(value(&whole, "FOO").as_deref(), Some("bar"));
        let error = assemble(&BASE, &given("LD_PRELOAD", "x.so")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().contains("loads code into every program"), "{error}");
        let walled = Base { code: CodeLoadingEnvVariablePolicy::Allowed, ..BASE };
        let whole = assemble(&walled, &given("PYTHONPATH", "src")).unwrap();
        assert_eq!(value(&whole, "PYTHONPATH").as_deref(), Some("src"));
        assert!(assemble(&walled, &given("AGENT_BACKEND_PROCESS", "p2")).is_err());
    }

    #[test]
    fn bounds_the_whole() {
        let many = |count: usize, value: &str| -> BTreeMap<String, String> {
            (0..count).map(|n| (format!("V{n}"), value.to_owned())).collect()
        };
        let base = assemble(&BASE, &BTreeMap::new()).unwrap().len();
        assert!(assemble(&BASE, &many(MAX_VARIABLES - base, "")).is_ok());
        let error = assemble(&BASE, &many(MAX_VARIABLES - base + 1, "")).unwrap_err();
        assert!(error.message().contains("1001 environment variables"), "{error}");
        let longest = "x".repeat(MAX_ENV_VARIABLE_BYTES - 4);
        assert!(assemble(&BASE, &many(7, &longest)).is_ok());
        let error = assemble(&BASE, &many(8, &longest)).unwrap_err();
        assert!(error.message().contains("bytes long"), "{error}");
    }
}
