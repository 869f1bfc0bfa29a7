//! The effects of a command line that rules can refer to. They do not depend on the names of the
//! programs.

use serde::{Deserialize, Serialize};

/// A kind of finding. Rules refer to it and assign a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandFindingKind {
    /// The text is not valid shell, or not supported by this parser.
    Unparsable,
    /// The text exceeds the limits of the analysis.
    OverLimit,
    /// Removes something outside the workspace.
    RemovesOutside,
    /// Removes the workspace itself, or everything in it.
    RemovesRoot,
    /// Removes a tree whose path is only known at run time.
    #[serde(rename = "removes-unknown")]
    RemovesUnknownPath,
    /// Writes to a device that holds data.
    WritesDevice,
    /// Changes permissions or owners outside the workspace.
    #[serde(rename = "permissions-outside")]
    ChangesPermissionsOutside,
    /// Changes times of files outside the workspace.
    #[serde(rename = "times-outside")]
    ChangesTimesOutside,
    /// Sends a signal to all processes.
    KillsEverything,
    /// A function that calls itself in the background without end, so that its processes multiply.
    ForkBomb,
    /// An endless loop that starts programs without waiting for them.
    ForkLoop,
    /// A shell runs code from a pipe or from the output of another program.
    PipesToShell,
    /// Separates commands by `;`, `&` or a line end.
    #[serde(rename = "separates")]
    SequentialCommands,
    /// Connects commands by `&&` or `||`.
    #[serde(rename = "chains")]
    ConditionalChain,
    /// Runs commands in a substitution: `$( … )`, backticks or `<( … )`.
    #[serde(rename = "substitutes")]
    CommandSubstitution,
    /// Which program runs is only known at run time.
    #[serde(rename = "runs-unknown")]
    RunsUnknownProgram,
    /// The shell code that runs is only known at run time.
    #[serde(rename = "code-unknown")]
    RunsUnknownShellCode,
    /// A shell reads its program from standard input, which is not known in advance.
    #[serde(rename = "code-unseen")]
    RunsShellCodeFromStdin,
    /// Runs a file that the same line downloads.
    RunsDownload,
    /// Uses the network through features of the shell itself.
    #[serde(rename = "network-shell")]
    UsesShellNetworking,
    /// Changes the directory, no matter where.
    ChangesDirectory,
    /// Changes to a directory outside the workspace.
    LeavesWorkspace,
    /// Changes to a directory that is only known at run time.
    #[serde(rename = "directory-unknown")]
    ChangesToUnknownDirectory,
    /// Writes outside the workspace.
    WritesOutside,
    /// Accesses private files outside the workspace.
    #[serde(rename = "reaches-outside")]
    AccessesPrivateFilesOutside,
    /// Makes a link that leads out of the workspace.
    LinksOutside,
    /// Names the home directory.
    NamesHome,
    /// Names a parent directory.
    NamesParent,
    /// Sets a variable that makes programs run other programs.
    HijacksEnvironment,
    /// Stores a git setting that makes git run other programs.
    HijacksGit,
    /// Sets `PATH`, `HOME` or a similar variable to a path outside.
    RedirectsEnvironment,
    /// Sets `PATH`, `HOME` or a similar variable.
    SetsEnvironment,
    /// Runs a loop that never ends.
    LoopsForever,
}

impl CommandFindingKind {
    pub(crate) const COUNT: usize = CommandFindingKind::LoopsForever as usize + 1;

    /// Whether this kind only states that something is not known.
    pub(crate) fn is_doubt(self) -> bool {
        matches!(
            self,
            CommandFindingKind::RunsUnknownProgram
                | CommandFindingKind::RunsUnknownShellCode
                | CommandFindingKind::RemovesUnknownPath
                | CommandFindingKind::ChangesToUnknownDirectory
        )
    }
}
