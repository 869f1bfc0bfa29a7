//! Walks a script in the order in which a shell would execute it.
//!
//! Every branch is walked, even if it would not be executed. Findings are added to the
//! [`CommandAnalysis`]. A *shadow* walk marks the commands that it adds as not started. It is used
//! for code that is visited again from another state or in another dialect, and for code that may
//! run later.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::argument::Arg;
use super::effect::CommandFindingKind;
use super::functions::Functions;
use super::screen::Screening;
use super::state::{Flow, MAX_VARIABLES, State, join};
use super::{
    AnalysedCommand, CommandAnalysis, CommandFinding, ExpandedShellWord, MAX_COMMANDS_PER_LINE,
};
use crate::place::{CommandCheckContext, CommandPathLocation, CommandStdin};
use crate::shell::tree::*;
use crate::shell::{self, Dialect, MAX_SHELL_NESTING_DEPTH, Meter, Problem, Unparsable};

/// The cost of a command, in addition to the cost of its words.
const COMMAND_COST: usize = 256;
/// The cost of a word, in addition to its bytes.
const WORD_COST: usize = 64;
/// Variables that a shell sets itself when it starts. Values that the caller passes for them have
/// no effect.
pub(super) const OF_THE_SHELL: [&str; 5] = ["PWD", "OLDPWD", "IFS", "_", "SHLVL"];

pub(super) struct Walk<'a> {
    pub(super) scene: &'a CommandCheckContext,
    pub(super) out: CommandAnalysis,
    pub(super) functions: Functions,
    pub(super) aliases: HashMap<String, Option<String>>,
    /// The aliases that are currently being expanded.
    pub(super) in_alias: Vec<String>,
    /// The paths to which this line downloads, and the file names of these paths.
    pub(super) downloads: HashSet<CommandPathLocation>,
    pub(super) downloaded_names: HashSet<String>,
    /// Number of downloads so far.
    pub(super) fetches: usize,
    /// The standard input that `exec` has set for all following commands.
    pub(super) input: Option<Stdin>,
    /// The number of commands that were started in the background, and of commands that wait or end
    /// a loop.
    pub(super) backgrounds: usize,
    pub(super) pauses: usize,
    /// The index of the command to which findings are assigned.
    pub(super) current: Option<usize>,
    pub(super) shadow: usize,
    pub(super) dialect: Dialect,
    /// The check that refuses words that lead outside of the workspace, see `screen`. It is `None`
    /// if the line is only analysed for rules.
    pub(super) screening: Option<Screening<'a>>,
    pub(super) meter: &'a Meter,
    /// The findings so far, each with its command, so that none is reported twice.
    known: HashSet<(CommandFindingKind, Option<usize>)>,
    pub(super) over: bool,
}

/// Where a command runs: its standard input, its wrapper, and whether it runs in parallel.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) stdin: Stdin,
    /// Whether the command runs in parallel with others, in the background or in a pipeline.
    pub(super) forks: bool,
    /// The index of the wrapper that starts the command, if there is one.
    pub(super) via: Option<usize>,
    pub(super) depth: usize,
}

/// The standard input of a command.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stdin {
    Inherited,
    /// The standard input of the whole line, which is not known in advance.
    Unseen,
    Pipe {
        fetches: bool,
    },
    /// Known text, from a here-document or a here-string.
    Text(Rc<str>),
    UnknownText,
    File(Rc<Arg>),
}

impl<'a> Walk<'a> {
    pub(super) fn new(scene: &'a CommandCheckContext, dialect: Dialect, meter: &'a Meter) -> Self {
        Self {
            scene,
            out: CommandAnalysis::default(),
            functions: Functions::default(),
            aliases: HashMap::new(),
            in_alias: Vec::new(),
            downloads: HashSet::new(),
            downloaded_names: HashSet::new(),
            fetches: 0,
            input: None,
            backgrounds: 0,
            pauses: 0,
            current: None,
            shadow: 0,
            dialect,
            screening: None,
            meter,
            known: HashSet::new(),
            over: false,
        }
    }

    pub(super) fn top(mut self, script: &Script) -> CommandAnalysis {
        self.whole(script);
        self.out
    }

    pub(super) fn whole(&mut self, script: &Script) {
        let stdin = match self.scene.input() {
            CommandStdin::Closed => Stdin::Inherited,
            CommandStdin::Text(text) => Stdin::Text((**text).into()),
            CommandStdin::Unknown => Stdin::Unseen,
        };
        let context = Context { stdin, forks: false, via: None, depth: 0 };
        let state = self.state_at(self.scene.start());
        self.given(&state);
        self.script(script, &context, state);
        self.current = None;
        if let Some(name) = self.functions.bomb() {
            self.find(CommandFindingKind::ForkBomb, &name);
        }
    }

