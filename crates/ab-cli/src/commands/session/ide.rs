//! `session run`: opens the workspace of a session in an IDE, or runs a program in the workspace,
//! on this machine.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use ab_api::{Ide, LocalWorkspaceAccess, OpenIdeRequest, OpenIdeResponse, SshWorkspaceAccess};
use ab_core::{Error, ErrorCode, ErrorKind};
use ab_host::host_program::HostProgram;
use agent_backend::ServeClient;
use clap::Args;
use serde_json::json;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::session_ref::SessionRef;
use crate::terminal::{Format, Terminal};

/// The environment variable that contains the id of the session.
const SESSION_VARIABLE: &str = "AGENT_BACKEND_SESSION";

#[derive(Args, Debug)]
pub(super) struct RunSession {
    /// ID of the session, or its first characters
    #[arg(value_name = "SESSION")]
    id: SessionRef,

    /// The IDE: vscode, cursor, windsurf, zed, idea, pycharm, vim and others
    #[arg(value_name = "IDE", required_unless_present_any = ["program", "print"])]
    ide: Option<String>,

    /// Print how the workspace is opened, and start nothing
    #[arg(long, conflicts_with = "program")]
    print: bool,

    /// Any program and its arguments, which runs in the directory of the workspace
    #[arg(value_name = "PROGRAM", last = true, conflicts_with = "ide")]
    program: Vec<OsString>,
}

pub(super) async fn run(
    client: &ServeClient,
    run: RunSession,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    if let Some(ide) = run.ide.as_deref().filter(|ide| Ide::find(ide).is_none()) {
        let hint =
            format!("known: {}; or name a program: -- PROGRAM", Ide::comma_separated_names());
        return Err(Failure::usage(format!("unknown IDE {ide:?}")).with_hint(hint));
    }
    let id = run.id.find(client).await?;
    let found = client.open_ide(id, &OpenIdeRequest { ide: run.ide.clone() }).await?;
    if run.print {
        return print(&found, terminal);
    }
    let Some(LocalWorkspaceAccess { path, command }) = &found.local else {
        return Err(elsewhere(&found));
    };
    for note in &found.notes {
        terminal.note(note);
    }
    let session = id.to_string();
    let [program, arguments @ ..] = run.program.as_slice() else {
        return open(command, path, &session, &found, terminal);
    };
    let mut program = Command::new(program);
    program.args(arguments).current_dir(path).env(SESSION_VARIABLE, &session);
    let status = program.status().map_err(|error| unstarted(&run.program[0], path, &error))?;
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(Failure::Told(Exit::Command(u8::try_from(code).unwrap_or(1)))),
        (None, signal) => {
            let code = 128_i32.saturating_add(signal.unwrap_or_default());
            Err(Failure::Told(Exit::Command(u8::try_from(code).unwrap_or(1))))
        }
    }
}

/// Starts the IDE. Waits until an editor in the terminal exits. Does not wait for a graphical IDE,
/// which keeps running after this command has ended.
fn open(
    command: &[String],
    path: &str,
    session: &str,
    found: &OpenIdeResponse,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let ide = found.ide.as_deref().and_then(Ide::find);
    let ([name, arguments @ ..], Some(ide)) = (command, ide) else {
        return Err(Failure::usage("the server names no command for this IDE"));
    };
    let search: Vec<_> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    let program = HostProgram::find(name, &search).map_err(|_| {
        let message = format!("{} is not installed here: no program {name} on PATH", ide.title);
        let error = Error::new(ErrorCode::MissingUtilities, ErrorKind::Unavailable, message);
        Failure::from(error).with_hint(format!("the workspace is {path}"))
    })?;
    let mut start = Command::new(program.path());
    start.args(arguments).current_dir(path).env(SESSION_VARIABLE, session);
    let unstarted = |error: io::Error| unstarted(name.as_ref(), path, &error);
    if matches!(ide.id, "vim" | "nvim") {
        let status = start.status().map_err(unstarted)?;
        let code = u8::try_from(status.code().unwrap_or(1)).unwrap_or(1);
        return if code == 0 { Ok(()) } else { Err(Failure::Told(Exit::Command(code))) };
    }
    start.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Start the IDE in its own process group, so that Ctrl-C here does not end it.
    std::os::unix::process::CommandExt::process_group(&mut start, 0);
    start.spawn().map_err(unstarted)?;
    match terminal.format() {
        Format::Json => terminal.value(&json!(found)),
        Format::Text => terminal.line(&format!("opened {path} in {}", ide.title)),
    }
}

fn print(found: &OpenIdeResponse, terminal: &mut Terminal) -> Result<(), Failure> {
    if terminal.format() == Format::Json {
        return terminal.value(&json!(found));
    }
    if let Some(LocalWorkspaceAccess { path, command }) = &found.local {
        terminal.line(&format!("path     {path}"))?;
        if !command.is_empty() {
            terminal.line(&format!("command  {}", words(command)))?;
        }
    }
    if let Some(SshWorkspaceAccess { command, sftp, .. }) = &found.ssh {
        terminal.line(&format!("ssh      {}", words(command)))?;
        terminal.line(&format!("sftp     {}", words(sftp)))?;
    }
    for text in &found.not_yet {
        terminal.line(&format!("not yet  {text}"))?;
    }
    for note in &found.notes {
        terminal.note(note);
    }
    Ok(())
}

/// The error if the workspace is on another machine.
fn elsewhere(found: &OpenIdeResponse) -> Failure {
    let mut message = "the workspace is on another machine".to_owned();
    for text in &found.not_yet {
        message.push_str(": ");
        message.push_str(text.trim_end_matches('.'));
    }
    let error = Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Unsupported, message);
    match &found.ssh {
        Some(ssh) => Failure::from(error).with_hint(words(&ssh.command)),
        None => Failure::from(error),
    }
}

fn unstarted(program: &std::ffi::OsStr, path: &str, error: &io::Error) -> Failure {
    let message = format!("cannot start {} in {path}: {error}", Path::new(program).display());
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::Io,
    };
    let failure = Failure::from(Error::new(ErrorCode::ExecError, kind, message));
    match kind {
        ErrorKind::NotFound => failure.with_hint("check that the program is installed and in PATH"),
        _ => failure,
    }
}

/// The command, quoted so that a shell can read it.
fn words(command: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@+%".contains(c);
    let quoted = |word: &String| {
        if word.chars().all(is_plain) && !word.is_empty() {
            return word.clone();
        }
        format!("'{}'", word.replace('\'', r"'\''"))
    };
    command.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_quoted_for_a_shell() {
        let command = ["ssh", "-o", "ProxyCommand=a b", "it's", ""].map(str::to_owned);
        assert_eq!(words(&command), r"ssh -o 'ProxyCommand=a b' 'it'\''s' ''");
    }
}
