//! `exec`: a command that is waited for, or one that stays.

use std::time::{Duration, Instant};

use ab_core::process::{Cause, Channel, Command, ExecRequest, Exit, Stdin};
use ab_core::{Backend, Code, Error, ExecOptions, Kind, Verb};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use super::Outcome;
use super::output::Kept;
use crate::answer::Answer;
use crate::arguments::Arguments;
use crate::bounds::{DEFAULT_EXEC_TIME, MAX_EXEC_TIME, MAX_STAY, PROGRESS_EVERY, RESULT_BYTES};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::quantity::grouped;

pub(crate) async fn call(
    backend: &Backend,
    mut arguments: Arguments,
    progress: Option<Progress>,
) -> Outcome {
    let command = arguments.text("command")?;
    let background = arguments.flag("background", false)?;
    let timeout = match background {
        true => arguments.time("timeout", MAX_STAY)?,
        false => Some(arguments.time("timeout", MAX_EXEC_TIME)?.unwrap_or(DEFAULT_EXEC_TIME)),
    };
    let options = ExecOptions {
        cwd: arguments.optional_text("cwd")?,
        env: arguments.variables("env")?,
        timeout,
        ..ExecOptions::default()
    };
    let request = backend.request(Command::Shell(command), options)?;
    match background {
        true => started(backend, request).await,
        false => waited_for(backend, request, timeout.unwrap_or(MAX_EXEC_TIME), progress).await,
    }
}

async fn started(backend: &Backend, request: ExecRequest) -> Outcome {
    let request = ExecRequest { stdin: Stdin::Piped, ..request };
    let process = backend.start(request).await?;
    let text = format!(
        "Started process {}. process_output shows what it says, process_input speaks to it, \
         process_kill ends it.",
        process.id
    );
    Ok(Answer::with_value(text, json!({ "processId": process.id.as_str() })))
}

/// Whoever stops waiting lets go of the process, and that ends it.
async fn waited_for(
    backend: &Backend,
    request: ExecRequest,
    timeout: Duration,
    mut progress: Option<Progress>,
) -> Outcome {
    let line = request.command.line();
    let begun = Instant::now();
    let mut process = backend.spawn(request).await?;
    let (mut stdout, mut stderr) = (Kept::new(RESULT_BYTES / 2), Kept::new(RESULT_BYTES / 2));
    let mut ticks = interval(PROGRESS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    loop {
        tokio::select! {
            piece = process.output.recv() => match piece {
                Some(piece) => match piece.channel {
                    Channel::Stdout => stdout.add(&piece.bytes),
                    Channel::Stderr => stderr.add(&piece.bytes),
                },
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
    let Some(exit) = process.wait().await else {
        let error = Error::new(Code::ExecError, Kind::Io, process.ending().loss());
        return Err(error.with_verb(Verb::Exec).with_command(line).into());
    };
    answered(stdout, stderr, &exit, timeout)
}

fn answered(stdout: Kept, stderr: Kept, exit: &Exit, timeout: Duration) -> Outcome {
    let cut = stdout.cut() || stderr.cut();
    let (stdout, stderr) = (stdout.text(), stderr.text());
    let mut parts = Vec::new();
    if !stdout.is_empty() {
        parts.push(stdout.trim_end_matches('\n').to_owned());
    }
    if !stderr.is_empty() {
        parts.push(format!("[stderr]\n{}", stderr.trim_end_matches('\n')));
    }
    let ending = ending(exit, timeout);
    parts.extend(ending.as_ref().map(|ending| format!("[{ending}]")));
    if cut {
        parts.push(
            "[the output was cut: write it to a file and read that with read_text_file, or narrow \
             it with tail or grep]"
                .to_owned(),
        );
    }
    if parts.is_empty() {
        parts.push("[no output]".to_owned());
    }
    let value = json!({
        "stdout": stdout,
        "stderr": stderr,
        "timedOut": exit.cause == Cause::Timeout,
        "truncated": cut,
    });
    let answer = Answer::with_value(parts.join("\n"), value)
        .with_some("exitCode", exit.code)
        .with_some("signal", exit.signal);
    match ending {
        None => Ok(answer),
        Some(_) => Err(Failure::Ran(Box::new(answer))),
    }
}

/// How it ended, unless all is well.
fn ending(exit: &Exit, timeout: Duration) -> Option<String> {
    let status = status(exit);
    match exit.cause {
        Cause::Timeout => Some(format!(
            "timed out after {timeout:?} and was ended; pass a longer timeout, or background: true"
        )),
        Cause::Memory => Some(format!("{status}: it needed more memory than its limit")),
        Cause::Dropped => Some("ended with its backend".to_owned()),
        Cause::Itself if exit.success() => None,
        Cause::Itself => Some(status),
    }
}

pub(crate) fn status(exit: &Exit) -> String {
    match (exit.code, exit.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}
