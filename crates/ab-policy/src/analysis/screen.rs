//! Refuses command lines that contain paths outside of the workspace. This check is used on hosts
//! without a sandbox.
//!
//! - Words that look like paths are checked: absolute paths, words that name a home or contain `..`,
//!   targets of redirects, and values of options and variables.
//! - These words are resolved lexically, from every directory in which the shell may be at this
//!   point. This includes the directories after a failed change of directory. Parts that are only
//!   known at run time are ignored. So a `..` after such a part is treated as leading upwards.
//! - A line that cannot be parsed, or that exceeds the limits of the analysis, is refused.
//!
//! Only words are checked. Links are not checked. Files that a program opens by itself, or whose
//! names it reads from its input, are not checked either. This catches mistakes, but it does not
//! stop a program that tries to get out.

use std::collections::HashSet;

use ab_core::error::escape_unprintable;
use ab_core::{CommandLineCheckContext, Error, ErrorCode, ErrorKind, Result, Verb};

use super::argument::{Arg, base_name};
use super::effect::CommandFindingKind;
use super::state::State;
use super::walk::{Context, Walk};
use crate::place::{CommandCheckContext, CommandPathLocation, CommandStdin, HomeDirectoryMeaning};
use crate::shell::tree::RedirectKind;
use crate::shell::{self, Dialect, Meter, Problem};

/// Maximum number of characters of a word in an error message.
const SHOWN_WORD: usize = 120;
/// Names of devices that every command may use.
const DEVICES: [&str; 9] =
    ["null", "zero", "full", "random", "urandom", "tty", "stdin", "stdout", "stderr"];
/// Words that may precede a command. They do not change which words of the command are paths.
const BEFORE: [&str; 4] = ["command", "builtin", "exec", "time"];
/// Programs whose first operand is a script or a pattern, unless an option contains the script.
const SCRIPTED: [&str; 9] = ["sed", "grep", "egrep", "fgrep", "rg", "awk", "gawk", "mawk", "nawk"];
/// Programs that accept a script only as the value of an option.
const SCRIPTED_BY_OPTION: [&str; 3] = ["perl", "ruby", "node"];

const OUTSIDE: &str = "is outside of the workspace";
const READ_ONLY: &str = "may be read but not written to";
const OTHER_HOME: &str = "is the home of another user";
const CLIMBING_GLOB: &str = "may match '..'";
const CLIMBS_FROM_UNKNOWN: &str = "climbs from a directory that only run time knows";
const PART_OF_HOME: &str = "is a part of HOME or PWD, which cannot be followed";

/// Fails if a word of `line` leads outside of the given roots.
pub fn check_command_paths(line: &str, context: &CommandLineCheckContext<'_>) -> Result<()> {
    let nowhere = CommandCheckContext::new().with_home(HomeDirectoryMeaning::StartDirectory);
    let scene = context.roots.iter().fold(nowhere, |scene, root| scene.with_root_alias(root));
    let input = match context.stdin.map(std::str::from_utf8) {
        None | Some(Err(_)) => CommandStdin::Closed,
        Some(Ok(text)) => CommandStdin::Text(text.into()),
    };
    let scene = scene.in_directory(context.cwd).with_env(context.env).with_stdin(input);
    let meter = Meter::default();
    // If bash and a POSIX shell read the line differently, both readings are checked.
    let dialects: &[Dialect] = if shell::has_two_readings(line) {
        &[Dialect::Bash, Dialect::Posix]
    } else {
        &[Dialect::Bash]
    };
    for dialect in dialects {
        let mut walk = Walk::new(&scene, *dialect, &meter);
        walk.screening = Some(Screening { confines: context, refused: None, text: false });
        match shell::parse(line, *dialect, 0, &meter) {
            Ok(script) => walk.whole(&script),
            // Text that is not valid POSIX shell has no effect there.
            Err(error) if *dialect == Dialect::Posix => match error.problem {
                Problem::Syntax(_) => continue,
                Problem::Limit(_) => walk.unparsable(&error),
            },
            Err(error) => walk.unparsable(&error),
        }
        settled(walk, *dialect, line).map_err(|message| {
            Error::new(ErrorCode::UnsafeCommand, ErrorKind::DeniedByPolicy, message)
                .with_verb(Verb::Exec)
                .with_command(line)
                .with_hint(
                    "name only paths inside the workspace: without a sandbox (isolation software), the paths in a command line \
                     are checked; isolation auto uses a sandbox (bwrap or landlock) if one works on this machine",
                )
        })?;
    }
    Ok(())
}

