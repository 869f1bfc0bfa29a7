//! Known programs: which of their arguments are commands, downloads or files.

use super::argument::{Arg, base_name};
use super::effect::CommandFindingKind;
use super::shells::{is_interpreter, is_shell};
use super::state::{Flow, State};
use super::walk::{Context, Walk};
use super::wrappers::skip;
use crate::place::CommandPathLocation;

const DOWNLOADERS: [&str; 8] =
    ["curl", "wget", "aria2c", "fetch", "http", "https", "wget2", "lynx"];

impl Walk<'_> {
    pub(super) fn program(
        &mut self,
        name: &str,
        args: &[Arg],
        context: &Context,
        state: State,
    ) -> Flow {
        if is_shell(name) {
            self.shell(args, context, &state);
            return Flow::same(state);
        }
        match name {
            "eval" => return self.eval(args, context, state),
            "source" | "." => return self.source(args, context, state),
            "trap" => {
                self.trap(args, context, &state);
                return Flow::same(state);
            }
            "git" => self.git(args, context, &state),
            _ => {}
        }
        if let Some(flow) = self.wrapped(name, args, context, &state) {
            return flow;
        }
        if is_interpreter(name) {
            self.interpreter(args, context, &state);
        }
        if DOWNLOADERS.contains(&name) {
            self.downloads_to(name, args, &state);
        }
        self.hooks(name, args, context, &state);
        self.files(name, args, &state);
        Flow::same(state)
    }

    /// Judges options whose value is shell code.
    fn hooks(&mut self, name: &str, args: &[Arg], context: &Context, state: &State) {
        let rest = &args[1..];
        for (at, arg) in rest.iter().enumerate() {
            let next = || rest.get(at + 1).cloned();
            let after =
                |prefix: &str| arg.text.starts_with(prefix).then(|| arg.after(prefix.len()));
            let code = match name {
                "tar" | "bsdtar" | "gtar" => after("--to-command=")
                    .or_else(|| after("--checkpoint-action=exec="))
                    .or_else(|| after("--use-compress-program="))
                    .or_else(|| after("--info-script="))
                    .or_else(|| after("--new-volume-script="))
                    .or_else(|| after("--rsh-command="))
                    .or_else(|| shortened(arg))
                    .or_else(|| match arg.text.as_str() {
                        "--to-command"
                        | "-I"
                        | "--use-compress-program"
                        | "-F"
                        | "--new-volume-script"
                        | "--rsh-command"
                        | "--info-script" => next(),
                        _ => None,
                    }),
                "make" | "gmake" => after("SHELL=").or_else(|| after(".SHELLFLAGS=")),
                "nix-shell" | "nix" if matches!(arg.text.as_str(), "--run" | "--command") => next(),
                "scp" | "sftp" if arg.text == "-S" => next(),
                "rsync" => after("--rsh=").or_else(|| after("--rsync-path=")).or_else(|| {
                    let flag = arg.text.starts_with('-') && !arg.text.starts_with("--");
                    let rsh = arg.text == "--rsh" || (flag && arg.text.ends_with('e'));
                    if rsh { next() } else { None }
                }),
                "ssh" | "scp" | "sftp" => {
                    let option = after("-o").filter(|value| !value.text.is_empty());
                    let option = option.or_else(|| if arg.text == "-o" { next() } else { None });
                    option.and_then(|value| {
                        let lower = value.text.to_ascii_lowercase();
                        let runs = ["proxycommand", "localcommand", "knownhostscommand"];
                        let key = runs.iter().find(|key| lower.starts_with(**key))?;
                        let rest = &lower[key.len()..];
                        let code = rest.trim_start().trim_start_matches('=').trim_start();
                        Some(value.after(lower.len() - code.len()))
                    })
                }
                "sort" => after("--compress-program="),
                "zip" => {
                    if arg.text == "-TT" {
                        next()
                    } else {
                        None
                    }
                }
                "script" => None,
                "man" => {
                    if arg.text == "-P" {
                        next()
                    } else {
                        after("--pager=")
                    }
                }
                _ => None,
            };
            if let Some(code) = code {
                self.shell_code(&code, context, state);
            }
        }
    }

    /// Records the files that a download writes.
    fn downloads_to(&mut self, name: &str, args: &[Arg], state: &State) {
        self.fetches += 1;
        let rest = &args[1..];
        let url = rest.iter().rev().find(|arg| !arg.is_option() && arg.text.contains("://"));
        let mut files: Vec<Arg> = Vec::new();
        let mut folders: Vec<Arg> = Vec::new();
        for (at, arg) in rest.iter().enumerate() {
            let text = arg.text.as_str();
            let short = |letter: char| {
                text.starts_with('-') && !text.starts_with("--") && text.ends_with(letter)
            };
            let takes = match name {
                "curl" => short('o') || text == "--output",
                "wget" | "wget2" => short('O') || text == "--output-document",
                _ => matches!(text, "-o" | "--output" | "-O"),
            };
            if takes {
                files.extend(rest.get(at + 1).cloned());
            }
            let attached = match name {
                "curl" => "-o",
                _ => "-O",
            };
            if text.len() > 2 && text.starts_with(attached) && attached_file(&arg.text) {
                files.push(arg.after(2));
            }
            let into = match name {
                "curl" => ["--output-dir", "--output-dir="],
                _ => ["-P", "--directory-prefix="],
            };
            if text == into[0] || text == into[1].trim_end_matches('=') {
                folders.extend(rest.get(at + 1).cloned());
            } else if text.starts_with(into[1]) {
                folders.push(arg.after(into[1].len()));
            } else if into[0] == "-P" && text.starts_with("-P") {
                folders.push(arg.after(2));
            }
            for prefix in ["--output=", "--output-document=", "--out="] {
                if text.starts_with(prefix) {
                    files.push(arg.after(prefix.len()));
                }
            }
        }
        let by_name = match name {
            "curl" => rest.iter().any(|arg| {
                let flags = arg.text.starts_with('-') && !arg.text.starts_with("--");
                (flags && arg.text.contains('O')) || arg.text == "--remote-name"
            }),
            _ => files.is_empty(),
        };
        if by_name && let Some(url) = url {
            let path = url.text.split(['?', '#']).next().unwrap_or_default();
            files.push(Arg::literal(base_name(path)));
        }
        self.writes_each(&folders, state);
        for file in files {
            if file.exact() == Some("-") {
                continue;
            }
            self.writes(&file, state);
            let places = self.places(&file, state);
            self.downloaded(
                &file,
                places.into_iter().filter(|place| *place != CommandPathLocation::Unknown),
            );
        }
    }

    /// Records the files that a program changes.
    fn files(&mut self, name: &str, args: &[Arg], state: &State) {
        let rest = &args[1..];
        let has = |flags: &[&str]| rest.iter().any(|arg| flags.contains(&arg.text.as_str()));
        let short = |letter: char| {
            rest.iter().any(|arg| {
                arg.text.starts_with('-')
                    && !arg.text.starts_with("--")
                    && arg.text.contains(letter)
            })
        };
        match name {
            "rm" | "srm" | "trash" => {
                let long =
                    |arg: &Arg| arg.text.len() > 3 && "--recursive".starts_with(arg.text.as_str());
                // A word whose value is not known may also be an option.
                let recursive = short('r') || short('R') || rest.iter().any(long);
                for arg in operands(rest, "", &[]) {
                    self.removes(arg, recursive, false, state);
                }
            }
            "rmdir" | "unlink" => {
                for arg in operands(rest, "", &[]) {
                    self.removes(arg, false, false, state);
                }
            }
            "mv" => {
                let (sources, destination) = last_of(rest, "tS", "--target-directory");
                for arg in sources {
                    // The command moves a file from a directory beside the workspace. The path
                    // leaves the workspace, but the command destroys nothing.
                    if arg.climbs() && !arg.text.starts_with('/') {
                        self.writes(&arg, state);
                    } else {
                        self.removes(&arg, false, false, state);
                    }
                }
                self.writes_each(&destination, state);
            }
            "cp" | "install" | "rsync" | "scp" => {
                if name == "install" && (short('d') || has(&["--directory"])) {
                    for arg in operands(rest, "mgo", &["--mode", "--owner", "--group"]) {
                        self.writes(arg, state);
                    }
                }
                let (_, destination) = last_of(rest, "tSmgoeT", "--target-directory");
                let local =
                    |arg: &Arg| name == "cp" || name == "install" || !arg.text.contains(':');
                let destination: Vec<Arg> = destination.into_iter().filter(local).collect();
                self.writes_each(&destination, state);
            }
            "ln" => self.links(rest, short('s') || has(&["--symbolic"]), state),
            "kill" => self.kills(rest),
            "tee" | "touch" | "mkdir" | "mkfifo" | "mknod" | "shred" | "truncate" => {
                let values = match name {
                    "touch" => "dtr",
                    "mkdir" | "mkfifo" | "mknod" => "m",
                    "shred" => "ns",
                    "truncate" => "sr",
                    _ => "",
                };
                for arg in operands(rest, values, &["--size", "--date", "--mode", "--iterations"]) {
                    self.writes(arg, state);
                    if name == "touch" {
                        self.changes_times(arg, state);
                    }
                }
            }
            "chmod" | "chown" | "chgrp" | "chattr" | "setfacl" => {
                // For `setfacl`, the list of rights is the value of an option, so the first operand
                // is a file.
                let skipped = usize::from(name != "setfacl");
                for arg in operands(rest, if name == "setfacl" { "mxMX" } else { "" }, &[])
                    .into_iter()
                    .skip(skipped)
                {
                    self.changes_permissions(arg, state);
                }
            }
            "dd" => {
                for arg in rest {
                    if arg.text.starts_with("of=") {
                        self.writes(&arg.after(3), state);
                    }
                }
            }
            "sed" | "perl"
                if short('i') || rest.iter().any(|arg| arg.text.starts_with("--in-place")) =>
            {
                let mut files = operands(rest, "efl", &["--expression", "--file"]);
                if !short('e') && !has(&["--expression", "--file"]) && !files.is_empty() {
                    files.remove(0);
                }
                for arg in files {
                    self.writes(arg, state);
                }
            }
            "tar" | "bsdtar" | "gtar" => self.writes_behind(rest, &["-C", "--directory"], state),
            "unzip" => self.writes_behind(rest, &["-d"], state),
            "sort" => self.writes_behind(rest, &["-o", "--output"], state),
            "patch" => {
                self.writes_behind(rest, &["-d", "-o", "--directory", "--output"], state);
                if let Some(file) = operands(rest, "pdoiFBzrDV", &[]).first() {
                    self.writes(file, state);
                }
            }
            "7z" | "7za" | "7zz" => {
                for arg in rest.iter().filter(|arg| arg.text.starts_with("-o")) {
                    self.writes(&arg.after(2), state);
                }
            }
            "cc" | "gcc" | "g++" | "c++" | "clang" | "clang++" | "ld" | "rustc" | "gpg" => {
                self.writes_behind(rest, &["-o", "--output"], state);
            }
            "go" => {
                let at = rest.iter().position(|arg| arg.text == "-o");
                if let Some(file) = at.and_then(|at| rest.get(at + 1)) {
                    self.writes(file, state);
                }
            }
            "openssl" => {
                let at =
                    rest.iter().position(|arg| matches!(arg.text.as_str(), "-out" | "-keyout"));
                if let Some(file) = at.and_then(|at| rest.get(at + 1)) {
                    self.writes(file, state);
                }
            }
            "sponge" => {
                for arg in operands(rest, "", &[]) {
                    self.writes(arg, state);
                }
            }
            "split" | "csplit" => {
                if let Some(prefix) = operands(rest, "abClnt", &[]).get(1)
                    && name == "split"
                {
                    self.writes(prefix, state);
                }
                self.writes_behind(rest, &["-f", "--prefix"], state);
            }
            // These programs replace their input file by another file.
            "gzip" | "gunzip" | "bzip2" | "bunzip2" | "xz" | "unxz" | "zstd"
                if !short('c')
                    && !short('l')
                    && !short('t')
                    && !has(&["--stdout", "--to-stdout"]) =>
            {
                for arg in operands(rest, "S", &[]) {
                    self.writes(arg, state);
                }
            }
            _ => {}
        }
    }

    /// Judges `kill`. The first word may be a signal. The process id -1 stands for every process.
    fn kills(&mut self, rest: &[Arg]) {
        let mut rest = rest;
        match rest.first().map(|arg| arg.text.as_str()) {
            Some("-s" | "-n" | "--signal") => rest = rest.get(2..).unwrap_or_default(),
            // If there is only one argument, it is not a signal.
            Some(text) if text.starts_with('-') && text != "--" && rest.len() > 1 => {
                rest = &rest[1..];
            }
            _ => {}
        }
        if rest.iter().any(|arg| arg.exact() == Some("-1")) {
            self.find(CommandFindingKind::KillsEverything, "kill -1");
        }
    }

    /// Records files that are values of options, either attached or in the following word.
    fn writes_behind(&mut self, rest: &[Arg], flags: &[&str], state: &State) {
        for (at, arg) in rest.iter().enumerate() {
            let text = arg.text.as_str();
            let file = flags.iter().find_map(|flag| match text.strip_prefix(flag)? {
                "" => rest.get(at + 1).cloned(),
                value if flag.starts_with("--") => {
                    value.starts_with('=').then(|| arg.after(flag.len() + 1))
                }
                _ => Some(arg.after(flag.len())),
            });
            if let Some(file) = file {
                self.writes(&file, state);
            }
        }
    }

    fn writes_each(&mut self, args: &[Arg], state: &State) {
        for arg in args {
            self.writes(arg, state);
        }
    }

    fn links(&mut self, rest: &[Arg], symbolic: bool, state: &State) {
        let (sources, destination) = last_of(rest, "tS", "--target-directory");
        // The target of a symbolic link is relative to the directory of the link.
        let folder =
            destination.first().and_then(Arg::exact).and_then(|text| text.rsplit_once('/'));
        for source in &sources {
            let from = match (symbolic, folder) {
                (true, Some((folder, _))) if !source.text.starts_with('/') && source.known => {
                    Arg::literal(&format!("{folder}/{}", source.text))
                }
                _ => source.clone(),
            };
            for place in self.places(&from, state) {
                if let CommandPathLocation::Outside(path) = place
                    && !crate::place::is_system(&path)
                    && !crate::place::is_scratch(&path)
                {
                    self.find(CommandFindingKind::LinksOutside, &source.text);
                }
            }
        }
        if symbolic || !sources.is_empty() {
            self.writes_each(&destination, state);
        }
    }
}

