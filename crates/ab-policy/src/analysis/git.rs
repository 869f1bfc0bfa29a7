//! Settings and options of git that make git run other programs.

use super::argument::Arg;
use super::effect::CommandFindingKind;
use super::state::State;
use super::walk::{Context, Walk};
use crate::place::CommandPathLocation;

/// Settings with a command as their value that git runs by itself, during ordinary operations.
const RUNS: [&str; 13] = [
    "core.sshcommand",
    "core.fsmonitor",
    "core.gitproxy",
    "core.askpass",
    "core.alternaterefscommand",
    "diff.external",
    "gpg.program",
    "gpg.ssh.program",
    "uploadpack.packobjectshook",
    "protocol.ext.allow",
    "credential.helper",
    "interactive.difffilter",
    "sendemail.smtpserver",
];
/// Settings whose value is a command that users normally set.
const USES: [&str; 4] = ["core.pager", "core.editor", "sequence.editor", "core.hookspath"];

/// Long options of `clone` and `init` whose value is the following word.
const GIT_VALUES: &[&str] = &[
    "--config",
    "--branch",
    "--origin",
    "--depth",
    "--jobs",
    "--reference",
    "--separate-git-dir",
    "--template",
    "--filter",
    "--upload-pack",
    "--initial-branch",
];

enum Setting {
    /// Git runs the value by itself, during ordinary operations.
    Runs,
    /// The value is shell code.
    Command,
    Plain,
}

fn setting(key: &str, value: &str) -> Setting {
    let key = key.to_ascii_lowercase();
    let last = key.rsplit('.').next().unwrap_or_default();
    if RUNS.contains(&key.as_str()) {
        let plain_helper = key == "credential.helper" && !value.contains(['!', '/', ' ']);
        // The value `true` selects git's built-in file system monitor.
        let off = matches!(value, "" | "false" | "0" | "never" | "true");
        return if plain_helper || off { Setting::Plain } else { Setting::Runs };
    }
    let part = |section: &str| key.starts_with(section);
    match last {
        "clean" | "smudge" | "process" if part("filter.") => Setting::Runs,
        "textconv" | "command" if part("diff.") => Setting::Runs,
        "driver" if part("merge.") => Setting::Runs,
        "cmd" if part("mergetool.") || part("difftool.") => Setting::Runs,
        "path" if part("include.") || part("includeif.") => Setting::Runs,
        _ if part("alias.") && value.starts_with('!') => Setting::Command,
        "hookspath" => Setting::Plain,
        _ if part("pager.") || USES.contains(&key.as_str()) => Setting::Command,
        _ => Setting::Plain,
    }
}

