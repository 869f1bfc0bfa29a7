//! The walk through a script in the order in which a shell would run it.
//!
//! Every branch is walked, whether it would be taken or not. What a walk finds is added to the
//! [`CommandAnalysis`]; a walk in the *shadow* adds hidden commands: it looks again at what was listed
//! before, from another state or through the eyes of another shell, or at what may run later.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::argument::Arg;
use super::effect::CommandFindingKind;
use super::functions::Functions;
use super::screen::Screening;
use super::state::{Flow, MAX_VARIABLES, State, join};
use super::{
    AnalysedCommand, CommandAnalysis, CommandFinding, ExpandedWord, MAX_COMMANDS_PER_LINE,
};
use crate::place::{CommandCheckContext, CommandStdin, PathLocation};
use crate::shell::tree::*;
use crate::shell::{self, Dialect, MAX_SHELL_NESTING_DEPTH, Meter, Problem, Unparsable};

/// What a command costs, beside its words.
const COMMAND_COST: usize = 256;
/// What a word costs, beside its bytes.
const WORD_COST: usize = 64;
/// Variables that a shell sets itself when it starts, whatever it is given.
const OF_THE_SHELL: [&str; 5] = ["PWD", "OLDPWD", "IFS", "_", "SHLVL"];

pub(super) struct Walk<'a> {
    pub(super) scene: &'a CommandCheckContext,
    pub(super) out: CommandAnalysis,
    pub(super) functions: Functions,
    pub(super) aliases: HashMap<String, Option<String>>,
    /// Aliases whose text is being looked at.
    pub(super) in_alias: Vec<String>,
    /// Places that this line downloaded something to, and the names of those files.
    pub(super) downloads: HashSet<PathLocation>,
    pub(super) downloaded_names: HashSet<String>,
    /// How many downloads were seen.
    pub(super) fetches: usize,
    /// What `exec` made the standard input of all that follows.
    pub(super) input: Option<Stdin>,
    /// How many commands were started without waiting, and how many wait or end a loop.
    pub(super) backgrounds: usize,
    pub(super) pauses: usize,
    /// The command that findings belong to.
    pub(super) current: Option<usize>,
    pub(super) shadow: usize,
    pub(super) dialect: Dialect,
    /// What words may name, where that is asked.
    pub(super) screening: Option<Screening<'a>>,
    pub(super) meter: &'a Meter,
    /// What was found already, and for which command.
    known: HashSet<(CommandFindingKind, Option<usize>)>,
    pub(super) over: bool,
}

/// What surrounds a command.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) stdin: Stdin,
    /// Whether it runs beside others: in the background, or in a pipeline.
    pub(super) forks: bool,
    /// The wrapper that starts it.
    pub(super) via: Option<usize>,
    pub(super) depth: usize,
}

/// What a command reads.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stdin {
    Inherited,
    /// That of the whole line, of which nothing is known beforehand.
    Unseen,
    Pipe {
        fetches: bool,
    },
    /// Text that is known, from a here-document or a here-string.
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
            CommandStdin::Unseen => Stdin::Unseen,
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

    /// What a shell knows that starts in `place`: the variables that it is given.
    fn state_at(&self, place: PathLocation) -> State {
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
            self.out.findings.push(CommandFinding { effect, command, detail });
        }
    }

    /// Counts work on a word; beyond the bound nothing is safe any more.
    pub(super) fn step(&mut self) {
        self.spend(WORD_COST);
    }

    pub(super) fn spend(&mut self, units: usize) {
        if !self.meter.spend(units) {
            self.exhausted();
        }
    }

    /// Gives a variable of `state` a value; nothing: one that only run time knows.
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

    /// Writes down a command, and makes it the one that findings belong to.
    pub(super) fn record(&mut self, args: &[Arg], context: &Context) {
        self.spend(COMMAND_COST);
        if self.out.commands.len() >= MAX_COMMANDS_PER_LINE {
            return self.exhausted();
        }
        let bytes: usize = args.iter().map(|arg| arg.text.len() + 1).sum();
        self.spend(4 * bytes);
        let shown =
            |arg: &Arg| ExpandedWord { text: arg.text.clone(), known: arg.exact().is_some() };
        self.out.commands.push(AnalysedCommand {
            words: args.iter().map(shown).collect(),
            wrapper: context.via,
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
            // What follows an `exit` does not run, but is judged all the same.
            let state = match flow.clone().joined(self.meter) {
                Some(state) => state,
                None => self.state_at(PathLocation::Unknown),
            };
            self.spend(WORD_COST);
            if item.end == End::Background || (item.end == End::Separator && at < last) {
                self.current = None;
                self.find(CommandFindingKind::Separates, "several commands");
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
            self.find(CommandFindingKind::Chains, "commands that depend on each other");
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

    /// A loop: once as it begins, and once more from whatever a round may leave behind.
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

    /// Commands of a substitution: they run in a shell of their own.
    pub(super) fn substitution(&mut self, script: &Script, context: &Context, state: &State) {
        let current = self.current;
        let inner = Context { depth: context.depth + 1, via: None, ..context.clone() };
        let text = self.reads_text(false);
        self.script(script, &inner, state.clone());
        self.reads_text(text);
        self.current = current;
    }

    /// Shell text that a command runs. The shell that runs it may be this one.
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

    /// Redirects of a command; the answer is what it reads.
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

    /// Bash speaks to the network through files that do not exist.
    fn network(&mut self, target: &Arg) {
        let certain = &target.text[..target.prefix.min(target.text.len())];
        let host = ["/dev/tcp/", "/dev/udp/"].iter().find_map(|way| certain.strip_prefix(way));
        // To look whether a server of one's own listens is what scripts do.
        let own = |host: &str| {
            LOOPBACK.iter().any(|own| host.strip_prefix(own).is_some_and(|it| it.starts_with('/')))
        };
        if host.is_some_and(|host| !own(host)) {
            self.find(CommandFindingKind::NetworkShell, &target.text);
        }
    }
}

/// Names of this host.
const LOOPBACK: [&str; 4] = ["localhost", "127.0.0.1", "::1", "[::1]"];

/// What holds after either of two ways.
fn both(one: Flow, other: Flow, meter: &Meter) -> Flow {
    Flow { ok: join(one.ok, other.ok, meter), fail: join(one.fail, other.fail, meter) }
}

/// Whether a condition never changes.
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