    /// The state of a shell that starts in `place` with the variables that the caller passes.
    fn state_at(&self, place: CommandPathLocation) -> State {
        let mut state = State::new(place);
        for (name, value) in self.scene.env() {
            if !OF_THE_SHELL.contains(&name.as_str()) {
                state.set(name, Some(value), self.meter);
            }
        }
        state
    }

    pub(super) fn find(&mut self, effect: CommandFindingKind, detail: &str) {
        if self.shadow > 0 && effect.is_doubt() {
            return;
        }
        let command = self.current;
        if self.known.insert((effect, command)) {
            let detail = detail.chars().take(super::MAX_DETAIL).collect();
            self.out.findings.push(CommandFinding { kind: effect, command_index: command, detail });
        }
    }

    /// Charges the cost of a word. If the limit is exceeded, the line is no longer considered safe.
    pub(super) fn step(&mut self) {
        self.spend(WORD_COST);
    }

    pub(super) fn spend(&mut self, units: usize) {
        if !self.meter.spend(units) {
            self.exhausted();
        }
    }

    /// Sets a variable in `state`. `None` stands for a value that is only known at run time.
    pub(super) fn set(&mut self, state: &mut State, name: &str, value: Option<&str>) {
        state.set(name, value, self.meter);
        if state.variables() > MAX_VARIABLES {
            self.exhausted();
        }
    }

    pub(super) fn exhausted(&mut self) {
        self.over = true;
        self.current = None;
        self.find(CommandFindingKind::OverLimit, "more than what is looked at");
    }

    pub(super) fn unparsable(&mut self, error: &Unparsable) {
        let effect = match error.problem {
            Problem::Syntax(_) => CommandFindingKind::Unparsable,
            Problem::Limit(_) => CommandFindingKind::OverLimit,
        };
        self.find(effect, &error.to_string());
    }

    /// Adds a command to the result. Findings are assigned to this command from now on.
    pub(super) fn record(&mut self, args: &[Arg], context: &Context) {
        self.spend(COMMAND_COST);
        if self.out.commands.len() >= MAX_COMMANDS_PER_LINE {
            return self.exhausted();
        }
        let bytes: usize = args.iter().map(|arg| arg.text.len() + 1).sum();
        self.spend(4 * bytes);
        let shown = |arg: &Arg| ExpandedShellWord {
            text: arg.text.clone(),
            is_value_known: arg.exact().is_some(),
        };
        self.out.commands.push(AnalysedCommand {
            words: args.iter().map(shown).collect(),
            wrapper_index: context.via,
            not_started: self.shadow > 0,
            paths: Vec::new(),
        });
        self.current = Some(self.out.commands.len() - 1);
    }

    pub(super) fn script(&mut self, script: &Script, context: &Context, state: State) -> Flow {
        let mut flow = Flow::same(state);
        let last = script.items.len().saturating_sub(1);
        for (at, item) in script.items.iter().enumerate() {
            if self.over {
                return flow;
            }
            // Code after `exit` is not executed, but it is judged too.
            let state = match flow.clone().joined(self.meter) {
                Some(state) => state,
                None => self.state_at(CommandPathLocation::Unknown),
            };
            self.spend(WORD_COST);
            if item.end == End::Background || (item.end == End::Separator && at < last) {
                self.current = None;
                self.find(CommandFindingKind::SequentialCommands, "several commands");
            }
            flow = match item.end {
                End::Background => {
                    self.backgrounds += 1;
                    self.item(item, &Context { forks: true, ..context.clone() }, state.clone());
                    Flow::same(state)
                }
                End::Last | End::Separator => self.item(item, context, state),
            };
        }
        flow
    }

    fn item(&mut self, item: &Item, context: &Context, state: State) -> Flow {
        let mut flow = self.pipeline(&item.first, context, state.clone());
        for (link, next) in &item.rest {
            self.current = None;
            self.find(CommandFindingKind::ConditionalChain, "commands that depend on each other");
            let taken = match link {
                Link::And => flow.ok.clone(),
                Link::Or => flow.fail.clone(),
            };
            let reached = taken.is_some();
            let after = self.pipeline(next, context, taken.unwrap_or_else(|| state.clone()));
            if !reached {
                continue;
            }
            flow = match link {
                Link::And => Flow { ok: after.ok, fail: join(flow.fail, after.fail, self.meter) },
                Link::Or => Flow { ok: join(flow.ok, after.ok, self.meter), fail: after.fail },
            };
        }
        flow
    }

