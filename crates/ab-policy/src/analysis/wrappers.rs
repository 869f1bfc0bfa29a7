//! Programs that run other programs: finds the commands that they start.

use super::argument::Arg;
use super::effect::CommandFindingKind;
use super::state::{Flow, State};
use super::walk::{Context, Stdin, Walk};

/// A program whose arguments are options, then its own operands, then a command.
struct Wrapper {
    name: &'static str,
    /// Short options that take a value.
    short: &'static str,
    /// Long options whose value is the following word.
    long: &'static [&'static str],
    /// Number of operands before the command.
    operands: usize,
}

const fn wrapper(
    name: &'static str,
    short: &'static str,
    long: &'static [&'static str],
    operands: usize,
) -> Wrapper {
    Wrapper { name, short, long, operands }
}

const WRAPPERS: &[Wrapper] = &[
    wrapper("nice", "n", &["--adjustment"], 0),
    wrapper("ionice", "cnpPu", &["--class", "--classdata"], 0),
    wrapper("nohup", "", &[], 0),
    wrapper("time", "fo", &["--format", "--output"], 0),
    wrapper("timeout", "ks", &["--kill-after", "--signal"], 1),
    wrapper("stdbuf", "ioe", &["--input", "--output", "--error"], 0),
    wrapper("setsid", "", &[], 0),
    wrapper("chrt", "TPD", &[], 1),
    wrapper("taskset", "", &[], 1),
    wrapper("builtin", "", &[], 0),
    wrapper("exec", "a", &[], 0),
    wrapper("sudo", "ugpCDRTrthU", &["--user", "--group", "--prompt", "--chdir", "--host"], 0),
    wrapper("doas", "uC", &[], 0),
    wrapper("pkexec", "", &["--user"], 0),
    wrapper("run0", "ugD", &["--user", "--group", "--chdir"], 0),
    wrapper("gosu", "", &[], 1),
    wrapper("su-exec", "", &[], 1),
    wrapper("chroot", "", &[], 1),
    wrapper("unshare", "SGRw", &["--root", "--wd"], 0),
    wrapper("nsenter", "tSG", &["--target"], 0),
    wrapper("setpriv", "", &[], 0),
    wrapper("strace", "eopsuEaOSIXbP", &[], 0),
    wrapper("ltrace", "eopsuanAFl", &[], 0),
    wrapper("unbuffer", "", &[], 0),
    wrapper("fakeroot", "lsif", &[], 0),
    wrapper("systemd-run", "pEuMHt", &["--unit", "--property", "--setenv", "--description"], 0),
    wrapper("caffeinate", "tw", &[], 0),
    wrapper("busybox", "", &[], 0),
    wrapper("toybox", "", &[], 0),
    wrapper("xvfb-run", "efnpsw", &[], 0),
    wrapper("catchsegv", "", &[], 0),
    wrapper("dbus-run-session", "", &[], 0),
    wrapper("prlimit", "", &[], 0),
    wrapper("valgrind", "", &[], 0),
    wrapper("cpulimit", "l", &["--limit"], 0),
    wrapper("numactl", "NmCiP", &[], 0),
    wrapper("firejail", "", &[], 0),
    wrapper("ssh-agent", "aEtP", &[], 0),
    wrapper("eatmydata", "", &[], 0),
    wrapper("setarch", "", &[], 1),
    wrapper("choom", "n", &["--adjust"], 0),
    wrapper("proxychains4", "f", &[], 0),
    wrapper("torsocks", "", &[], 0),
    wrapper("entr", "", &[], 0),
    wrapper("npx", "p", &["--package"], 0),
    wrapper("screen", "ScTtpehL", &[], 0),
];

/// Project tools that can run any program after one of their subcommands.
const RUNNERS: &[(&str, &[&str])] = &[
    ("npm", &["exec", "x"]),
    ("pnpm", &["exec", "dlx"]),
    ("yarn", &["exec", "dlx"]),
    ("poetry", &["run"]),
    ("uv", &["run"]),
    ("pipenv", &["run"]),
    ("pdm", &["run"]),
    ("hatch", &["run"]),
    ("conda", &["run"]),
    ("bundle", &["exec"]),
    ("mise", &["exec", "x"]),
    ("asdf", &["exec"]),
    ("direnv", &["exec"]),
];