/// Converts the result of a walk to `Ok`, or to an error text. The text names the refused word, or
/// says why the line cannot be understood.
fn settled(walk: Walk<'_>, dialect: Dialect, line: &str) -> std::result::Result<(), String> {
    if let Some(Screening { confines, refused: Some(refused), .. }) = walk.screening {
        let Refused { word, reason } = refused;
        let word = as_written(word, confines, line);
        let head: String = word.chars().take(SHOWN_WORD).collect();
        let rest = if head.len() < word.len() { "…" } else { "" };
        return Err(format!("the word '{}{rest}' {reason}", escape_unprintable(&head)));
    }
    let counts = |effect| match effect {
        CommandFindingKind::OverLimit => true,
        CommandFindingKind::Unparsable => dialect == Dialect::Bash,
        _ => false,
    };
    match walk.out.findings.iter().find(|found| counts(found.kind)) {
        Some(found) => Err(format!("the command cannot be understood: {}", found.detail)),
        None => Ok(()),
    }
}

/// Removes from the word the text that came only from expansion, because an error must not reveal
/// the path of the workspace on the host.
fn as_written(mut word: String, confines: &CommandLineCheckContext<'_>, line: &str) -> String {
    for root in confines.roots.iter().filter(|root| !line.contains(root.as_str())) {
        let home = format!("{root}/{}", confines.cwd);
        word = word.replace(home.trim_end_matches('/'), "~").replace(root, "…");
    }
    word
}

/// The state of the check: the paths that words may name, and the first word that was refused.
#[derive(Debug)]
pub(super) struct Screening<'a> {
    confines: &'a CommandLineCheckContext<'a>,
    refused: Option<Refused>,
    /// Whether the current expansion is input text for a program and not a word.
    text: bool,
}

#[derive(Debug)]
struct Refused {
    word: String,
    reason: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Named,
    Read,
    Written,
}

