//! Commands that run to their end: where they run, their output, and how they fail.
//!
//! If the backend does not run commands, each case checks that calls fail with `Unsupported`.

use std::time::Duration;

use ab_core::options::RemoveOptions;
use ab_core::process::{ExecRequest, OutputChannel, ProcessId, StderrMode};
use ab_core::{Backend, BackendKind, ErrorCode, ErrorKind, ExecOptions, Verb};
use bytes::Bytes;
use futures_util::future::join_all;

use crate::commands::{
    argv_command, exec_stdout_text, exec_stdout_text_with, output_text, piped_stdin_request_in,
    read_to_exit, read_until, supports_commands, supports_detached, write_stdin,
};
use crate::expect::{assert_content, expect_error};

fn in_directory(cwd: &str) -> ExecOptions {
    ExecOptions { cwd: Some(cwd.to_owned()), ..ExecOptions::default() }
}

/// A backend that cannot run commands names itself and the verb in the error. A backend that can
/// run commands runs one.
pub async fn needs_the_capability(backend: &Backend) {
    let info = backend.info();
    if info.capabilities.exec {
        assert!(backend.exec("true").await.unwrap().exit.success());
        if info.capabilities.detached_processes {
            backend.detached_processes().await.unwrap();
        } else {
            assert!(!supports_detached(backend).await);
        }
        return;
    }
    let error = expect_error(backend.exec("echo hello").await, ErrorKind::Unsupported);
    assert_eq!((error.code(), error.verb()), (ErrorCode::NotImplemented, Some(Verb::Exec)));
    let named = error.backend_kind().expect("the error names no backend");
    // The error of a scope names the backend below it.
    assert!(info.kind == BackendKind::Scoped || info.kind == named, "{error:?}");
    assert!(error.message().contains(named.as_str()), "{error}");

    expect_error(backend.spawn(ExecRequest::shell("true")).await, ErrorKind::Unsupported);
    expect_error(backend.detached_processes().await, ErrorKind::Unsupported);
    expect_error(backend.attach(&ProcessId::new("1"), 0).await, ErrorKind::Unsupported);
}

/// An empty command is refused before the capability is checked.
pub async fn empty_is_refused(backend: &Backend) {
    for nothing in ["", "   ", "\t\n"] {
        let error = expect_error(backend.exec(nothing).await, ErrorKind::Invalid);
        assert_eq!((error.code(), error.command()), (ErrorCode::EmptyCommand, Some(nothing)));
    }
    for words in [&[][..], &[""], &["", "true"]] {
        let error =
            backend.exec_allowing_failure(argv_command(words), ExecOptions::default()).await;
        assert_eq!(expect_error(error, ErrorKind::Invalid).code(), ErrorCode::EmptyCommand);
    }
}

/// Every control says what was requested and what enforces it. Without commands there are no
/// controls.
pub async fn says_what_is_in_force(backend: &Backend) {
    let policy = backend.effective_policy().await.unwrap();
    if !backend.info().capabilities.exec {
        assert_eq!(policy.isolation, None);
        return;
    }
    assert!(policy.isolation.is_some());
    assert!(!policy.controls.is_empty());
    for control in &policy.controls {
        for words in [&control.requested, &control.in_force, &control.mechanism] {
            assert!(!words.trim().is_empty(), "{control:?}");
        }
        let found = policy.control(control.kind);
        assert_eq!(found, Some(control), "{} is there twice", control.kind.as_str());
    }
    assert_eq!(backend.effective_policy().await.unwrap(), policy);
}

/// Loops, pipes and variables work as in a shell.
pub async fn runs_in_a_shell(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let line = "for x in a b; do y=$x; printf %s \"$y\"; done | tr a-z A-Z && echo !";
    assert_eq!(exec_stdout_text(backend, line).await, "AB!\n");
}

