//! The model: a workspace as the contract describes it, with nothing for speed and no code shared
//! with any driver.

use std::collections::BTreeMap;

use ab_core::options::{
    Access, ByteRange, Creation, Existing, ListOptions, Missing, OpenOptions, Overwrite, Reach,
    ReadOptions, RemoveOptions, WriteMode,
};
use ab_core::{FileKind, Kind};

use super::answer::{Facts, Refusal, State};
use super::place::Place;

/// What of the contract is a backend's own choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    pub empty_dirs: EmptyDirs,
    pub search: Search,
    /// The permission bits of a file that is made without any, where there are such bits.
    pub file_mode: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyDirs {
    Kept,
    /// A directory is there as long as there is a file below it.
    Vanish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    Offered,
    Unsupported,
}

/// A workspace that starts empty.
#[derive(Clone, Debug)]
pub struct Tree {
    traits: Traits,
    /// In path order, since a place is a list of names. The root is not in it.
    nodes: BTreeMap<Place, Node>,
    /// Every file that ever was: an open one may outlive its name.
    files: Vec<FileState>,
    states: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    File(FileId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId(usize);

#[derive(Clone, Debug)]
struct FileState {
    bytes: Vec<u8>,
    mode: Option<u32>,
    state: State,
}

/// An open file.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    pub(super) file: FileId,
    place: Place,
    access: Access,
}

/// How a write is to be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    pub(super) mode: WriteMode,
    pub(super) condition: Condition,
    pub(super) permissions: Option<u32>,
}

/// Whether the version that a write expects is the one of the file, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    None,
    IfFile,
    Never,
}

type Outcome<T> = Result<T, Refusal>;

impl Tree {
    pub fn new(traits: Traits) -> Self {
        Self { traits, nodes: BTreeMap::new(), files: Vec::new(), states: 0 }
    }

    pub(super) fn traits(&self) -> Traits {
        self.traits
    }

    /// Every file there is, in path order.
    pub fn files(&self) -> Vec<String> {
        let is_file = |(place, node): (&Place, &Node)| match node {
            Node::File(_) => Some(place.to_string()),
            Node::Dir => None,
        };
        self.nodes.iter().filter_map(is_file).collect()
    }

    pub(super) fn state(&self, file: FileId) -> State {
        self.files[file.0].state
    }

    pub(super) fn bytes(&self, file: FileId) -> &[u8] {
        &self.files[file.0].bytes
    }

    pub(super) fn facts(&self, node: Node) -> Facts {
        match node {
            Node::Dir => Facts { kind: FileKind::Dir, size: 0, mode: None },
            Node::File(file) => {
                let FileState { bytes, mode, .. } = &self.files[file.0];
                Facts { kind: FileKind::File, size: bytes.len() as u64, mode: *mode }
            }
        }
    }

    /// What is at a place; a file on the way there is an error, nothing there is none.
    pub(super) fn look(&self, place: &Place) -> Outcome<Option<Node>> {
        if place.is_root() {
            return Ok(Some(Node::Dir));
        }
        let blocked = |above| matches!(self.nodes.get(&above), Some(Node::File(_)));
        if place.above().any(blocked) {
            return Err(place.refuse(Kind::NotADirectory));
        }
        Ok(self.nodes.get(place).copied())
    }

    pub(super) fn find(&self, place: &Place) -> Outcome<Node> {
        self.look(place)?.ok_or_else(|| place.refuse(Kind::NotFound))
    }

    pub(super) fn find_file(&self, place: &Place) -> Outcome<FileId> {
        match self.find(place)? {
            Node::File(file) => Ok(file),
            Node::Dir => Err(place.refuse(Kind::IsADirectory)),
        }
    }

    pub(super) fn list(
        &self,
        top: &Place,
        options: ListOptions,
    ) -> Outcome<(Vec<(Place, Node)>, bool)> {
        if let Node::File(_) = self.find(top)? {
            return Err(top.refuse(Kind::NotADirectory));
        }
        let near = |place: &Place| {
            place.depth_below(top).is_some_and(|depth| (1..=options.depth).contains(&depth))
        };
        let mut found: Vec<(Place, Node)> =
            self.nodes.iter().map(|(p, n)| (p.clone(), *n)).filter(|(p, _)| near(p)).collect();
        let cut = found.len() > options.limit;
        found.truncate(options.limit);
        Ok((found, cut))
    }

