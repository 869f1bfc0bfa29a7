//! What of the contract is a backend's own choice, and what of a fixture a backend does not say.

use ab_core::Backend;

/// What the model follows a backend in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReferenceWorkspaceOptions {
    pub empty_dirs: EmptyDirSupport,
    pub search: SearchSupport,
    /// The permission bits of a file that is made without any, where there are such bits.
    pub file_mode: Option<u32>,
    pub layout: WorkspaceLayout,
}

impl ReferenceWorkspaceOptions {
    /// What a backend says of itself. A file is written to it.
    pub(super) async fn of(backend: &Backend, layout: WorkspaceLayout) -> Self {
        let capabilities = backend.info().capabilities;
        let empty_dirs =
            if capabilities.empty_dirs { EmptyDirSupport::Kept } else { EmptyDirSupport::Vanish };
        let search =
            if capabilities.search { SearchSupport::Offered } else { SearchSupport::Unsupported };
        let made = backend.write("any", "").await.unwrap();
        let file_mode = made.mode.filter(|_| capabilities.modes);
        Self { empty_dirs, search, file_mode, layout }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyDirSupport {
    Kept,
    /// A directory is there as long as there is a file below it.
    Vanish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchSupport {
    Offered,
    Unsupported,
}

/// How a workspace is put together, where that shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceLayout {
    /// Where other workspaces are mounted: directories that stay, and borders that a rename crosses
    /// by copying.
    pub mounts: &'static [&'static str],
    pub initial_file_layer: InitialFileLayer,
}

/// Where the files are that a fixture starts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InitialFileLayer {
    /// With all the others.
    #[default]
    SameLayer,
    /// In the lower layer of an overlay, until they change. Whoever reads one goes on reading what
    /// the lower layer has.
    LowerLayer,
}
