//! Which environment variables a caller may give a command.
//!
//! Variables that make a program load or run something before it does what its command line says
//! are refused by name: a policy judges the command line, and these would go around it. Values are
//! never shown in errors, since they may be secrets.

use std::fmt;

use crate::call::Verb;
use crate::error::{Code, Error, Kind, printable};

/// Most bytes of one variable, with its name; the kernel takes no longer string.
pub const MAX_VARIABLE_BYTES: usize = 128 * 1024;
/// Names that begin so are ours to set.
pub const RESERVED_PREFIX: &str = "AGENT_BACKEND_";

/// A name in an error is cut to this many characters.
const SHOWN_NAME: usize = 64;

/// Which names an entry of [`REFUSED`] covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    Exactly(&'static str),
    BeginningWith(&'static str),
}

impl Names {
    fn cover(self, name: &str) -> bool {
        match self {
            Names::Exactly(exact) => name == exact,
            Names::BeginningWith(prefix) => name.starts_with(prefix),
        }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Names::Exactly(exact) => f.write_str(exact),
            Names::BeginningWith(prefix) => write!(f, "{prefix}*"),
        }
    }
}

/// A variable that no caller may set, and why.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    pub names: Names,
    /// Reads on after "because it".
    pub reason: &'static str,
    /// Values that are harmless all the same.
    pub unless: &'static [&'static str],
}

const fn refused(names: Names, reason: &'static str) -> Refused {
    Refused { names, reason, unless: &[] }
}

const fn exactly(name: &'static str, reason: &'static str) -> Refused {
    refused(Names::Exactly(name), reason)
}

const fn beginning_with(prefix: &'static str, reason: &'static str) -> Refused {
    refused(Names::BeginningWith(prefix), reason)
}

/// Agents turn pagers off all the time, and those values run nothing of their choice.
const fn pager(name: &'static str) -> Refused {
    Refused { names: Names::Exactly(name), reason: RUNS_PAGER, unless: &["", "cat"] }
}

const LOADS_LIBRARY: &str = "loads code into every program";
const LOADS_CONVERTER: &str = "loads converters or texts that programs trust";
const LOADS_ENGINE: &str = "loads libraries into programs that use TLS";
const STARTS_SHELL: &str = "runs code when a shell starts, prompts or traces";
const CHANGES_SHELL: &str = "changes what a command line means";
const RUNS_FROM_GIT: &str = "makes git run a program";
const CONFIGURES_GIT: &str = "changes git's configuration, which can name programs to run";
const RUNS_PAGER: &str = "names a program to run; only an empty value or 'cat' is taken";
const RUNS_FROM_LESS: &str = "makes less run a program";
const STARTS_INTERPRETER: &str = "runs code when an interpreter starts";
const MOVES_INTERPRETER: &str = "replaces an interpreter's own modules";
const ASKS_PASSWORD: &str = "makes ssh and git run a program that is given passwords";
const RENAMES_HOSTS: &str = "leads network names elsewhere";

/// The variables that callers may not set. `PYTHONPATH` and `NODE_PATH` are not among them: they
/// only say where a program finds the modules that it imports itself, and projects made of several
/// packages do not run without them.
pub const REFUSED: &[Refused] = &[
    beginning_with("LD_", LOADS_LIBRARY),
    beginning_with("DYLD_", LOADS_LIBRARY),
    exactly("GLIBC_TUNABLES", "changes the loader and the allocator of every program"),
    exactly("GCONV_PATH", LOADS_CONVERTER),
    exactly("LOCPATH", LOADS_CONVERTER),
    exactly("NLSPATH", LOADS_CONVERTER),
    exactly("OPENSSL_CONF", LOADS_ENGINE),
    exactly("OPENSSL_ENGINES", LOADS_ENGINE),
    exactly("OPENSSL_MODULES", LOADS_ENGINE),
    exactly("BASH_ENV", STARTS_SHELL),
    exactly("ENV", STARTS_SHELL),
    exactly("ZDOTDIR", STARTS_SHELL),
    exactly("PROMPT_COMMAND", STARTS_SHELL),
    exactly("PS4", STARTS_SHELL),
    beginning_with("BASH_FUNC_", "puts a shell function in the place of a program"),
    exactly("SHELLOPTS", CHANGES_SHELL),
    exactly("BASHOPTS", CHANGES_SHELL),
    exactly("IFS", CHANGES_SHELL),
    exactly("CDPATH", CHANGES_SHELL),
    exactly("GIT_SSH", RUNS_FROM_GIT),
    exactly("GIT_SSH_COMMAND", RUNS_FROM_GIT),
    exactly("GIT_EXTERNAL_DIFF", RUNS_FROM_GIT),
    exactly("GIT_PROXY_COMMAND", RUNS_FROM_GIT),
    exactly("GIT_ASKPASS", RUNS_FROM_GIT),
    exactly("GIT_EDITOR", RUNS_FROM_GIT),
    exactly("GIT_SEQUENCE_EDITOR", RUNS_FROM_GIT),
    exactly("GIT_EXEC_PATH", RUNS_FROM_GIT),
    exactly("GIT_ALLOW_PROTOCOL", "lets git use transports that run programs"),
    exactly("GIT_TEMPLATE_DIR", "puts hooks into new repositories, which git then runs"),
    beginning_with("GIT_CONFIG", CONFIGURES_GIT),
    exactly("SSH_ASKPASS", ASKS_PASSWORD),
    pager("PAGER"),
    pager("GIT_PAGER"),
    pager("MANPAGER"),
    exactly("LESSOPEN", RUNS_FROM_LESS),
    exactly("LESSCLOSE", RUNS_FROM_LESS),
    exactly("NODE_OPTIONS", STARTS_INTERPRETER),
    exactly("PYTHONSTARTUP", STARTS_INTERPRETER),
    exactly("PYTHONBREAKPOINT", STARTS_INTERPRETER),
    exactly("PYTHONHOME", MOVES_INTERPRETER),
    exactly("PYTHONUSERBASE", MOVES_INTERPRETER),
    exactly("PERL5OPT", STARTS_INTERPRETER),
    exactly("PERL5DB", STARTS_INTERPRETER),
    exactly("PERL5LIB", MOVES_INTERPRETER),
    exactly("PERLLIB", MOVES_INTERPRETER),
    exactly("RUBYOPT", STARTS_INTERPRETER),
    exactly("RUBYLIB", MOVES_INTERPRETER),
    exactly("LUA_INIT", STARTS_INTERPRETER),
    exactly("PHPRC", STARTS_INTERPRETER),
    exactly("PHP_INI_SCAN_DIR", STARTS_INTERPRETER),
    exactly("JAVA_TOOL_OPTIONS", STARTS_INTERPRETER),
    exactly("_JAVA_OPTIONS", STARTS_INTERPRETER),
    exactly("JDK_JAVA_OPTIONS", STARTS_INTERPRETER),
    exactly("DOTNET_STARTUP_HOOKS", STARTS_INTERPRETER),
    exactly("HOSTALIASES", RENAMES_HOSTS),
];

