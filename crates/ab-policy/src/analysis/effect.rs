//! What a command line does that rules may speak about, whatever its programs are called.

use serde::{Deserialize, Serialize};

/// A finding of the analysis. Rules name them; what follows from one is theirs to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandFindingKind {
    /// The text is no shell that is understood here.
    Unparsable,
    /// The text is larger, deeper or busier than what is looked at.
    OverLimit,
    /// Removes something outside the workspace.
    RemovesOutside,
    /// Removes the workspace itself, or everything in it.
    RemovesRoot,
    /// Removes a tree that only run time knows.
    RemovesUnknown,
    /// Writes to a device that holds data.
    WritesDevice,
    /// Changes permissions or owners outside the workspace.
    PermissionsOutside,
    /// Changes times of files outside the workspace.
    TimesOutside,
    /// Signals every process that it may.
    KillsEverything,
    /// A function that starts itself more than once, over and over.
    ForkBomb,
    /// An endless loop that starts programs without waiting for them.
    ForkLoop,
    /// A shell runs what comes through a pipe or out of another program.
    PipesToShell,
    /// `;`, `&` or a line end between commands.
    Separates,
    /// `&&` or `||`
    Chains,
    /// `$( … )`, backticks or `<( … )`
    Substitutes,
    /// Only run time knows which program runs.
    RunsUnknown,
    /// Only run time knows the shell text that runs.
    CodeUnknown,
    /// A shell reads its program from standard input, which nobody has seen.
    CodeUnseen,
    /// Runs what the same line downloads.
    RunsDownload,
    /// Speaks to the network by the shell's own means.
    NetworkShell,
    /// Changes the directory, wherever to.
    ChangesDirectory,
    /// Changes to a directory outside the workspace.
    LeavesWorkspace,
    /// Changes to a directory that only run time knows.
    DirectoryUnknown,
    /// Writes outside the workspace.
    WritesOutside,
    /// Reaches for files outside that belong to somebody.
    ReachesOutside,
    /// Makes a link that leads out of the workspace.
    LinksOutside,
    /// Names the home directory.
    NamesHome,
    /// Names a parent directory.
    NamesParent,
    /// Sets a variable that makes programs run other programs.
    HijacksEnvironment,
    /// Leaves a setting of git behind that makes it run other programs.
    HijacksGit,
    /// Sets `PATH`, `HOME` or the like to something outside.
    RedirectsEnvironment,
    /// Sets `PATH`, `HOME` or the like.
    SetsEnvironment,
    /// An endless loop.
    LoopsForever,
}

impl CommandFindingKind {
    pub(crate) const COUNT: usize = CommandFindingKind::LoopsForever as usize + 1;

    /// Whether it only says that something is not known.
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
