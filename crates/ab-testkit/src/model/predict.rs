//! Computes the result of an operation according to the contract.

use ab_core::ErrorKind;
use ab_core::edit::{Edit, EditOccurrences};
use ab_core::options::{EntryDetailLevel, ListOptions, ReadOptions, WriteMode};

use super::answer::{Answer, Listed, Refusal, Reply, State};
use super::operation::{ExpectedVersion, MAX_OPEN_FILES, OpenFileSlot, WorkspaceOperation};
use super::place::Place;
use super::traits::{ReferenceWorkspaceOptions, SearchSupport};
use super::tree::{Condition, FileId, Handle, Node, ReferenceWorkspace, Writing};

/// The model with its open files.
#[derive(Debug)]
pub(super) struct ModelOracle {
    tree: ReferenceWorkspace,
    slots: [Option<Handle>; MAX_OPEN_FILES],
}

type Outcome<T = Reply<State>> = Result<T, Refusal>;

impl ModelOracle {
    pub(super) fn new(traits: ReferenceWorkspaceOptions) -> Self {
        Self { tree: ReferenceWorkspace::new(traits), slots: [const { None }; MAX_OPEN_FILES] }
    }

    /// Adds an initial directory.
    pub(super) fn give_dir(&mut self, path: &str) {
        self.tree.create_dir(&Place::parse(path).unwrap()).unwrap();
    }

    /// Adds an initial file.
    pub(super) fn give_file(&mut self, path: &str, bytes: &[u8], mode: Option<u32>) {
        self.tree.give_file(&Place::parse(path).unwrap(), bytes, mode);
    }

    pub(super) fn tree(&self) -> &ReferenceWorkspace {
        &self.tree
    }

    /// The state of the file at a path, if it exists.
    pub(super) fn state_at(&self, path: &str) -> Option<State> {
        let file = self.tree.find_file(&Place::parse(path).ok()?).ok()?;
        Some(self.tree.state(file))
    }

    pub(super) fn answer(&mut self, operation: &WorkspaceOperation) -> Reply<State> {
        self.outcome(operation).unwrap_or_else(|refusal| Reply::new(Answer::Failed(refusal)))
    }

    fn outcome(&mut self, operation: &WorkspaceOperation) -> Outcome {
        let tree = &mut self.tree;
        match operation {
            WorkspaceOperation::Stat(path) => {
                let node = tree.find(&Place::parse(path)?)?;
                Ok(self.described(node))
            }
            WorkspaceOperation::Exists(path) => {
                let there = tree.look(&Place::parse(path)?).is_ok_and(|node| node.is_some());
                Ok(Reply::new(Answer::Exists(there)))
            }
            WorkspaceOperation::List(path, options) => self.list(path, *options),
            WorkspaceOperation::Read(path, options) => {
                let (bytes, file) = tree.read(&Place::parse(path)?, *options)?;
                let facts = tree.facts(Node::File(file));
                Ok(Reply::at(Answer::Content(bytes, facts), Some(tree.state(file))))
            }
            WorkspaceOperation::ReadMany(paths) => {
                let one = |path: &String| match self.read_whole(path) {
                    Ok((bytes, _)) => Answer::Bytes(bytes),
                    Err(refusal) => Answer::Failed(refusal),
                };
                Ok(Reply::new(Answer::Many(paths.iter().map(one).collect())))
            }
            WorkspaceOperation::Glob { root, pattern, limit } => self.glob(root, pattern, *limit),
            WorkspaceOperation::Grep { root, text } => self.grep(root, text),
            WorkspaceOperation::Write { path, bytes, mode, expect, permissions } => {
                let (mode, condition) = (*mode, condition(*expect));
                let writing = Writing { mode, condition, permissions: *permissions };
                let file = tree.write(&Place::parse(path)?, bytes, writing)?;
                Ok(self.described(Node::File(file)))
            }
            WorkspaceOperation::Touch(path) => {
                let mode = WriteMode::CreateIfMissing;
                let writing = Writing { mode, condition: Condition::None, permissions: None };
                let file = tree.write(&Place::parse(path)?, b"", writing)?;
                Ok(self.described(Node::File(file)))
            }
            WorkspaceOperation::Edit { path, edits, expect, dry_run } => {
                self.edit(path, edits, *expect, *dry_run)
            }
            WorkspaceOperation::SetMode(path, mode) => {
                let node = tree.set_mode(&Place::parse(path)?, *mode)?;
                Ok(self.described(node))
            }
            WorkspaceOperation::Mkdir(path) => {
                tree.create_dir(&Place::parse(path)?)?;
                Ok(Reply::new(Answer::Done))
            }
            WorkspaceOperation::Remove(path, options) => {
                let count = tree.remove(&Place::parse(path)?, *options)?;
                Ok(Reply::new(Answer::Removed(count)))
            }
            WorkspaceOperation::Rename { from, to, overwrite } => {
                tree.rename(&Place::parse(from)?, &Place::parse(to)?, *overwrite)?;
                Ok(Reply::new(Answer::Done))
            }
            WorkspaceOperation::Open { slot, path, options } => {
                let handle = tree.open(&Place::parse(path)?, *options)?;
                let reply = self.described(Node::File(handle.file));
                self.slots[*slot] = Some(handle);
                Ok(reply)
            }
            WorkspaceOperation::ReadAt { slot, .. }
            | WorkspaceOperation::WriteAt { slot, .. }
            | WorkspaceOperation::SetLen { slot, .. }
            | WorkspaceOperation::Describe(slot) => self.on_file(*slot, operation),
        }
    }

