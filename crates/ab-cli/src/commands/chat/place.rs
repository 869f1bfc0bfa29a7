//! The files of a chat in the data directory: the agent's home directory, and the id of the last
//! conversation. The agent cannot write the file with the id.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ab_acp::AcpSessionId;
use sha2::{Digest, Sha256};

/// Maximum number of bytes of a stored conversation id.
const LONGEST_ID: usize = 4096;

/// The directory of one agent in one workspace.
#[derive(Debug)]
pub(super) struct Place {
    directory: PathBuf,
}

impl Place {
    /// Creates the missing directories, readable only by their owner.
    pub(super) fn make(data_dir: &Path, agent: &str, root: &Path) -> io::Result<Place> {
        let mut hash = Sha256::new();
        hash.update(agent);
        hash.update([0]);
        hash.update(root.as_os_str().as_encoded_bytes());
        let name: String =
            hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let place = Place { directory: data_dir.join("chats").join(name) };
        DirBuilder::new().recursive(true).mode(0o700).create(place.home())?;
        Ok(place)
    }

    /// The directory that is `HOME` of the agent.
    pub(super) fn home(&self) -> PathBuf {
        self.directory.join("home")
    }

    /// The id of the last chat's conversation. `None` if there was none.
    pub(super) fn last(&self) -> io::Result<Option<AcpSessionId>> {
        match fs::read(self.conversation()) {
            Ok(mut id) => {
                id.truncate(LONGEST_ID);
                Ok(Some(AcpSessionId::new(&String::from_utf8_lossy(&id))))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores the id of a conversation atomically. After a crash the file contains either the old
    /// id or the new id.
    pub(super) fn remember(&self, id: &AcpSessionId) -> io::Result<()> {
        let new = self.conversation().with_extension("new");
        fs::write(&new, id.as_str())?;
        fs::rename(new, self.conversation())
    }

    fn conversation(&self) -> PathBuf {
        self.directory.join("conversation")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_agent_remembers_its_conversation_in_each_workspace() {
        let data = tempfile::tempdir().unwrap();
        let place = |agent, root| Place::make(data.path(), agent, Path::new(root)).unwrap();
        let first = place("a", "/x");
        assert_eq!(first.last().unwrap(), None);
        first.remember(&AcpSessionId::new("one")).unwrap();
        assert_eq!(place("a", "/x").last().unwrap(), Some(AcpSessionId::new("one")));
        for other in [place("b", "/x"), place("a", "/y"), place("a/", "x")] {
            assert_eq!(other.last().unwrap(), None);
            assert!(other.home().is_dir());
        }
    }
}
