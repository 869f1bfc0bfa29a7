//! The environment of commands: small, with the caller's variables, and no way around the command
//! line policy.

use std::collections::{BTreeMap, BTreeSet};

use ab_core::{
    Backend, EnforcedControls, ErrorCode, ErrorKind, ExecOptions, PolicyControlKind, ScopeOptions,
};

use crate::commands::{exec_stdout_text, exec_stdout_text_with, supports_commands};
use crate::expect::expect_error;

/// All variables that a command may have by default. The shell sets the last three itself.
const KNOWN: &[&str] = &[
    "AGENT_BACKEND_PROCESS",
    "HOME",
    "LANG",
    "LC_CTYPE",
    "PATH",
    "PWD",
    "SHELL",
    "TERM",
    "TMPDIR",
    "OLDPWD",
    "SHLVL",
    "_",
];

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn with(pairs: &[(&str, &str)]) -> ExecOptions {
    ExecOptions { env: env(pairs), ..ExecOptions::default() }
}

/// Commands inherit no variables of this process.
pub async fn starts_small(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let said = exec_stdout_text(backend, "env").await;
    let names: BTreeSet<&str> =
        said.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    // Caches and histories go to one private directory. These variables name this directory.
    let caches = said.lines().find_map(|line| line.strip_prefix("XDG_CACHE_HOME="));
    let caches = caches.and_then(|path| Some(path.rsplit_once('/')?.0));
    let leads_there = |name: &&str| {
        let mut lines = said.lines().filter_map(|line| line.strip_prefix(*name)?.strip_prefix('='));
        caches.is_some_and(|caches| lines.any(|value| value.contains(caches)))
    };
    let known: BTreeSet<&str> = KNOWN.iter().copied().collect();
    let more: Vec<&str> =
        names.difference(&known).copied().filter(|name| !leads_there(name)).collect();
    assert!(more.is_empty(), "more than it should have: {more:?}");
    for name in ["HOME", "PATH", "PWD", "LANG", "TERM"] {
        assert!(names.contains(name), "{name} is missing from {names:?}");
    }
}

/// Variables of the caller are set, with any value.
pub async fn given_ones_are_there(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    for value in ["", "plain", "a b", "$HOME", "'\"`", "two\nlines", "é€😀", "a=b"] {
        let said =
            exec_stdout_text_with(backend, "printf %s \"$GIVEN\"", with(&[("GIVEN", value)])).await;
        assert_eq!(said, value);
    }
    let several = with(&[("A", "1"), ("lower_case9", "2")]);
    assert_eq!(exec_stdout_text_with(backend, "echo $A $lower_case9", several).await, "1 2\n");
    assert_eq!(exec_stdout_text(backend, "echo ${GIVEN-none}").await, "none\n");
}

/// A scope's variables apply to all its commands; inner scopes override outer ones, and the call
/// overrides all.
pub async fn scopes_add_theirs(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let scoped = |backend: &Backend, pairs: &[(&str, &str)]| {
        let options = ScopeOptions { env: env(pairs), ..ScopeOptions::default() };
        backend.scope("inner", options).unwrap()
    };
    let outer = scoped(backend, &[("A", "outer"), ("B", "outer"), ("C", "outer")]);
    let inner = scoped(&outer, &[("B", "inner"), ("C", "inner")]);
    let line = "echo $A $B $C";
    assert_eq!(exec_stdout_text(&outer, line).await, "outer outer outer\n");
    assert_eq!(exec_stdout_text(&inner, line).await, "outer inner inner\n");
    assert_eq!(
        exec_stdout_text_with(&inner, line, with(&[("C", "call")])).await,
        "outer inner call\n"
    );
    assert_eq!(exec_stdout_text(backend, line).await, "\n");
}

/// Without isolation, variables that make programs load or run code are refused. Reserved variables
/// are refused everywhere. Errors have the name of the variable, not its value.
pub async fn loaders_are_refused(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let policy = backend.effective_policy().await.unwrap();
    let walled = EnforcedControls::from_policy(&policy).contains(PolicyControlKind::Files);
    let reserved = ["BASH_FUNC_ls%%", "AGENT_BACKEND_PROCESS"];
    let loaders = [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "BASH_ENV",
        "ENV",
        "PROMPT_COMMAND",
        "GIT_SSH_COMMAND",
        "GIT_CONFIG_GLOBAL",
        "NODE_PATH",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "MAKEFLAGS",
        "TAR_OPTIONS",
        "RSYNC_RSH",
    ];
    let refused = if walled { &[][..] } else { &loaders[..] };
    for name in refused.iter().chain(&reserved).copied() {
        let refused = backend.exec_with("true", with(&[(name, "hunter2")])).await;
        let Err(error) = refused else { panic!("{name} was taken") };
        assert!(
            matches!(error.kind(), ErrorKind::DeniedByPolicy | ErrorKind::Invalid),
            "{name}: {error:?}"
        );
        assert!(error.message().contains(name), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
        let scope = ScopeOptions { env: env(&[(name, "x")]), ..ScopeOptions::default() };
        if let Ok(scope) = backend.scope("tenant", scope) {
            assert!(scope.exec("true").await.is_err(), "{name} was taken from a scope");
        }
    }
    if walled {
        for name in loaders {
            let line = format!("printf %s \"${{{name}-none}}\"");
            let given = with(&[(name, "/nowhere/x")]);
            assert_eq!(exec_stdout_text_with(backend, &line, given).await, "/nowhere/x", "{name}");
        }
    }
}

/// An invalid name, or a value that the kernel cannot pass, is `Invalid`.
pub async fn senseless_ones_are_refused(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    for (name, value) in [("", "x"), ("A=B", "x"), ("A\0B", "x"), ("A", "x\0y")] {
        let error = expect_error(
            backend.exec_with("true", with(&[(name, value)])).await,
            ErrorKind::Invalid,
        );
        assert_ne!(error.code(), ErrorCode::ExecFailed, "{name:?}: it ran");
    }
    let long = "x".repeat(4 * 1024 * 1024);
    expect_error(backend.exec_with("true", with(&[("LONG", &long)])).await, ErrorKind::Invalid);
}
