//! The model: a workspace as the contract describes it, without optimisations and without code from
//! any driver. This module has the tree; file contents are in [`content`].

mod content;

use std::collections::BTreeMap;

use ab_core::options::{ListOptions, OnMissingTarget, OverwriteMode, RemoveDepth, RemoveOptions};
use ab_core::{ErrorKind, FileKind};

use super::answer::{Facts, Refusal};
use super::place::Place;
use super::traits::{EmptyDirSupport, ReferenceWorkspaceOptions};
use content::FileState;

pub(super) use content::{Condition, Handle, Writing};

/// A workspace that starts empty.
#[derive(Clone, Debug)]
pub struct ReferenceWorkspace {
    traits: ReferenceWorkspaceOptions,
    /// In path order, since a place is a list of names. Without the root.
    nodes: BTreeMap<Place, Node>,
    /// Every file that ever existed, because open files may outlive their path.
    files: Vec<FileState>,
    states: u64,
    mounts: Vec<Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    File(FileId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId(usize);

type Outcome<T> = Result<T, Refusal>;

impl ReferenceWorkspace {
    pub fn new(traits: ReferenceWorkspaceOptions) -> Self {
        let mounts: Vec<Place> =
            traits.layout.mounts.iter().map(|point| Place::parse(point).unwrap()).collect();
        let (nodes, files) = (BTreeMap::new(), Vec::new());
        let mut tree = Self { traits, nodes, files, states: 0, mounts: mounts.clone() };
        for point in mounts {
            tree.make_above(&point);
            tree.nodes.insert(point, Node::Dir);
        }
        tree
    }

    pub(super) fn traits(&self) -> ReferenceWorkspaceOptions {
        self.traits
    }

    /// All files, in path order.
    pub fn file_paths(&self) -> Vec<String> {
        let is_file = |(place, node): (&Place, &Node)| match node {
            Node::File(_) => Some(place.to_string()),
            Node::Dir => None,
        };
        self.nodes.iter().filter_map(is_file).collect()
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

    /// The node at a place, or `None`. A file as a parent is an error.
    pub(super) fn look(&self, place: &Place) -> Outcome<Option<Node>> {
        if place.is_root() {
            return Ok(Some(Node::Dir));
        }
        let blocked = |above| matches!(self.nodes.get(&above), Some(Node::File(_)));
        if place.above().any(blocked) {
            return Err(place.refuse(ErrorKind::NotADirectory));
        }
        Ok(self.nodes.get(place).copied())
    }

    pub(super) fn find(&self, place: &Place) -> Outcome<Node> {
        self.look(place)?.ok_or_else(|| place.refuse(ErrorKind::NotFound))
    }

    pub(super) fn find_file(&self, place: &Place) -> Outcome<FileId> {
        match self.find(place)? {
            Node::File(file) => Ok(file),
            Node::Dir => Err(place.refuse(ErrorKind::IsADirectory)),
        }
    }

    /// The entries below a directory, and whether there are more.
    pub(super) fn list(
        &self,
        top: &Place,
        options: ListOptions,
    ) -> Outcome<(Vec<(Place, Node)>, bool)> {
        if let Node::File(_) = self.find(top)? {
            return Err(top.refuse(ErrorKind::NotADirectory));
        }
        let near = |place: &Place| {
            place.depth_below(top).is_some_and(|depth| (1..=options.max_depth).contains(&depth))
        };
        let mut found: Vec<(Place, Node)> =
            self.nodes.iter().map(|(p, n)| (p.clone(), *n)).filter(|(p, _)| near(p)).collect();
        let cut = found.len() > options.max_entries;
        found.truncate(options.max_entries);
        Ok((found, cut))
    }

    pub(super) fn create_dir(&mut self, place: &Place) -> Outcome<()> {
        if let Some(Node::File(_)) = self.look(place)? {
            return Err(place.refuse(ErrorKind::AlreadyExists));
        }
        self.make_above(place);
        if !place.is_root() {
            self.nodes.insert(place.clone(), Node::Dir);
        }
        self.settle();
        Ok(())
    }

    pub(super) fn remove(&mut self, place: &Place, options: RemoveOptions) -> Outcome<u64> {
        if place.is_root() || self.holds_a_mount(place) {
            return Err(place.refuse(ErrorKind::Invalid));
        }
        match self.look(place)? {
            None if options.missing == OnMissingTarget::Ignore => return Ok(0),
            None => return Err(place.refuse(ErrorKind::NotFound)),
            Some(Node::Dir)
                if options.depth == RemoveDepth::NonRecursive && !self.is_empty(place) =>
            {
                return Err(place.refuse(ErrorKind::NotEmpty));
            }
            Some(_) => {}
        }
        let before = self.nodes.len();
        self.nodes.retain(|other, _| other.depth_below(place).is_none());
        let removed = before - self.nodes.len();
        self.settle();
        Ok(removed as u64)
    }

    pub(super) fn rename(
        &mut self,
        from: &Place,
        to: &Place,
        overwrite: OverwriteMode,
    ) -> Outcome<()> {
        for end in [from, to] {
            if end.is_root() {
                return Err(end.refuse(ErrorKind::Invalid));
            }
        }
        let source = self.find(from)?;
        if from == to {
            return Ok(());
        }
        if self.holds_a_mount(from) || source == Node::Dir && to.depth_below(from).is_some() {
            return Err(from.refuse(ErrorKind::Invalid));
        }
        match (source, self.look(to)?) {
            (_, None) => {}
            (_, Some(_)) if overwrite == OverwriteMode::Refuse => {
                return Err(to.refuse(ErrorKind::AlreadyExists));
            }
            (Node::File(_), Some(Node::Dir)) => return Err(to.refuse(ErrorKind::IsADirectory)),
            (Node::Dir, Some(Node::File(_))) => return Err(to.refuse(ErrorKind::NotADirectory)),
            (Node::Dir, Some(Node::Dir)) if self.holds_a_mount(to) => {
                return Err(to.refuse(ErrorKind::Invalid));
            }
            (Node::Dir, Some(Node::Dir)) if !self.is_empty(to) => {
                return Err(to.refuse(ErrorKind::NotEmpty));
            }
            (Node::File(_), Some(Node::File(_))) | (Node::Dir, Some(Node::Dir)) => {}
        }
        self.make_above(to);
        let (moving, staying): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.nodes)
            .into_iter()
            .partition(|(place, _)| place.depth_below(from).is_some());
        self.nodes = staying;
        for (place, node) in moving {
            let node = self.node_after_move(node, from, to);
            self.nodes.insert(place.moved(from, to), node);
        }
        self.settle();
        Ok(())
    }

    /// The node after a rename. A file stays the same file, except if it moves to another mount. In
    /// this case the new file is a copy, and open handles keep the old file.
    fn node_after_move(&mut self, node: Node, from: &Place, to: &Place) -> Node {
        match node {
            Node::Dir => Node::Dir,
            Node::File(file) if self.mount_over(from) == self.mount_over(to) => {
                self.bring_up(file);
                Node::File(file)
            }
            Node::File(file) => Node::File(self.copy(file)),
        }
    }

    /// The file that a write would replace.
    fn target(&self, place: &Place) -> Outcome<Option<FileId>> {
        match self.look(place)? {
            None => Ok(None),
            Some(Node::File(file)) => Ok(Some(file)),
            Some(Node::Dir) => Err(place.refuse(ErrorKind::IsADirectory)),
        }
    }

    fn is_empty(&self, dir: &Place) -> bool {
        !self.nodes.keys().any(|place| place.depth_below(dir).is_some_and(|depth| depth > 0))
    }

    /// Whether a place is a mount point or a parent of one.
    fn holds_a_mount(&self, place: &Place) -> bool {
        self.mounts.iter().any(|point| point.depth_below(place).is_some())
    }

    /// The mount that owns a place.
    fn mount_over(&self, place: &Place) -> Option<&Place> {
        let over = self.mounts.iter().filter(|point| place.depth_below(point).is_some());
        over.max_by_key(|point| point.0.len())
    }

    fn make_above(&mut self, place: &Place) {
        for above in place.above() {
            self.nodes.entry(above).or_insert(Node::Dir);
        }
    }

    /// Removes directories without files below them, if the backend does not keep empty ones.
    fn settle(&mut self) {
        if self.traits.empty_dirs == EmptyDirSupport::Kept {
            return;
        }
        let files: Vec<Place> =
            self.nodes.iter().filter(|(_, n)| **n != Node::Dir).map(|(p, _)| p.clone()).collect();
        let mut nodes = std::mem::take(&mut self.nodes);
        nodes.retain(|place, node| {
            *node != Node::Dir
                || self.holds_a_mount(place)
                || files.iter().any(|file| file.depth_below(place).is_some())
        });
        self.nodes = nodes;
    }
}