impl Walk<'_> {
    /// Checks the words of a simple command.
    pub(super) fn screen_command(&mut self, args: &[Arg], state: &State) {
        if self.screening.is_none() {
            return;
        }
        let bytes: usize = args.iter().map(|arg| arg.text.len() + 1).sum();
        self.spend(8 * bytes);
        let before = |arg: &&Arg| arg.exact().is_some_and(|text| BEFORE.contains(&text));
        let start = args.iter().take_while(before).count();
        let harmless = harmless(&args[start..]);
        let attached = args.get(start).is_some_and(|arg| !is_scripted(base_name(&arg.text)));
        for (at, arg) in args.iter().enumerate() {
            if self.over {
                return;
            }
            if at.checked_sub(start).is_some_and(|at| harmless.contains(&at)) {
                continue;
            }
            self.screen_word(arg, state);
            // An option with an attached value, such as `-I/etc`. A single slash is not a path but
            // a separator, as in `cut -d/`.
            if attached && arg.is_option() && !arg.text.starts_with("--") && arg.text.is_ascii() {
                let value = arg.after(2);
                if value.text.len() > 1 {
                    self.judge(&value, &arg.text, Use::Named, state);
                }
            }
        }
    }

    /// Checks the words that are assigned to a loop variable one after the other.
    pub(super) fn screen_words(&mut self, words: &[Arg], state: &State) {
        for word in words {
            self.judge(word, &word.text, Use::Named, state);
        }
    }

    /// Checks the operands of `[[ … ]]`.
    pub(super) fn screen_test(&mut self, operands: &[Arg], state: &State) {
        let mut pattern = false;
        for operand in operands {
            let is_pattern = std::mem::replace(
                &mut pattern,
                matches!(operand.text.as_str(), "=" | "==" | "!=" | "=~"),
            );
            if !is_pattern {
                self.judge(operand, &operand.text, Use::Named, state);
            }
        }
    }

    /// Checks the value of an assignment.
    pub(super) fn screen_value(&mut self, name: &str, value: &Arg, state: &State) {
        // The value of `IFS` is a list of separators, not a path.
        if self.screening.is_some() && name != "IFS" {
            let shown = format!("{name}={}", value.text);
            self.judge(value, &shown, Use::Named, state);
            self.judge_list(value, &shown, state);
        }
    }

    pub(super) fn screen_redirect(&mut self, kind: RedirectKind, target: &Arg, state: &State) {
        let used = match kind {
            RedirectKind::Read => Use::Read,
            RedirectKind::Write | RedirectKind::ReadWrite => Use::Written,
            RedirectKind::Duplicate | RedirectKind::Document | RedirectKind::Text => return,
        };
        self.judge(target, &target.text, used, state);
    }

    /// Checks expansions with operators. In `${x:-word}` the word may become the value.
    /// `${HOME%/*}` may become any path.
    pub(super) fn screen_altered(
        &mut self,
        name: &str,
        source: &str,
        given: &[Arg],
        state: &State,
    ) {
        if self.screening.as_ref().is_none_or(|it| it.text) {
            return;
        }
        let operator = source.split_once(name).map(|(_, rest)| rest).unwrap_or_default();
        if matches!(name, "HOME" | "PWD" | "OLDPWD") && operator.starts_with(['%', '/', ':']) {
            self.refuse(source, PART_OF_HOME);
        }
        let Some(given) = given.first().filter(|it| it.text.starts_with([':', '-', '=', '+']))
        else {
            return;
        };
        let length = if given.text.starts_with(':') { 2 } else { 1 };
        if given.text[..length.min(given.text.len())].ends_with(['-', '=', '+']) {
            let word = given.after(length);
            // The shell expands a tilde here, but the parser does not mark it as a tilde.
            if word.text.starts_with('~') && !(word.text == "~" || word.text.starts_with("~/")) {
                self.refuse(&word.text, OTHER_HOME);
            } else if word.text.starts_with('~') && word.climbs() {
                self.refuse(&word.text, OUTSIDE);
            }
            self.judge(&word, &word.text, Use::Named, state);
        }
    }

    /// Checks shell code with unknown parts in the form in which it was written.
    pub(super) fn screen_code(&mut self, text: &str, context: &Context, state: &State) {
        if self.screening.is_some() {
            self.code(text, context, state.clone());
        }
    }

    /// Sets whether the current expansion is input text and not a word. Returns the previous
    /// setting.
    pub(super) fn reads_text(&mut self, text: bool) -> bool {
        self.screening.as_mut().is_some_and(|it| std::mem::replace(&mut it.text, text))
    }

    fn screen_word(&mut self, arg: &Arg, state: &State) {
        self.judge(arg, &arg.text, Use::Named, state);
        let shape = arg.shape();
        // The word has the form `--file=…`, `of=…` or `env X=…`. Only the known start of the word
        // is searched.
        let Some(equals) = shape.split('\0').next().and_then(|known| known.find('=')) else {
            return;
        };
        let value = arg.after(equals + 1);
        self.judge(&value, &arg.text, Use::Named, state);
        let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+');
        if equals > 0 && shape[..equals].chars().all(name) {
            self.judge_list(&value, &arg.text, state);
        }
    }

    /// Checks each directory in a list such as the value of `PATH`.
    fn judge_list(&mut self, value: &Arg, shown: &str, state: &State) {
        let shape = value.shape();
        if !has_scheme(&shape) && shape.contains(':') {
            for part in shape.split(':') {
                self.judge_shape(part, value.glob, shown, Use::Named, state);
            }
        }
    }

    fn judge(&mut self, arg: &Arg, shown: &str, used: Use, state: &State) {
        if self.screening.is_none() || arg.stream {
            return;
        }
        if arg.home {
            let other = arg.text.starts_with('~');
            return self.refuse(shown, if other { OTHER_HOME } else { PART_OF_HOME });
        }
        self.judge_shape(&arg.shape(), arg.glob, shown, used, state);
    }

    /// Checks a word that may be a path.
    fn judge_shape(&mut self, shape: &str, glob: bool, shown: &str, used: Use, state: &State) {
        let Some(screening) = &self.screening else { return };
        let local = shape.strip_prefix("file://");
        if local.is_none() && has_scheme(shape) {
            return;
        }
        // Some programs read a word from a file if it has the form `@/etc/x`.
        let path = local.unwrap_or(shape);
        let path = path.strip_prefix('@').filter(|rest| rest.contains('/')).unwrap_or(path);
        let segments = || path.split('/');
        if glob && segments().any(|segment| may_match_parent(segment, path)) {
            return self.refuse(shown, CLIMBING_GLOB);
        }
        let climbs = segments().any(|segment| segment == "..");
        if used == Use::Named && !path.starts_with('/') && !climbs {
            return;
        }
        if screening.confines.roots.is_empty() {
            return self.refuse(shown, OUTSIDE);
        }
        if climbs && path.starts_with('\0') {
            return self.refuse(shown, CLIMBS_FROM_UNKNOWN);
        }
        let known: Vec<&str> = segments().filter(|segment| !segment.contains('\0')).collect();
        let top = if path.starts_with('/') { "/" } else { "" };
        let path = format!("{top}{}", known.join("/"));
        for directory in state.directories() {
            let reason = match self.scene.resolve(&path, &directory.place) {
                CommandPathLocation::Inside(_) => None,
                CommandPathLocation::Outside(path) => screening.outside(&path, used),
                CommandPathLocation::Unknown => climbs.then_some(CLIMBS_FROM_UNKNOWN),
            };
            if let Some(reason) = reason {
                return self.refuse(shown, reason);
            }
        }
    }

    fn refuse(&mut self, word: &str, reason: &'static str) {
        if let Some(screening) = &mut self.screening {
            let refused = || Refused { word: word.to_owned(), reason };
            screening.refused.get_or_insert_with(refused);
        }
    }
}

