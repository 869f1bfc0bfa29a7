//! Acts that only listed places may perform: open files, spawn processes, read the environment, use
//! SQL or JSON, make unbounded channels or tasks without an owner (DESIGN 8).
//!
//! `allowed` is the list. An act in a file that is not listed fails the test, and so does an entry
//! that no file needs any more.

use super::allowed::{ALLOWED, Allowed};
use super::code;
use super::paths;
use super::problem::Problem;

/// An act that most code must not perform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    OpenFiles,
    Spawn,
    ReadEnvironment,
    OpenSockets,
    Wait,
    HoldSql,
    KnowJson,
    HoldDriver,
    MakeUnboundedChannel,
    StartTask,
}

impl Act {
    const ALL: [Act; 10] = [
        Act::OpenFiles,
        Act::Spawn,
        Act::ReadEnvironment,
        Act::OpenSockets,
        Act::Wait,
        Act::HoldSql,
        Act::KnowJson,
        Act::HoldDriver,
        Act::MakeUnboundedChannel,
        Act::StartTask,
    ];

    /// Paths whose use counts as the act.
    fn paths(self) -> &'static [&'static str] {
        match self {
            Act::OpenFiles => &["std::fs", "tokio::fs", "rustix::fs", "tempfile"],
            Act::Spawn => &[
                "std::process::Command",
                "std::os::unix::process::CommandExt",
                "tokio::process",
                "libc::fork",
                "libc::vfork",
                "libc::clone",
                "libc::execve",
                "libc::posix_spawn",
            ],
            Act::ReadEnvironment => &[
                "std::env::args",
                "std::env::args_os",
                "std::env::current_dir",
                "std::env::current_exe",
                "std::env::home_dir",
                "std::env::remove_var",
                "std::env::set_var",
                "std::env::temp_dir",
                "std::env::var",
                "std::env::var_os",
                "std::env::vars",
                "std::env::vars_os",
                "libc::getenv",
                "libc::environ",
            ],
            Act::OpenSockets => &["std::net", "std::os::unix::net", "tokio::net", "socket2"],
            Act::Wait => &["tokio::time", "std::thread::sleep"],
            Act::HoldSql => &["sqlx", "rusqlite", "tokio_postgres"],
            Act::KnowJson => &["serde_json"],
            Act::HoldDriver => &["ab_core::Driver", "ab_core::driver::Driver"],
            Act::MakeUnboundedChannel => &[
                "std::sync::mpsc::channel",
                "tokio::sync::mpsc::unbounded_channel",
                "tokio::sync::mpsc::UnboundedSender",
                "tokio::sync::mpsc::UnboundedReceiver",
                "futures_util::channel::mpsc::unbounded",
            ],
            Act::StartTask => &[
                "tokio::spawn",
                "tokio::task::spawn",
                "tokio::task::spawn_blocking",
                "tokio::task::spawn_local",
                "tokio::runtime::Handle::spawn",
                "tokio::runtime::Runtime::spawn",
                "std::thread::spawn",
                "std::thread::Builder",
            ],
        }
    }

    /// Methods whose call counts as the act.
    fn methods(self) -> &'static [Method] {
        const FILES: &[Method] = &[
            Method::of_any("canonicalize"),
            Method::of_any("symlink_metadata"),
            Method::of_any("read_dir"),
            Method::of_any("try_exists"),
            // These methods of `Path` take no arguments. Methods of `Backend` with these names take
            // a path, and are allowed.
            Method::of_path("exists"),
            Method::of_path("metadata"),
            Method::of_path("read_link"),
            Method::of_path("is_file"),
            Method::of_path("is_dir"),
            Method::of_path("is_symlink"),
        ];
        const TASKS: &[Method] = &[
            Method::of_any("spawn_blocking"),
            Method::of_any("spawn_local"),
            Method::of_any("spawn_on"),
            // `spawn` of a `TaskTracker` or `JoinSet` has an owner.
            Method { name: "spawn", takes: Takes::Any, on: &["runtime", "handle", "current"] },
        ];
        match self {
            Act::OpenFiles => FILES,
            Act::StartTask => TASKS,
            _ => &[],
        }
    }

    /// Whether the rule applies to the crate of the file at `path`.
    fn concerns(self, path: &str) -> bool {
        // Only these crates must not use JSON; the others are surfaces.
        const NO_JSON: &[&str] =
            &["ab-core", "ab-host", "ab-local", "ab-remote", "ab-snapshot", "ab-control"];
        const NO_DRIVER: &[&str] =
            &["ab-mcp", "ab-server", "ab-cli", "ab-spaces", "ab-control", "ab-acp", "ab-executor"];
        let of = |crates: &[&str]| {
            let name = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next());
            name.is_some_and(|name| crates.contains(&name))
        };
        match self {
            Act::KnowJson => of(NO_JSON),
            Act::HoldDriver => of(NO_DRIVER),
            // All other crates that open sockets are allowed to.
            Act::OpenSockets => of(&["ab-core", "ab-policy", "ab-api", "ab-store", "ab-control"]),
            Act::Wait => of(&["ab-core", "ab-api"]),
            _ => true,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Act::OpenFiles => "opens files",
            Act::Spawn => "spawns processes",
            Act::ReadEnvironment => "reads the environment",
            Act::OpenSockets => "opens sockets",
            Act::Wait => "waits for a clock",
            Act::HoldSql => "holds SQL",
            Act::KnowJson => "knows JSON",
            Act::HoldDriver => "holds a driver, not a `Backend`",
            Act::MakeUnboundedChannel => "makes a channel without a bound",
            Act::StartTask => "starts a task or thread whose owner is not listed",
        }
    }
}

