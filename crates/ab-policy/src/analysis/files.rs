//! Determines to which paths the words of a command lead, and reports paths outside the workspace.

use super::argument::{Arg, Target, base_name};
use super::effect::CommandFindingKind;
use super::state::State;
use super::walk::Walk;
use super::{CommandPathAccess, CommandPathUse};
use crate::place::{CommandPathLocation, is_device, is_harmless, is_scratch_directory};

/// Programs whose arguments are texts and not paths.
const TALKERS: [&str; 10] =
    ["echo", "printf", ":", "true", "false", "export", "declare", "alias", "type", "which"];
/// Programs whose first operand is a pattern or a script.
const PATTERN_FIRST: [&str; 12] =
    ["grep", "egrep", "fgrep", "rg", "ag", "ack", "sed", "awk", "gawk", "jq", "yq", "tr"];

impl Walk<'_> {
    pub(super) fn targets(&self, arg: &Arg, state: &State) -> Vec<Target> {
        state.likely().map(|cwd| arg.target(self.scene, cwd)).collect()
    }

    /// The targets of a word, one for each directory that the shell may be in.
    fn all_targets(&self, arg: &Arg, state: &State) -> Vec<Target> {
        state.directories().iter().map(|cwd| arg.target(self.scene, &cwd.place)).collect()
    }

    pub(super) fn places(&self, arg: &Arg, state: &State) -> Vec<CommandPathLocation> {
        self.targets(arg, state).into_iter().map(|target| target.place).collect()
    }

    fn uses(&mut self, place: CommandPathLocation, access: CommandPathAccess) {
        if let Some(command) = self.current.and_then(|at| self.out.commands.get_mut(at)) {
            command.paths.push(CommandPathUse { location: place, access });
        }
    }

    /// Treats all words of a command as paths that it may use.
    pub(super) fn paths(&mut self, args: &[Arg], state: &State) {
        let name = args[0].exact().map(base_name).unwrap_or_default().to_owned();
        // These commands are judged elsewhere. The target of a link depends on where the link is
        // created. A change of directory has its own rules.
        if TALKERS.contains(&name.as_str())
            || matches!(name.as_str(), "ln" | "cd" | "chdir" | "pushd")
        {
            return;
        }
        let message = name == "git"
            && args.get(1).is_some_and(|arg| matches!(arg.text.as_str(), "commit" | "tag"));
        let mut pattern = PATTERN_FIRST.contains(&name.as_str());
        let mut after_message = false;
        for (at, arg) in args.iter().enumerate() {
            let is_message = std::mem::replace(
                &mut after_message,
                message && arg.text.starts_with('-') && arg.text.ends_with('m'),
            );
            if is_message || (message && arg.text.starts_with("--message=")) {
                continue;
            }
            if at > 0 && pattern && !arg.is_option() {
                pattern = false;
                continue;
            }
            // A program name without a slash is searched in `PATH` and is not a path.
            if at == 0 && !arg.text.contains('/') && !arg.home {
                continue;
            }
            self.reach(arg, state);
            if arg.is_option() {
                self.reach_attached(arg, state);
            } else if let Some(equals) = arg.text.find('=') {
                self.reach(&arg.after(equals + 1), state);
            }
        }
    }

    /// Handles a path inside an option, such as `--file=…` or `-I…`.
    fn reach_attached(&mut self, arg: &Arg, state: &State) {
        let value = match arg.text.find('=') {
            Some(equals) => arg.after(equals + 1),
            None if arg.text.starts_with("--") => return,
            None => arg.after(2),
        };
        let pathlike = value.text.starts_with(['/', '~']) || value.climbs();
        if pathlike {
            self.reach(&value, state);
        }
    }

    /// Records that a word may be a path that the command reads.
    pub(super) fn reach(&mut self, arg: &Arg, state: &State) {
        // Handles `file:///etc/x`, and `@/etc/x` for programs that read an argument from a file.
        for prefix in ["file://", "@"] {
            let inner = arg.after(prefix.len());
            if arg.text.starts_with(prefix) && inner.text.starts_with(['/', '~', '.']) {
                return self.reach(&inner, state);
            }
        }
        if arg.text.contains("://") || arg.text.contains('\n') || arg.text.is_empty() {
            return;
        }
        let begins = arg.text.starts_with(['/', '~']) || arg.text.starts_with("..");
        if arg.text.contains([' ', '\t']) && !begins {
            return;
        }
        if arg.climbs() {
            self.find(CommandFindingKind::NamesParent, &arg.text);
        }
        for target in self.targets(arg, state) {
            if let CommandPathLocation::Outside(path) = &target.place {
                let reaches = arg.home || arg.climbs() || self.scene.is_private(path);
                if reaches && (arg.climbs() || !self.scene.is_open(path)) {
                    self.find(CommandFindingKind::AccessesPrivateFilesOutside, &arg.text);
                }
            }
            self.uses(target.place, CommandPathAccess::Read);
        }
    }

    pub(super) fn writes(&mut self, arg: &Arg, state: &State) {
        for target in self.targets(arg, state) {
            if let CommandPathLocation::Outside(path) = &target.place {
                let path = path.clone();
                if is_device(&path) {
                    self.find(CommandFindingKind::WritesDevice, &arg.text);
                } else if arg.climbs()
                    || !(self.scene.is_open(&path) || is_scratch_directory(&path))
                {
                    self.find(CommandFindingKind::WritesOutside, &arg.text);
                }
            }
            self.uses(target.place, CommandPathAccess::Write);
        }
    }

    /// Records that the command removes `arg`. `whole` means that the contents of `arg` are also
    /// removed, even without a wildcard.
    pub(super) fn removes(&mut self, arg: &Arg, recursive: bool, whole: bool, state: &State) {
        for target in self.all_targets(arg, state) {
            match &target.place {
                CommandPathLocation::Outside(path) => {
                    let scratch = self.scene.is_open(path) && !is_harmless(path);
                    if (!scratch || arg.climbs()) && !arg.stream {
                        self.find(CommandFindingKind::RemovesOutside, &arg.text);
                    }
                }
                CommandPathLocation::Inside(below) => {
                    // `find` with a filter does not remove most of the tree in which it starts.
                    let spared = recursive && !whole && !target.whole && self.is_search();
                    if below.is_empty() && recursive && !spared {
                        self.find(CommandFindingKind::RemovesRoot, &arg.text);
                    }
                }
                CommandPathLocation::Unknown => {
                    if recursive {
                        self.find(CommandFindingKind::RemovesUnknownPath, &arg.text);
                    }
                }
            }
            self.uses(target.place, CommandPathAccess::Write);
        }
    }

    fn is_search(&self) -> bool {
        let command = self.current.and_then(|at| self.out.commands.get(at));
        command.and_then(|command| command.program()) == Some("find")
    }

    /// Reports changes of file times outside the workspace. These changes have their own kind,
    /// because an isolation that protects only file contents allows them.
    pub(super) fn changes_times(&mut self, arg: &Arg, state: &State) {
        for target in self.targets(arg, state) {
            if let CommandPathLocation::Outside(path) = &target.place
                && !self.scene.is_open(path)
            {
                self.find(CommandFindingKind::ChangesTimesOutside, &arg.text);
            }
        }
    }

    pub(super) fn changes_permissions(&mut self, arg: &Arg, state: &State) {
        for target in self.targets(arg, state) {
            if let CommandPathLocation::Outside(path) = &target.place
                && (!self.scene.is_open(path) || arg.climbs() || is_harmless(path))
            {
                self.find(CommandFindingKind::ChangesPermissionsOutside, &arg.text);
            }
            self.uses(target.place, CommandPathAccess::Write);
        }
    }
}
