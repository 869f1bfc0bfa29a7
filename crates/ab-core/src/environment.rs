//! Environment variables that name programs or load code. The same list is used for environments
//! and for command lines.
//!
//! A variable in the list makes programs load or run something before they do what their command
//! line says. For an isolated command this is harmless, because the loaded code has no more rights
//! than the command itself. Without isolation, a caller can neither pass such a variable to a
//! command nor set it in the command line. A policy judges only the command line, so these
//! variables would bypass the policy. Error messages never contain values, because these may be
//! secrets.

use std::fmt;

use crate::call::Verb;
use crate::error::{Error, ErrorCode, ErrorKind, escape_unprintable};

/// Maximum number of bytes of a variable with its name. The kernel does not accept longer strings.
pub const MAX_ENV_VARIABLE_BYTES: usize = 128 * 1024;
/// The prefix of names that only the backend sets.
pub const RESERVED_ENV_PREFIX: &str = "AGENT_BACKEND_";

/// Maximum number of characters of a name in an error message.
const SHOWN_NAME: usize = 64;

/// Whether variables in the list may be passed to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeLoadingEnvVariablePolicy {
    /// Allowed, because the command is isolated.
    Allowed,
    Refused,
}

/// The names that an entry of [`CODE_LOADING_ENV_VARIABLES`] matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvVariableNamePattern {
    Exact(&'static str),
    Prefix(&'static str),
}

impl EnvVariableNamePattern {
    fn cover(self, name: &str) -> bool {
        match self {
            EnvVariableNamePattern::Exact(exact) => name == exact,
            EnvVariableNamePattern::Prefix(prefix) => name.starts_with(prefix),
        }
    }
}

impl fmt::Display for EnvVariableNamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EnvVariableNamePattern::Exact(exact) => f.write_str(exact),
            EnvVariableNamePattern::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

/// Variables that load code or name programs, with a reason.
#[derive(Clone, Copy, Debug)]
pub struct CodeLoadingEnvVariable {
    pub names: EnvVariableNamePattern,
    /// The reason. It completes a sentence that ends in "because it".
    pub reason: &'static str,
    harmless: Harmless,
}

/// The values with which a variable is harmless.
#[derive(Clone, Copy, Debug)]
enum Harmless {
    Never,
    Always,
    When(fn(&str) -> bool),
}

const fn variable(names: EnvVariableNamePattern, reason: &'static str) -> CodeLoadingEnvVariable {
    CodeLoadingEnvVariable { names, reason, harmless: Harmless::Never }
}

const fn exactly(name: &'static str, reason: &'static str) -> CodeLoadingEnvVariable {
    variable(EnvVariableNamePattern::Exact(name), reason)
}

const fn beginning_with(prefix: &'static str, reason: &'static str) -> CodeLoadingEnvVariable {
    variable(EnvVariableNamePattern::Prefix(prefix), reason)
}

/// A variable that names a program. Agents often set such a variable to a value that turns off a
/// pager or an editor. These values are harmless, because they run no program that the caller
/// chose.
const fn program(name: &'static str) -> CodeLoadingEnvVariable {
    CodeLoadingEnvVariable {
        names: EnvVariableNamePattern::Exact(name),
        reason: NAMES_PROGRAM,
        harmless: Harmless::When(|value| matches!(value, "" | "cat" | "true" | ":")),
    }
}

/// A variable with which compilers and shells are often chosen by name. A name without a slash is
/// harmless, because it is searched in `PATH`.
const fn program_by_path(name: &'static str) -> CodeLoadingEnvVariable {
    CodeLoadingEnvVariable {
        names: EnvVariableNamePattern::Exact(name),
        reason: NAMES_PROGRAM_BY_PATH,
        harmless: Harmless::When(|value| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-._".contains(c);
            value.chars().all(is_plain)
        }),
    }
}

/// Whether node loads no file with these options.
fn loads_nothing(value: &str) -> bool {
    let loads = ["--require", "-r", "--import", "--loader", "--experimental-loader", "--inspect"];
    let name = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    !value.split_whitespace().any(|word| {
        let name = name(word);
        loads.contains(&name.as_str()) || name.starts_with("--inspect")
    })
}