    pub(super) fn read(&self, place: &Place, options: ReadOptions) -> Outcome<(Vec<u8>, FileId)> {
        let file = self.find_file(place)?;
        let whole = self.bytes(file);
        let ByteRange { start, length } =
            options.range.unwrap_or(ByteRange { start: 0, length: u64::MAX });
        let wanted: Vec<u8> =
            whole.iter().copied().skip(start as usize).take(length as usize).collect();
        if wanted.len() as u64 > options.limit {
            return Err(place.refuse(Kind::TooLarge));
        }
        Ok((wanted, file))
    }

    pub(super) fn write(
        &mut self,
        place: &Place,
        bytes: &[u8],
        writing: Writing,
    ) -> Outcome<FileId> {
        let existing = self.target(place)?;
        match (writing.condition, existing) {
            (Condition::None, _) | (Condition::IfFile, Some(_)) => {}
            (Condition::IfFile, None) | (Condition::Never, _) => {
                return Err(place.refuse(Kind::Conflict));
            }
        }
        let mode = match (existing, writing.mode) {
            (Some(_), WriteMode::CreateNew) => return Err(place.refuse(Kind::AlreadyExists)),
            (None, WriteMode::Replace) => return Err(place.refuse(Kind::NotFound)),
            (Some(file), WriteMode::CreateIfMissing) => return Ok(file),
            (Some(file), WriteMode::CreateOrReplace | WriteMode::Replace) => {
                self.files[file.0].mode
            }
            (None, _) => self.mode_of_new(writing.permissions),
        };
        Ok(self.place_file(place, bytes, mode))
    }

    pub(super) fn open(&mut self, place: &Place, options: OpenOptions) -> Outcome<Handle> {
        let file = match (self.target(place)?, options.create) {
            (Some(_), Creation::Always) => return Err(place.refuse(Kind::AlreadyExists)),
            (None, Creation::Never) => return Err(place.refuse(Kind::NotFound)),
            (Some(file), Creation::Never | Creation::IfMissing) => {
                if options.existing == Existing::Truncate && options.access.writes() {
                    self.change(file, Vec::clear);
                }
                file
            }
            (None, Creation::IfMissing | Creation::Always) => {
                let mode = self.mode_of_new(options.permissions);
                self.place_file(place, b"", mode)
            }
        };
        Ok(Handle { file, place: place.clone(), access: options.access })
    }

    pub(super) fn read_at(&self, handle: &Handle, offset: u64, length: usize) -> Outcome<Vec<u8>> {
        if handle.access == Access::Write {
            return Err(handle.place.refuse(Kind::PermissionDenied));
        }
        let bytes = self.bytes(handle.file);
        Ok(bytes.iter().copied().skip(offset as usize).take(length).collect())
    }

