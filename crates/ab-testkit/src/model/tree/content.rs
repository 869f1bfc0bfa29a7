//! File contents: whole writes create a new file, open files are changed in place.

use ab_core::ErrorKind;
use ab_core::options::{
    ByteRange, ExistingContentHandling, FileAccess, FileCreationMode, OpenOptions, ReadOptions,
    WriteMode,
};

use super::super::answer::State;
use super::super::place::Place;
use super::super::traits::{EmptyDirSupport, InitialFileLayer};
use super::{FileId, Node, Outcome, ReferenceWorkspace};

#[derive(Clone, Debug)]
pub(super) struct FileState {
    pub(super) bytes: Vec<u8>,
    pub(super) mode: Option<u32>,
    state: State,
    /// Whether the file is still the file in an overlay's lower layer.
    is_below: bool,
}

/// An open file.
#[derive(Clone, Debug)]
pub(in super::super) struct Handle {
    pub(in super::super) file: FileId,
    place: Place,
    access: FileAccess,
}

/// The options of a write.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Writing {
    pub(in super::super) mode: WriteMode,
    pub(in super::super) condition: Condition,
    pub(in super::super) permissions: Option<u32>,
}

/// Whether the expected version of a write matches the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Condition {
    None,
    IfFile,
    Never,
}

impl ReferenceWorkspace {
    pub(in super::super) fn state(&self, file: FileId) -> State {
        self.files[file.0].state
    }

    pub(in super::super) fn bytes(&self, file: FileId) -> &[u8] {
        &self.files[file.0].bytes
    }

    pub(in super::super) fn read(
        &self,
        place: &Place,
        options: ReadOptions,
    ) -> Outcome<(Vec<u8>, FileId)> {
        let file = self.find_file(place)?;
        let ByteRange { start, length } =
            options.range.unwrap_or(ByteRange { start: 0, length: u64::MAX });
        let wanted = cut(self.bytes(file), start, length as usize);
        if wanted.len() as u64 > options.max_bytes {
            return Err(place.refuse(ErrorKind::TooLarge));
        }
        Ok((wanted, file))
    }

    pub(in super::super) fn write(
        &mut self,
        place: &Place,
        bytes: &[u8],
        writing: Writing,
    ) -> Outcome<FileId> {
        let existing = self.target(place)?;
        match (writing.condition, existing) {
            (Condition::None, _) | (Condition::IfFile, Some(_)) => {}
            (Condition::IfFile, None) | (Condition::Never, _) => {
                return Err(place.refuse(ErrorKind::Conflict));
            }
        }
        let mode = match (existing, writing.mode) {
            (Some(_), WriteMode::CreateNew) => return Err(place.refuse(ErrorKind::AlreadyExists)),
            (None, WriteMode::Replace) => return Err(place.refuse(ErrorKind::NotFound)),
            (Some(file), WriteMode::CreateIfMissing) => return Ok(file),
            (Some(file), WriteMode::CreateOrReplace | WriteMode::Replace) => {
                self.files[file.0].mode
            }
            (None, _) => self.mode_of_new(writing.permissions),
        };
        Ok(self.place_file(place, bytes, mode))
    }

    /// Adds an initial file.
    pub(in super::super) fn give_file(&mut self, place: &Place, bytes: &[u8], mode: Option<u32>) {
        let mode = self.mode_of_new(mode);
        let file = self.place_file(place, bytes, mode);
        self.files[file.0].is_below =
            self.traits.layout.initial_file_layer == InitialFileLayer::LowerLayer;
    }

    pub(in super::super) fn open(
        &mut self,
        place: &Place,
        options: OpenOptions,
    ) -> Outcome<Handle> {
        let writes = options.access.can_write();
        let file = match (self.target(place)?, options.create) {
            (Some(_), FileCreationMode::MustBeNew) => {
                return Err(place.refuse(ErrorKind::AlreadyExists));
            }
            (None, FileCreationMode::Never) => return Err(place.refuse(ErrorKind::NotFound)),
            (Some(file), FileCreationMode::Never | FileCreationMode::IfMissing) if writes => {
                self.bring_up(file);
                if options.existing == ExistingContentHandling::Truncate {
                    self.change(file, Vec::clear);
                }
                file
            }
            (Some(file), FileCreationMode::Never | FileCreationMode::IfMissing) => {
                if self.files[file.0].is_below { self.copy(file) } else { file }
            }
            (None, FileCreationMode::IfMissing | FileCreationMode::MustBeNew) => {
                let mode = self.mode_of_new(options.permissions);
                self.place_file(place, b"", mode)
            }
        };
        Ok(Handle { file, place: place.clone(), access: options.access })
    }

    pub(in super::super) fn read_at(
        &self,
        handle: &Handle,
        offset: u64,
        length: usize,
    ) -> Outcome<Vec<u8>> {
        if !handle.access.can_read() {
            return Err(handle.place.refuse(ErrorKind::PermissionDenied));
        }
        Ok(cut(self.bytes(handle.file), offset, length))
    }

    pub(in super::super) fn write_at(
        &mut self,
        handle: &Handle,
        offset: u64,
        bytes: &[u8],
    ) -> Outcome<()> {
        handle.check_writes()?;
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

    pub(in super::super) fn set_len(&mut self, handle: &Handle, length: u64) -> Outcome<()> {
        handle.check_writes()?;
        self.change(handle.file, |content| content.resize(length as usize, 0));
        Ok(())
    }

    pub(in super::super) fn set_mode(&mut self, place: &Place, mode: u32) -> Outcome<Node> {
        let node = self.find(place)?;
        match (node, self.traits.empty_dirs) {
            (Node::File(file), _) => {
                self.bring_up(file);
                self.files[file.0].mode = self.traits.file_mode.map(|_| mode);
            }
            (Node::Dir, EmptyDirSupport::Kept) => {}
            // An implied directory has no attributes of its own.
            (Node::Dir, EmptyDirSupport::Vanish) => {
                return Err(place.refuse(ErrorKind::Unsupported));
            }
        }
        Ok(node)
    }

    /// A file that changes moves to the upper layer of an overlay.
    pub(super) fn bring_up(&mut self, file: FileId) {
        self.files[file.0].is_below = false;
    }

    /// Another file with the same content.
    pub(super) fn copy(&mut self, file: FileId) -> FileId {
        self.files.push(self.files[file.0].clone());
        FileId(self.files.len() - 1)
    }

    fn mode_of_new(&self, permissions: Option<u32>) -> Option<u32> {
        self.traits.file_mode.map(|usual| permissions.unwrap_or(usual))
    }

    /// A new file, which may replace another. Open handles keep the old file.
    fn place_file(&mut self, place: &Place, bytes: &[u8], mode: Option<u32>) -> FileId {
        let state = self.next_state();
        let file = FileId(self.files.len());
        self.files.push(FileState { bytes: bytes.to_vec(), mode, state, is_below: false });
        self.make_above(place);
        self.nodes.insert(place.clone(), Node::File(file));
        file
    }

    /// Changes a file in place. Unchanged bytes need no new version.
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
}

impl Handle {
    fn check_writes(&self) -> Outcome<()> {
        if self.access.can_write() {
            Ok(())
        } else {
            Err(self.place.refuse(ErrorKind::PermissionDenied))
        }
    }
}

/// The part of the range that exists.
fn cut(bytes: &[u8], offset: u64, length: usize) -> Vec<u8> {
    bytes.iter().copied().skip(offset as usize).take(length).collect()
}
