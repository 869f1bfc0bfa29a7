//! Expansion: converts words of the parsed tree to words of a program, as far as their values can
//! be known.

use super::argument::Arg;
use super::braces;
use super::effect::CommandFindingKind;
use super::state::State;
use super::walk::{Context, Stdin, Walk};
use crate::place::HomeDirectoryMeaning;
use crate::shell::tree::{Body, Part, Script, Word};

/// The cost of looking up a variable, in addition to the length of its value.
const WORD_COST: usize = 32;
/// The characters that separate words by default.
const BLANKS: &str = " \t\n";

impl Walk<'_> {
    /// The words that `word` expands to.
    pub(super) fn fields(&mut self, word: &Word, context: &Context, state: &State) -> Vec<Arg> {
        self.step();
        let braced = word.parts.iter().any(|part| matches!(part, Part::Brace('{')));
        if !braced {
            return self.split(&word.parts, context, state);
        }
        match braces::expand(&word.parts, self.meter) {
            Some(words) => {
                let mut fields = Vec::new();
                for parts in &words {
                    if self.over {
                        break;
                    }
                    self.step();
                    fields.extend(self.split(parts, context, state));
                }
                fields
            }
            None => {
                self.exhausted();
                vec![Arg::unknown(&word.source)]
            }
        }
    }

    /// The text that `word` expands to in a place where words are not split, such as an assignment
    /// or a redirect.
    pub(super) fn single(&mut self, word: &Word, context: &Context, state: &State) -> Arg {
        let mut out = Splitter::new(false);
        self.expand(&word.parts, context, state, &mut out);
        let mut words = out.finish();
        match words.len() {
            0 => Arg::literal(""),
            1 => words.remove(0),
            _ => Arg::unknown(&word.source),
        }
    }

    fn split(&mut self, parts: &[Part], context: &Context, state: &State) -> Vec<Arg> {
        let mut out = Splitter::new(true);
        self.expand(parts, context, state, &mut out);
        out.finish()
    }

    fn expand(&mut self, parts: &[Part], context: &Context, state: &State, out: &mut Splitter) {
        for part in parts {
            if self.over {
                return;
            }
            match part {
                Part::Bare(text) => {
                    self.spend(text.len());
                    out.bare(text);
                }
                Part::Quoted(text) => {
                    self.spend(text.len());
                    out.quoted(text);
                }
                Part::Brace(c) => out.bare(c.encode_utf8(&mut [0; 4])),
                Part::Tilde(user) => self.home(user, state, out),
                Part::Variable { name, quoted, altered, inner, source } => {
                    let given = self.inside(inner, context, state);
                    if *altered {
                        self.alters(name, source, state);
                        self.screen_altered(name, source, &given, state);
                    }
                    let value = if *altered { None } else { self.value(name, state) };
                    // Charge the length of the value. Values may contain other values, so a short
                    // line can produce a very long text.
                    self.spend(WORD_COST + value.as_ref().map_or(source.len(), String::len));
                    let home = name == "HOME";
                    if home {
                        self.find(CommandFindingKind::NamesHome, source);
                    }
                    match value {
                        Some(value) if *quoted => out.quoted(&value),
                        Some(value) => out.unquoted(&value, state.variable("IFS").is_some()),
                        None => {
                            let at_start = out.is_at_start();
                            out.unknown(source, !quoted);
                            if home && at_start && state.variable("HOME").is_none() {
                                out.current().home = true;
                            }
                        }
                    }
                }
                Part::Substitution { script, quoted, source } => {
                    let fetched = self.fetches;
                    self.find(CommandFindingKind::CommandSubstitution, source);
                    self.substitution(script, context, state);
                    match self.directory_of(script, state) {
                        Some(path) => out.quoted(&path),
                        None => out.unknown(source, !quoted),
                    }
                    out.current().fetches |= self.fetches > fetched;
                }
                Part::Process { script, source } => {
                    let fetched = self.fetches;
                    self.find(CommandFindingKind::CommandSubstitution, source);
                    // In `>( … )`, the input of the inner commands comes from another command.
                    let stdin = if source.starts_with('>') {
                        Stdin::Pipe { fetches: self.fetches > 0 }
                    } else {
                        context.stdin.clone()
                    };
                    self.substitution(script, &Context { stdin, ..context.clone() }, state);
                    out.unknown(source, false);
                    let current = out.current();
                    current.stream = true;
                    current.fetches |= self.fetches > fetched;
                }
                Part::Arithmetic { inner, source } => {
                    self.inside(inner, context, state);
                    out.unknown(source, false);
                }
            }
        }
    }

    /// Handles expansions with side effects: `${x:=…}` assigns a variable, and `${x@P}` runs code.
    fn alters(&mut self, name: &str, source: &str, state: &State) {
        let behind = source.split_once(name).map(|(_, rest)| rest).unwrap_or_default();
        if behind.starts_with('=') || behind.starts_with(":=") {
            self.assigned(name, None, state);
        }
        if behind.ends_with("@P}") {
            match self.value(name, state) {
                Some(value) => self.embedded(&value, state),
                None => self.find(CommandFindingKind::RunsUnknownShellCode, source),
            }
        }
    }

    /// Walks the contents of an expansion: the commands in the expansion, and the words that may
    /// become its value.
    pub(super) fn inside(&mut self, parts: &[Part], context: &Context, state: &State) -> Vec<Arg> {
        let mut aside = Splitter::new(false);
        self.expand(parts, context, state, &mut aside);
        aside.finish()
    }

    fn home(&mut self, user: &str, state: &State, out: &mut Splitter) {
        let source = format!("~{user}");
        self.find(CommandFindingKind::NamesHome, &source);
        let value = match user {
            "" => self.value("HOME", state),
            "+" => self.value("PWD", state),
            _ => None,
        };
        match value {
            Some(value) => out.quoted(&value),
            None => {
                out.unknown(&source, false);
                out.current().home = user.is_empty() || !matches!(user, "+" | "-");
            }
        }
    }

    fn value(&self, name: &str, state: &State) -> Option<String> {
        if let Some(value) = state.variable(name) {
            return value.map(str::to_owned);
        }
        match name {
            "IFS" => Some(BLANKS.to_owned()),
            "PWD" => match state.directories() {
                [here] => self.scene.absolute(&here.place),
                _ => None,
            },
            "HOME" => match self.scene.home() {
                HomeDirectoryMeaning::StartDirectory => self.scene.absolute(&self.scene.start()),
                HomeDirectoryMeaning::OutsideWorkspace => None,
            },
            _ => None,
        }
    }

    /// The directory that `$(pwd)` expands to. `None` if the script is not `pwd` or the directory
    /// is not known.
    fn directory_of(&self, script: &Script, state: &State) -> Option<String> {
        let [item] = script.items.as_slice() else { return None };
        let ([command], []) = (item.first.commands.as_slice(), item.rest.as_slice()) else {
            return None;
        };
        match &command.body {
            Body::Simple(simple) if simple.words.len() == 1 && simple.words[0].source == "pwd" => {
                self.value("PWD", state)
            }
            _ => None,
        }
    }
}

