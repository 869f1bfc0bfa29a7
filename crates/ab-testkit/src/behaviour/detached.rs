//! Detached processes: listed, attached to from any byte on, fed and ended by any holder.
//!
//! If the backend does not support them, each case checks that calls fail with `Unsupported`.

use ab_core::process::{ExecRequest, ExitCause, OutputChunk, ProcessControlMessage, ProcessId};
use ab_core::{Backend, BackendKind, ErrorKind, ScopeOptions};

use crate::commands::{
    exec_stdout_text, is_lock_held, lock_holding_script, output_text, piped_stdin_request,
    piped_stdin_request_in, read_to_exit, read_until, send_control, supports_detached,
    wait_until_lock_is_free, write_stdin,
};
use crate::expect::expect_error;

/// All output that `attach` returns of an ended process, from a byte on.
async fn kept(backend: &Backend, id: &ProcessId, from: u64) -> Vec<OutputChunk> {
    let mut process = backend.attach(id, from).await.unwrap();
    read_to_exit(&mut process).await.0
}

/// Running and ended processes are in the table.
pub async fn are_listed(backend: &Backend) {
    if !supports_detached(backend).await {
        return;
    }
    assert!(backend.detached_processes().await.unwrap().is_empty());
    backend.mkdir("dir").await.unwrap();
    let line = "echo ready; read -r x; exit 5";
    let mut process =
        backend.spawn_detached(piped_stdin_request_in(backend, "dir", line)).await.unwrap();
    // Owned processes are not in the table.
    let held = backend.spawn(piped_stdin_request("cat")).await.unwrap();
    let listed = backend.detached_processes().await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!((&listed[0].id, &*listed[0].command), (&process.id, line));
    assert_eq!((listed[0].cwd.as_str(), &listed[0].exit), ("dir", &None));
    drop(held);
    write_stdin(&process, "\n").await;
    let exit = process.wait().await.unwrap();
    assert_eq!(
        (exit.code, exit.cause, &*exit.stdout_tail),
        (Some(5), ExitCause::Exited, "ready\n")
    );
    let listed = backend.detached_processes().await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0].exit, Some(exit));
}

/// The output is available after the end, from any byte on.
pub async fn output_is_kept(backend: &Backend) {
    if !supports_detached(backend).await {
        return;
    }
    let line = "printf 0123456789; exit 3";
    let mut process = backend.spawn_detached(ExecRequest::shell(line)).await.unwrap();
    let (pieces, exit) = read_to_exit(&mut process).await;
    assert_eq!((output_text(&pieces), exit.code), ("0123456789".into(), Some(3)));
    for (from, expect) in [(0, "0123456789"), (4, "456789"), (9, "9"), (10, ""), (1000, "")] {
        let pieces = kept(backend, &process.id, from).await;
        assert_eq!(output_text(&pieces), expect, "from {from}");
        assert!(
            pieces.first().is_none_or(|piece| (piece.offset, piece.lost_bytes_before) == (from, 0))
        );
    }
    let mut again = backend.attach(&process.id, 0).await.unwrap();
    assert_eq!(again.wait().await, Some(exit));
}

/// A reader that leaves and returns gets everything, and so does a second reader.
pub async fn leaving_loses_nothing(backend: &Backend) {
    if !supports_detached(backend).await {
        return;
    }
    let line = "echo first; read -r x; echo $x; read -r x; echo $x; seq 1 20000";
    let mut process = backend.spawn_detached(piped_stdin_request(line)).await.unwrap();
    let id = process.id.clone();
    let mut all = read_until(&mut process, "first\n").await;
    drop(process);
    let mut process = backend.attach(&id, all.last().unwrap().next_offset()).await.unwrap();
    write_stdin(&process, "second\n").await;
    all.extend(read_until(&mut process, "second\n").await);
    drop(process);
    let mut other = backend.attach(&id, 0).await.unwrap();
    write_stdin(&other, "third\n").await;
    let (whole, exit) = read_to_exit(&mut other).await;
    assert!(exit.success());
    all.extend(kept(backend, &id, all.last().unwrap().next_offset()).await);
    let expect: String = ["first\n", "second\n", "third\n"]
        .map(str::to_owned)
        .into_iter()
        .chain((1..=20000).map(|n| format!("{n}\n")))
        .collect();
    assert_eq!(output_text(&whole), expect);
    assert_eq!(output_text(&all), expect);
    let mut next = 0;
    for piece in &all {
        assert_eq!((piece.offset, piece.lost_bytes_before), (next, 0));
        next = piece.next_offset();
    }
}

/// Bytes beyond the limit are dropped and counted.
pub async fn loss_is_told(backend: &Backend) {
    if !supports_detached(backend).await {
        return;
    }
    const TOTAL: u64 = 150_000_000;
    let line = format!("yes | head -c {TOTAL}");
    let mut process = backend.spawn_detached(ExecRequest::shell(line)).await.unwrap();
    let id = process.id.clone();
    process.output.close();
    process.wait().await.unwrap();
    let mut process = backend.attach(&id, 0).await.unwrap();
    let (mut next, mut lost) = (0, 0);
    while let Some(piece) = process.output.recv().await {
        assert_eq!(piece.offset, next + piece.lost_bytes_before);
        lost += piece.lost_bytes_before;
        next = piece.next_offset();
    }
    assert_eq!(next, TOTAL);
    assert!(lost > 0, "nothing keeps all of it");
    assert!(lost < TOTAL, "nothing was kept");
}