impl Screening<'_> {
    /// Why an absolute path outside of the workspace must not be used. `None` if it may be used.
    fn outside(&self, path: &str, used: Use) -> Option<&'static str> {
        let below = |top: &str| {
            let rest = path.strip_prefix(top.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if let Some(device) = path.strip_prefix("/dev/") {
            let stream = device.strip_prefix("fd/").is_some_and(|number| !number.contains('/'));
            if stream || DEVICES.contains(&device) {
                return None;
            }
        }
        if !self.confines.readable_dirs.iter().any(|top| below(top)) {
            return Some(OUTSIDE);
        }
        (used == Use::Written).then_some(READ_ONLY)
    }
}

fn is_scripted(name: &str) -> bool {
    SCRIPTED.contains(&name) || SCRIPTED_BY_OPTION.contains(&name)
}

/// The indices of the words that cannot be paths, even if they look like paths.
fn harmless(args: &[Arg]) -> HashSet<usize> {
    let Some(name) = args.first().and_then(Arg::exact).map(base_name) else {
        return HashSet::new();
    };
    let all = 1..args.len();
    match name {
        // With a wildcard, the command would print the names that match.
        "echo" | "printf" => all.filter(|at| !has_wildcard(&args[*at])).collect(),
        // A shell that does not know `[[` treats it as the name of a program that does not exist.
        "tr" | "[[" => all.collect(),
        name if is_scripted(name) => scripts(args, SCRIPTED.contains(&name)),
        _ => HashSet::new(),
    }
}

fn has_wildcard(arg: &Arg) -> bool {
    arg.glob && arg.shape().contains(['*', '?', '['])
}

/// The indices of the arguments that are scripts. These are the values of options, or otherwise the
/// first operand.
fn scripts(args: &[Arg], first_is_script: bool) -> HashSet<usize> {
    let mut found = HashSet::new();
    let mut brought = !first_is_script;
    let mut first = None;
    let mut at = 1;
    while at < args.len() {
        let text = args[at].text.as_str();
        match text.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            Some(long) if long.starts_with('-') => {
                let brings = ["-expression", "-regexp", "-file", "-eval"];
                brought |= brings.iter().any(|it| long.starts_with(it));
            }
            Some(option) if option.ends_with('e') => {
                brought = true;
                at += 1;
                found.insert(at);
            }
            Some(option) if option.contains(['f', 'e']) => brought = true,
            // Options of awk for the separator and for variables.
            Some("F" | "v") => at += 1,
            Some(_) => {}
            None => first = first.or(Some(at)),
        }
        at += 1;
    }
    found.extend(first.filter(|_| !brought));
    found
}

/// Whether a segment is a pattern that some shells match with `..`. An exception is a single `.*`
/// at the end, which is the usual pattern for hidden files.
fn may_match_parent(segment: &str, path: &str) -> bool {
    let dots = segment.starts_with('.')
        && segment.contains(['*', '?', '['])
        && segment.len() <= 6
        && segment.chars().all(|c| ".*?[]!^".contains(c));
    dots && !(segment == ".*" && path.ends_with(".*"))
}

fn has_scheme(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
    })
}