/// A method whose call counts as an act. The type of the receiver is not known, only its last word.
#[derive(Debug, Clone, Copy)]
struct Method {
    name: &'static str,
    takes: Takes,
    /// The last words of receivers to which the rule applies. If empty, it applies to all
    /// receivers.
    on: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// The call may have any arguments and any receiver.
    Any,
    /// The call has no arguments. Calls on receivers such as `kind` and `file_type` do not count,
    /// because methods of types such as `FileKind` do not access files.
    Nothing,
}

impl Method {
    const fn of_any(name: &'static str) -> Self {
        Self { name, takes: Takes::Any, on: &[] }
    }

    const fn of_path(name: &'static str) -> Self {
        Self { name, takes: Takes::Nothing, on: &[] }
    }

    /// Whether `word` is a call of this method.
    fn is_called(&self, code: &str, word: &code::Word<'_>) -> bool {
        let Some(before) = code[..word.start].strip_suffix('.') else { return false };
        let Some(arguments) = code[word.end()..].strip_prefix('(') else { return false };
        if word.text != self.name {
            return false;
        }
        let receiver = receiver(before);
        let is_kind = receiver == "kind" || receiver == "file_type" || receiver.ends_with("_kind");
        let takes = match self.takes {
            Takes::Any => true,
            Takes::Nothing => arguments.trim_start().starts_with(')') && !is_kind,
        };
        takes && (self.on.is_empty() || self.on.contains(&receiver))
    }
}