/// Commands see written files, and files that they write can be read.
pub async fn starts_at_the_root(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    assert_eq!(
        exec_stdout_text(backend, "ls -A").await,
        "",
        "a fresh workspace has something in it"
    );
    backend.write("dir/file", "ours").await.unwrap();
    assert_eq!(exec_stdout_text(backend, "cat dir/file; echo theirs > made").await, "ours");
    assert_content(backend, "made", "theirs\n").await;
    assert_eq!(exec_stdout_text(backend, "ls -A").await, "dir\nmade\n");
}

/// `HOME`, `PWD` and the working directory are the same.
pub async fn home_is_the_directory(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    backend.mkdir("a/b").await.unwrap();
    let line = "[ \"$HOME\" = \"$PWD\" ] && [ \"$(pwd)\" = \"$HOME\" ] && cd && basename \"$PWD\"";
    exec_stdout_text(backend, line).await;
    assert_eq!(exec_stdout_text_with(backend, line, in_directory("a/b")).await, "b\n");
}

/// A command can start in any directory of the workspace.
pub async fn directory_can_be_chosen(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    backend.write("a/b/file", "content").await.unwrap();
    for cwd in ["a/b", "./a/./b", "a/b/", "a/x/../b"] {
        assert_eq!(
            exec_stdout_text_with(backend, "cat file", in_directory(cwd)).await,
            "content",
            "{cwd}"
        );
    }
    backend.write("it's \"$odd\"\n/file", "odd").await.unwrap();
    let odd = in_directory("it's \"$odd\"\n");
    assert_eq!(exec_stdout_text_with(backend, "cat file", odd).await, "odd");
}

/// A directory outside is `PathEscape`, a file is `NotADirectory`, a missing path is `NotFound`.
pub async fn directory_must_be_inside(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    backend.write("dir/file", "x").await.unwrap();
    for (cwd, kind) in [
        ("..", ErrorKind::PathEscape),
        ("../out", ErrorKind::PathEscape),
        ("dir/../..", ErrorKind::PathEscape),
        ("dir/file", ErrorKind::NotADirectory),
        ("dir/file/x", ErrorKind::NotADirectory),
        ("nowhere", ErrorKind::NotFound),
    ] {
        let error = expect_error(backend.exec_with("true", in_directory(cwd)).await, kind);
        assert_eq!(error.verb(), Some(Verb::Exec), "{cwd}: {error:?}");
    }
    let nul = backend.exec_with("true", in_directory("a\0b")).await;
    expect_error(nul, ErrorKind::InvalidPath);
}

/// A link to a directory inside works; one that leads outside, or is dangling, does not.
pub async fn directory_may_be_a_link(backend: &Backend) {
    if !supports_commands(backend).await || !backend.info().capabilities.symlinks {
        return;
    }
    backend.write("dir/file", "content").await.unwrap();
    backend.symlink("link", "dir").await.unwrap();
    assert_eq!(exec_stdout_text_with(backend, "cat file", in_directory("link")).await, "content");
    // Commands can create links that file calls refuse.
    exec_stdout_text(backend, "ln -s \"$(printf '\\57')\" out; ln -s nowhere dangling").await;
    expect_error(backend.exec_with("true", in_directory("out")).await, ErrorKind::PathEscape);
    expect_error(backend.exec_with("true", in_directory("dangling")).await, ErrorKind::NotFound);
}

/// Every byte arrives, in pieces of any size.
pub async fn output_is_exact(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let all: Vec<u8> = (0..=255).collect();
    backend.write("all", all.clone()).await.unwrap();
    let output = backend.exec("cat all all; printf '\\377'").await.unwrap();
    assert_eq!(output.stdout.bytes, [&all[..], &all, &[255]].concat());
    assert!(output.stdout_text().ends_with("\u{fffd}"));
    assert_eq!(output.stdout.total_bytes, 513);
    // Characters of three bytes cross every border between pieces.
    let long = exec_stdout_text(backend, "yes 'a€' | head -c 4000000").await;
    assert_eq!(long.len(), 4_000_000);
    assert!(long.lines().all(|line| line == "a€"), "a character was torn");
    assert_eq!(exec_stdout_text(backend, "true").await, "");
}