    pub(super) fn write_at(&mut self, handle: &Handle, offset: u64, bytes: &[u8]) -> Outcome<()> {
        if handle.access == Access::Read {
            return Err(handle.place.refuse(Kind::PermissionDenied));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        self.change(handle.file, |content| {
            content.resize(content.len().max(end), 0);
            content[start..end].copy_from_slice(bytes);
        });
        Ok(())
    }

    pub(super) fn set_len(&mut self, handle: &Handle, length: u64) -> Outcome<()> {
        if handle.access == Access::Read {
            return Err(handle.place.refuse(Kind::PermissionDenied));
        }
        self.change(handle.file, |content| content.resize(length as usize, 0));
        Ok(())
    }

    pub(super) fn set_mode(&mut self, place: &Place, mode: u32) -> Outcome<Node> {
        let node = self.find(place)?;
        match (node, self.traits.empty_dirs) {
            (Node::File(file), _) => {
                self.files[file.0].mode = self.traits.file_mode.map(|_| mode);
            }
            (Node::Dir, EmptyDirs::Kept) => {}
            // What is only implied has nothing of its own that could be set.
            (Node::Dir, EmptyDirs::Vanish) => return Err(place.refuse(Kind::Unsupported)),
        }
        Ok(node)
    }

    pub(super) fn create_dir(&mut self, place: &Place) -> Outcome<()> {
        if let Some(Node::File(_)) = self.look(place)? {
            return Err(place.refuse(Kind::AlreadyExists));
        }
        self.make_above(place);
        if !place.is_root() {
            self.nodes.insert(place.clone(), Node::Dir);
        }
        self.settle();
        Ok(())
    }

    pub(super) fn remove(&mut self, place: &Place, options: RemoveOptions) -> Outcome<u64> {
        if place.is_root() {
            return Err(place.refuse(Kind::Invalid));
        }
        match self.look(place)? {
            None if options.missing == Missing::Ignore => return Ok(0),
            None => return Err(place.refuse(Kind::NotFound)),
            Some(Node::Dir) if options.reach == Reach::One && !self.is_empty(place) => {
                return Err(place.refuse(Kind::NotEmpty));
            }
            Some(_) => {}
        }
        let before = self.nodes.len();
        self.nodes.retain(|other, _| other.depth_below(place).is_none());
        let removed = before - self.nodes.len();
        self.settle();
        Ok(removed as u64)
    }

    pub(super) fn rename(&mut self, from: &Place, to: &Place, overwrite: Overwrite) -> Outcome<()> {
        for end in [from, to] {
            if end.is_root() {
                return Err(end.refuse(Kind::Invalid));
            }
        }
        let source = self.find(from)?;
        if from == to {
            return Ok(());
        }
        if source == Node::Dir && to.depth_below(from).is_some() {
            return Err(from.refuse(Kind::Invalid));
        }
        match (source, self.look(to)?) {
            (_, None) => {}
            (_, Some(_)) if overwrite == Overwrite::Refuse => {
                return Err(to.refuse(Kind::AlreadyExists));
            }
            (Node::File(_), Some(Node::Dir)) => return Err(to.refuse(Kind::IsADirectory)),
            (Node::Dir, Some(Node::File(_))) => return Err(to.refuse(Kind::NotADirectory)),
            (Node::Dir, Some(Node::Dir)) if !self.is_empty(to) => {
                return Err(to.refuse(Kind::NotEmpty));
            }
            (Node::File(_), Some(Node::File(_))) | (Node::Dir, Some(Node::Dir)) => {}
        }
        self.make_above(to);
        let nodes = std::mem::take(&mut self.nodes);
        let (moving, staying): (BTreeMap<_, _>, BTreeMap<_, _>) =
            nodes.into_iter().partition(|(place, _)| place.depth_below(from).is_some());
        self.nodes = staying;
        self.nodes.extend(moving.into_iter().map(|(place, node)| (place.moved(from, to), node)));
        self.settle();
        Ok(())
    }

    /// The file that a write would replace.
    fn target(&self, place: &Place) -> Outcome<Option<FileId>> {
        match self.look(place)? {
            None => Ok(None),
            Some(Node::File(file)) => Ok(Some(file)),
            Some(Node::Dir) => Err(place.refuse(Kind::IsADirectory)),
        }
    }

    fn is_empty(&self, dir: &Place) -> bool {
        !self.nodes.keys().any(|place| place.depth_below(dir).is_some_and(|depth| depth > 0))
    }

    fn mode_of_new(&self, permissions: Option<u32>) -> Option<u32> {
        self.traits.file_mode.map(|usual| permissions.unwrap_or(usual))
    }

    /// A new file, also where another was: whoever has that one open keeps it.
    fn place_file(&mut self, place: &Place, bytes: &[u8], mode: Option<u32>) -> FileId {
        let state = self.next_state();
        let file = FileId(self.files.len());
        self.files.push(FileState { bytes: bytes.to_vec(), mode, state });
        self.make_above(place);
        self.nodes.insert(place.clone(), Node::File(file));
        file
    }

    /// Changes a file in place. Bytes that stay the same need no new version.
    fn change(&mut self, file: FileId, change: impl FnOnce(&mut Vec<u8>)) {
        let state = self.next_state();
        let content = &mut self.files[file.0];
        let before = content.bytes.clone();
        change(&mut content.bytes);
        if content.bytes != before {
            content.state = state;
        }
    }

    fn next_state(&mut self) -> State {
        self.states += 1;
        State(self.states)
    }

    fn make_above(&mut self, place: &Place) {
        for above in place.above() {
            self.nodes.entry(above).or_insert(Node::Dir);
        }
    }

    /// Lets directories go that have no file below them, where they do.
    fn settle(&mut self) {
        if self.traits.empty_dirs == EmptyDirs::Kept {
            return;
        }
        let files: Vec<Place> =
            self.nodes.iter().filter(|(_, n)| **n != Node::Dir).map(|(p, _)| p.clone()).collect();
        let needed = |dir: &Place| files.iter().any(|file| file.depth_below(dir).is_some());
        self.nodes.retain(|place, node| *node != Node::Dir || needed(place));
    }
}
