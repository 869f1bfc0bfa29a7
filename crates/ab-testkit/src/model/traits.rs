//! What the contract leaves to a backend, and what a backend does not report about a fixture.

use ab_core::Backend;

/// The options in which the model follows a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReferenceWorkspaceOptions {
    pub empty_dirs: EmptyDirSupport,
    pub search: SearchSupport,
    /// The permission bits of a file that is created without any, if there are such bits.
    pub file_mode: Option<u32>,
    pub layout: WorkspaceLayout,
}

impl ReferenceWorkspaceOptions {
    /// Reads the options from a backend. Writes a file to it.
    pub(super) async fn of(backend: &Backend, layout: WorkspaceLayout) -> Self {
        let capabilities = backend.info().capabilities;
        let empty_dirs =
            if capabilities.empty_dirs { EmptyDirSupport::Kept } else { EmptyDirSupport::Vanish };
        let search =
            if capabilities.search { SearchSupport::Offered } else { SearchSupport::Unsupported };
        let made = backend.write("any", "").await.unwrap();
        let file_mode = made.mode.filter(|_| capabilities.file_modes);
        Self { empty_dirs, search, file_mode, layout }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyDirSupport {
    Kept,
    /// A directory exists as long as there is a file below it.
    Vanish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchSupport {
    Offered,
    Unsupported,
}

/// How a workspace is composed, if that is visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceLayout {
    /// Mount points. They are permanent directories, and a rename across them copies.
    pub mounts: &'static [&'static str],
    pub initial_file_layer: InitialFileLayer,
}

/// Where the initial files of a fixture are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InitialFileLayer {
    /// The initial files are in the same layer as all other files.
    #[default]
    SameLayer,
    /// The initial files are in the lower layer of an overlay, until they change. A reader
    /// continues to read the lower layer's file.
    LowerLayer,
}
