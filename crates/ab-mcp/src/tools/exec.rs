//! `exec`: runs a command and waits for it, or starts a background process.

use std::time::{Duration, Instant};

use ab_core::process::{
    Command, ExecRequest, ExitCause, LeftoverProcessOutcome, OutputChannel, ProcessExit, StdinMode,
    TerminalSize,
};
use ab_core::{Backend, Error, ErrorCode, ErrorKind, ExecOptions, Verb, WsPath};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use super::Outcome;
use super::output::Kept;
use crate::answer::ToolAnswer;
use crate::arguments::Arguments;
use crate::bounds::{
    DEFAULT_EXEC_TIMEOUT, DEFAULT_MAX_RESULT_BYTES, DEFAULT_TERMINAL, MAX_EXEC_TIMEOUT, MAX_STAY,
    PROGRESS_EVERY,
};
use crate::briefing::{Lack, Printed};
use crate::catalog::With;
use crate::failure::Failure;
use crate::output_file_store::WholeOutput;
use crate::progress::Progress;
use crate::quantity::grouped;

pub(crate) async fn call(backend: &Backend, mut arguments: Arguments, with: With<'_>) -> Outcome {
    let With { progress, in_force, saved_output, .. } = with;
    let command = arguments.text("command")?;
    let background = arguments.flag("background", false)?;
    let timeout = if background {
        arguments.time("timeout", MAX_STAY)?
    } else {
        Some(arguments.time("timeout", MAX_EXEC_TIMEOUT)?.unwrap_or(DEFAULT_EXEC_TIMEOUT))
    };
    let options = ExecOptions {
        cwd: arguments.optional_text("cwd")?,
        env: arguments.variables("env")?,
        timeout,
        ..ExecOptions::default()
    };
    let terminal = terminal(&mut arguments, background)?;
    let request = backend.build_exec_request(Command::Shell(command), options)?;
    // The policy may ask a person for approval. Resolve the links now, so that the command runs in
    // the directory that the person sees, even if a link is changed later.
    let request = backend.resolve_cwd(request).await?;
    if background {
        return started(backend, ExecRequest { terminal, ..request }).await;
    }
    let (timeout, line) = (timeout.unwrap_or(MAX_EXEC_TIMEOUT), request.command.to_shell_line());
    let whole = saved_output.map(|_| WholeOutput::default());
    let Ran { stdout, stderr, whole, ended, took } =
        waited_for(backend, request, progress, whole).await?;
    let exit = ended.map_err(|loss| {
        let error = Error::new(ErrorCode::ExecError, ErrorKind::Io, loss);
        error.with_verb(Verb::Exec).with_command(line)
    })?;
    let cut = stdout.cut() || stderr.cut();
    let (stdout, stderr) = (stdout.text(), stderr.text());
    let advice = match Lack::of(&exit, &Printed { stdout: &stdout, stderr: &stderr }) {
        Some(lack) => lack.advice(in_force.of(backend).await.ok().and_then(|it| it.isolation)),
        None => None,
    };
    let saved = match (cut, whole, saved_output) {
        (true, Some(whole), Some(place)) => Some(whole.save(backend, place).await),
        _ => None,
    };
    let limit = TimeLimit { timeout, took };
    answered(&Said { stdout, stderr, cut, advice, saved }, &exit, limit)
}

/// The size of the terminal for a background process, if the caller requested a terminal.
fn terminal(arguments: &mut Arguments, background: bool) -> Result<Option<TerminalSize>, Failure> {
    let pty = arguments.flag("pty", false)?;
    let (columns, rows) = (arguments.count("columns")?, arguments.count("rows")?);
    match (pty, background) {
        (true, true) => {
            let size = |given: Option<u64>, default: u16| {
                given.map_or(default, |given| u16::try_from(given).unwrap_or(u16::MAX))
            };
            let TerminalSize { columns: wide, rows: high } = DEFAULT_TERMINAL;
            Ok(Some(TerminalSize { columns: size(columns, wide), rows: size(rows, high) }))
        }
        (true, false) => Err(Failure::misuse("pty needs background: true")),
        (false, _) if columns.or(rows).is_some() => {
            Err(Failure::misuse("columns and rows need pty: true and background: true"))
        }
        (false, _) => Ok(None),
    }
}

async fn started(backend: &Backend, request: ExecRequest) -> Outcome {
    let request = ExecRequest { stdin: StdinMode::Piped, ..request };
    let process = backend.spawn_detached(request).await?;
    let text = format!(
        "Started process {}. process_output shows what it prints, process_input writes to it, \
         process_kill ends it.",
        process.id
    );
    Ok(ToolAnswer::with_value(text, json!({ "processId": process.id.as_str() })))
}