/// The last word of a receiver, without calls: `kind` of `entry.kind` and of `entry.kind(a)`.
fn receiver(code: &str) -> &str {
    let mut code = code.trim_end();
    while let Some(inner) = code.strip_suffix(')') {
        let mut depth = 1;
        let open = inner.rfind(|c| {
            match c {
                ')' => depth += 1,
                '(' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        code = inner[..open.unwrap_or(0)].trim_end();
    }
    let start = code.rfind(|c: char| !c.is_alphanumeric() && c != '_');
    &code[start.map_or(0, |at| at + 1)..]
}

/// The first place in a file that performs an act.
#[derive(Debug)]
struct Performed {
    act: Act,
    line: usize,
    what: String,
}

fn performed(path: &str, text: &str) -> Vec<Performed> {
    if paths::is_test_file(path) {
        return Vec::new();
    }
    let code = paths::product_code(text);
    let named = paths::named(&code);
    let mut found = Vec::new();
    for act in Act::ALL.into_iter().filter(|act| act.concerns(path)) {
        let by_path = named
            .iter()
            .find(|it| act.paths().iter().any(|prefix| paths::reaches(&it.path, prefix)))
            .map(|it| Performed {
                act,
                line: code::line_at(&code, it.offset),
                what: it.path.clone(),
            });
        let by_method = code::words(&code)
            .find(|word| act.methods().iter().any(|method| method.is_called(&code, word)))
            .map(|word| Performed {
                act,
                line: code::line_at(&code, word.start),
                what: format!(".{}()", word.text),
            });
        found.extend(by_path.or(by_method));
    }
    found
}

fn problems(allowed: &[Allowed], path: &str, text: &str) -> Vec<Problem> {
    performed(path, text)
        .into_iter()
        .filter(|it| !allowed.iter().any(|entry| entry.permits(it.act, path)))
        .map(|it| {
            let act = it.act.describe();
            let message =
                format!("`{}` {act}: move it to a place that `tidy/allowed.rs` lists", it.what);
            Problem::at(path, it.line, message)
        })
        .collect()
}

/// Finds entries of the list that no file needs any more.
fn stale<'a>(allowed: &[Allowed], files: impl Iterator<Item = (&'a str, String)>) -> Vec<Problem> {
    let mut needed = vec![false; allowed.len()];
    for (path, text) in files {
        for it in performed(path, &text) {
            for (entry, needed) in allowed.iter().zip(&mut needed) {
                *needed |= entry.permits(it.act, path);
            }
        }
    }
    let unused = allowed.iter().zip(needed).filter(|(_, needed)| !needed);
    unused
        .map(|(entry, _)| {
            let message = format!("remove the entry: nothing there {}", entry.act.describe());
            Problem::of_file(entry.place, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::problem::{expect_none, expect_one};
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn only_listed_places_perform_listed_acts() {
        let tree = Tree::load();
        let problems: Vec<Problem> =
            tree.sources().flat_map(|(path, text)| problems(ALLOWED, path, &text)).collect();
        expect_none(&problems);
    }

    #[test]
    fn every_entry_is_needed_and_has_a_reason() {
        let tree = Tree::load();
        expect_none(&stale(ALLOWED, tree.sources()));
        for entry in ALLOWED {
            assert!(entry.why.len() > 10, "{} needs a reason", entry.place);
        }
    }

    /// Checks that `text` in a file of a crate performs `act`, and that an entry for the file
    /// permits it.
    #[track_caller]
    fn check(act: Act, place: &'static str, text: &str) {
        expect_one(&problems(&[], place, text), act.describe());
        let entry = Allowed { place, act, why: "a test" };
        expect_none(&problems(&[entry], place, text));
        let folder = Allowed { place: "crates/", act, why: "a test" };
        expect_none(&problems(&[folder], place, text));
        let other = Allowed { place: "crates/other.rs", act, why: "a test" };
        assert_eq!(problems(&[other], place, text).len(), 1, "{text}");
    }

    #[test]
    fn files_opened_elsewhere_fail() {
        let place = "crates/ab-server/src/x.rs";
        check(Act::OpenFiles, place, "fn f() { std::fs::read(path) }");
        check(Act::OpenFiles, place, "use std::{fs, io};");
        check(Act::OpenFiles, place, "use tokio::fs::File;");
        check(Act::OpenFiles, place, "use rustix::fs::openat;");
        check(Act::OpenFiles, place, "fn f(path: &Path) { path.canonicalize() }");
        for look in ["exists", "metadata", "read_link", "is_file", "is_dir", "is_symlink"] {
            check(Act::OpenFiles, place, &format!("fn f() {{ path.join(a).{look}() }}"));
            check(Act::OpenFiles, place, &format!("fn f() {{ Path::new(a)\n.{look}() }}"));
        }
        for own in [
            "fn f() { backend.exists(path) }",
            "fn f() { backend.read_link(path) }",
            "fn f() { stat.kind.is_dir() }",
            "fn f() { entry.kind().is_file() }",
            "fn f() { kind(&stat(path)).is_symlink() }",
            "fn f() { target_kind.is_dir() }",
        ] {
            expect_none(&problems(&[], place, own));
        }
    }

    #[test]
    fn processes_spawned_elsewhere_fail() {
        let place = "crates/ab-mcp/src/x.rs";
        check(Act::Spawn, place, "use std::process::Command;");
        check(Act::Spawn, place, "use std::process;\nfn f() { process::Command::new(a) }");
        check(Act::Spawn, place, "use tokio::process::*;");
        check(Act::Spawn, place, "fn f() { libc::fork() }");
        expect_none(&problems(&[], place, "use std::process::ExitCode;"));
    }

    #[test]
    fn an_environment_read_elsewhere_fails() {
        let place = "crates/ab-core/src/x.rs";
        check(Act::ReadEnvironment, place, "fn f() { std::env::var(a) }");
        check(Act::ReadEnvironment, place, "use std::env;\nfn f() { env::vars() }");
        expect_none(&problems(&[], place, "const A: &str = env!(\"CARGO_PKG_VERSION\");"));
    }

    #[test]
    fn sockets_and_timers_in_pure_crates_fail() {
        check(Act::OpenSockets, "crates/ab-core/src/x.rs", "use tokio::net::TcpStream;");
        check(Act::Wait, "crates/ab-core/src/x.rs", "use tokio::time::sleep;");
        expect_none(&problems(&[], "crates/ab-server/src/x.rs", "use tokio::net::TcpStream;"));
    }

    #[test]
    fn sql_outside_the_store_fails() {
        check(Act::HoldSql, "crates/ab-control/src/x.rs", "use sqlx::Row;");
    }

    #[test]
    fn json_in_a_crate_that_must_not_know_it_fails() {
        check(Act::KnowJson, "crates/ab-host/src/x.rs", "fn f() { serde_json::to_string(a) }");
        expect_none(&problems(&[], "crates/ab-mcp/src/x.rs", "use serde_json::Value;"));
    }

    #[test]
    fn a_driver_held_by_a_surface_fails() {
        check(Act::HoldDriver, "crates/ab-server/src/x.rs", "use ab_core::{Backend, Driver};");
        expect_none(&problems(&[], "crates/ab-host/src/x.rs", "use ab_core::Driver;"));
    }

    #[test]
    fn channels_without_a_bound_fail() {
        let place = "crates/ab-acp/src/x.rs";
        check(Act::MakeUnboundedChannel, place, "use tokio::sync::mpsc::unbounded_channel;");
        let text = "use tokio::sync::mpsc;\nfn f() { mpsc::unbounded_channel() }";
        check(Act::MakeUnboundedChannel, place, text);
        check(Act::MakeUnboundedChannel, place, "fn f() { std::sync::mpsc::channel() }");
        expect_none(&problems(&[], place, "fn f() { std::sync::mpsc::sync_channel(1) }"));
    }

    #[test]
    fn tasks_without_an_owner_fail() {
        let place = "crates/ab-acp/src/x.rs";
        check(Act::StartTask, place, "fn f() { tokio::spawn(a) }");
        check(Act::StartTask, place, "use tokio::task;\nfn f() { task::spawn_blocking(a) }");
        check(Act::StartTask, place, "use std::thread;\nfn f() { thread::spawn(a) }");
        check(Act::StartTask, place, "fn f() { handle.spawn_blocking(a) }");
        check(Act::StartTask, place, "fn f() { handle.spawn(a) }");
        check(Act::StartTask, place, "fn f() { self.runtime.spawn(a) }");
        check(Act::StartTask, place, "fn f() { Handle::current().spawn(a) }");
        check(Act::StartTask, place, "use tokio::runtime::Handle;\nfn f() { Handle::spawn(a, b) }");
        check(Act::StartTask, place, "fn f() { tasks.spawn_on(a, b) }");
        expect_none(&problems(&[], place, "fn f(tasks: &TaskTracker) { tasks.spawn(a) }"));
        expect_none(&problems(&[], place, "fn f(set: &mut JoinSet<()>) { set.spawn(a) }"));
    }

    #[test]
    fn tests_may_do_everything() {
        expect_none(&problems(&[], "crates/ab-core/tests/x.rs", "use std::fs;"));
        let text = "#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        expect_none(&problems(&[], "crates/ab-core/src/x.rs", text));
    }

    #[test]
    fn an_entry_that_nothing_needs_fails() {
        let entry = Allowed { place: "crates/a.rs", act: Act::Spawn, why: "a test" };
        let files = [("crates/a.rs", "fn f() {}".to_owned())];
        expect_one(&stale(&[entry], files.into_iter()), "remove the entry");
    }
}