/// Whether the text after an option letter is a file name. Otherwise it consists of more option
/// letters.
fn attached_file(text: &str) -> bool {
    text.contains(['/', '.', '~'])
}

/// Recognizes options of tar that run their value, even if the option name is abbreviated, as
/// getopt allows.
fn shortened(arg: &Arg) -> Option<Arg> {
    let (name, _) = arg.text.split_once('=')?;
    let long = ["--to-command", "--use-compress-program", "--info-script", "--rsh-command"];
    let is = |full: &&str| name.len() > 5 && full.starts_with(name);
    long.iter().find(|full| is(full)).map(|_| arg.after(name.len() + 1))
}

/// The arguments that are not options, and everything after `--`.
pub(super) fn operands<'a>(args: &'a [Arg], short: &str, long: &[&str]) -> Vec<&'a Arg> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        if arg.exact() == Some("--") {
            found.extend(&args[at + 1..]);
            break;
        }
        let skipped = skip(&args[at..=at], short, long);
        match skipped {
            0 => found.push(arg),
            _ => at += skip(&args[at..(at + 2).min(args.len())], short, long) - 1,
        }
        at += 1;
    }
    found
}

/// Splits the operands into two parts. The second part is the target: the value of an option that
/// names it, or otherwise the last operand. The first part contains the other operands.
fn last_of(args: &[Arg], short: &str, long: &str) -> (Vec<Arg>, Vec<Arg>) {
    let target = args.iter().enumerate().find_map(|(at, arg)| match arg.text.as_str() {
        "-t" => args.get(at + 1).cloned(),
        text if text == long => args.get(at + 1).cloned(),
        text if text.starts_with("-t") => Some(arg.after(2)),
        text => {
            let (name, _) = text.split_once('=')?;
            (name.len() > 2 && long.starts_with(name)).then(|| arg.after(name.len() + 1))
        }
    });
    let mut all: Vec<Arg> = operands(args, short, &[long]).into_iter().cloned().collect();
    if let Some(target) = target {
        return (all, vec![target]);
    }
    let last = if all.len() > 1 { all.pop() } else { None };
    (all, last.into_iter().collect())
}