/// Whether the value is a shell of the system. Programs that start a shell for their user read its
/// path from such a variable.
fn is_system_shell(value: &str) -> bool {
    let name = value.strip_prefix("/usr").unwrap_or(value).strip_prefix("/bin/").unwrap_or(value);
    matches!(name, "" | "sh" | "bash" | "dash" | "zsh" | "fish")
}

const LOADS_LIBRARY: &str = "loads code into every program";
const LOADS_CONVERTER: &str = "loads converters or texts that programs trust";
const LOADS_ENGINE: &str = "loads libraries into programs that use TLS";
const LOADS_PLUGIN: &str = "loads plugins into programs";
const STARTS_SHELL: &str = "runs code when a shell starts, prompts or traces";
const CHANGES_SHELL: &str = "changes what a command line means";
const RUNS_FROM_GIT: &str = "makes git run a program";
const CONFIGURES_GIT: &str = "changes git's configuration, which can name programs to run";
const NAMES_PROGRAM: &str = "names a program to run; only an empty value or 'cat' is allowed";
const NAMES_PROGRAM_BY_PATH: &str =
    "names a program to run; only a name without '/' and without options is allowed";
const GIVES_OPTIONS: &str = "gives a program options, which can name programs to run";
const CONFIGURES: &str = "names a file of settings, which can name programs to run";
const RUNS_FROM_LESS: &str = "makes less run a program";
const STARTS_INTERPRETER: &str = "runs code when an interpreter starts";
const FINDS_MODULES: &str = "says where an interpreter finds the modules that it loads";
const MOVES_INTERPRETER: &str = "replaces an interpreter's own modules";
const ASKS_PASSWORD: &str = "makes ssh and git run a program that is given passwords";
const WRAPS_COMPILER: &str = "names a program that builds run";
const CONFIGURES_TERMINAL: &str = "says how programs control a terminal";
const STARTS_CONTAINERS: &str = "names the machine on which containers are started";
const RENAMES_HOSTS: &str = "leads network names elsewhere";

