//! Judges environment variables that change what later commands do.

use ab_core::environment::find_code_loading_env_variable;

use super::argument::Arg;
use super::effect::CommandFindingKind;
use super::state::State;
use super::walk::{Context, OF_THE_SHELL, Stdin, Walk};
use crate::place::{CommandPathLocation, is_scratch, is_system};

/// Variables from the list in [`ab_core::environment`] whose value is a command. A known value is
/// judged as shell code.
const COMMANDS: [&str; 8] = [
    "PAGER",
    "GIT_PAGER",
    "MANPAGER",
    "EDITOR",
    "VISUAL",
    "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR",
    "BROWSER",
];

/// Variables that this file does not judge. `HOME` is judged where a word uses it. `PATH` has its
/// own rule.
const JUDGED_ALONE: [&str; 2] = ["HOME", "PATH"];

impl Walk<'_> {
    /// Judges the variables that the caller passes to the command. The code that starts commands
    /// has already checked variables that load code. The values are checked like the values of
    /// assignments.
    pub(super) fn given(&mut self, state: &State) {
        for (name, value) in self.scene.env() {
            if !OF_THE_SHELL.contains(&name.as_str()) && !JUDGED_ALONE.contains(&name.as_str()) {
                self.screen_value(name, &Arg::literal(value), state);
            }
        }
        // `cd -` changes to this directory.
        if let Some(previous) = self.scene.env().get("OLDPWD") {
            let previous = Arg::literal(previous);
            self.screen_value("OLDPWD", &previous, state);
            let inside =
                |place: &CommandPathLocation| matches!(place, CommandPathLocation::Inside(_));
            if !self.places(&previous, state).iter().all(inside) {
                self.find(CommandFindingKind::RedirectsEnvironment, "OLDPWD");
            }
        }
        if let Some(path) = self.scene.env().get("PATH") {
            let path = Arg::literal(path);
            self.screen_value("PATH", &path, state);
            if !self.is_plain_path(&path, state) {
                self.find(CommandFindingKind::RedirectsEnvironment, "PATH");
            }
        }
    }

    /// Judges an assignment. `None` stands for a value that is only known at run time.
    pub(super) fn assigned(&mut self, name: &str, value: Option<&Arg>, state: &State) {
        let text = value.and_then(Arg::exact);
        if find_code_loading_env_variable(name, text).is_some() {
            self.find(CommandFindingKind::HijacksEnvironment, name);
        }
        match name {
            "HOME" | "PWD" | "OLDPWD" => {
                self.find(CommandFindingKind::SetsEnvironment, name);
                let inside = value.is_some_and(|value| {
                    let places = self.targets(value, state);
                    places
                        .iter()
                        .all(|target| matches!(target.place, CommandPathLocation::Inside(_)))
                });
                if !inside {
                    self.find(CommandFindingKind::RedirectsEnvironment, name);
                }
            }
            "PATH" => {
                self.find(CommandFindingKind::SetsEnvironment, name);
                if !value.is_some_and(|value| self.is_plain_path(value, state)) {
                    self.find(CommandFindingKind::RedirectsEnvironment, name);
                }
            }
            name if COMMANDS.contains(&name) => match text {
                Some(text) if !text.is_empty() => {
                    let text = text.to_owned();
                    self.judged_as_code(&text, state);
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Judges text that a program will run later. Reports the findings in this text, although it
    /// does not run now.
    pub(super) fn judged_as_code(&mut self, text: &str, state: &State) {
        let context = Context { stdin: Stdin::Inherited, forks: false, via: None, depth: 1 };
        self.shadow += 1;
        self.code(text, &context, state.clone());
        self.shadow -= 1;
    }

    /// Whether every directory of a search path is in the workspace or belongs to the system.
    fn is_plain_path(&mut self, value: &Arg, state: &State) -> bool {
        if value.home {
            return false;
        }
        value.text.split(':').all(|directory| {
            if matches!(directory, "$PATH" | "${PATH}") {
                return true;
            }
            if directory.contains(['$', '`']) && !value.known {
                return false;
            }
            let places = self.targets(&Arg::literal(directory), state);
            places.iter().all(|target| match &target.place {
                CommandPathLocation::Inside(_) => true,
                CommandPathLocation::Outside(path) => is_system(path) && !is_scratch(path),
                CommandPathLocation::Unknown => false,
            })
        })
    }
}