    fn pipeline(&mut self, pipeline: &Pipeline, context: &Context, state: State) -> Flow {
        let flow = match pipeline.commands.as_slice() {
            [command] => self.command(command, context, state),
            commands => {
                let fetched = self.fetches;
                for (at, command) in commands.iter().enumerate() {
                    let stdin = match at {
                        0 => context.stdin.clone(),
                        _ => Stdin::Pipe { fetches: self.fetches > fetched },
                    };
                    let stage = Context { stdin, forks: true, ..context.clone() };
                    self.command(command, &stage, state.clone());
                }
                Flow::same(state)
            }
        };
        if pipeline.negated { Flow { ok: flow.fail, fail: flow.ok } } else { flow }
    }

    pub(super) fn command(&mut self, command: &Command, context: &Context, state: State) -> Flow {
        if self.over || context.depth > MAX_SHELL_NESTING_DEPTH {
            self.exhausted();
            return Flow::same(state);
        }
        self.spend(COMMAND_COST);
        if let Body::Simple(simple) = &command.body {
            return self.simple(simple, &command.redirects, context, state);
        }
        self.current = None;
        let stdin = self.redirects(&command.redirects, context, &state);
        let context = &Context { stdin, depth: context.depth + 1, ..context.clone() };
        match &command.body {
            Body::Simple(_) => Flow::same(state),
            Body::Subshell(script) => {
                self.script(script, context, state.clone());
                Flow::same(state)
            }
            Body::Group(script) => self.script(script, context, state),
            Body::If { arms, otherwise } => {
                let mut left = Some(state.clone());
                let mut ends = Flow { ok: None, fail: None };
                for (condition, body) in arms {
                    let tested =
                        self.script(condition, context, left.unwrap_or_else(|| state.clone()));
                    let entered = tested.ok.unwrap_or_else(|| state.clone());
                    let after = self.script(body, context, entered);
                    ends = both(ends, after, self.meter);
                    left = tested.fail;
                }
                let rest = left.unwrap_or_else(|| state.clone());
                let after = match otherwise {
                    Some(body) => self.script(body, context, rest),
                    None => Flow::same(rest),
                };
                both(ends, after, self.meter)
            }
            Body::Loop { until, condition, body } => {
                let endless = is_constant(condition, *until);
                self.rounds(state, endless, |walk, state| {
                    let tested = walk.script(condition, context, state.clone());
                    let entered = if *until { tested.fail } else { tested.ok };
                    walk.script(body, context, entered.unwrap_or(state))
                })
            }
            Body::For { name, words, body } => {
                for word in words {
                    if self.over {
                        break;
                    }
                    let fields = self.fields(word, context, &state);
                    self.screen_words(&fields, &state);
                }
                self.assigned(name, None, &state);
                self.rounds(state, false, |walk, mut state| {
                    walk.set(&mut state, name, None);
                    walk.script(body, context, state)
                })
            }
            Body::ArithmeticFor { head, endless, body } => {
                self.inside(&head.parts, context, &state);
                self.rounds(state, *endless, |walk, state| walk.script(body, context, state))
            }
            Body::Case { subject, arms } => {
                self.single(subject, context, &state);
                let mut end = Some(state.clone());
                for (patterns, body) in arms {
                    for pattern in patterns {
                        self.single(pattern, context, &state);
                    }
                    let after = self.script(body, context, state.clone());
                    end = join(end, after.joined(self.meter), self.meter);
                }
                end.map_or(Flow { ok: None, fail: None }, Flow::same)
            }
            Body::Function { name, body } => {
                self.define(name, body, context, &state);
                Flow::same(state)
            }
            Body::Test(words) => {
                let mut operands = Vec::with_capacity(words.len());
                for word in words {
                    let operand = self.single(word, context, &state);
                    self.subscript(&operand, &state);
                    operands.push(operand);
                }
                self.screen_test(&operands, &state);
                Flow::same(state)
            }
            Body::Arithmetic(word) => {
                self.inside(&word.parts, context, &state);
                Flow::same(state)
            }
            Body::Coprocess(body) => {
                let aside = Context { forks: true, stdin: Stdin::UnknownText, ..context.clone() };
                self.command(body, &aside, state.clone());
                Flow::same(state)
            }
        }
    }