impl Walk<'_> {
    pub(super) fn git(&mut self, args: &[Arg], context: &Context, state: &State) {
        let mut at = 1;
        let mut trees: Vec<Arg> = Vec::new();
        while let Some(arg) = args.get(at) {
            let text = arg.text.as_str();
            match text {
                "-c" => {
                    if let Some(pair) = args.get(at + 1) {
                        self.configures(pair, state);
                    }
                    at += 2;
                }
                _ if text.len() > 2 && text.starts_with("-c") => {
                    self.configures(&arg.after(2), state);
                    at += 1;
                }
                "-C" | "--work-tree" => {
                    trees.extend(args.get(at + 1).cloned());
                    at += 2;
                }
                _ if text.starts_with("--work-tree=") => {
                    trees.push(arg.after("--work-tree=".len()));
                    at += 1;
                }
                "--config-env" => {
                    self.find(CommandFindingKind::HijacksEnvironment, text);
                    at += 2;
                }
                _ if text.starts_with("--config-env=") => {
                    self.find(CommandFindingKind::HijacksEnvironment, text);
                    at += 1;
                }
                "--git-dir" | "--namespace" | "--exec-path" => at += 2,
                _ if text.starts_with("--exec-path=") => {
                    self.find(CommandFindingKind::HijacksEnvironment, text);
                    at += 1;
                }
                _ if text.starts_with('-') => at += 1,
                _ => break,
            }
        }
        let Some(verb) = args.get(at).and_then(Arg::exact) else { return };
        let rest = &args[at + 1..];
        let changes = [
            "clean", "checkout", "reset", "restore", "rm", "mv", "apply", "stash", "pull", "switch",
        ];
        if changes.contains(&verb) {
            for tree in &trees {
                self.writes(tree, state);
            }
        }
        if matches!(verb, "clone" | "init") {
            let named = super::programs::operands(rest, "cbojuT", GIT_VALUES);
            let target = if verb == "clone" { named.get(1) } else { named.first() };
            if let Some(target) = target {
                self.writes(target, state);
            }
        }
        match verb {
            "config" => self.git_config(rest, state),
            "bisect" if rest.first().and_then(Arg::exact) == Some("run") => {
                self.inner(&rest[1..], context, state.clone());
            }
            "submodule" => {
                if let Some(at) = rest.iter().position(|arg| arg.exact() == Some("foreach")) {
                    let words: Vec<&Arg> =
                        rest[at + 1..].iter().filter(|arg| !arg.is_option()).collect();
                    if let [code] = words.as_slice() {
                        self.shell_code(code, context, state);
                    } else {
                        let words: Vec<Arg> = words.into_iter().cloned().collect();
                        self.inner(&words, context, state.clone());
                    }
                }
            }
            "rebase" | "difftool" | "filter-branch" | "grep" => {
                self.git_options(rest, context, state);
            }
            "clone" | "fetch" | "pull" | "push" | "ls-remote" | "remote" | "archive" => {
                for (at, arg) in rest.iter().enumerate() {
                    if verb == "clone" {
                        let pair = match arg.text.as_str() {
                            "-c" | "--config" => rest.get(at + 1).cloned(),
                            text if text.starts_with("--config=") => Some(arg.after(9)),
                            _ => None,
                        };
                        if let Some(pair) = pair {
                            self.configures(&pair, state);
                        }
                    }
                    let code = ["--upload-pack", "--receive-pack", "--exec", "-u"].iter().find_map(
                        |flag| {
                            if arg.text == *flag && !(*flag == "-u" && verb != "clone") {
                                return rest.get(at + 1).cloned();
                            }
                            let rest = arg.text.strip_prefix(flag)?;
                            rest.starts_with('=').then(|| arg.after(flag.len() + 1))
                        },
                    );
                    if let Some(code) = code {
                        self.shell_code(&code, context, state);
                    }
                    if arg.text.starts_with("ext::") {
                        self.shell_code(&arg.after(5), context, state);
                    }
                }
            }
            _ => {}
        }
    }

    fn git_options(&mut self, rest: &[Arg], context: &Context, state: &State) {
        for (at, arg) in rest.iter().enumerate() {
            let text = arg.text.as_str();
            let code = match text {
                "-x" | "--exec" | "--extcmd" => rest.get(at + 1).cloned(),
                _ if text.ends_with("-filter") => rest.get(at + 1).cloned(),
                _ => ["--exec=", "--extcmd=", "--open-files-in-pager=", "-O"]
                    .iter()
                    .find(|flag| text.starts_with(**flag) && text.len() > flag.len())
                    .map(|flag| arg.after(flag.len())),
            };
            if let Some(code) = code {
                self.shell_code(&code, context, state);
            }
        }
    }

    /// Judges `git config` if it sets a value.
    fn git_config(&mut self, rest: &[Arg], state: &State) {
        let asks = ["--get", "--get-all", "--list", "-l", "--unset", "--get-regexp"];
        // These words are subcommands only in the first position. Elsewhere they are values.
        let verbs = ["get", "list", "unset"];
        if rest.first().is_some_and(|arg| verbs.contains(&arg.text.as_str())) {
            return;
        }
        if rest.iter().any(|arg| asks.contains(&arg.text.as_str())) {
            return;
        }
        let words: Vec<&Arg> = super::programs::operands(rest, "f", &["--file", "--type"]);
        let words = match words.first().and_then(|arg| arg.exact()) {
            Some("set") => &words[1..],
            _ => &words[..],
        };
        if let [key, value, ..] = words {
            let (key, value) = (key.text.clone(), (*value).clone());
            self.configured(&key, &value, CommandFindingKind::HijacksGit, state);
        }
    }

    /// Judges a setting that is passed as `-c key=value`.
    fn configures(&mut self, pair: &Arg, state: &State) {
        let key = pair.text.split('=').next().unwrap_or_default().to_owned();
        let value = pair.after((key.len() + 1).min(pair.text.len()));
        self.configured(&key, &value, CommandFindingKind::HijacksEnvironment, state);
    }

    /// Judges a setting. `effect` is reported if git runs the value of this setting by itself.
    fn configured(&mut self, key: &str, value: &Arg, effect: CommandFindingKind, state: &State) {
        // Hooks inside the workspace are allowed.
        let outside =
            |place: &CommandPathLocation| matches!(place, CommandPathLocation::Outside(_));
        if key.eq_ignore_ascii_case("core.hookspath")
            && self.places(value, state).iter().any(outside)
            && !matches!(value.exact(), Some("/dev/null"))
        {
            self.find(effect, key);
        }
        match setting(key, &value.text) {
            Setting::Runs => self.find(effect, key),
            Setting::Command => match value.exact() {
                Some(text) => {
                    let text = text.trim_start_matches('!').to_owned();
                    self.judged_as_code(&text, state);
                }
                None => self.find(CommandFindingKind::RunsUnknownShellCode, key),
            },
            Setting::Plain => {}
        }
    }
}