/// A process runs without a holder, and every holder can end it.
pub async fn they_stay_until_ended(backend: &Backend) {
    if !supports_detached(backend).await {
        return;
    }
    let line = lock_holding_script("echo ready; sleep 1000; true");
    let mut process = backend.spawn_detached(ExecRequest::shell(line)).await.unwrap();
    read_until(&mut process, "ready").await;
    let id = process.id.clone();
    drop(process);
    let mut process = backend.attach(&id, 0).await.unwrap();
    read_until(&mut process, "ready").await;
    assert!(is_lock_held(backend).await);
    send_control(&process, ProcessControlMessage::Signal(9)).await;
    let exit = process.wait().await.unwrap();
    assert!(exit.signal == Some(9) || exit.code == Some(137), "{exit:?}");
    wait_until_lock_is_free(backend).await;
}

/// Input of several holders arrives; only `CloseStdin` ends it.
pub async fn input_is_shared(backend: &Backend) {
    if !supports_detached(backend).await {
        return;
    }
    let process = backend.spawn_detached(piped_stdin_request("cat; echo end")).await.unwrap();
    let id = process.id.clone();
    write_stdin(&process, "one\n").await;
    drop(process);
    let mut process = backend.attach(&id, 0).await.unwrap();
    write_stdin(&process, "two\n").await;
    drop(process.stdin.take());
    read_until(&mut process, "one\ntwo\n").await;
    send_control(&process, ProcessControlMessage::CloseStdin).await;
    read_until(&mut process, "end\n").await;
    assert!(process.wait().await.unwrap().success());
}

/// An unknown id is `NotFound`.
pub async fn unknown_is_not_found(backend: &Backend) {
    if !supports_detached(backend).await {
        return;
    }
    for id in ["", "1", "nobody", "a:b:c", "\0"] {
        expect_error(backend.attach(&ProcessId::new(id), 0).await, ErrorKind::NotFound);
    }
    let held = backend.spawn(piped_stdin_request("cat")).await.unwrap();
    expect_error(backend.attach(&held.id, 0).await, ErrorKind::NotFound);
}

/// A scope sees only its own processes; a wider handle sees more.
pub async fn scopes_see_their_own(backend: &Backend) {
    if !supports_detached(backend).await {
        return;
    }
    let inner = backend.scope("inner", ScopeOptions::default()).unwrap();
    let beside = backend.scope("inner2", ScopeOptions::default()).unwrap();
    let outside = backend.spawn_detached(piped_stdin_request("cat")).await.unwrap();
    let inside = inner.spawn_detached(piped_stdin_request("cat")).await.unwrap();
    let ids = |listed: Vec<ab_core::process::ProcessInfo>| -> Vec<(String, String)> {
        let mut ids: Vec<_> =
            listed.iter().map(|it| (it.cwd.to_string(), it.id.to_string())).collect();
        ids.sort();
        ids
    };
    let (outside_id, inside_id) = (outside.id.to_string(), inside.id.to_string());
    assert_eq!(ids(inner.detached_processes().await.unwrap()), [(".".into(), inside_id.clone())]);
    assert!(beside.detached_processes().await.unwrap().is_empty());
    let mut all = [(".".to_owned(), outside_id), ("inner".to_owned(), inside_id)];
    all.sort();
    assert_eq!(ids(backend.detached_processes().await.unwrap()), all);
    expect_error(inner.attach(&outside.id, 0).await, ErrorKind::NotFound);
    expect_error(beside.attach(&inside.id, 0).await, ErrorKind::NotFound);
    let mut joined = backend.attach(&inside.id, 0).await.unwrap();
    write_stdin(&joined, "hello\n").await;
    read_until(&mut joined, "hello").await;
    for process in [&outside, &inside] {
        send_control(process, ProcessControlMessage::CloseStdin).await;
    }
    assert!(joined.wait().await.unwrap().success());
}

/// Destroying a backend ends its processes; destroying a scope does not.
pub async fn destroy_ends_them(backend: &Backend) {
    if !supports_detached(backend).await {
        return;
    }
    let mut process = backend.spawn_detached(piped_stdin_request("echo ready; cat")).await.unwrap();
    let mut held = backend.spawn(piped_stdin_request("echo ready; cat")).await.unwrap();
    read_until(&mut process, "ready").await;
    read_until(&mut held, "ready").await;
    backend.destroy().await.unwrap();
    if backend.info().kind == BackendKind::Scoped {
        return;
    }
    for process in [&mut process, &mut held] {
        let exit = process.wait().await.expect("it was lost");
        assert_eq!(exit.cause, ExitCause::DroppedByCaller, "{exit:?}");
    }
    expect_error(backend.spawn_detached(ExecRequest::shell("true")).await, ErrorKind::Destroyed);
}

/// A detached process does not wait for a reader.
pub async fn nobody_has_to_read(backend: &Backend) {
    if !supports_detached(backend).await {
        return;
    }
    let line = "yes | head -c 20000000; echo done > done";
    let mut process = backend.spawn_detached(ExecRequest::shell(line)).await.unwrap();
    assert!(process.wait().await.unwrap().success());
    assert_eq!(exec_stdout_text(backend, "cat done").await, "done\n");
}
