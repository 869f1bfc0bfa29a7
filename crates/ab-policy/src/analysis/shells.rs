//! Shells and other interpreters: where the code that they run comes from.

use super::argument::Arg;
use super::effect::CommandFindingKind;
use super::state::{Flow, State};
use super::walk::{Context, Stdin, Walk};

const SHELLS: [&str; 15] = [
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash", "tcsh", "csh", "yash",
    "oksh", "lksh", "posh",
];

/// Whether `name` is a shell. The name may end with a version.
pub(super) fn is_shell(name: &str) -> bool {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    SHELLS.contains(&name) || SHELLS.contains(&plain)
}

const INTERPRETERS: [&str; 14] = [
    "python",
    "node",
    "nodejs",
    "perl",
    "ruby",
    "php",
    "lua",
    "deno",
    "bun",
    "tclsh",
    "Rscript",
    "osascript",
    "pwsh",
    "ts-node",
];

/// Whether `name` is an interpreter of another language.
pub(super) fn is_interpreter(name: &str) -> bool {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&name) || INTERPRETERS.contains(&plain) || name.starts_with("pypy")
}

/// Whether a word consists of shell options. Any other word may be its script.
fn is_flags(text: &str) -> bool {
    let letters = text.strip_prefix(['-', '+']);
    letters.is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_alphabetic()))
}