    fn on_file(&mut self, slot: OpenFileSlot, operation: &WorkspaceOperation) -> Outcome {
        let Some(handle) = &self.slots[slot] else { return Ok(Reply::new(Answer::NoFile)) };
        match operation {
            WorkspaceOperation::ReadAt { offset, length, .. } => {
                let bytes = self.tree.read_at(handle, *offset, *length)?;
                return Ok(Reply::new(Answer::Bytes(bytes)));
            }
            WorkspaceOperation::WriteAt { offset, bytes, .. } => {
                self.tree.write_at(handle, *offset, bytes)?;
            }
            WorkspaceOperation::SetLen { length, .. } => self.tree.set_len(handle, *length)?,
            _ => {}
        }
        let file = handle.file;
        Ok(self.described(Node::File(file)))
    }

    fn list(&self, path: &str, options: ListOptions) -> Outcome {
        let (found, cut) = self.tree.list(&Place::parse(path)?, options)?;
        let listed = |(place, node): (Place, Node)| {
            let facts = self.tree.facts(node);
            let detailed = options.detail == EntryDetailLevel::Stat;
            Listed { path: place.to_string(), kind: facts.kind, facts: detailed.then_some(facts) }
        };
        let entries = found.into_iter().map(listed).collect();
        Ok(Reply::new(Answer::Listing { entries, cut, problems: 0 }))
    }

    fn glob(&self, root: &str, pattern: &str, limit: usize) -> Outcome {
        let root = Place::parse(root)?;
        self.check_search()?;
        let (mut found, _) = self.tree.list(&root, EVERYTHING)?;
        found.retain(|(place, _)| matches(pattern, &place.0[root.0.len()..]));
        let cut = found.len() > limit;
        found.truncate(limit);
        let listed = |(place, node): (Place, Node)| {
            let kind = self.tree.facts(node).kind;
            Listed { path: place.to_string(), kind, facts: None }
        };
        let entries = found.into_iter().map(listed).collect();
        Ok(Reply::new(Answer::Listing { entries, cut, problems: 0 }))
    }

    fn grep(&self, root: &str, text: &str) -> Outcome {
        let root = Place::parse(root)?;
        self.check_search()?;
        let found = match self.tree.find(&root)? {
            Node::File(file) => vec![(root, Node::File(file))],
            Node::Dir => self.tree.list(&root, EVERYTHING)?.0,
        };
        let (mut counts, mut searched, mut binary) = (Vec::new(), 0, 0);
        for (place, node) in found {
            let Node::File(file) = node else { continue };
            let bytes = self.tree.bytes(file);
            searched += 1;
            if bytes.contains(&0) {
                binary += 1;
                continue;
            }
            let holds = |line: &&[u8]| line.windows(text.len()).any(|w| w == text.as_bytes());
            match bytes.split(|byte| *byte == b'\n').filter(holds).count() {
                0 => {}
                lines => counts.push((place.to_string(), lines as u64)),
            }
        }
        Ok(Reply::new(Answer::Lines { counts, searched, binary, problems: 0 }))
    }

