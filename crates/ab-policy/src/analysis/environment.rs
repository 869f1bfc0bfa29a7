//! Variables that change what later commands do.

use super::argument::Arg;
use super::effect::Effect;
use super::state::State;
use super::walk::{Context, Stdin, Walk};
use crate::place::{Place, is_scratch, is_system};

/// Variables whose value is loaded or run by programs that are not asked to.
const HIJACKS: [&str; 22] = [
    "BASH_ENV",
    "ENV",
    "PROMPT_COMMAND",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "LESSOPEN",
    "LESSCLOSE",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_EXTERNAL_DIFF",
    "GIT_PROXY_COMMAND",
    "GIT_ASKPASS",
    "SSH_ASKPASS",
    "GIT_EXEC_PATH",
    "GIT_TEMPLATE_DIR",
    "PERL5OPT",
    "PERL5DB",
    "RUBYOPT",
    "PYTHONSTARTUP",
    "JAVA_TOOL_OPTIONS",
    "CDPATH",
];
/// Variables whose value is a command that some programs run.
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
/// Options that make node load a file first.
const PRELOADS: [&str; 6] =
    ["--require", "-r", "--import", "--loader", "--experimental-loader", "--inspect"];

impl Walk<'_> {
    /// A variable gets a value; nothing: one that only run time knows.
    pub(super) fn assigned(&mut self, name: &str, value: Option<&Arg>, state: &State) {
        let loader = name.starts_with("LD_") || name.starts_with("DYLD_");
        // Without the settings of others, git runs less, not more.
        let fewer = name == "GIT_CONFIG_NOSYSTEM"
            || (name.starts_with("GIT_CONFIG") && value.and_then(Arg::exact) == Some("/dev/null"));
        let settings = (name.starts_with("GIT_CONFIG") && !fewer) || name.starts_with("BASH_FUNC_");
        if loader || settings || HIJACKS.contains(&name) {
            return self.find(Effect::HijacksEnvironment, name);
        }
        let text = value.and_then(Arg::exact);
        match name {
            "NODE_OPTIONS" => {
                let option = |word: &str| {
                    word.split('=').next().is_some_and(|word| PRELOADS.contains(&word))
                };
                if text.is_none_or(|text| text.split_whitespace().any(option)) {
                    self.find(Effect::HijacksEnvironment, name);
                }
            }
            "HOME" | "PWD" | "OLDPWD" => {
                self.find(Effect::SetsEnvironment, name);
                let inside = value.is_some_and(|value| {
                    let places = self.targets(value, state);
                    places.iter().all(|target| matches!(target.place, Place::Inside(_)))
                });
                if !inside {
                    self.find(Effect::RedirectsEnvironment, name);
                }
            }
            "PATH" => {
                self.find(Effect::SetsEnvironment, name);
                if !value.is_some_and(|value| self.is_plain_path(value, state)) {
                    self.find(Effect::RedirectsEnvironment, name);
                }
            }
            name if COMMANDS.contains(&name) => match text {
                Some(text) if !text.is_empty() => {
                    let text = text.to_owned();
                    self.judged_as_code(&text, state);
                }
                Some(_) => {}
                None => self.find(Effect::CodeUnknown, name),
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
                Place::Inside(_) => true,
                Place::Outside(path) => is_system(path) && !is_scratch(path),
                Place::Unknown => false,
            })
        })
    }
}