    /// Walks a loop: once from the state at its start, and once from every state that a round may
    /// leave.
    fn rounds(
        &mut self,
        state: State,
        endless: bool,
        mut round: impl FnMut(&mut Self, State) -> Flow,
    ) -> Flow {
        let (backgrounds, pauses) = (self.backgrounds, self.pauses);
        let after = round(self, state.clone());
        let after = after.joined(self.meter).unwrap_or_else(|| state.clone());
        self.current = None;
        if endless {
            self.find(CommandFindingKind::LoopsForever, "a loop without an end");
            if self.backgrounds > backgrounds && self.pauses == pauses {
                self.find(
                    CommandFindingKind::ForkLoop,
                    "a loop that starts programs without an end",
                );
            }
        }
        if after == state {
            return Flow::same(state);
        }
        let any = state.looped(&after, self.meter);
        self.shadow += 1;
        let last = round(self, any.clone());
        let last = last.joined(self.meter).unwrap_or_else(|| any.clone());
        self.shadow -= 1;
        Flow::same(any.looped(&last, self.meter))
    }

    /// Walks the commands of a substitution. They run in a subshell.
    pub(super) fn substitution(&mut self, script: &Script, context: &Context, state: &State) {
        let current = self.current;
        let inner = Context { depth: context.depth + 1, via: None, ..context.clone() };
        let text = self.reads_text(false);
        self.script(script, &inner, state.clone());
        self.reads_text(text);
        self.current = current;
    }

    /// Walks shell code that a command executes, possibly in this shell.
    pub(super) fn code(&mut self, text: &str, context: &Context, state: State) -> Flow {
        let depth = context.depth + 1;
        let current = self.current;
        let flow = match shell::parse(text, self.dialect, depth, self.meter) {
            Ok(script) => {
                let inner = Context { depth, via: current, ..context.clone() };
                self.script(&script, &inner, state)
            }
            Err(error) => {
                self.unparsable(&error);
                Flow::same(state)
            }
        };
        self.current = current;
        flow
    }

    /// Walks the redirects of a command and returns its standard input.
    pub(super) fn redirects(
        &mut self,
        redirects: &[Redirect],
        context: &Context,
        state: &State,
    ) -> Stdin {
        let mut stdin = context.stdin.clone();
        for redirect in redirects {
            let is_text = matches!(redirect.kind, RedirectKind::Document | RedirectKind::Text);
            let text = self.reads_text(is_text);
            let target = self.single(redirect.target(), context, state);
            self.reads_text(text);
            self.screen_redirect(redirect.kind, &target, state);
            match redirect.kind {
                RedirectKind::Document => {
                    stdin = if target.known {
                        Stdin::Text(target.text.into())
                    } else {
                        Stdin::UnknownText
                    }
                }
                RedirectKind::Text => {
                    stdin = match target.exact() {
                        Some(text) => Stdin::Text(text.into()),
                        None => Stdin::UnknownText,
                    }
                }
                RedirectKind::Read => {
                    self.network(&target);
                    self.reach(&target, state);
                    stdin = if target.stream {
                        Stdin::Pipe { fetches: target.fetches }
                    } else {
                        Stdin::File(Rc::new(target))
                    };
                }
                RedirectKind::Write | RedirectKind::ReadWrite => {
                    self.network(&target);
                    self.writes(&target, state);
                }
                RedirectKind::Duplicate => {}
            }
        }
        stdin
    }

    /// Reports the special file names with which bash opens network connections.
    fn network(&mut self, target: &Arg) {
        let certain = &target.text[..target.prefix.min(target.text.len())];
        let host = ["/dev/tcp/", "/dev/udp/"].iter().find_map(|way| certain.strip_prefix(way));
        // Connections to the local host are not reported, because scripts often test whether their
        // own server is listening.
        let own = |host: &str| {
            LOOPBACK.iter().any(|own| host.strip_prefix(own).is_some_and(|it| it.starts_with('/')))
        };
        if host.is_some_and(|host| !own(host)) {
            self.find(CommandFindingKind::UsesShellNetworking, &target.text);
        }
    }
}

/// Names and addresses of the local host, in the forms in which a command may contain them.
const LOOPBACK: [&str; 4] = ["localhost", "127.0.0.1", "::1", "[::1]"];

/// The flow after one of two alternatives was executed.
fn both(one: Flow, other: Flow, meter: &Meter) -> Flow {
    Flow { ok: join(one.ok, other.ok, meter), fail: join(one.fail, other.fail, meter) }
}

/// Whether a condition is constant, so that its loop never ends.
fn is_constant(condition: &Script, until: bool) -> bool {
    let [item] = condition.items.as_slice() else { return false };
    let ([command], []) = (item.first.commands.as_slice(), item.rest.as_slice()) else {
        return false;
    };
    let truth = match &command.body {
        Body::Simple(simple) => match simple.words.first().map(|word| word.source.as_str()) {
            Some("true" | ":" | "/bin/true") => true,
            Some("false" | "/bin/false") => false,
            _ => return false,
        },
        Body::Arithmetic(word) if word.source.trim() == "1" => true,
        _ => return false,
    };
    (truth != item.first.negated) != until
}