    fn check_search(&self) -> Result<(), Refusal> {
        match self.tree.traits().search {
            SearchSupport::Offered => Ok(()),
            SearchSupport::Unsupported => Err(Refusal { kind: ErrorKind::Unsupported, path: None }),
        }
    }

    fn edit(
        &mut self,
        path: &str,
        edits: &[Edit],
        expect: ExpectedVersion,
        dry_run: bool,
    ) -> Outcome {
        let place = Place::parse(path)?;
        let (bytes, file) = self.read_whole(path)?;
        if condition(expect) == Condition::Never {
            return Err(place.refuse(ErrorKind::Conflict));
        }
        let text = String::from_utf8(bytes).map_err(|_| place.refuse(ErrorKind::Invalid))?;
        let (text, replaced) = edited(text, edits).map_err(|kind| place.refuse(kind))?;
        let answer = Answer::Edited { replaced };
        if dry_run {
            return Ok(Reply::at(answer, Some(self.tree.state(file))));
        }
        let mode = WriteMode::Replace;
        let writing = Writing { mode, condition: Condition::None, permissions: None };
        let file = self.tree.write(&place, text.as_bytes(), writing)?;
        Ok(Reply::at(answer, Some(self.tree.state(file))))
    }

    fn read_whole(&self, path: &str) -> Outcome<(Vec<u8>, FileId)> {
        self.tree.read(&Place::parse(path)?, ReadOptions::default())
    }

    fn described(&self, node: Node) -> Reply<State> {
        let state = match node {
            Node::File(file) => Some(self.tree.state(file)),
            Node::Dir => None,
        };
        Reply::at(Answer::Facts(self.tree.facts(node)), state)
    }
}

fn condition(expect: ExpectedVersion) -> Condition {
    match expect {
        ExpectedVersion::Any => Condition::None,
        ExpectedVersion::Current => Condition::IfFile,
        ExpectedVersion::Stale | ExpectedVersion::NeverExisted => Condition::Never,
    }
}

const EVERYTHING: ListOptions =
    ListOptions { max_depth: usize::MAX, max_entries: usize::MAX, detail: EntryDetailLevel::Kind };

/// Whether one of the [`SAMPLE_GLOBS`](super::operation::SAMPLE_GLOBS) matches a path below the
/// search root.
fn matches(pattern: &str, below: &[String]) -> bool {
    let last = below.last().map_or("", String::as_str);
    match pattern {
        "**" => true,
        "a" => last == "a",
        "*b" => last.ends_with('b'),
        "a/*" => below.len() == 2 && below[0] == "a",
        other => panic!("the model does not know the glob {other:?}"),
    }
}

/// The text after all edits. Line ends are always `\n` here.
fn edited(mut text: String, edits: &[Edit]) -> Result<(String, usize), ErrorKind> {
    let senseless = |edit: &Edit| edit.old.is_empty() || edit.old == edit.new;
    if edits.is_empty() || edits.iter().any(senseless) {
        return Err(ErrorKind::Invalid);
    }
    let mut replaced = 0;
    for Edit { old, new, occurrences: which } in edits {
        let places = (0..text.len()).filter(|at| text[*at..].starts_with(old.as_str())).count();
        let most = match (places, which) {
            (0, _) => return Err(ErrorKind::TextNotFound),
            (2.., EditOccurrences::Unique) => return Err(ErrorKind::TextNotUnique),
            (_, EditOccurrences::Unique | EditOccurrences::First) => 1,
            (_, EditOccurrences::All) => text.matches(old.as_str()).count(),
        };
        text = text.replacen(old.as_str(), new, most);
        replaced += most;
    }
    Ok((text, replaced))
}