/// Variables that load code or name programs. Every entry applies to environments and to
/// assignments in command lines.
pub const CODE_LOADING_ENV_VARIABLES: &[CodeLoadingEnvVariable] = &[
    beginning_with("LD_", LOADS_LIBRARY),
    beginning_with("DYLD_", LOADS_LIBRARY),
    exactly("GLIBC_TUNABLES", "changes the loader and the allocator of every program"),
    exactly("GCONV_PATH", LOADS_CONVERTER),
    exactly("LOCPATH", LOADS_CONVERTER),
    exactly("NLSPATH", LOADS_CONVERTER),
    exactly("OPENSSL_CONF", LOADS_ENGINE),
    exactly("OPENSSL_ENGINES", LOADS_ENGINE),
    exactly("OPENSSL_MODULES", LOADS_ENGINE),
    exactly("GTK_MODULES", LOADS_PLUGIN),
    exactly("GIO_EXTRA_MODULES", LOADS_PLUGIN),
    exactly("QT_PLUGIN_PATH", LOADS_PLUGIN),
    exactly("SASL_PATH", LOADS_PLUGIN),
    exactly("KRB5_CONFIG", CONFIGURES),
    exactly("BASH_ENV", STARTS_SHELL),
    exactly("ENV", STARTS_SHELL),
    exactly("ZDOTDIR", STARTS_SHELL),
    exactly("FPATH", STARTS_SHELL),
    exactly("PROMPT_COMMAND", STARTS_SHELL),
    exactly("PS4", STARTS_SHELL),
    beginning_with("BASH_FUNC_", "puts a shell function in the place of a program"),
    exactly("SHELLOPTS", CHANGES_SHELL),
    exactly("BASHOPTS", CHANGES_SHELL),
    exactly("CDPATH", CHANGES_SHELL),
    exactly("GIT_SSH", RUNS_FROM_GIT),
    exactly("GIT_SSH_COMMAND", RUNS_FROM_GIT),
    exactly("GIT_EXTERNAL_DIFF", RUNS_FROM_GIT),
    exactly("GIT_PROXY_COMMAND", RUNS_FROM_GIT),
    program("GIT_ASKPASS"),
    program("GIT_EDITOR"),
    program("GIT_SEQUENCE_EDITOR"),
    exactly("GIT_EXEC_PATH", RUNS_FROM_GIT),
    exactly("GIT_ALLOW_PROTOCOL", "lets git use transports that run programs"),
    exactly("GIT_TEMPLATE_DIR", "puts hooks into new repositories, which git then runs"),
    // Without system settings, git runs fewer programs.
    CodeLoadingEnvVariable {
        harmless: Harmless::Always,
        ..exactly("GIT_CONFIG_NOSYSTEM", CONFIGURES_GIT)
    },
    CodeLoadingEnvVariable {
        harmless: Harmless::When(|value| value == "/dev/null"),
        ..beginning_with("GIT_CONFIG", CONFIGURES_GIT)
    },
    program("SSH_ASKPASS"),
    exactly("SUDO_ASKPASS", ASKS_PASSWORD),
    program("PAGER"),
    program("GIT_PAGER"),
    program("MANPAGER"),
    program("SYSTEMD_PAGER"),
    program("GH_PAGER"),
    program("AWS_PAGER"),
    program("PSQL_PAGER"),
    program("BAT_PAGER"),
    program("DELTA_PAGER"),
    program("EDITOR"),
    program("VISUAL"),
    program("KUBE_EDITOR"),
    program("SVN_EDITOR"),
    program("HGEDITOR"),
    program("FCEDIT"),
    program("BROWSER"),
    exactly("LESSOPEN", RUNS_FROM_LESS),
    exactly("LESSCLOSE", RUNS_FROM_LESS),
    exactly("LESSKEY", RUNS_FROM_LESS),
    exactly("LESSKEYIN", RUNS_FROM_LESS),
    exactly("VIMINIT", STARTS_INTERPRETER),
    exactly("EXINIT", STARTS_INTERPRETER),
    CodeLoadingEnvVariable {
        harmless: Harmless::When(loads_nothing),
        ..exactly("NODE_OPTIONS", STARTS_INTERPRETER)
    },
    exactly("NODE_PATH", FINDS_MODULES),
    exactly("PYTHONPATH", FINDS_MODULES),
    exactly("PYTHONSTARTUP", STARTS_INTERPRETER),
    exactly("PYTHONBREAKPOINT", STARTS_INTERPRETER),
    exactly("PYTHONHOME", MOVES_INTERPRETER),
    exactly("PYTHONPLATLIBDIR", MOVES_INTERPRETER),
    exactly("PYTHONUSERBASE", MOVES_INTERPRETER),
    exactly("PYTEST_ADDOPTS", GIVES_OPTIONS),
    exactly("PYTEST_PLUGINS", FINDS_MODULES),
    exactly("PERL5OPT", STARTS_INTERPRETER),
    exactly("PERL5DB", STARTS_INTERPRETER),
    exactly("PERL5LIB", MOVES_INTERPRETER),
    exactly("PERLLIB", MOVES_INTERPRETER),
    exactly("RUBYOPT", STARTS_INTERPRETER),
    exactly("RUBYLIB", MOVES_INTERPRETER),
    exactly("GEM_PATH", FINDS_MODULES),
    exactly("GEM_HOME", FINDS_MODULES),
    exactly("BUNDLE_GEMFILE", FINDS_MODULES),
    beginning_with("LUA_INIT", STARTS_INTERPRETER),
    beginning_with("LUA_PATH", FINDS_MODULES),
    beginning_with("LUA_CPATH", FINDS_MODULES),
    exactly("PHPRC", STARTS_INTERPRETER),
    exactly("PHP_INI_SCAN_DIR", STARTS_INTERPRETER),
    exactly("R_PROFILE", STARTS_INTERPRETER),
    exactly("R_PROFILE_USER", STARTS_INTERPRETER),
    exactly("R_ENVIRON", CONFIGURES),
    exactly("R_ENVIRON_USER", CONFIGURES),
    exactly("JULIA_LOAD_PATH", FINDS_MODULES),
    exactly("ERL_LIBS", FINDS_MODULES),
    exactly("ERL_FLAGS", STARTS_INTERPRETER),
    exactly("ERL_AFLAGS", STARTS_INTERPRETER),
    exactly("ERL_ZFLAGS", STARTS_INTERPRETER),
    exactly("EMACSLOADPATH", FINDS_MODULES),
    exactly("GUILE_LOAD_PATH", FINDS_MODULES),
    exactly("TCLLIBPATH", FINDS_MODULES),
    exactly("CLASSPATH", FINDS_MODULES),
    exactly("JAVA_TOOL_OPTIONS", STARTS_INTERPRETER),
    exactly("_JAVA_OPTIONS", STARTS_INTERPRETER),
    exactly("JDK_JAVA_OPTIONS", STARTS_INTERPRETER),
    exactly("JAVA_OPTS", STARTS_INTERPRETER),
    exactly("MAVEN_OPTS", STARTS_INTERPRETER),
    exactly("MAVEN_ARGS", GIVES_OPTIONS),
    exactly("GRADLE_OPTS", STARTS_INTERPRETER),
    exactly("SBT_OPTS", STARTS_INTERPRETER),
    exactly("DOTNET_STARTUP_HOOKS", STARTS_INTERPRETER),
    exactly("DOTNET_ADDITIONAL_DEPS", STARTS_INTERPRETER),
    beginning_with("CORECLR_PROFILER", STARTS_INTERPRETER),
    beginning_with("COR_PROFILER", STARTS_INTERPRETER),
    exactly("MAKEFLAGS", GIVES_OPTIONS),
    exactly("GNUMAKEFLAGS", GIVES_OPTIONS),
    exactly("MFLAGS", GIVES_OPTIONS),
    exactly("MAKEFILES", "makes make read files of rules"),
    exactly("TAR_OPTIONS", GIVES_OPTIONS),
    exactly("ZIPOPT", GIVES_OPTIONS),
    exactly("GREP_OPTIONS", GIVES_OPTIONS),
    exactly("RIPGREP_CONFIG_PATH", CONFIGURES),
    exactly("FZF_DEFAULT_COMMAND", NAMES_PROGRAM),
    exactly("FZF_DEFAULT_OPTS", GIVES_OPTIONS),
    exactly("RSYNC_RSH", "names the program that rsync connects with"),
    exactly("RSYNC_CONNECT_PROG", "names the program that rsync connects with"),
    exactly("CVS_RSH", "names the program that cvs connects with"),
    exactly("SVN_SSH", "names the program that svn connects with"),
    exactly("HGRCPATH", CONFIGURES),
    exactly("CURL_HOME", CONFIGURES),
    exactly("WGETRC", CONFIGURES),
    exactly("KUBECONFIG", CONFIGURES),
    exactly("ANSIBLE_CONFIG", CONFIGURES),
    exactly("TF_CLI_CONFIG_FILE", CONFIGURES),
    exactly("GOFLAGS", GIVES_OPTIONS),
    exactly("RUSTC", WRAPS_COMPILER),
    exactly("RUSTC_WRAPPER", WRAPS_COMPILER),
    exactly("RUSTC_WORKSPACE_WRAPPER", WRAPS_COMPILER),
    exactly("RUSTFLAGS", GIVES_OPTIONS),
    exactly("CARGO_ENCODED_RUSTFLAGS", GIVES_OPTIONS),
    beginning_with("CARGO_BUILD_RUSTC", WRAPS_COMPILER),
    exactly("CARGO_BUILD_RUSTFLAGS", GIVES_OPTIONS),
    CodeLoadingEnvVariable {
        harmless: Harmless::Always,
        ..exactly("CARGO_TARGET_DIR", WRAPS_COMPILER)
    },
    beginning_with("CARGO_TARGET_", WRAPS_COMPILER),
    exactly("GCC_EXEC_PREFIX", WRAPS_COMPILER),
    exactly("COMPILER_PATH", WRAPS_COMPILER),
    exactly("CMAKE_TOOLCHAIN_FILE", CONFIGURES),
    exactly("CMAKE_C_COMPILER_LAUNCHER", WRAPS_COMPILER),
    exactly("CMAKE_CXX_COMPILER_LAUNCHER", WRAPS_COMPILER),
    beginning_with("npm_config_", GIVES_OPTIONS),
    beginning_with("NPM_CONFIG_", GIVES_OPTIONS),
    program_by_path("CC"),
    program_by_path("CXX"),
    program_by_path("CPP"),
    program_by_path("FC"),
    program_by_path("LD"),
    program_by_path("AR"),
    program_by_path("AS"),
    program_by_path("NM"),
    program_by_path("RANLIB"),
    program_by_path("STRIP"),
    program_by_path("OBJCOPY"),
    program_by_path("PKG_CONFIG"),
    program_by_path("MAKE"),
    program_by_path("CMAKE"),
    program_by_path("CARGO"),
    program_by_path("RUSTDOC"),
    program_by_path("LINKER"),
    program_by_path("PYTHON"),
    CodeLoadingEnvVariable {
        harmless: Harmless::When(is_system_shell),
        ..exactly("SHELL", NAMES_PROGRAM_BY_PATH)
    },
    exactly("CCACHE_PREFIX", WRAPS_COMPILER),
    exactly("CCACHE_COMPILER", WRAPS_COMPILER),
    exactly("CCACHE_CONFIGPATH", CONFIGURES),
    program("SUDO_EDITOR"),
    program("SYSTEMD_EDITOR"),
    exactly("SSH_SK_PROVIDER", LOADS_PLUGIN),
    exactly("SSH_SK_HELPER", NAMES_PROGRAM),
    exactly("BUN_OPTIONS", STARTS_INTERPRETER),
    exactly("NODE_REPL_EXTERNAL_MODULE", STARTS_INTERPRETER),
    exactly("PYTHONPYCACHEPREFIX", FINDS_MODULES),
    CodeLoadingEnvVariable {
        harmless: Harmless::When(|value| !value.contains(['.', '/'])),
        ..exactly("PYTHONWARNINGS", FINDS_MODULES)
    },
    exactly("BASH_LOADABLES_PATH", LOADS_PLUGIN),
    exactly("GST_PLUGIN_PATH", LOADS_PLUGIN),
    exactly("GST_PLUGIN_SYSTEM_PATH", LOADS_PLUGIN),
    exactly("LIBGL_DRIVERS_PATH", LOADS_PLUGIN),
    exactly("GIT_DIR", CONFIGURES_GIT),
    exactly("GIT_COMMON_DIR", CONFIGURES_GIT),
    exactly("XDG_CONFIG_HOME", CONFIGURES),
    exactly("XDG_CONFIG_DIRS", CONFIGURES),
    exactly("CARGO_HOME", CONFIGURES),
    exactly("GRADLE_USER_HOME", CONFIGURES),
    exactly("PIP_CONFIG_FILE", CONFIGURES),
    exactly("AWS_CONFIG_FILE", CONFIGURES),
    exactly("DOCKER_CONFIG", CONFIGURES),
    exactly("GNUPGHOME", CONFIGURES),
    exactly("MAILCAPS", CONFIGURES),
    exactly("INPUTRC", CONFIGURES),
    exactly("NVIM_APPNAME", CONFIGURES),
    exactly("GOROOT", MOVES_INTERPRETER),
    exactly("HOSTALIASES", RENAMES_HOSTS),
    exactly("AWKPATH", FINDS_MODULES),
    exactly("AWKLIBPATH", LOADS_PLUGIN),
    exactly("ELIXIR_ERL_OPTIONS", STARTS_INTERPRETER),
    exactly("ELIXIRC", STARTS_INTERPRETER),
    exactly("TERMCAP", CONFIGURES_TERMINAL),
    beginning_with("TERMINFO", CONFIGURES_TERMINAL),
    exactly("DOCKER_HOST", STARTS_CONTAINERS),
    exactly("DOCKER_CONTEXT", STARTS_CONTAINERS),
    exactly("CONTAINER_HOST", STARTS_CONTAINERS),
    exactly("CONTAINER_CONNECTION", STARTS_CONTAINERS),
];

