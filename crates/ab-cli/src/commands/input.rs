//! What a command reads besides the workspace: standard input, or a file of the host.

use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

use ab_core::options::DEFAULT_MAX_READ_BYTES;
use ab_core::{Error, ErrorCode, ErrorKind};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::failure::Failure;
use crate::terminal::Terminal;

/// Most bytes that are taken in; a file that large could not be read back at once either.
pub(crate) const LIMIT: u64 = DEFAULT_MAX_READ_BYTES;

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

/// Bytes of a block.
const BLOCK: usize = 1024 * 1024;
/// Blocks that may wait to be taken.
const AHEAD: usize = 4;

/// Standard input, block by block: however much it is, only some of it is here at a time.
#[derive(Debug)]
pub(crate) struct Blocks {
    blocks: mpsc::Receiver<io::Result<Bytes>>,
    total: Option<u64>,
}

impl Blocks {
    pub(crate) fn of_stdin() -> Result<Blocks, Failure> {
        let (sender, blocks) = mpsc::channel(AHEAD);
        // A thread of its own: nothing has to wait for it when the process is interrupted.
        thread::Builder::new()
            .name("stdin".to_owned())
            .spawn(move || pass_on(io::stdin().lock(), &sender))
            .map_err(|error| Failure::input("start a thread for standard input", error))?;
        let file = io::stdin().as_fd().try_clone_to_owned().map(File::from);
        let about = file.and_then(|file| file.metadata()).ok();
        let total = about.filter(Metadata::is_file).map(|about| about.len());
        Ok(Blocks { blocks, total })
    }

    /// How much it is in all, where that is known.
    pub(crate) fn total(&self) -> Option<u64> {
        self.total
    }

    /// The next block, or nothing at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let fails = |error| Failure::input("read standard input", error);
        self.blocks.recv().await.transpose().map_err(fails)
    }

    /// Adds blocks until there are more than `limit` bytes of them, or no more come. Whether more
    /// may come.
    pub(crate) async fn fill(&mut self, begun: &mut Vec<u8>, limit: u64) -> Result<bool, Failure> {
        while begun.len() as u64 <= limit {
            match self.next().await? {
                Some(block) => begun.extend_from_slice(&block),
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

fn pass_on(mut source: impl Read, blocks: &mpsc::Sender<io::Result<Bytes>>) {
    loop {
        let mut block = Vec::with_capacity(BLOCK);
        let read = source.by_ref().take(BLOCK as u64).read_to_end(&mut block);
        let ended = read.is_err();
        let passed = match read {
            Ok(0) => return,
            Ok(_) => Ok(Bytes::from(block)),
            Err(error) => Err(error),
        };
        if blocks.blocking_send(passed).is_err() || ended {
            return;
        }
    }
}

/// All of a file that is named beside the workspace.
pub(crate) fn file(path: &Path) -> Result<Vec<u8>, Failure> {
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => bounded(file, &name, LIMIT),
        Err(error) => Err(Failure::input(format!("read {name}"), error)),
    }
}

/// What stands for standard input where a file is named.
const STANDARD_INPUT: &str = "-";
/// Bytes of a secret, at most.
const LONGEST_SECRET: usize = 64 * 1024;

/// A file that holds a secret. `-` is the first line of standard input, of which no more is taken: the
/// rest may be for a command or a protocol.
pub(crate) fn secret_file(path: &Path) -> Result<Vec<u8>, Failure> {
    if path != Path::new(STANDARD_INPUT) {
        return file(path);
    }
    let fails = |error| Failure::input("read standard input", error);
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        let read = rustix::io::retry_on_intr(|| rustix::io::read(io::stdin(), &mut byte));
        match read.map_err(|errno| fails(errno.into()))? {
            0 => return Ok(line),
            _ if byte[0] == b'\n' => return Ok(line),
            _ if line.len() == LONGEST_SECRET => {
                return Err(fails(io::Error::other("its first line is too long")));
            }
            _ => line.push(byte[0]),
        }
    }
}

/// All of a file with secrets, or of standard input if that is `-`.
pub(crate) fn secrets_file(path: &Path) -> Result<Vec<u8>, Failure> {
    if path == Path::new(STANDARD_INPUT) {
        bounded(io::stdin().lock(), "standard input", LIMIT)
    } else {
        file(path)
    }
}

fn bounded(source: impl Read, name: &str, limit: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = source.take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::input(format!("read {name}"), error))?;
    if bytes.len() as u64 > limit {
        let message = format!("{name} holds more than {limit} bytes");
        return Err(Error::new(ErrorCode::TooLarge, ErrorKind::TooLarge, message).into());
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