/// Standard error is separate from standard output.
pub async fn channels_are_told_apart(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let output = backend.exec("echo out; echo err >&2; echo out").await.unwrap();
    assert_eq!(output.stdout.display_text(), "out\nout\n");
    assert_eq!(output.stderr.display_text(), "err\n");
    assert_eq!((&*output.exit.stdout_tail, &*output.exit.stderr_tail), ("out\nout\n", "err\n"));
}

/// With merged output, standard error arrives on standard output in the order of writing.
pub async fn merged_output_keeps_its_order(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let line = "for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done; exit 3";
    let request = ExecRequest { stderr: StderrMode::Merged, ..ExecRequest::shell(line) };
    let mut process = backend.spawn(request).await.unwrap();
    let mut output = Vec::new();
    while let Some(piece) = process.output.recv().await {
        assert_eq!(piece.channel, OutputChannel::Stdout);
        output.extend_from_slice(&piece.bytes);
    }
    let expected: String = (1..=5).map(|i| format!("out {i}\nerr {i}\n")).collect();
    assert_eq!(String::from_utf8(output).unwrap(), expected);
    assert_eq!(process.wait().await.unwrap().code, Some(3));
}

/// A non-zero exit status is `EXEC_FAILED`, with the code and the output.
pub async fn failure_has_code_and_words(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let line = "echo out; echo wrong >&2; exit 42";
    let error = expect_error(backend.exec(line).await, ErrorKind::CommandFailed);
    assert_eq!((error.code(), error.verb()), (ErrorCode::ExecFailed, Some(Verb::Exec)));
    assert_eq!(error.command(), Some(line));
    assert_eq!(error.process_exit().and_then(|exit| exit.code), Some(42));
    assert!(error.message().contains("42"), "{error}");
    assert!(error.message().contains("wrong") && !error.message().contains("out"), "{error}");
    let output = error.exec_output().expect("what it said was lost");
    assert_eq!(
        (output.stdout.display_text(), output.stderr.display_text()),
        ("out\n".into(), "wrong\n".into())
    );

    let error = expect_error(backend.exec("echo only this; false").await, ErrorKind::CommandFailed);
    assert!(error.message().contains("only this"), "{error}");
}

/// `exec_allowing_failure` returns every exit status as a value.
pub async fn codes_are_passed_on(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    for (line, code) in [("exit 0", 0), ("false", 1), ("exit 255", 255), ("no-such-program", 127)] {
        let command = ab_core::process::Command::Shell(line.to_owned());
        let output = backend.exec_allowing_failure(command, ExecOptions::default()).await.unwrap();
        assert_eq!(output.exit.code, Some(code), "{line}");
    }
}

/// Standard input is empty unless input was given.
pub async fn input_is_empty_or_as_given(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    assert_eq!(exec_stdout_text(backend, "cat; if read -r x; then echo some; fi").await, "");
    let given = |input: Bytes| ExecOptions { input, ..ExecOptions::default() };
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let options = given(Bytes::from(bytes.clone()));
    assert_eq!(backend.exec_with("cat", options.clone()).await.unwrap().stdout.bytes, bytes);
    // The command need not read its input.
    assert_eq!(exec_stdout_text_with(backend, "echo done", options).await, "done\n");
}

/// Output beyond the limit is cut, and a note says how much there was.
pub async fn output_is_cut_with_a_note(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let bounded =
        |max_output| ExecOptions { max_output_bytes: max_output, ..ExecOptions::default() };
    let line = "printf 0123456789; printf abcdef >&2";
    let output = backend.exec_with(line, bounded(4)).await.unwrap();
    assert_eq!((&output.stdout.bytes[..], output.stdout.total_bytes), (&b"0123"[..], 10));
    assert_eq!((&output.stderr.bytes[..], output.stderr.total_bytes), (&b"abcd"[..], 6));
    assert!(
        output.stdout_text().starts_with("0123\n") && output.stdout_text().contains("10"),
        "{output:?}"
    );
    let whole = backend.exec_with(line, bounded(10)).await.unwrap();
    assert_eq!(whole.stdout_text(), "0123456789");
    let none = backend.exec_with(line, bounded(0)).await.unwrap();
    assert_eq!((none.stdout.bytes.len(), none.stdout.total_bytes), (0, 10));
}