/// Whether a caller may give a command this variable.
pub fn check(name: &str, value: &str) -> Result<(), Error> {
    if name.starts_with(RESERVED_PREFIX) {
        return Err(forbidden(name, "names that begin so are set by the backend only"));
    }
    // Before the shape of the name: an exported shell function has a name of no other shape.
    let rule = REFUSED.iter().find(|rule| rule.names.cover(name));
    if let Some(rule) = rule.filter(|rule| !rule.unless.contains(&value)) {
        return Err(forbidden(name, &format!("it {}", rule.reason)));
    }
    if !is_name(name) {
        let what = if name.is_empty() { "is empty" } else { "is not one that programs can use" };
        return Err(invalid(format!(
            "the name of the environment variable '{}' {what}",
            shown(name)
        ))
        .with_hint("letters, digits and '_', and no digit in front"));
    }
    if value.contains('\0') {
        return Err(forbidden(name, "its value contains a NUL byte"));
    }
    if size(name, value) > MAX_VARIABLE_BYTES {
        return Err(forbidden(name, &format!("it is longer than {MAX_VARIABLE_BYTES} bytes"))
            .with_hint("put long texts into files"));
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(plain) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// What the variable takes in the child's stack: `name=value` and the closing NUL.
pub fn size(name: &str, value: &str) -> usize {
    name.len() + value.len() + 2
}

fn forbidden(name: &str, reason: &str) -> Error {
    invalid(format!("the environment variable '{}' cannot be set: {reason}", shown(name)))
}

fn shown(name: &str) -> String {
    let head: String = name.chars().take(SHOWN_NAME).collect();
    let rest = if head.len() < name.len() { "…" } else { "" };
    format!("{}{rest}", printable(&head))
}

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidConfiguration, Kind::Invalid, message).with_verb(Verb::Exec)
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
            ("PYTHONPATH", "lib"),
            ("NODE_PATH", "lib"),
            ("PAGER", ""),
            ("GIT_PAGER", "cat"),
            ("MANPAGER", "cat"),
            ("GIT_AUTHOR_NAME", "A. Nother"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("LDFLAGS", "-lm"),
            ("ENVIRONMENT", "test"),
            ("PYTHONUNBUFFERED", "1"),
            ("LINES", "a\nb"),
        ] {
            check(name, text).unwrap();
        }
    }

    #[test]
    fn refuses_and_says_why() {
        let long = "x".repeat(MAX_VARIABLE_BYTES);
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
            ("AGENT_BACKEND_PROCESS", "p2", "set by the backend only"),
            ("AGENT_BACKEND_TOKEN", "x", "set by the backend only"),
            ("LD_PRELOAD", "x.so", "loads code into every program"),
            ("LD_LIBRARY_PATH", "x", "loads code into every program"),
            ("GLIBC_TUNABLES", "x", "the loader"),
            ("BASH_ENV", "x", "when a shell starts"),
            ("ENV", "x", "when a shell starts"),
            ("BASH_FUNC_ls%%", "() { :; }", "shell function"),
            ("IFS", "x", "what a command line means"),
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
        ] {
            let error = check(name, text).unwrap_err();
            assert_eq!((error.code(), error.kind()), (Code::InvalidConfiguration, Kind::Invalid));
            assert_eq!(error.verb(), Some(Verb::Exec));
            assert!(error.message().contains(why), "{name:?}: {error}");
            assert!(error.message().len() < 200, "{error}");
        }
    }

    #[test]
    fn every_rule_is_reached() {
        for rule in REFUSED {
            let name = rule.names.to_string().replace('*', "X");
            let first = REFUSED.iter().find(|each| each.names.cover(&name)).unwrap();
            assert_eq!(first.names, rule.names, "hidden by an earlier rule");
            assert!(check(&name, "anything").is_err(), "{name}");
        }
    }
}