impl Walk<'_> {
    /// Judges the command that a wrapper starts. `None` if `name` is not a wrapper.
    pub(super) fn wrapped(
        &mut self,
        name: &str,
        args: &[Arg],
        context: &Context,
        state: &State,
    ) -> Option<Flow> {
        let rest = &args[1..];
        let same = || Flow::same(state.clone());
        let flow = match name {
            "command" => {
                let at = skip(rest, "", &[]);
                let asks = |arg: &Arg| arg.text != "--" && arg.text.contains(['v', 'V']);
                if rest[..at].iter().any(asks) {
                    same()
                } else {
                    self.inner(&rest[at..], context, state.clone())
                }
            }
            "env" | "cross-env" => self.env(rest, context, state),
            "xargs" => self.xargs(rest, context, state),
            "find" | "fd" | "fdfind" => {
                self.found(name, rest, context, state);
                same()
            }
            "watch" => {
                let at = skip(rest, "nq", &["--interval", "--equexit"]);
                let exec =
                    rest[..at].iter().any(|arg| matches!(arg.exact(), Some("-x" | "--exec")));
                if exec {
                    drop(self.inner(&rest[at..], context, state.clone()));
                } else {
                    self.joined(&rest[at..], context, state);
                }
                same()
            }
            "parallel" => {
                self.parallel(rest, context, state);
                same()
            }
            "hyperfine" | "concurrently" => {
                for code in rest.iter().filter(|arg| !arg.is_option() && arg.text.contains(' ')) {
                    self.shell_code(code, context, state);
                }
                same()
            }
            "tmux" => {
                let starts = ["new", "new-session", "neww", "new-window", "splitw", "split-window"];
                let verb =
                    rest.iter().position(|arg| arg.exact().is_some_and(|it| starts.contains(&it)));
                if let Some(verb) = verb {
                    let rest = &rest[verb + 1..];
                    self.joined(&rest[skip(rest, "cefFnstxy", &[])..], context, state);
                }
                same()
            }
            "flock" | "script" | "su" | "runuser" => {
                self.behind_c(name, rest, context, state);
                same()
            }
            _ if name.starts_with("ld-linux") || name.starts_with("ld-musl") || name == "ld.so" => {
                let at = skip(rest, "", &["--library-path", "--preload", "--argv0"]);
                self.inner(&rest[at..], context, state.clone())
            }
            _ if RUNNERS.iter().any(|(runner, _)| *runner == name) => {
                let (_, verbs) = RUNNERS.iter().find(|(runner, _)| *runner == name)?;
                let at = rest.iter().position(|arg| !arg.is_option())?;
                if !rest[at].exact().is_some_and(|verb| verbs.contains(&verb)) {
                    return None;
                }
                self.behind_options(&rest[at + 1..], "", &[], 0, context, state)
            }
            _ => {
                let wrapper = WRAPPERS.iter().find(|wrapper| wrapper.name == name)?;
                let Wrapper { short, long, operands, .. } = *wrapper;
                self.behind_options(rest, short, long, operands, context, state)
            }
        };
        // Only `command` and `builtin` run the command in the current shell. Only in this case can
        // the command change the state of this shell.
        Some(if matches!(name, "command" | "builtin") { flow } else { same() })
    }

    /// Judges the command after the options of a wrapper. If the last option is not known here, the
    /// following word may be its value. In this case the command after this word is also judged.
    fn behind_options(
        &mut self,
        rest: &[Arg],
        short: &str,
        long: &[&str],
        operands: usize,
        context: &Context,
        state: &State,
    ) -> Flow {
        let options = skip(rest, short, long);
        if let Some(at) = rest[..options]
            .iter()
            .position(|arg| matches!(arg.exact(), Some("-c" | "--call" | "--command")))
            && let Some(code) = rest.get(at + 1)
            && code.text.contains(' ')
        {
            self.shell_code(code, context, state);
        }
        let strange =
            |arg: &Arg| arg.text.len() > 2 && arg.text.starts_with("--") && !arg.text.contains('=');
        let at = options + operands;
        if let Some(last) = options.checked_sub(1)
            && strange(&rest[last])
            && let Some(later) = rest.get(at + 1..)
        {
            self.shadow += 1;
            self.inner(later, context, state.clone());
            self.shadow -= 1;
        }
        self.inner(rest.get(at..).unwrap_or_default(), context, state.clone())
    }

    fn env(&mut self, rest: &[Arg], context: &Context, state: &State) -> Flow {
        let mut state = state.clone();
        let mut rest = rest.iter();
        while let Some(arg) = rest.next() {
            let certain = &arg.text[..arg.prefix.min(arg.text.len())];
            match certain {
                "-" | "-i" | "-0" | "-v" | "--ignore-environment" | "--null" | "--debug" | "--" => {
                }
                "-u" | "--unset" => drop(rest.next()),
                "-C" | "--chdir" => {
                    if let Some(directory) = rest.next() {
                        self.reach(directory, &state);
                        let places = self.led(directory, &state);
                        state.enter(places);
                    }
                }
                "-S" | "--split-string" => {
                    let words: Vec<Arg> = rest.cloned().collect();
                    self.joined(&words, context, &state);
                    return Flow::same(state);
                }
                _ if certain.starts_with("--split-string=")
                    || (certain.starts_with('-')
                        && certain[1..].trim_start_matches(['i', 'v', '0']).starts_with('S')) =>
                {
                    let bytes = certain.find(['=', 'S']).unwrap_or(0) + 1;
                    let words: Vec<Arg> =
                        std::iter::once(arg.after(bytes)).chain(rest.cloned()).collect();
                    self.joined(&words, context, &state);
                    return Flow::same(state);
                }
                _ if certain.starts_with("--chdir=") || certain.starts_with("-C") => {
                    let bytes = if certain.starts_with("-C") { 2 } else { "--chdir=".len() };
                    let directory = arg.after(bytes);
                    self.reach(&directory, &state);
                    let places = self.led(&directory, &state);
                    state.enter(places);
                }
                _ if certain.starts_with('-') => {}
                _ => match certain.split_once('=') {
                    Some((name, _)) if !name.is_empty() => {
                        let value = arg.after(name.len() + 1);
                        let name = name.to_owned();
                        self.assigned(&name, Some(&value), &state);
                        self.set(&mut state, &name, value.exact());
                    }
                    _ => {
                        let words: Vec<Arg> = std::iter::once(arg).chain(rest).cloned().collect();
                        return self.inner(&words, context, state);
                    }
                },
            }
        }
        Flow::same(state)
    }

    fn xargs(&mut self, rest: &[Arg], context: &Context, state: &State) -> Flow {
        let long = [
            "--max-args",
            "--max-procs",
            "--max-lines",
            "--delimiter",
            "--arg-file",
            "--replace",
            "--max-chars",
        ];
        let at = skip(rest, "InPLdasE", &long);
        let mut words: Vec<Arg> = rest[at..].to_vec();
        let marks = rest[..at].iter().enumerate().filter_map(|(at, arg)| {
            let text = arg.text.as_str();
            match text {
                "-I" | "-J" | "--replace" => Some(rest.get(at + 1)?.text.as_str()),
                "-i" => Some("{}"),
                _ => ["--replace=", "-I", "-J", "-i"].iter().find_map(|it| text.strip_prefix(it)),
            }
        });
        let marks: Vec<&str> = marks.filter(|mark| !mark.is_empty()).collect();
        if words.is_empty() {
            return Flow::same(state.clone());
        }
        if !marks.is_empty() {
            for word in &mut words {
                if word.text.contains("{}") || marks.iter().any(|mark| word.text.contains(mark)) {
                    *word = Arg::unknown(&word.text);
                }
            }
        } else {
            words.push(Arg::unknown("…"));
        }
        // The program that xargs starts does not read the input of xargs.
        let context = Context { stdin: Stdin::Inherited, ..context.clone() };
        self.inner(&words, &context, state.clone())
    }

    /// Judges `find`: what it deletes, and which commands it runs for the files that it finds.
    fn found(&mut self, name: &str, rest: &[Arg], context: &Context, state: &State) {
        let options = |arg: &&Arg| {
            matches!(arg.exact(), Some("-H" | "-L" | "-P" | "-E" | "-X" | "-d" | "-x" | "-s"))
        };
        let rest = &rest[rest.iter().take_while(options).count()..];
        let is_test = |arg: &Arg| matches!(arg.text.as_bytes().first(), Some(b'-' | b'(' | b'!'));
        let roots: Vec<Arg> = match name {
            "find" => rest.iter().take_while(|arg| !is_test(arg)).cloned().collect(),
            _ => Vec::new(),
        };
        let here = [Arg::literal(".")];
        let roots = if roots.is_empty() { &here[..] } else { &roots[..roots.len().min(8)] };
        let filters = [
            "-name",
            "-iname",
            "-path",
            "-ipath",
            "-wholename",
            "-regex",
            "-iregex",
            "-type",
            "-size",
            "-mtime",
            "-newer",
            "-empty",
            "-mmin",
            "-perm",
            "-user",
        ];
        // `-type f` and `-name '*'` still match almost every file.
        let spares = |(at, arg): (usize, &Arg)| {
            let value = rest.get(at + 1).map(|arg| arg.text.as_str());
            filters.contains(&arg.text.as_str())
                && !(arg.text == "-type" && matches!(value, Some("f" | "d" | "f,d" | "d,f")))
                && !(arg.text.ends_with("name") && value == Some("*"))
        };
        let filtered = rest.iter().enumerate().any(spares);
        let mut at = 0;
        while let Some(arg) = rest.get(at) {
            at += 1;
            match arg.exact() {
                Some("-delete") => {
                    for root in roots {
                        let root = match root.exact() {
                            // With a filter, the results are below the starting directory.
                            Some(text) if filtered && text.starts_with('/') => {
                                &Arg::literal(&format!("{}/{{}}", text.trim_end_matches('/')))
                            }
                            _ => root,
                        };
                        self.removes(root, true, !filtered, state);
                    }
                }
                Some(
                    "-exec" | "-execdir" | "-ok" | "-okdir" | "-x" | "-X" | "--exec"
                    | "--exec-batch",
                ) => {
                    let words = &rest[at..];
                    let ends = |arg: &Arg| matches!(arg.exact(), Some(";" | "+"));
                    let end = words.iter().position(ends).unwrap_or(words.len());
                    for (round, root) in roots.iter().enumerate() {
                        let found: Vec<Arg> = words[..end]
                            .iter()
                            .map(|word| in_place(word, root, filtered))
                            .collect();
                        self.shadow += usize::from(round > 0);
                        self.inner(&found, context, state.clone());
                        self.shadow -= usize::from(round > 0);
                    }
                    at += end;
                }
                Some("-fprint" | "-fprint0" | "-fprintf" | "-fls") => {
                    if let Some(file) = rest.get(at) {
                        self.writes(file, state);
                    }
                }
                _ => {}
            }
        }
    }

    fn parallel(&mut self, rest: &[Arg], context: &Context, state: &State) {
        let at = skip(
            rest,
            "jNnLPIaS",
            &[
                "--jobs",
                "--max-args",
                "--max-procs",
                "--arg-file",
                "--sshlogin",
                "--colsep",
                "--delay",
                "--timeout",
            ],
        );
        let marks = |arg: &Arg| matches!(arg.exact(), Some(":::" | "::::" | ":::+"));
        let rest = &rest[at..];
        let end = rest.iter().position(marks).unwrap_or(rest.len());
        let inputs = rest.get(end + 1..).unwrap_or_default();
        if end > 0 {
            let words = &rest[..end];
            if inputs.is_empty() {
                let unknown = [words, &[Arg::unknown("\u{2026}")]].concat();
                return drop(self.inner(&unknown, context, state.clone()));
            }
            for (round, input) in inputs.iter().take(16).enumerate() {
                let quoted = input.exact().map(|text| format!("'{}'", text.replace('\'', r"'\''")));
                let line: Option<Vec<&str>> = words.iter().map(Arg::exact).collect();
                self.shadow += usize::from(round > 0);
                match (line, quoted) {
                    (Some(line), Some(quoted)) => {
                        let line = line.join(" ");
                        let line = if line.contains("{}") {
                            line.replace("{}", &quoted)
                        } else {
                            format!("{line} {quoted}")
                        };
                        self.code(&line, context, state.clone());
                    }
                    _ => self
                        .find(CommandFindingKind::RunsUnknownShellCode, "text that is not known"),
                }
                self.shadow -= usize::from(round > 0);
            }
            return;
        }
        match (inputs.is_empty(), &context.stdin) {
            (true, Stdin::Pipe { .. }) => {
                self.find(CommandFindingKind::PipesToShell, "parallel runs what it reads");
            }
            (true, _) => {}
            (false, _) => {
                for input in inputs {
                    self.shell_code(input, context, state);
                }
            }
        }
    }

    /// Judges programs that accept shell code after `-c`.
    fn behind_c(&mut self, name: &str, rest: &[Arg], context: &Context, state: &State) {
        let mut words = rest.iter();
        while let Some(arg) = words.next() {
            match arg.exact() {
                Some("-c" | "--command" | "-qc" | "-lc" | "-qec" | "-ec" | "-nc" | "-xc") => {
                    if let Some(code) = words.next() {
                        self.shell_code(code, context, state);
                    }
                    return;
                }
                Some(text) if text.starts_with("--command=") => {
                    return self.shell_code(&arg.after("--command=".len()), context, state);
                }
                _ => {}
            }
        }
        if name == "flock" {
            let at = skip(rest, "wE", &["--timeout", "--conflict-exit-code"]) + 1;
            self.inner(rest.get(at..).unwrap_or_default(), context, state.clone());
        }
    }

    /// Judges words that are joined to form shell code.
    fn joined(&mut self, words: &[Arg], context: &Context, state: &State) {
        let texts: Option<Vec<&str>> = words.iter().map(Arg::exact).collect();
        match texts {
            Some(texts) => drop(self.code(&texts.join(" "), context, state.clone())),
            None => self.find(CommandFindingKind::RunsUnknownShellCode, "text that is not known"),
        }
    }
}

/// The value of a word with `{}` if `find` runs the word for a file below `root`.
fn in_place(word: &Arg, root: &Arg, filtered: bool) -> Arg {
    if !word.text.contains("{}") {
        return word.clone();
    }
    let root = root.exact().map(|root| root.trim_end_matches('/'));
    match (word.text.as_str(), root) {
        // The first result of `find` is the starting directory itself.
        ("{}", Some("")) if !filtered => Arg::literal("/"),
        ("{}", Some(root)) if !filtered => Arg::literal(root),
        ("{}", Some(root)) => Arg::literal(&format!("{root}/{{}}")),
        _ => Arg::unknown(&word.text),
    }
}

/// The number of `args` at the start that are options and their values.
pub(super) fn skip(args: &[Arg], short: &str, long: &[&str]) -> usize {
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        if !arg.is_option() {
            break;
        }
        at += 1;
        let text = arg.text.as_str();
        if text == "--" {
            break;
        }
        let takes_value = match text.strip_prefix("--") {
            Some(_) => long.contains(&text),
            None => {
                text.ends_with(|c| short.contains(c))
                    && text[1..].chars().rev().skip(1).all(|c| !short.contains(c))
            }
        };
        at += usize::from(takes_value);
    }
    at.min(args.len())
}
