//! Owned processes: fed, read, signalled, and ended when they are dropped.

use ab_core::Backend;
use ab_core::process::{ExecRequest, ExitCause, OutputChannel, ProcessControlMessage, ProcessExit};

use crate::commands::{
    channel_bytes, is_lock_held, lock_holding_script, output_text, piped_stdin_request,
    read_to_exit, read_until, send_control, supports_commands, terminal_request,
    wait_until_lock_is_free, write_stdin,
};
use crate::expect::assert_content;

const TERM: i32 = 15;
const KILL: i32 = 9;

/// A sandbox may report a signal as an exit status, as a shell does.
fn ended_by(exit: &ProcessExit, signal: i32) -> bool {
    exit.signal == Some(signal) || exit.code == Some(128 + signal)
}

/// A non-zero exit status is a value.
pub async fn exit_is_a_value(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let mut process = backend.spawn(ExecRequest::shell("echo out; exit 3")).await.unwrap();
    assert!(process.stdin.is_none());
    let (pieces, exit) = read_to_exit(&mut process).await;
    assert_eq!(
        (output_text(&pieces), exit.code, exit.cause),
        ("out\n".into(), Some(3), ExitCause::Exited)
    );
    assert_eq!(process.wait().await, Some(exit), "the end is another one the second time");
}

/// Sequence numbers count the bytes of both channels, without gaps.
pub async fn pieces_are_numbered(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let line = "for i in 1 2 3 4 5 6 7 8 9; do echo out$i; echo err$i >&2; done";
    let mut process = backend.spawn(ExecRequest::shell(line)).await.unwrap();
    let (pieces, _) = read_to_exit(&mut process).await;
    let mut next = 0;
    for piece in &pieces {
        assert_eq!((piece.offset, piece.lost_bytes_before), (next, 0));
        assert!(!piece.bytes.is_empty());
        next = piece.next_offset();
    }
    assert_eq!(next, 2 * 9 * 5);
    let expect = |word: &str| (1..=9).map(|n| format!("{word}{n}\n")).collect::<String>();
    assert_eq!(channel_bytes(&pieces, OutputChannel::Stdout), expect("out").as_bytes());
    assert_eq!(channel_bytes(&pieces, OutputChannel::Stderr), expect("err").as_bytes());
}

/// A slow reader loses nothing, and a process without a reader continues.
pub async fn readers_may_be_slow_or_gone(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let mut slow = backend.spawn(ExecRequest::shell("yes | head -c 20000000")).await.unwrap();
    let gone = "yes | head -c 20000000 && echo done > done";
    let mut gone = backend.spawn(ExecRequest::shell(gone)).await.unwrap();
    gone.output.close();
    while gone.output.recv().await.is_some() {}
    assert!(gone.wait().await.unwrap().success());
    assert_content(backend, "done", "done\n").await;
    let mut total = 0;
    while let Some(piece) = slow.output.recv().await {
        assert_eq!((piece.offset, piece.lost_bytes_before), (total, 0));
        total = piece.next_offset();
        tokio::task::yield_now().await;
    }
    assert_eq!(total, 20_000_000);
}

/// Standard input takes pieces, and ends when its sender is dropped or it is closed.
pub async fn input_is_fed(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let line = "while read -r x; do echo \"<$x>\"; done; echo end";
    for ends_by_control in [false, true] {
        let mut process = backend.spawn(piped_stdin_request(line)).await.unwrap();
        write_stdin(&process, "one\ntw").await;
        read_until(&mut process, "<one>").await;
        write_stdin(&process, "o\n").await;
        read_until(&mut process, "<two>").await;
        if ends_by_control {
            send_control(&process, ProcessControlMessage::CloseStdin).await;
        } else {
            drop(process.stdin.take());
        }
        let (pieces, exit) = read_to_exit(&mut process).await;
        assert_eq!((output_text(&pieces), exit.code), ("end\n".into(), Some(0)));
    }
}

/// Signals reach the command, which may handle them.
pub async fn signals_arrive(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let line =
        "trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 1000 & wait $!; done";
    let mut process = backend.spawn(ExecRequest::shell(line)).await.unwrap();
    read_until(&mut process, "ready").await;
    send_control(&process, ProcessControlMessage::Signal(TERM)).await;
    let (pieces, exit) = read_to_exit(&mut process).await;
    assert_eq!((output_text(&pieces), exit.code), ("caught\n".into(), Some(7)));

    for signal in [TERM, KILL] {
        let mut process =
            backend.spawn(ExecRequest::shell("echo ready; sleep 1000; true")).await.unwrap();
        read_until(&mut process, "ready").await;
        send_control(&process, ProcessControlMessage::Signal(signal)).await;
        let (_, exit) = read_to_exit(&mut process).await;
        assert!(ended_by(&exit, signal), "{exit:?}");
        assert_eq!(exit.cause, ExitCause::Exited);
        // A signal to a process that has ended does nothing.
        let _ = process.control.send(ProcessControlMessage::Signal(signal)).await;
        assert_eq!(process.wait().await, Some(exit));
    }
}

