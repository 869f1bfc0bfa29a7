//! Reads input that does not come from the workspace: standard input, or a file of the host.

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

/// Maximum number of bytes that are read. The limit equals the limit for reading a file, because a
/// larger file could not be read back in one call.
pub(crate) const LIMIT: u64 = DEFAULT_MAX_READ_BYTES;

/// Prints a note if standard input is a terminal, because the command then waits for typed input.
pub(crate) fn announce(stdin: &io::Stdin, terminal: &mut Terminal) {
    if stdin.is_terminal() {
        terminal.note("reading from the terminal; end the input with Ctrl-D on an empty line");
    }
}

/// Reads all of standard input.
pub(crate) async fn standard() -> Result<Vec<u8>, Failure> {
    let (sender, receiver) = oneshot::channel();
    // Read in a separate thread, so that an interrupted process does not have to wait for the read.
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

/// Number of bytes in a block.
const BLOCK: usize = 1024 * 1024;
/// Number of blocks that are read ahead of the consumer.
const AHEAD: usize = 4;

/// Standard input in blocks. Only a few blocks are in memory at a time.
#[derive(Debug)]
pub(crate) struct Blocks {
    blocks: mpsc::Receiver<io::Result<Bytes>>,
    total: Option<u64>,
}

impl Blocks {
    pub(crate) fn of_stdin() -> Result<Blocks, Failure> {
        let (sender, blocks) = mpsc::channel(AHEAD);
        // Read in a separate thread, because an interrupted process could not end while it waits
        // for a read.
        thread::Builder::new()
            .name("stdin".to_owned())
            .spawn(move || pass_on(io::stdin().lock(), &sender))
            .map_err(|error| Failure::input("start a thread for standard input", error))?;
        let file = io::stdin().as_fd().try_clone_to_owned().map(File::from);
        let about = file.and_then(|file| file.metadata()).ok();
        let total = about.filter(Metadata::is_file).map(|about| about.len());
        Ok(Blocks { blocks, total })
    }

    /// The total size in bytes, if standard input is a file.
    pub(crate) fn total(&self) -> Option<u64> {
        self.total
    }

    /// The next block, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let fails = |error| Failure::input("read standard input", error);
        self.blocks.recv().await.transpose().map_err(fails)
    }

    /// Appends blocks to `begun` until it has more than `limit` bytes or the input ends. Returns
    /// whether there may be more input.
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

/// Reads a whole file of the host.
pub(crate) fn file(path: &Path) -> Result<Vec<u8>, Failure> {
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => bounded(file, &name, LIMIT),
        Err(error) => Err(Failure::input(format!("read {name}"), error)),
    }
}

/// The argument that stands for standard input.
const STANDARD_INPUT: &str = "-";
/// Maximum number of bytes of a secret on standard input.
const LONGEST_SECRET: usize = 64 * 1024;

/// Reads a file that contains a secret. For `-`, reads only the first line of standard input,
/// because the rest may belong to a command or a protocol.
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

/// Reads a whole file with secrets. For `-`, reads all of standard input.
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
        let message = format!("{name} is larger than {limit} bytes");
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
        assert_eq!(told, "the tap is larger than 1000 bytes");
        assert_eq!(bounded(io::repeat(7).take(3), "a cup", 3).unwrap(), [7, 7, 7]);
    }

    #[test]
    fn a_missing_file_is_named() {
        let failure = file(Path::new("no/such/edits.json")).unwrap_err();
        let told = failure.error().map(ToString::to_string).unwrap_or_default();
        assert!(told.starts_with("cannot read no/such/edits.json: no such file"), "{told}");
    }
}
