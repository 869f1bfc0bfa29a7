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
    RemovesUnknown,
    /// Writes to a device that holds data.
    WritesDevice,
    /// Changes permissions or owners outside the workspace.
    PermissionsOutside,
    /// Changes times of files outside the workspace.
    TimesOutside,
    /// Sends a signal to all processes.
    KillsEverything,
    /// A function that calls itself in the background without end, so that its processes multiply.
    ForkBomb,
    /// An endless loop that starts programs without waiting for them.
    ForkLoop,
    /// A shell runs code from a pipe or from the output of another program.
    PipesToShell,
    /// Separates commands by `;`, `&` or a line end.
    Separates,
    /// Connects commands by `&&` or `||`.
    Chains,
    /// Runs commands in a substitution: `$( … )`, backticks or `<( … )`.
    Substitutes,
    /// Which program runs is only known at run time.
    RunsUnknown,
    /// The shell code that runs is only known at run time.
    CodeUnknown,
    /// A shell reads its program from standard input, which is not known in advance.
    CodeUnseen,
    /// Runs a file that the same line downloads.
    RunsDownload,
    /// Uses the network through features of the shell itself.
    NetworkShell,
    /// Changes the directory, no matter where.
    ChangesDirectory,
    /// Changes to a directory outside the workspace.
    LeavesWorkspace,
    /// Changes to a directory that is only known at run time.
    DirectoryUnknown,
    /// Writes outside the workspace.
    WritesOutside,
    /// Accesses private files outside the workspace.
    ReachesOutside,
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
            CommandFindingKind::RunsUnknown
                | CommandFindingKind::CodeUnknown
                | CommandFindingKind::RemovesUnknown
                | CommandFindingKind::DirectoryUnknown
        )
    }
}
