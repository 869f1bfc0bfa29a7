//! Groups tools by what they can do, for callers that offer only some of them.

use super::Name;

/// What a tool can do to a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolFamily {
    /// Reads files and changes nothing.
    ReadFiles,
    ChangeFiles,
    /// Runs commands, or controls running ones.
    RunCommands,
}

impl Name {
    pub(crate) fn family(self) -> ToolFamily {
        match self {
            Name::ReadFile
            | Name::ReadTextFile
            | Name::ReadMediaFile
            | Name::ReadMultipleFiles
            | Name::ListDirectory
            | Name::ListDirectoryWithSizes
            | Name::DirectoryTree
            | Name::SearchFiles
            | Name::GetFileInfo
            | Name::ListAllowedDirectories
            | Name::Grep => ToolFamily::ReadFiles,
            Name::WriteFile
            | Name::EditFile
            | Name::CreateDirectory
            | Name::MoveFile
            | Name::Delete => ToolFamily::ChangeFiles,
            Name::Exec
            | Name::ProcessOutput
            | Name::ProcessInput
            | Name::ProcessKill
            | Name::ProcessList => ToolFamily::RunCommands,
        }
    }
}