/// Collects words from the pieces of an expansion.
struct Splitter {
    words: Vec<Arg>,
    open: bool,
    splits: bool,
}

impl Splitter {
    fn new(splits: bool) -> Self {
        Self { words: Vec::new(), open: false, splits }
    }

    fn finish(self) -> Vec<Arg> {
        self.words
    }

    /// The word to which pieces are currently added.
    fn current(&mut self) -> &mut Arg {
        if !self.open || self.words.is_empty() {
            self.words.push(Arg { known: true, ..Arg::default() });
            self.open = true;
        }
        let last = self.words.len() - 1;
        &mut self.words[last]
    }

    fn is_at_start(&self) -> bool {
        !self.open || self.words.last().is_none_or(|word| word.text.is_empty())
    }

    fn quoted(&mut self, text: &str) {
        let word = self.current();
        word.text.push_str(text);
        word.vanishes = false;
        if word.known {
            word.prefix = word.text.len();
        }
    }

    fn bare(&mut self, text: &str) {
        self.quoted(text);
        let word = self.current();
        let class = || text.split_once('[').is_some_and(|(_, rest)| rest.contains(']'));
        // An unquoted parenthesis belongs to a pattern.
        word.glob |= text.contains(['*', '?', '(']) || class();
    }

    /// Adds the value of a variable outside quotes. Blanks in it separate words.
    fn unquoted(&mut self, text: &str, odd_separators: bool) {
        if !self.splits {
            return self.quoted(text);
        }
        if odd_separators {
            return self.unknown(text, true);
        }
        let mut pieces = text.split([' ', '\t', '\n']).peekable();
        while let Some(piece) = pieces.next() {
            if !piece.is_empty() {
                self.bare(piece);
            }
            if pieces.peek().is_some() {
                self.open = false;
            }
        }
    }

    fn unknown(&mut self, source: &str, splits: bool) {
        let is_new = !self.open || self.words.is_empty();
        let word = self.current();
        word.vanishes = (is_new || word.vanishes) && (splits || is_list(source));
        word.push_unknown(source);
        word.glob |= splits;
    }
}

/// Whether the expansion is a list, which has no words if it is empty, even in quotes.
fn is_list(source: &str) -> bool {
    let name = source.trim_start_matches(['$', '{']);
    name.starts_with('@') || source.contains("[@]")
}
