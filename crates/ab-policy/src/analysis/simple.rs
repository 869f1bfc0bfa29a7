//! Simple commands: assignments, words and redirects, and then the meaning of the first word.

use super::argument::{Arg, base_name};
use super::effect::CommandFindingKind;
use super::state::{Directory, Flow, State, join};
use super::walk::{Context, Stdin, Walk};
use crate::place::CommandPathLocation;
use crate::shell::MAX_SHELL_NESTING_DEPTH;
use crate::shell::tree::{Assignment, Redirect, RedirectKind, Simple};

/// Builtins that assign variables, after their options.
const DECLARERS: [&str; 5] = ["export", "declare", "typeset", "readonly", "local"];

impl Walk<'_> {
    pub(super) fn simple(
        &mut self,
        simple: &Simple,
        redirects: &[Redirect],
        context: &Context,
        state: State,
    ) -> Flow {
        self.current = None;
        let mut args = Vec::with_capacity(simple.words.len());
        for word in &simple.words {
            if self.over {
                return Flow::same(state);
            }
            args.extend(self.fields(word, context, &state));
        }
        let mut inner = state.clone();
        let mut assigned = Vec::new();
        for assignment in &simple.assignments {
            if self.over {
                return Flow::same(state);
            }
            let value = self.assignment(assignment, context, &inner);
            self.set(&mut inner, &assignment.name, value.as_ref().and_then(Arg::exact));
            assigned.push((assignment.name.as_str(), value));
        }
        if !args.is_empty() {
            self.record(&args, context);
            self.screen_command(&args, &state);
        } else {
            self.current = None;
        }
        for (name, value) in &assigned {
            self.assigned(name, value.as_ref(), &state);
        }
        let stdin = self.redirects(redirects, context, &inner);
        if args.is_empty() {
            // If the whole command is `$X`, it may be empty, or it may be any command.
            if let Some(word) = simple.words.first() {
                self.find(CommandFindingKind::RunsUnknownProgram, &word.source);
            }
            return Flow::same(inner);
        }
        if args.len() == 1 && args[0].exact() == Some("exec") && stdin != context.stdin {
            self.input = Some(stdin.clone());
        }
        let fetched = self.fetches;
        let context = Context { stdin, ..context.clone() };
        let flow = self.run(&args, &context, inner);
        if self.fetches > fetched || context.stdin == (Stdin::Pipe { fetches: true }) {
            self.keeps_download(redirects, &context, &state);
        }
        if simple.assignments.is_empty() {
            return flow;
        }
        // Variables that are set before a command apply only to this command.
        Flow {
            ok: flow.ok.map(|after| after.with_variables_of(&state)),
            fail: flow.fail.map(|after| after.with_variables_of(&state)),
        }
    }

    /// Records a download that a redirect writes to a file.
    fn keeps_download(&mut self, redirects: &[Redirect], context: &Context, state: &State) {
        for redirect in redirects.iter().filter(|each| each.kind == RedirectKind::Write) {
            self.shadow += 1;
            let target = self.single(redirect.target(), context, state);
            self.shadow -= 1;
            if !target.stream {
                let places = self.places(&target, state);
                let inside = |place: &CommandPathLocation| match place {
                    CommandPathLocation::Inside(_) => true,
                    CommandPathLocation::Outside(path) => !crate::place::is_harmless(path),
                    CommandPathLocation::Unknown => false,
                };
                self.downloaded(&target, places.into_iter().filter(inside));
            }
        }
    }

    fn assignment(
        &mut self,
        assignment: &Assignment,
        context: &Context,
        state: &State,
    ) -> Option<Arg> {
        let mut last = None;
        for word in &assignment.values {
            let value = self.single(word, context, state);
            self.screen_value(&assignment.name, &value, state);
            last = Some(value);
        }
        last.filter(|_| !assignment.partial && !assignment.array)
    }

    /// Judges a command that a wrapper starts. The command is recorded and then judged like any
    /// other.
    pub(super) fn inner(&mut self, args: &[Arg], context: &Context, state: State) -> Flow {
        if args.is_empty() {
            return Flow::same(state);
        }
        if context.depth > MAX_SHELL_NESTING_DEPTH {
            self.exhausted();
            return Flow::same(state);
        }
        let outer = self.current;
        let context = Context { via: outer, depth: context.depth + 1, ..context.clone() };
        self.record(args, &context);
        let flow = self.run(args, &context, state);
        self.current = outer;
        flow
    }

    /// Judges the words of a command that has been recorded.
    fn run(&mut self, args: &[Arg], context: &Context, state: State) -> Flow {
        let head = &args[0];
        let Some(text) = head.exact() else {
            let own = matches!(head.text.as_str(), "$0" | "${0}" | "$BASH_SOURCE");
            if own && context.forks {
                self.find(CommandFindingKind::ForkBomb, &head.text);
            }
            let effect = if head.fetches || head.stream {
                CommandFindingKind::RunsDownload
            } else {
                CommandFindingKind::RunsUnknownProgram
            };
            if head.stream && !head.fetches {
                self.find(CommandFindingKind::RunsUnknownShellCode, &head.text);
            } else {
                self.find(effect, &head.text);
            }
            self.paths(args, &state);
            return Flow::same(state);
        };
        let name = base_name(text).to_owned();
        if name.is_empty() {
            self.find(CommandFindingKind::RunsUnknownProgram, text);
            return Flow::same(state);
        }
        self.runs_file(head, &state);
        self.paths(args, &state);
        // Whether this calls a function with this name depends on the context, because `command`,
        // `env`, another shell and `unset` bypass functions. Therefore both the function and the
        // program are judged.
        let Some(called) = self.call(&name, args, context, &state) else {
            return self.named(&name, args, context, state);
        };
        self.shadow += 1;
        let flow = self.named(&name, args, context, state);
        self.shadow -= 1;
        Flow {
            ok: join(called.ok, flow.ok, self.meter),
            fail: join(called.fail, flow.fail, self.meter),
        }
    }

    /// Judges the program or builtin with this name.
    fn named(&mut self, name: &str, args: &[Arg], context: &Context, state: State) -> Flow {
        self.aliased(name, args, context, &state);
        self.evaluates(name, args, &state);
        match name {
            "cd" | "chdir" => self.change_directory(&args[1..], state),
            "pushd" | "popd" => self.stacked_directory(name, &args[1..], state),
            "exit" | "return" if context.via.is_none() => {
                self.pauses += 1;
                Flow { ok: None, fail: None }
            }
            "break" | "wait" | "sleep" | "read" => {
                self.pauses += 1;
                self.sets_variables(name, args, state)
            }
            "mapfile" | "readarray" | "getopts" | "printf" => {
                self.sets_variables(name, args, state)
            }
            "alias" => {
                self.alias(&args[1..], &state);
                Flow::same(state)
            }
            _ if DECLARERS.contains(&name) => self.declares(&args[1..], state),
            _ => self.program(name, args, context, state),
        }
    }

    fn change_directory(&mut self, args: &[Arg], state: State) -> Flow {
        self.find(CommandFindingKind::ChangesDirectory, "cd");
        let is_option = |arg: &&Arg| matches!(arg.exact(), Some("-L" | "-P" | "-e" | "-@" | "--"));
        let mut places = Vec::new();
        // A word that expands to nothing leaves its place to the next one.
        for arg in args.iter().filter(|arg| !is_option(arg)) {
            match arg.exact() {
                Some("-") => places.extend(state.previous()),
                _ => places.extend(self.led(arg, &state)),
            }
            if !arg.vanishes {
                return self.entered(state, places);
            }
        }
        if places.is_empty() {
            self.find(CommandFindingKind::NamesHome, "cd");
            places = self.homes(&state);
        } else if self.screening.is_some() {
            // Rules do not assume that a word such as `$(mktemp -d)` is empty.
            places.extend(self.homes(&state));
        }
        self.entered(state, places)
    }

    /// The directories to which `cd` without a word leads.
    fn homes(&mut self, state: &State) -> Vec<Directory> {
        let home = match state.variable("HOME") {
            Some(Some(home)) => Arg::literal(home),
            Some(None) => Arg::unknown("$HOME"),
            None if self.scene.home() == crate::place::HomeDirectoryMeaning::StartDirectory => {
                return vec![Directory::certain(self.scene.start())];
            }
            None => Arg { home: true, ..Arg::unknown("~") },
        };
        self.screen_words(std::slice::from_ref(&home), state);
        self.led(&home, state)
    }

    fn stacked_directory(&mut self, name: &str, args: &[Arg], mut state: State) -> Flow {
        self.find(CommandFindingKind::ChangesDirectory, name);
        let places = match (name, args.first()) {
            ("pushd", Some(arg)) => {
                let places = self.led(arg, &state);
                state.push_directory();
                places
            }
            ("pushd", None) => vec![Directory::certain(CommandPathLocation::Unknown)],
            _ => state.pop_directory(),
        };
        self.entered(state, places)
    }

    /// The targets of a word, one for each directory that the shell may be in.
    pub(super) fn led(&self, arg: &Arg, state: &State) -> Vec<Directory> {
        let led = |from: &Directory| Directory {
            place: arg.target(self.scene, &from.place).place,
            doubtful: from.doubtful,
        };
        state.directories().iter().map(led).collect()
    }

    fn entered(&mut self, state: State, mut places: Vec<Directory>) -> Flow {
        // In `cd src; make; cd ..`, the last `cd` leaves the workspace if the first `cd` fails.
        // This case is not reported.
        if places.iter().any(|each| !each.doubtful) {
            places.retain(|each| {
                !each.doubtful || !matches!(each.place, CommandPathLocation::Outside(_))
            });
        }
        for directory in &places {
            match &directory.place {
                CommandPathLocation::Inside(_) => {}
                CommandPathLocation::Outside(path) => {
                    self.find(CommandFindingKind::LeavesWorkspace, path)
                }
                CommandPathLocation::Unknown => {
                    self.find(
                        CommandFindingKind::ChangesToUnknownDirectory,
                        "a directory that is not known",
                    );
                }
            }
        }
        let mut there = state.clone();
        there.enter(places);
        Flow { ok: Some(there), fail: Some(state.stayed()) }
    }

    /// Judges `export A=b` and similar builtins.
    fn declares(&mut self, args: &[Arg], mut state: State) -> Flow {
        for arg in args {
            let certain = &arg.text[..arg.prefix.min(arg.text.len())];
            match certain.split_once('=') {
                Some((name, _)) => {
                    let name = name.trim_end_matches('+').to_owned();
                    let value = arg.after(certain.find('=').unwrap_or(0) + 1);
                    self.assigned(&name, Some(&value), &state);
                    self.set(&mut state, &name, value.exact());
                }
                None if !arg.known => {
                    self.find(CommandFindingKind::RunsUnknownShellCode, &arg.text)
                }
                None => {}
            }
        }
        Flow::same(state)
    }

    /// Judges builtins whose arguments are names of variables.
    fn sets_variables(&mut self, name: &str, args: &[Arg], mut state: State) -> Flow {
        let mut named: Vec<&Arg> = Vec::new();
        match name {
            "read" | "mapfile" | "readarray" => {
                named.extend(args[1..].iter().filter(|arg| !arg.is_option()));
            }
            "getopts" => named.extend(args.get(2)),
            "printf" if args.get(1).and_then(Arg::exact) == Some("-v") => named.extend(args.get(2)),
            _ => {}
        }
        for arg in named {
            let text = arg.text.clone();
            self.assigned(&text, None, &state);
            self.set(&mut state, &text, None);
        }
        Flow::same(state)
    }

    /// Judges builtins that expand their arguments again, such as subscripts of variables or
    /// callbacks.
    fn evaluates(&mut self, name: &str, args: &[Arg], state: &State) {
        match name {
            "test" | "[" | "let" | "printf" | "read" | "unset" | "declare" | "typeset"
            | "local" | "export" | "readonly" | "wait" | "mapfile" | "readarray" | "getopts" => {
                for arg in args {
                    self.subscript(arg, state);
                }
            }
            "compgen" | "complete" | "bind" => {}
            _ => return,
        }
        for (at, arg) in args.iter().enumerate() {
            let code = match (name, arg.exact()) {
                ("mapfile" | "readarray" | "compgen" | "complete", Some("-C")) => args.get(at + 1),
                ("compgen" | "complete", Some("-W")) => {
                    if let Some(words) = args.get(at + 1) {
                        self.embedded(&words.text, state);
                    }
                    None
                }
                ("bind", Some("-x")) => {
                    let value = args.get(at + 1).and_then(Arg::exact);
                    if let Some((_, code)) = value.and_then(|value| value.split_once(':')) {
                        let code = code.to_owned();
                        self.judged_as_code(&code, state);
                    }
                    None
                }
                _ => None,
            };
            match code.map(|code| (code, code.exact())) {
                Some((_, Some(text))) => {
                    let text = text.to_owned();
                    self.judged_as_code(&text, state);
                }
                Some((code, None)) => {
                    self.find(CommandFindingKind::RunsUnknownShellCode, &code.text)
                }
                None => {}
            }
        }
    }

    /// Judges text that names a variable. The shell executes substitutions in its subscript, even
    /// if they are quoted.
    pub(super) fn subscript(&mut self, arg: &Arg, state: &State) {
        let Some(open) = arg.text.find('[') else { return };
        let named = arg.text[..open].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if arg.known && named {
            let text = arg.text[open..].to_owned();
            self.embedded(&text, state);
        }
    }

    /// Judges substitutions in a text that a shell expands.
    pub(super) fn embedded(&mut self, text: &str, state: &State) {
        if text.contains("$(") || text.contains('`') {
            let quoted = text.replace('\\', r"\\").replace('"', "\\\"");
            self.judged_as_code(&format!(": \"{quoted}\""), state);
        }
    }

    /// Records aliases, because some shells also use them in scripts.
    fn alias(&mut self, args: &[Arg], state: &State) {
        for arg in args {
            let Some((name, _)) = arg.text.split_once('=') else { continue };
            let value = arg
                .exact()
                .and_then(|text| text.split_once('='))
                .map(|(_, value)| value.to_owned());
            match &value {
                Some(value) => self.judged_as_code(value, state),
                None => self.find(CommandFindingKind::RunsUnknownShellCode, &arg.text),
            }
            self.aliases.insert(name.to_owned(), value);
        }
    }

    /// Judges the command to which an alias with this name expands.
    fn aliased(&mut self, name: &str, args: &[Arg], context: &Context, state: &State) {
        // An alias is not expanded inside its own text.
        if self.in_alias.iter().any(|alias| alias == name) {
            return;
        }
        let Some(Some(value)) = self.aliases.get(name) else { return };
        let mut line = value.clone();
        for arg in &args[1..] {
            let Some(text) = arg.exact() else {
                return self.find(CommandFindingKind::RunsUnknownShellCode, &arg.text);
            };
            line.push_str(&format!(" '{}'", text.replace('\'', r"'\''")));
        }
        self.in_alias.push(name.to_owned());
        self.shadow += 1;
        self.code(&line, context, state.clone());
        self.shadow -= 1;
        self.in_alias.pop();
    }

    /// Reports if the command starts a file that this line has downloaded.
    pub(super) fn runs_file(&mut self, arg: &Arg, state: &State) {
        let found = if arg.text.contains('/') {
            self.is_download(arg, state)
        } else {
            // If `PATH` was changed, a name without a directory may be any file with that name.
            state.variable("PATH").is_some() && self.downloaded_names.contains(&arg.text)
        };
        if found {
            self.find(CommandFindingKind::RunsDownload, &arg.text);
        }
    }

    /// Records the files that this line downloads.
    pub(super) fn downloaded(
        &mut self,
        file: &Arg,
        places: impl Iterator<Item = CommandPathLocation>,
    ) {
        let before = self.downloads.len();
        self.downloads.extend(places);
        if self.downloads.len() > before {
            self.downloaded_names.insert(base_name(&file.text).to_owned());
        }
    }

    pub(super) fn is_download(&mut self, arg: &Arg, state: &State) -> bool {
        let places = self.places(arg, state);
        arg.fetches || places.iter().any(|place| self.downloads.contains(place))
    }
}
