//! What a command reads besides the workspace: standard input, or a file of the host.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::thread;

use ab_core::options::DEFAULT_READ_LIMIT;
use ab_core::{Code, Error, Kind};
use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::terminal::Terminal;

/// Most bytes that are taken in; a file that large could not be read back at once either.
const LIMIT: u64 = DEFAULT_READ_LIMIT;

/// Says what the command waits for when a person sits at the other end.
pub(crate) fn announce(stdin: &io::Stdin, terminal: &mut Terminal) {
    if stdin.is_terminal() {
        terminal.note("reading from the terminal; end with Ctrl-D on a line of its own");
    }
}

/// All of standard input.
pub(crate) async fn standard() -> Result<Vec<u8>, Failure> {
    let (sender, receiver) = oneshot::channel();
    // A thread of its own: nothing has to wait for it when the process is interrupted.
    let reader = move || {
        let _ = sender.send(bounded(io::stdin().lock(), "standard input", LIMIT));
    };
    thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(reader)
        .map_err(|error| Failure::input("start a thread for standard input", error))?;
    let lost = |_| Failure::input("read standard input", io::ErrorKind::UnexpectedEof.into());
    receiver.await.map_err(lost)?
}

/// All of a file that is named beside the workspace.
pub(crate) fn file(path: &Path) -> Result<Vec<u8>, Failure> {
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => bounded(file, &name, LIMIT),
        Err(error) => Err(Failure::input(format!("read {name}"), error)),
    }
}

fn bounded(source: impl Read, name: &str, limit: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = source.take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::input(format!("read {name}"), error))?;
    if bytes.len() as u64 > limit {
        let message = format!("{name} holds more than {limit} bytes");
        return Err(Error::new(Code::TooLarge, Kind::TooLarge, message).into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn endless_input_is_refused() {
        let failure = bounded(io::repeat(0), "the tap", 1000).unwrap_err();
        assert_eq!(failure.exit(), Exit::Failed);
        let told = failure.error().map(ToString::to_string).unwrap_or_default();
        assert_eq!(told, "the tap holds more than 1000 bytes");
        assert_eq!(bounded(io::repeat(7).take(3), "a cup", 3).unwrap(), [7, 7, 7]);
    }

    #[test]
    fn a_missing_file_is_named() {
        let failure = file(Path::new("no/such/edits.json")).unwrap_err();
        let told = failure.error().map(ToString::to_string).unwrap_or_default();
        assert!(told.starts_with("read no/such/edits.json: No such file"), "{told}");
    }
}