/// The entry of the list that applies to `name` with `value`. If the value is unknown, every entry
/// for the name applies.
pub fn find_code_loading_env_variable(
    name: &str,
    value: Option<&str>,
) -> Option<&'static CodeLoadingEnvVariable> {
    let rule = CODE_LOADING_ENV_VARIABLES.iter().find(|rule| rule.names.cover(name))?;
    let harmless = match rule.harmless {
        Harmless::Never => false,
        Harmless::Always => true,
        Harmless::When(harmless) => value.is_some_and(harmless),
    };
    (!harmless).then_some(rule)
}

/// Checks whether a caller may pass this variable to a command.
pub fn check_env_variable(
    name: &str,
    value: &str,
    code: CodeLoadingEnvVariablePolicy,
) -> Result<(), Error> {
    if name.starts_with(RESERVED_ENV_PREFIX) {
        return Err(forbidden(name, "names with this prefix are reserved for the backend"));
    }
    // Check this before the form of the name, because names of exported shell functions have a
    // different form.
    if code == CodeLoadingEnvVariablePolicy::Refused
        && let Some(rule) = find_code_loading_env_variable(name, Some(value))
    {
        return Err(forbidden(name, &format!("it {}", rule.reason)).with_hint(
            "such variables are allowed with isolation bwrap or landlock and a profile other than strict",
        ));
    }
    if !is_name(name) {
        let what = if name.is_empty() { "is empty" } else { "is not one that programs can use" };
        return Err(invalid(format!(
            "the name of the environment variable '{}' {what}",
            shown(name)
        ))
        .with_hint("use letters, digits and '_', and do not start with a digit"));
    }
    if value.contains('\0') {
        return Err(forbidden(name, "its value contains a NUL byte"));
    }
    if env_variable_bytes(name, value) > MAX_ENV_VARIABLE_BYTES {
        return Err(forbidden(name, &format!("it is longer than {MAX_ENV_VARIABLE_BYTES} bytes"))
            .with_hint("put long texts into files"));
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(plain) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// The number of bytes of the variable in the environment of a process: `name=value` and the
/// closing NUL.
pub fn env_variable_bytes(name: &str, value: &str) -> usize {
    name.len() + value.len() + 2
}

fn forbidden(name: &str, reason: &str) -> Error {
    invalid(format!("the environment variable '{}' cannot be set: {reason}", shown(name)))
}

fn shown(name: &str) -> String {
    let head: String = name.chars().take(SHOWN_NAME).collect();
    let rest = if head.len() < name.len() { "…" } else { "" };
    format!("{}{rest}", escape_unprintable(&head))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message).with_verb(Verb::Exec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts() {
        for (name, text) in [
            ("FOO", "bar"),
            ("_", ""),
            ("_x9", "a=b"),
            ("path", "/x"),
            ("PATH", "/opt/bin"),
            ("IFS", ","),
            ("EDITOR", "true"),
            ("NODE_OPTIONS", "--max-old-space-size=4096"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("PAGER", ""),
            ("GIT_PAGER", "cat"),
            ("MANPAGER", "cat"),
            ("GIT_AUTHOR_NAME", "A. Nother"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("LDFLAGS", "-lm"),
            ("ENVIRONMENT", "test"),
            ("PYTHONUNBUFFERED", "1"),
            ("LINES", "a\nb"),
            ("CC", "clang-18"),
            ("SHELL", "/bin/bash"),
            ("PYTHONWARNINGS", "ignore"),
        ] {
            check_env_variable(name, text, CodeLoadingEnvVariablePolicy::Refused).unwrap();
        }
    }

    #[test]
    fn refuses_and_says_why() {
        let long = "x".repeat(MAX_ENV_VARIABLE_BYTES);
        for (name, text, why) in [
            ("", "x", "is empty"),
            ("A=B", "x", "is not one that programs can use"),
            ("A\0", "x", "'A\\u{0}' is not one"),
            ("1A", "x", "is not one that programs can use"),
            ("A-B", "x", "is not one that programs can use"),
            ("A B", "x", "is not one that programs can use"),
            ("Ä", "x", "is not one that programs can use"),
            ("A", "x\0y", "contains a NUL byte"),
            ("A", long.as_str(), "is longer than 131072 bytes"),
            ("AGENT_BACKEND_PROCESS", "p2", "reserved for the backend"),
            ("AGENT_BACKEND_TOKEN", "x", "reserved for the backend"),
            ("LD_PRELOAD", "x.so", "loads code into every program"),
            ("LD_LIBRARY_PATH", "x", "loads code into every program"),
            ("GLIBC_TUNABLES", "x", "the loader"),
            ("BASH_ENV", "x", "when a shell starts"),
            ("ENV", "x", "when a shell starts"),
            ("BASH_FUNC_ls%%", "() { :; }", "shell function"),
            ("CDPATH", "x", "what a command line means"),
            ("PYTHONPATH", "src", "finds the modules"),
            ("NODE_PATH", "lib", "finds the modules"),
            ("MAKEFLAGS", "-j4", "options"),
            ("TAR_OPTIONS", "--to-command=x", "options"),
            ("RSYNC_RSH", "x", "rsync connects with"),
            ("EDITOR", "vim", "only an empty value or 'cat'"),
            ("LUA_INIT_5_4", "x", "when an interpreter starts"),
            ("GIT_SSH_COMMAND", "x", "makes git run a program"),
            ("GIT_CONFIG", "x", "git's configuration"),
            ("GIT_CONFIG_COUNT", "1", "git's configuration"),
            ("GIT_CONFIG_KEY_0", "core.pager", "git's configuration"),
            ("PAGER", "less", "only an empty value or 'cat'"),
            ("GIT_PAGER", "cat x", "only an empty value or 'cat'"),
            ("NODE_OPTIONS", "--require x", "when an interpreter starts"),
            ("PYTHONHOME", "x", "own modules"),
            ("_JAVA_OPTIONS", "x", "when an interpreter starts"),
            ("LESSOPEN", "|x", "makes less run"),
            ("HOSTALIASES", "x", "network names"),
            ("AWKLIBPATH", "x", "loads plugins"),
            ("ELIXIR_ERL_OPTIONS", "-eval x", "when an interpreter starts"),
            ("TERMINFO", "x", "a terminal"),
            ("TERMINFO_DIRS", "x", "a terminal"),
            ("DOCKER_HOST", "tcp://x", "containers"),
            ("CC", "./evil", "without '/'"),
            ("CC", "gcc -B.", "without '/'"),
            ("SHELL", "./evil", "names a program"),
            ("SHELL", "/bin/../x/sh", "names a program"),
            ("XDG_CONFIG_HOME", "cfg", "a file of settings"),
        ] {
            let error =
                check_env_variable(name, text, CodeLoadingEnvVariablePolicy::Refused).unwrap_err();
            assert_eq!(
                (error.code(), error.kind()),
                (ErrorCode::InvalidConfiguration, ErrorKind::Invalid)
            );
            assert_eq!(error.verb(), Some(Verb::Exec));
            assert!(error.message().contains(why), "{name:?}: {error}");
            assert!(error.message().len() < 220, "{error}");
        }
    }

    #[test]
    fn behind_walls_only_senseless_and_reserved_names_are_refused() {
        for (name, value) in [
            ("PYTHONPATH", "src"),
            ("MAKEFLAGS", "-j4"),
            ("LD_LIBRARY_PATH", "/workspace/lib"),
            ("LD_PRELOAD", "./x.so"),
            ("ENV", "production"),
            ("NODE_OPTIONS", "--require ./x"),
            ("EDITOR", "vim"),
        ] {
            check_env_variable(name, value, CodeLoadingEnvVariablePolicy::Allowed).unwrap();
            assert!(
                check_env_variable(name, value, CodeLoadingEnvVariablePolicy::Refused).is_err(),
                "{name}"
            );
        }
        for name in ["AGENT_BACKEND_TOKEN", "BASH_FUNC_ls%%", "A=B", ""] {
            assert!(
                check_env_variable(name, "x", CodeLoadingEnvVariablePolicy::Allowed).is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn every_entry_is_reached() {
        for rule in CODE_LOADING_ENV_VARIABLES {
            let name = rule.names.to_string().replace('*', "X");
            let first =
                CODE_LOADING_ENV_VARIABLES.iter().find(|each| each.names.cover(&name)).unwrap();
            assert_eq!(first.names, rule.names, "hidden by an earlier entry");
            if matches!(rule.harmless, Harmless::Always) {
                continue;
            }
            assert!(
                find_code_loading_env_variable(&name, Some("--require ./x")).is_some(),
                "{name}"
            );
            assert!(find_code_loading_env_variable(&name, None).is_some(), "{name}");
        }
        assert!(find_code_loading_env_variable("GIT_CONFIG_NOSYSTEM", None).is_none());
        assert!(find_code_loading_env_variable("FOO", None).is_none());
    }
}