/// Runs a command until it ends. Dropping the future ends the process.
async fn waited_for(
    backend: &Backend,
    request: ExecRequest,
    mut progress: Option<Progress>,
    mut whole: Option<WholeOutput>,
) -> Result<Ran, Failure> {
    let begun = Instant::now();
    let mut process = backend.spawn(request).await?;
    let (mut stdout, mut stderr) =
        (Kept::new(DEFAULT_MAX_RESULT_BYTES / 2), Kept::new(DEFAULT_MAX_RESULT_BYTES / 2));
    let mut ticks = interval(PROGRESS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    loop {
        tokio::select! {
            piece = process.output.recv() => match piece {
                Some(piece) => {
                    if let Some(whole) = &mut whole {
                        whole.add(&piece.bytes);
                    }
                    match piece.channel {
                        OutputChannel::Stdout => stdout.add(&piece.bytes),
                        OutputChannel::Stderr => stderr.add(&piece.bytes),
                    }
                }
                None => break,
            },
            _ = ticks.tick(), if progress.is_some() => {
                if let Some(progress) = &mut progress {
                    let seconds = begun.elapsed().as_secs_f64();
                    let said = grouped(stdout.total() + stderr.total());
                    progress.tell(seconds, format!("running for {seconds:.0} s, {said} bytes said")).await;
                }
            }
        }
    }
    let exit = process.wait().await;
    let ended = exit.ok_or_else(|| process.exit_receiver().process_lost_message());
    Ok(Ran { stdout, stderr, whole, ended, took: begun.elapsed() })
}

/// What is known about a command that has ended.
struct Ran {
    stdout: Kept,
    stderr: Kept,
    /// Both streams together. Set if long output is stored in a file.
    whole: Option<WholeOutput>,
    /// The exit of the command, or why it is not known.
    ended: Result<ProcessExit, String>,
    took: Duration,
}

/// The timeout of a call, and how long its command ran. If a command timed out before this timeout,
/// it exceeded a shorter limit of the workspace.
#[derive(Clone, Copy)]
struct TimeLimit {
    timeout: Duration,
    took: Duration,
}

/// The output of a command as text, and notes to add to it.
struct Said {
    stdout: String,
    stderr: String,
    cut: bool,
    advice: Option<String>,
    /// A note about the stored output, and the path of the file if it could be written.
    saved: Option<(Option<WsPath>, String)>,
}

fn answered(said: &Said, exit: &ProcessExit, limit: TimeLimit) -> Outcome {
    let Said { stdout, stderr, cut, advice, saved } = said;
    let mut parts = Vec::new();
    if !stdout.is_empty() {
        parts.push(stdout.trim_end_matches('\n').to_owned());
    }
    if !stderr.is_empty() {
        parts.push(format!("[stderr]\n{}", stderr.trim_end_matches('\n')));
    }
    let ending = ending(exit, limit);
    parts.extend(ending.as_ref().map(|ending| format!("[{ending}]")));
    parts.extend(advice.as_ref().map(|advice| format!("[{advice}]")));
    let left = exit.leftover_processes == LeftoverProcessOutcome::Ended;
    if left {
        parts.push(
            "[processes that the command left running, as with & or nohup, were ended with it: to keep \
             one running, start it by itself with background: true]"
                .to_owned(),
        );
    }
    if let Some((_, told)) = saved {
        parts.push(format!("[{told}]"));
    } else if *cut {
        parts.push(
            "[the output was cut: write it to a file and read that with read_text_file, or narrow \
             it with tail or grep]"
                .to_owned(),
        );
    }
    if parts.is_empty() {
        parts.push("[no output]".to_owned());
    }
    let saved_path = saved.as_ref().and_then(|(path, _)| path.as_ref());
    let value = json!({
        "stdout": stdout,
        "stderr": stderr,
        "timedOut": exit.cause == ExitCause::Timeout,
        "truncated": cut,
    });
    let answer = ToolAnswer::with_value(parts.join("\n"), value)
        .with_some("exitCode", exit.code)
        .with_some("signal", exit.signal)
        .with_some("endedLeftovers", left.then_some(true))
        .with_some("outputPath", saved_path.map(WsPath::to_string));
    match ending {
        None => Ok(answer),
        Some(_) => Err(Failure::Ran(Box::new(answer))),
    }
}

/// A sentence about how the command ended. `None` if it succeeded.
fn ending(exit: &ProcessExit, limit: TimeLimit) -> Option<String> {
    let status = status(exit);
    let TimeLimit { timeout, took } = limit;
    match exit.cause {
        ExitCause::Timeout if took < timeout => Some(format!(
            "ended after {:.1} s by the time limit of this workspace, which no timeout raises: do it in \
             shorter commands",
            took.as_secs_f64()
        )),
        ExitCause::Timeout => Some(format!(
            "timed out after {timeout:?} and was ended; pass timeout for up to {} s, or background: true \
             to let it run and read its output with process_output",
            MAX_EXEC_TIMEOUT.as_secs()
        )),
        ExitCause::DroppedByCaller => Some("ended with its backend".to_owned()),
        ExitCause::Exited if exit.success() => None,
        ExitCause::Exited
        | ExitCause::MemoryLimit
        | ExitCause::CpuLimit
        | ExitCause::FileSizeLimit => Some(status),
    }
}

/// How a command ended, and the limit that ended it.
pub(crate) fn status(exit: &ProcessExit) -> String {
    let status = match (exit.code, exit.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    };
    let why = match exit.cause {
        ExitCause::Timeout => "it reached its time limit",
        ExitCause::MemoryLimit => "it needed more memory than its limit",
        ExitCause::CpuLimit => "it needed more CPU time than its limit",
        ExitCause::FileSizeLimit => "it wrote a file that is larger than its limit",
        ExitCause::DroppedByCaller | ExitCause::Exited => return status,
    };
    format!("{status}: {why}")
}
