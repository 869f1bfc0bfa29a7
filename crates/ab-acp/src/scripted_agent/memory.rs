//! Stores the state of the scripted agent's sessions in files below its home, so that it survives a
//! restart of the agent.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The name of the directory with the stored states, in the agent's home.
const DIRECTORY: &str = ".agent-backend-script";
/// Maximum number of turns of a session that are stored.
const REMEMBERED_TURNS: usize = 200;
/// Maximum number of bytes of one stored text.
const REMEMBERED_BYTES: usize = 16 * 1024;

/// The directory with the files of all sessions.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    directory: PathBuf,
}

/// The stored state of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Remembered {
    /// Number of turns that were started.
    pub(super) turns: usize,
    pub(super) history: Vec<PastTurn>,
    /// The index of the step whose question waits for an answer. If the process is killed while it
    /// waits, the stored index remains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asking: Option<usize>,
    /// The kinds of tool calls that the user chose to always allow.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) always: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PastTurn {
    pub(super) prompt: String,
    pub(super) answer: String,
}

impl Remembered {
    /// Records the start of a turn.
    pub(super) fn begin(&mut self, prompt: &str) {
        self.turns += 1;
        if self.history.len() >= REMEMBERED_TURNS {
            self.history.remove(0);
        }
        self.history.push(PastTurn { prompt: cut(prompt), answer: String::new() });
    }

    /// The index of the step and the prompt of a turn that was interrupted while it waited for an
    /// answer. `None` if no turn was interrupted.
    pub(super) fn interrupted(&self) -> Option<(usize, String)> {
        Some((self.asking?, self.history.last()?.prompt.clone()))
    }

    /// Records the answer of the most recent turn, which has ended.
    pub(super) fn answered(&mut self, answer: &str) {
        self.asking = None;
        if let Some(turn) = self.history.last_mut() {
            turn.answer = cut(answer);
        }
    }
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(REMEMBERED_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

impl Memory {
    pub(super) fn in_home(home: &Path) -> Memory {
        Memory { directory: home.join(DIRECTORY) }
    }

    /// Loads the stored state of a session. `None` if there is none.
    pub(super) async fn load(&self, session: &str) -> io::Result<Option<Remembered>> {
        let Some(path) = self.path(session) else { return Ok(None) };
        match tokio::fs::read(path).await {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the stored state atomically. After a crash the file contains either the old state
    /// or the new state.
    pub(super) async fn save(&self, session: &str, remembered: &Remembered) -> io::Result<()> {
        let Some(path) = self.path(session) else { return Err(io::ErrorKind::InvalidInput.into()) };
        tokio::fs::create_dir_all(&self.directory).await?;
        let temporary = path.with_extension("new");
        tokio::fs::write(&temporary, serde_json::to_vec(remembered)?).await?;
        tokio::fs::rename(temporary, path).await
    }

    /// The path of a session's file. `None` for an id that is not hexadecimal, because this agent
    /// creates only hexadecimal ids.
    fn path(&self, session: &str) -> Option<PathBuf> {
        let ours = !session.is_empty() && session.bytes().all(|byte| byte.is_ascii_hexdigit());
        ours.then(|| self.directory.join(format!("{session}.json")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sessions_are_remembered() {
        let home = tempfile::tempdir().unwrap();
        let memory = Memory::in_home(home.path());
        assert_eq!(memory.load("ab12").await.unwrap(), None);
        let mut remembered = Remembered::default();
        remembered.begin("do it");
        remembered.answered("done");
        memory.save("ab12", &remembered).await.unwrap();
        assert_eq!(memory.load("ab12").await.unwrap(), Some(remembered));
        assert_eq!(memory.load("../ab12").await.unwrap(), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut remembered = Remembered::default();
        for _ in 0..=REMEMBERED_TURNS {
            remembered.begin(&"ä".repeat(REMEMBERED_BYTES));
        }
        assert_eq!((remembered.turns, remembered.history.len()), (REMEMBERED_TURNS + 1, 200));
        assert!(remembered.history[0].prompt.len() <= REMEMBERED_BYTES);
    }
}
