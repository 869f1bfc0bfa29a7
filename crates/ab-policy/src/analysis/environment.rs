//! Variables that change what later commands do.

use ab_core::environment::find_code_loading_variable;

use super::argument::Arg;
use super::effect::CommandFindingKind;
use super::state::State;
use super::walk::{Context, Stdin, Walk};
use crate::place::{PathLocation, is_scratch, is_system};

/// Variables of the list of [`ab_core::environment`] whose value is a command: where the value is
/// shell text of the line, that text is judged as well.
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

impl Walk<'_> {
    /// Variables that the caller gives. Those that load code were checked by whoever starts commands;
    /// here it is only told where names of programs lead.
    pub(super) fn given(&mut self, state: &State) {
        // Where `cd -` leads.
        if let Some(previous) = self.scene.env().get("OLDPWD") {
            let previous = Arg::literal(previous);
            self.screen_value("OLDPWD", &previous, state);
            let inside = |place: &PathLocation| matches!(place, PathLocation::Inside(_));
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

    /// A variable gets a value; nothing: one that only run time knows.
    pub(super) fn assigned(&mut self, name: &str, value: Option<&Arg>, state: &State) {
        let text = value.and_then(Arg::exact);
        if find_code_loading_variable(name, text).is_some() {
            self.find(CommandFindingKind::HijacksEnvironment, name);
        }
        match name {
            "HOME" | "PWD" | "OLDPWD" => {
                self.find(CommandFindingKind::SetsEnvironment, name);
                let inside = value.is_some_and(|value| {
                    let places = self.targets(value, state);
                    places.iter().all(|target| matches!(target.place, PathLocation::Inside(_)))
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

    /// Text that some later program will run: its findings count, but nothing of it runs now.
    pub(super) fn judged_as_code(&mut self, text: &str, state: &State) {
        let context = Context { stdin: Stdin::Inherited, forks: false, via: None, depth: 1 };
        self.shadow += 1;
        self.code(text, &context, state.clone());
        self.shadow -= 1;
    }

    /// Whether every directory of a search path is the workspace's or the system's.
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
                PathLocation::Inside(_) => true,
                PathLocation::Outside(path) => is_system(path) && !is_scratch(path),
                PathLocation::Unknown => false,
            })
        })
    }
}
