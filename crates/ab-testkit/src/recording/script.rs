//! The output and the end of a command of a [`RecordingDriver`](super::RecordingDriver).

use ab_core::process::{
    DriverProcessChannels, MAX_QUEUED_OUTPUT_CHUNKS, OutputChannel, OutputChunk, ProcessExit,
};
use bytes::Bytes;

#[derive(Clone, Debug)]
pub struct ScriptedCommand {
    said: Vec<(OutputChannel, Bytes)>,
    end: End,
}

#[derive(Clone, Debug)]
enum End {
    Exit { code: Option<i32>, signal: Option<i32> },
    Lost,
    Held,
}

impl ScriptedCommand {
    /// Ends at once with `code`.
    pub fn exits(code: i32) -> Self {
        Self { said: Vec::new(), end: End::Exit { code: Some(code), signal: None } }
    }

    /// Is ended by a signal.
    pub fn killed(signal: i32) -> Self {
        Self { said: Vec::new(), end: End::Exit { code: None, signal: Some(signal) } }
    }

    /// The driver loses the process and never learns how it ended.
    pub fn lost() -> Self {
        Self { said: Vec::new(), end: End::Lost }
    }

    /// Runs until the test takes the driver's side and ends it.
    pub fn driven_by_test() -> Self {
        Self { said: Vec::new(), end: End::Held }
    }

    pub fn stdout(self, text: &str) -> Self {
        self.says(OutputChannel::Stdout, text)
    }

    pub fn stderr(self, text: &str) -> Self {
        self.says(OutputChannel::Stderr, text)
    }

    fn says(mut self, channel: OutputChannel, text: &str) -> Self {
        assert!(
            self.said.len() < MAX_QUEUED_OUTPUT_CHUNKS,
            "a script must fit into the queue of a process"
        );
        self.said.push((channel, Bytes::copy_from_slice(text.as_bytes())));
        self
    }

    /// Sends all output and ends, unless the test drives the process.
    pub(super) fn perform(self, feed: DriverProcessChannels) -> Option<DriverProcessChannels> {
        let mut sequence = 0;
        let (mut words, mut complaints) = (Vec::new(), Vec::new());
        for (channel, bytes) in self.said {
            match channel {
                OutputChannel::Stdout => words.extend_from_slice(&bytes),
                OutputChannel::Stderr => complaints.extend_from_slice(&bytes),
            }
            let next = sequence + bytes.len() as u64;
            feed.output
                .try_send(OutputChunk { offset: sequence, channel, bytes, lost_bytes_before: 0 })
                .expect("the queue has room");
            sequence = next;
        }
        match self.end {
            End::Exit { code, signal } => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let (stdout_tail, stderr_tail) = (text(&words), text(&complaints));
                let exit = ProcessExit {
                    code,
                    signal,
                    stdout_tail,
                    stderr_tail,
                    ..ProcessExit::default()
                };
                feed.exit.send(exit);
                None
            }
            End::Lost => None,
            End::Held => Some(feed),
        }
    }
}