/// Dropping a process ends it and everything that it started.
pub async fn drop_ends_everything(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let lines = ["echo ready; sleep 1000; true", "sleep 1000 & (sleep 1000 &) ; echo ready; wait"];
    for line in lines {
        let mut process =
            backend.spawn(ExecRequest::shell(lock_holding_script(line))).await.unwrap();
        read_until(&mut process, "ready").await;
        assert!(is_lock_held(backend).await);
        drop(process);
        wait_until_lock_is_free(backend).await;
    }
}

/// Processes that a command leaves behind end with it.
pub async fn the_end_takes_everything_along(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let line = lock_holding_script("sleep 1000 & echo started");
    assert_eq!(backend.exec(&line).await.unwrap().stdout_text(), "started\n");
    wait_until_lock_is_free(backend).await;
}

/// Dropping the future ends its command.
pub async fn cancelling_ends_everything(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let line = lock_holding_script("sleep 1000 & echo ready > ready; wait");
    {
        let running = backend.exec(&line);
        tokio::pin!(running);
        loop {
            tokio::select! {
                ended = &mut running => panic!("it ended: {ended:?}"),
                there = backend.exists("ready") => if there.unwrap() { break },
            }
        }
    }
    wait_until_lock_is_free(backend).await;
}

/// A command on a terminal sees the terminal and its size.
pub async fn terminals_have_a_size(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let line = "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && stty size && echo err >&2";
    let mut process = backend.spawn(terminal_request(line)).await.unwrap();
    let (pieces, exit) = read_to_exit(&mut process).await;
    assert_eq!((output_text(&pieces), exit.code), ("24 80\r\nerr\r\n".into(), Some(0)));
    assert!(pieces.iter().all(|piece| piece.channel == OutputChannel::Stdout));

    let line = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 1000 & wait $!; done";
    let mut process = backend.spawn(terminal_request(line)).await.unwrap();
    read_until(&mut process, "ready").await;
    let size = ab_core::process::TerminalSize { columns: 132, rows: 50 };
    send_control(&process, ProcessControlMessage::Resize(size)).await;
    read_until(&mut process, "50 132").await;
    assert_eq!(read_to_exit(&mut process).await.1.code, Some(0));
}

/// Control keys send signals or end the input.
pub async fn terminals_know_keys(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let line = "stty -echo; trap 'echo caught' INT; echo ready; cat; echo after";
    let mut process = backend.spawn(terminal_request(line)).await.unwrap();
    read_until(&mut process, "ready").await;
    // While a shell is between two programs, it handles the key itself.
    write_stdin(&process, "there\n").await;
    read_until(&mut process, "there").await;
    write_stdin(&process, "\u{3}").await;
    read_until(&mut process, "caught").await;
    let (_, exit) = read_to_exit(&mut process).await;
    assert_eq!(exit.code, Some(0), "{exit:?}");

    let mut process =
        backend.spawn(terminal_request("stty -echo; echo ready; cat; echo end")).await.unwrap();
    read_until(&mut process, "ready").await;
    write_stdin(&process, "line\n").await;
    read_until(&mut process, "line").await;
    send_control(&process, ProcessControlMessage::CloseStdin).await;
    read_until(&mut process, "end").await;
    assert_eq!(read_to_exit(&mut process).await.1.code, Some(0));
}

/// Signals reach a command on a terminal like any other.
pub async fn terminals_pass_signals_on(backend: &Backend) {
    if !supports_commands(backend).await {
        return;
    }
    let line =
        "trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 1000 & wait $!; done";
    let mut process = backend.spawn(terminal_request(line)).await.unwrap();
    read_until(&mut process, "ready").await;
    send_control(&process, ProcessControlMessage::Signal(TERM)).await;
    read_until(&mut process, "caught").await;
    assert_eq!(read_to_exit(&mut process).await.1.code, Some(7));

    let mut process = backend
        .spawn(terminal_request(&lock_holding_script("echo ready; sleep 1000")))
        .await
        .unwrap();
    read_until(&mut process, "ready").await;
    drop(process);
    wait_until_lock_is_free(backend).await;
}
