//! Runs one sequence on the model and on a backend, step by step, until they differ.

use std::fmt;

use ab_core::options::{EntryDetailLevel, ListOptions, ReadOptions};
use ab_core::{Backend, FileVersion};

use super::answer::{Answer, Reply, State};
use super::operation::{MAX_OPEN_FILES, WorkspaceOperation};
use super::perform::{FOREIGN, Subject};
use super::predict::ModelOracle;
use super::traits::ReferenceWorkspaceOptions;

/// Statistics of a sequence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) operations: u64,
    /// How many of them succeeded.
    pub(super) done: u64,
}

/// The first difference between the two.
#[derive(Debug)]
pub(super) struct Difference {
    /// The equal results before it.
    agreed: Vec<(WorkspaceOperation, Answer)>,
    operation: WorkspaceOperation,
    model: String,
    backend: String,
}

/// Runs all of `operations`, then compares the final states.
pub(super) async fn run(
    backend: &Backend,
    traits: ReferenceWorkspaceOptions,
    operations: &[WorkspaceOperation],
) -> Result<Tally, Box<Difference>> {
    let mut oracle = ModelOracle::new(traits);
    given(backend, &mut oracle).await;
    let mut pair = Pair {
        oracle,
        subject: Subject::new(backend.clone()),
        versions: Vec::new(),
        agreed: Vec::new(),
    };
    let mut tally = Tally::default();
    for operation in operations {
        let done = !pair.step(operation.clone()).await?.is_failure();
        tally.operations += 1;
        tally.done += u64::from(done);
    }
    for operation in pair.whole() {
        pair.step(operation).await?;
    }
    Ok(tally)
}

/// Copies the initial files of the fixture to the model, such as the lower layer of a view.
async fn given(backend: &Backend, oracle: &mut ModelOracle) {
    let start = backend.list(".", EVERYTHING).await.unwrap();
    for entry in start.entries {
        let path = entry.path.to_string();
        let mode = entry.stat.and_then(|stat| stat.mode);
        if entry.kind.is_dir() {
            oracle.give_dir(&path);
        } else {
            oracle.give_file(&path, &backend.read(&path).await.unwrap(), mode);
        }
    }
}

const EVERYTHING: ListOptions =
    ListOptions { max_depth: usize::MAX, max_entries: usize::MAX, detail: EntryDetailLevel::Stat };

struct Pair {
    oracle: ModelOracle,
    subject: Subject,
    /// Every version seen so far, and its state.
    versions: Vec<(FileVersion, State)>,
    agreed: Vec<(WorkspaceOperation, Answer)>,
}

impl Pair {
    async fn step(&mut self, operation: WorkspaceOperation) -> Result<Answer, Box<Difference>> {
        let former = self.former(&operation);
        let model = self.oracle.answer(&operation);
        let backend = self.subject.answer(&operation, former).await;
        if model.answer != backend.answer {
            return Err(self.differ(operation, &model.answer, &backend.answer));
        }
        if let Some(reason) = self.mistaken(&model, &backend) {
            return Err(self.differ(operation, &model.answer, &reason));
        }
        self.agreed.push((operation, model.answer.clone()));
        Ok(model.answer)
    }

    /// The latest version that is not the current one of the operation's file.
    fn former(&self, operation: &WorkspaceOperation) -> FileVersion {
        let now = operation.expecting().and_then(|path| self.oracle.state_at(path));
        let other = |(_, state): &&(FileVersion, State)| Some(*state) != now;
        self.versions
            .iter()
            .rev()
            .find(other)
            .map_or(FileVersion::new(FOREIGN), |(version, _)| *version)
    }

    /// Records the version. Returns an error message if the same version was seen with other bytes
    /// before. An unchanged file may get a new version, for example when it is moved.
    fn mistaken(&mut self, model: &Reply<State>, backend: &Reply<FileVersion>) -> Option<String> {
        let (state, version) = (model.state?, backend.state?);
        match self.versions.iter().find(|(seen, _)| *seen == version) {
            Some((_, before)) if *before == state => None,
            Some(_) => Some(format!("{}, with a version that was another's", backend.answer)),
            None => {
                self.versions.push((version, state));
                None
            }
        }
    }

    /// Operations that read everything: the tree with details, every file, every open file.
    fn whole(&self) -> Vec<WorkspaceOperation> {
        let mut all = vec![WorkspaceOperation::List(".".to_owned(), EVERYTHING)];
        let files = self.oracle.tree().file_paths().into_iter();
        all.extend(files.map(|path| WorkspaceOperation::Read(path, ReadOptions::default())));
        all.extend((0..MAX_OPEN_FILES).map(|slot| WorkspaceOperation::ReadAt {
            slot,
            offset: 0,
            length: 1000,
        }));
        all
    }

    fn differ(
        &mut self,
        operation: WorkspaceOperation,
        model: &impl fmt::Display,
        backend: &impl fmt::Display,
    ) -> Box<Difference> {
        let (model, backend) = (model.to_string(), backend.to_string());
        let agreed = std::mem::take(&mut self.agreed);
        Box::new(Difference { agreed, operation, model, backend })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (operation, answer) in &self.agreed {
            writeln!(f, "  {operation}\n    {answer}")?;
        }
        writeln!(f, "  {}", self.operation)?;
        writeln!(f, "    the model:   {}", self.model)?;
        write!(f, "    the backend: {}", self.backend)
    }
}