fn is_long_flag(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

impl Walk<'_> {
    /// Judges a shell with its arguments.
    pub(super) fn shell(&mut self, args: &[Arg], context: &Context, state: &State) {
        let mut has_code = false;
        let mut from_stdin = false;
        let mut rest = args[1..].iter();
        let operand = loop {
            let Some(arg) = rest.next() else { break None };
            let Some(text) = arg.exact() else { break Some(arg) };
            match text {
                "--" => break rest.next(),
                "-" => {}
                "-o" | "+o" | "-O" | "+O" => drop(rest.next()),
                "--rcfile" | "--init-file" => {
                    if let Some(file) = rest.next() {
                        self.script_file(file, context, state);
                    }
                }
                _ if text.starts_with("--command=") => {
                    return self.shell_code(&arg.after("--command=".len()), context, state);
                }
                "--command" => has_code = true,
                _ if text.strip_prefix("--").is_some_and(is_long_flag) => {}
                _ if is_flags(text) => {
                    has_code |= text.starts_with('-') && text.contains('c');
                    from_stdin |= text.starts_with('-') && text.contains('s');
                    for _ in text.matches(['o', 'O']) {
                        rest.next();
                    }
                }
                _ => break Some(arg),
            }
        };
        match operand {
            Some(code) if has_code => self.shell_code(code, context, state),
            None if has_code => {}
            Some(script) if !from_stdin => self.script_file(script, context, state),
            Some(_) | None => self.shell_stdin(context, state),
        }
    }

    /// Judges code that a separate shell runs.
    pub(super) fn shell_code(&mut self, code: &Arg, context: &Context, state: &State) {
        if code.exact().is_none() {
            self.screen_code(&code.text, context, state);
        }
        match code.exact() {
            Some(text) => {
                self.code(text, context, state.clone());
            }
            None if code.fetches => self.find(CommandFindingKind::RunsDownload, &code.text),
            None => self.find(CommandFindingKind::RunsUnknownShellCode, &code.text),
        }
    }

    /// Judges a file that a shell runs as its script.
    pub(super) fn script_file(&mut self, script: &Arg, context: &Context, state: &State) {
        if script.stream {
            self.find(CommandFindingKind::PipesToShell, &script.text);
            if script.fetches {
                self.find(CommandFindingKind::RunsDownload, &script.text);
            }
            return;
        }
        if matches!(script.exact(), Some("/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0")) {
            return self.shell_stdin(context, state);
        }
        let streams = ["/dev/fd/", "/proc/self/fd/"];
        if streams.iter().any(|stream| script.text.starts_with(stream)) {
            // The text that can be read from another descriptor is not tracked. Judge standard
            // input instead.
            self.find(CommandFindingKind::RunsUnknownShellCode, &script.text);
            return self.shell_stdin(context, state);
        }
        if self.is_download(script, state) {
            return self.find(CommandFindingKind::RunsDownload, &script.text);
        }
        if !script.known {
            self.find(CommandFindingKind::RunsUnknownShellCode, &script.text);
        }
    }

    /// Judges a shell that reads its program from standard input.
    fn shell_stdin(&mut self, context: &Context, state: &State) {
        match &context.stdin {
            Stdin::Inherited => {
                if let Some(stdin) = self.input.take() {
                    self.shell_stdin(&Context { stdin, ..context.clone() }, state);
                }
            }
            Stdin::Unseen => {
                self.find(CommandFindingKind::RunsShellCodeFromStdin, "standard input")
            }
            Stdin::Pipe { fetches } => {
                self.find(CommandFindingKind::PipesToShell, "a pipe into a shell");
                if *fetches {
                    self.find(CommandFindingKind::RunsDownload, "a download piped into a shell");
                }
            }
            Stdin::Text(text) => {
                let text = text.clone();
                let context = Context { stdin: Stdin::Inherited, ..context.clone() };
                self.code(&text, &context, state.clone());
            }
            Stdin::UnknownText => {
                self.find(CommandFindingKind::RunsUnknownShellCode, "text that is not known")
            }
            Stdin::File(file) => {
                let file = file.clone();
                let context = Context { stdin: Stdin::Inherited, ..context.clone() };
                self.script_file(&file, &context, state);
            }
        }
    }

    /// Judges an interpreter of another language. Does not analyse the programs of this
    /// interpreter. Judges only where they come from.
    pub(super) fn interpreter(&mut self, args: &[Arg], context: &Context, state: &State) {
        let rest = &args[1..];
        if let Some(arg) = rest.iter().find(|arg| arg.fetches) {
            return self.find(CommandFindingKind::RunsDownload, &arg.text);
        }
        let mut operands = rest.iter().filter(|arg| !arg.is_option() && arg.exact() != Some("-"));
        match (operands.next(), &context.stdin) {
            (Some(script), _) => {
                if self.is_download(script, state) {
                    self.find(CommandFindingKind::RunsDownload, &script.text);
                }
            }
            (None, Stdin::Pipe { fetches: true }) => {
                self.find(CommandFindingKind::RunsDownload, "a download piped into an interpreter");
            }
            (None, _) => {}
        }
    }

    /// Judges `eval`, which joins its words and runs them in this shell.
    pub(super) fn eval(&mut self, args: &[Arg], context: &Context, state: State) -> Flow {
        let words: Option<Vec<&str>> = args[1..].iter().map(Arg::exact).collect();
        match words {
            Some(words) => self.code(&words.join(" "), context, state),
            None => {
                let words: Vec<&str> = args[1..].iter().map(|arg| arg.text.as_str()).collect();
                self.screen_code(&words.join(" "), context, &state);
                if args.iter().any(|arg| arg.fetches) {
                    self.find(CommandFindingKind::RunsDownload, "eval");
                }
                Flow::same(state)
            }
        }
    }

    /// Judges `source`, which runs a file in this shell.
    pub(super) fn source(&mut self, args: &[Arg], context: &Context, state: State) -> Flow {
        if let Some(file) = args.get(1) {
            self.script_file(file, context, &state);
        }
        Flow::same(state)
    }

    /// Judges `trap`, whose code runs later.
    pub(super) fn trap(&mut self, args: &[Arg], context: &Context, state: &State) {
        let mut rest = args[1..].iter().skip_while(|arg| arg.exact() == Some("--"));
        match (rest.next(), rest.next()) {
            (Some(code), Some(_)) if !matches!(code.exact(), Some("-" | "" | "-p" | "-l")) => {
                self.shell_code(code, context, state);
            }
            _ => {}
        }
    }
}