/// A command is killed at its timeout, and its output until then is kept.
pub async fn timeout_keeps_what_was_said(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let timeout = Some(Duration::from_millis(1500));
    let options = ExecOptions { timeout, ..ExecOptions::default() };
    let error = backend.exec_with("echo before; sleep 1000; echo after", options).await;
    let error = expect_error(error, ErrorKind::Timeout);
    assert_eq!(error.code(), ErrorCode::Timeout);
    let output = error.exec_output().expect("what it said was lost");
    assert_eq!(output.stdout.display_text(), "before\n");
    // The workspace still works.
    assert_eq!(exec_stdout_text(backend, "echo next").await, "next\n");
}

/// The arguments of a command without a shell are passed unchanged.
pub async fn words_are_passed_as_they_are(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let odd = ["a b", "", "$PWD", "`x`", "'", "\"", "\n", "*", "a;b", "-n", "--", "\\", "é€😀"];
    let words = [&["printf", "<%s>"][..], &odd].concat();
    let output =
        backend.exec_allowing_failure(argv_command(&words), ExecOptions::default()).await.unwrap();
    let expect: String = odd.iter().map(|word| format!("<{word}>")).collect();
    assert_eq!(output.stdout_text(), expect);
    let missing = backend
        .exec_allowing_failure(argv_command(&["no-such-program"]), ExecOptions::default())
        .await;
    assert_eq!(expect_error(missing, ErrorKind::NotFound).code(), ErrorCode::ExecError);
}

/// A very long line runs; one with a NUL is refused.
pub async fn lines_may_be_long(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    // Longer than any program argument, and within the limit of the command line check.
    let long = format!("printf %s '{}' | wc -c | tr -d ' '", "a".repeat(1_000_000));
    assert_eq!(exec_stdout_text(backend, &long).await, "1000000\n");
    // The text of the line is not its standard input.
    assert_eq!(
        exec_stdout_text(backend, &format!("cat; echo '{}' | wc -l", "\n".repeat(200_000)))
            .await
            .trim(),
        "200001"
    );
    let huge = backend.exec(&"true;".repeat(8 * 1024 * 1024)).await;
    expect_error(huge, ErrorKind::TooLarge);
    let nul = backend.exec("echo a\0b").await;
    assert_eq!(expect_error(nul, ErrorKind::Invalid).code(), ErrorCode::ExecError);
}

/// Concurrent commands do not disturb each other.
pub async fn many_at_once(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let lines: Vec<String> =
        (0..64).map(|n| format!("echo {n}; cat; echo {n} > file{n}")).collect();
    let running = lines.iter().map(|line| exec_stdout_text(backend, line));
    for (n, said) in join_all(running).await.into_iter().enumerate() {
        assert_eq!(said, format!("{n}\n"));
    }
    assert_eq!(exec_stdout_text(backend, "cat file* | wc -l").await.trim(), "64");
}

/// The directory may be removed while its command runs; the next command there is `NotFound`.
pub async fn directory_may_go_away(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    backend.write("dir/file", "x").await.unwrap();
    let request = piped_stdin_request_in(backend, "dir", "echo ready; read -r x; echo \"$x\"");
    let mut process = backend.spawn(request).await.unwrap();
    read_until(&mut process, "ready").await;
    backend.rm("dir", RemoveOptions::recursive()).await.unwrap();
    write_stdin(&process, "on\n").await;
    let (pieces, exit) = read_to_exit(&mut process).await;
    assert_eq!((output_text(&pieces), exit.code), ("on\n".to_owned(), Some(0)));
    expect_error(backend.exec_with("true", in_directory("dir")).await, ErrorKind::NotFound);
}
