//! The grammar from lists of commands down to simple commands.

use super::document::Pending;
use super::tree::*;
use super::{Dialect, MAX_SHELL_NESTING_DEPTH, Meter, Problem, Unparsable, words::WordMode};

pub(super) type Parsed<T> = Result<T, Unparsable>;

/// Words that end or continue a compound command. A command cannot begin with one of them.
const CLOSERS: [&str; 8] = ["then", "elif", "else", "fi", "do", "done", "esac", "}"];

/// Maximum length in bytes of a subscript in an assignment.
const MAX_SUBSCRIPT: usize = 256;

/// Where a list of commands ends.
#[derive(Clone, Copy)]
pub(super) enum Stop<'a> {
    End,
    Parenthesis,
    Words(&'a [&'a str]),
    /// At `;;`, `;&` or `esac`, where an arm of `case` ends.
    Arm,
}

pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) dialect: Dialect,
    pub(super) depth: usize,
    /// Here-documents whose bodies begin after the next line end.
    pub(super) pending: Vec<Pending>,
    pub(super) meter: &'a Meter,
}

/// The cost of parsing an item of a list, in addition to the cost of its words.
const ITEM_COST: usize = 64;
/// The cost of parsing a word, in addition to its bytes.
const WORD_COST: usize = 16;

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, dialect: Dialect, depth: usize, meter: &'a Meter) -> Self {
        Self { text, at: 0, dialect, depth, pending: Vec::new(), meter }
    }

    /// Charges the cost of a word with this number of bytes.
    pub(super) fn spend(&self, bytes: usize) -> Parsed<()> {
        if self.meter.spend(bytes + WORD_COST) {
            Ok(())
        } else {
            let problem = Problem::Limit("more work than what is looked at");
            Err(Unparsable { offset: self.at, problem })
        }
    }

    pub(super) fn script_to_end(mut self) -> Parsed<Script> {
        if let Some(offset) = self.text.find('\0') {
            self.at = offset;
            return Err(self.syntax("a NUL byte"));
        }
        let script = self.script(Stop::End)?;
        // The bodies of documents that begin in the last line are empty.
        self.read_documents()?;
        Ok(script)
    }

    /// Parses commands up to `stop`, which is not consumed.
    pub(super) fn script(&mut self, stop: Stop<'_>) -> Parsed<Script> {
        self.enter()?;
        let mut items = Vec::new();
        loop {
            self.skip_lines()?;
            if self.stops(stop)? {
                break;
            }
            self.spend(ITEM_COST)?;
            items.push(self.item()?);
        }
        self.leave();
        Ok(Script { items })
    }

    /// Parses a script that must not be empty, as in every compound command.
    pub(super) fn body(&mut self, stop: Stop<'_>) -> Parsed<Script> {
        let script = self.script(stop)?;
        if script.items.is_empty() {
            return Err(self.syntax("a command is missing"));
        }
        Ok(script)
    }

    fn stops(&mut self, stop: Stop<'_>) -> Parsed<bool> {
        let Some(next) = self.peek() else {
            return match stop {
                Stop::End => Ok(true),
                Stop::Parenthesis | Stop::Words(_) | Stop::Arm => {
                    Err(self.syntax("the text ends early"))
                }
            };
        };
        Ok(match stop {
            Stop::End => false,
            Stop::Parenthesis => next == b')',
            Stop::Words(words) => words.contains(&self.plain_word()),
            Stop::Arm => {
                self.rest().starts_with(";;")
                    || self.rest().starts_with(";&")
                    || self.plain_word() == "esac"
            }
        })
    }

    fn item(&mut self) -> Parsed<Item> {
        let first = self.pipeline()?;
        let mut rest = Vec::new();
        loop {
            self.skip_blanks();
            let link = match self.rest().as_bytes() {
                [b'&', b'&', ..] => Link::And,
                [b'|', b'|', ..] => Link::Or,
                _ => break,
            };
            self.at += 2;
            self.skip_lines()?;
            rest.push((link, self.pipeline()?));
        }
        let end = match self.rest().as_bytes() {
            [b';', b';' | b'&', ..] => End::Last,
            [b';', ..] => {
                self.at += 1;
                End::Separator
            }
            [b'&', ..] => {
                self.at += 1;
                End::Background
            }
            [b'\n', ..] => {
                self.newline()?;
                End::Separator
            }
            [] | [b')', ..] => End::Last,
            _ => return Err(self.syntax("unexpected text")),
        };
        Ok(Item { first, rest, end })
    }

    fn pipeline(&mut self) -> Parsed<Pipeline> {
        let mut negated = false;
        loop {
            self.skip_blanks();
            match self.plain_word() {
                "!" => {
                    negated = !negated;
                    self.at += 1;
                }
                "time" if self.dialect == Dialect::Bash => {
                    self.at += 4;
                    self.skip_blanks();
                    for option in ["-p", "--"] {
                        if self.plain_word() == option {
                            self.at += 2;
                            self.skip_blanks();
                        }
                    }
                }
                _ => break,
            }
        }
        let mut commands = vec![self.command()?];
        loop {
            self.skip_blanks();
            match self.rest().as_bytes() {
                [b'|', b'|', ..] => break,
                [b'|', b'&', ..] if self.dialect == Dialect::Bash => self.at += 2,
                [b'|', ..] => self.at += 1,
                _ => break,
            }
            self.skip_lines()?;
            commands.push(self.command()?);
        }
        Ok(Pipeline { negated, commands })
    }

    pub(super) fn command(&mut self) -> Parsed<Command> {
        self.skip_blanks();
        let Some(body) = self.compound()? else { return self.simple() };
        let mut redirects = Vec::new();
        // In a function, redirects belong to its body, which has already parsed them.
        if !matches!(body, Body::Function { .. } | Body::Coprocess(_)) {
            loop {
                self.skip_blanks();
                match self.redirect()? {
                    Some(redirect) => redirects.push(redirect),
                    None => break,
                }
            }
        }
        Ok(Command { body, redirects })
    }

    fn simple(&mut self) -> Parsed<Command> {
        let word = self.plain_word();
        if CLOSERS.contains(&word) {
            return Err(self.syntax("a word of a compound command stands alone"));
        }
        let start = self.at;
        let mut simple = Simple::default();
        let mut redirects = Vec::new();
        loop {
            self.skip_blanks();
            if let Some(redirect) = self.redirect()? {
                redirects.push(redirect);
                continue;
            }
            match self.peek() {
                None | Some(b'\n' | b';' | b'&' | b'|' | b')') => break,
                Some(b'(') => {
                    return match simple.words.as_slice() {
                        [name] if simple.assignments.is_empty() && redirects.is_empty() => {
                            let name = name.source.clone();
                            self.function(name)
                        }
                        _ => Err(self.syntax("unexpected `(`")),
                    };
                }
                Some(b'#') => {
                    self.skip_comment();
                    break;
                }
                Some(_) => {}
            }
            if simple.words.is_empty()
                && let Some(assignment) = self.assignment()?
            {
                simple.assignments.push(assignment);
                continue;
            }
            simple.words.push(self.word(WordMode::Plain)?);
            // In `declare a=(…)`, an array follows a word that ends with `=`.
            if self.peek() == Some(b'(') && self.text[..self.at].ends_with('=') {
                let values = self.array()?;
                simple.words.extend(values);
            }
        }
        if self.at == start
            || (simple.words.is_empty() && simple.assignments.is_empty() && redirects.is_empty())
        {
            return Err(self.syntax("a command is missing"));
        }
        Ok(Command { body: Body::Simple(simple), redirects })
    }

    /// Parses `name ( ) command`. The next character is the opening parenthesis.
    fn function(&mut self, name: String) -> Parsed<Command> {
        self.at += 1;
        self.skip_blanks();
        self.expect(b')')?;
        self.skip_lines()?;
        self.function_body(name)
    }

    pub(super) fn function_body(&mut self, name: String) -> Parsed<Command> {
        self.enter()?;
        let body = self.command()?;
        self.leave();
        let plain = matches!(body.body, Body::Simple(_) | Body::Function { .. });
        if plain && self.dialect == Dialect::Bash {
            return Err(self.syntax("the body of a function is no compound command"));
        }
        Ok(Command { body: Body::Function { name, body: Box::new(body) }, redirects: Vec::new() })
    }

    /// Parses `name=value`, `name+=value`, `name[index]=value` or `name=( … )`.
    fn assignment(&mut self) -> Parsed<Option<Assignment>> {
        let name = self.name();
        if name.is_empty() {
            return Ok(None);
        }
        let start = self.at;
        let name = name.to_owned();
        self.at += name.len();
        let mut values = Vec::new();
        let mut partial = false;
        if self.peek() == Some(b'[') {
            // Without an equals sign after the bracket, this is a word with a wildcard.
            let near = &self.rest().as_bytes()[..self.rest().len().min(MAX_SUBSCRIPT)];
            let ends = |pair: &[u8]| matches!(pair, [b']', b'=' | b'+']);
            let Some(close) = near.windows(2).position(ends) else {
                self.at = start;
                return Ok(None);
            };
            // A shell without arrays treats `x[ a ]=…` as a command with the name `x[`, which does
            // not exist.
            if near[..close].contains(&b'\n') {
                return Err(self.syntax("a subscript of several lines"));
            }
            self.at += 1;
            let index = self.at;
            let parts = self.enclosed(b']', None)?;
            let source = self.text[index..self.at - 1].to_owned();
            values.push(Word { parts, source });
            partial = true;
        }
        match self.rest().as_bytes() {
            [b'=', ..] => self.at += 1,
            [b'+', b'=', ..] => {
                self.at += 2;
                partial = true;
            }
            _ => {
                self.at = start;
                return Ok(None);
            }
        }
        if self.peek() == Some(b'(') && self.dialect == Dialect::Bash {
            values.extend(self.array()?);
            return Ok(Some(Assignment { name, partial, values, array: true }));
        }
        values.push(self.word(WordMode::Assignment)?);
        Ok(Some(Assignment { name, partial, values, array: false }))
    }

    /// The words between the parentheses of an array.
    fn array(&mut self) -> Parsed<Vec<Word>> {
        self.enter()?;
        self.at += 1;
        let mut values = Vec::new();
        loop {
            self.skip_lines()?;
            match self.peek() {
                Some(b')') => break,
                Some(b';' | b'&' | b'|' | b'(' | b'<' | b'>') | None => {
                    return Err(self.syntax("unexpected text in an array"));
                }
                Some(_) => values.push(self.word(WordMode::Plain)?),
            }
        }
        self.at += 1;
        self.leave();
        Ok(values)
    }

    /// Parses the redirect at this position. `None` if there is none.
    pub(super) fn redirect(&mut self) -> Parsed<Option<Redirect>> {
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let operator = &self.rest()[digits..];
        let process = operator.starts_with("<(") || operator.starts_with(">(");
        if process && self.dialect == Dialect::Bash && digits == 0 {
            return Ok(None);
        }
        let (length, kind) = match operator.as_bytes() {
            [b'<', b'<', b'<', ..] if self.dialect == Dialect::Bash => (3, RedirectKind::Text),
            [b'<', b'<', b'-', ..] => (3, RedirectKind::Document),
            [b'<', b'<', ..] => (2, RedirectKind::Document),
            [b'<', b'>', ..] => (2, RedirectKind::ReadWrite),
            [b'<', b'&', ..] | [b'>', b'&', ..] => (2, RedirectKind::Duplicate),
            [b'<', ..] => (1, RedirectKind::Read),
            [b'>', b'>' | b'|', ..] => (2, RedirectKind::Write),
            [b'>', ..] => (1, RedirectKind::Write),
            [b'&', b'>', b'>', ..] if digits == 0 && self.dialect == Dialect::Bash => {
                (3, RedirectKind::Write)
            }
            [b'&', b'>', ..] if digits == 0 && self.dialect == Dialect::Bash => {
                (2, RedirectKind::Write)
            }
            _ => return Ok(None),
        };
        let writes = operator.starts_with('>');
        self.at += digits + length;
        if kind == RedirectKind::Document {
            return self.document(operator.as_bytes().get(2) == Some(&b'-')).map(Some);
        }
        self.skip_blanks();
        // Digits directly before an operator belong to the next redirect and are not a word.
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 && self.rest()[digits..].starts_with(['<', '>']) {
            return Err(self.syntax("a redirection without a target"));
        }
        let target = self.word(WordMode::Plain)?;
        let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let descriptor = target.source == "-" || number(target.source.trim_end_matches('-'));
        let kind = match kind {
            RedirectKind::Duplicate if !descriptor && writes => RedirectKind::Write,
            kind => kind,
        };
        Ok(Some(Redirect::new(kind, target)))
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn expect(&mut self, byte: u8) -> Parsed<()> {
        if self.peek() != Some(byte) {
            return Err(self.syntax("something else was expected"));
        }
        self.at += 1;
        Ok(())
    }

    /// Consumes a reserved word. Fails if it does not come next.
    pub(super) fn expect_word(&mut self, word: &str) -> Parsed<()> {
        self.skip_blanks();
        if self.plain_word() != word {
            return Err(self.syntax("a word of a compound command is missing"));
        }
        self.at += word.len();
        Ok(())
    }

    /// The next word if it consists only of plain characters, otherwise an empty text.
    pub(super) fn plain_word(&self) -> &'a str {
        let rest = self.rest();
        let end = rest.bytes().position(is_meta).unwrap_or(rest.len());
        let word = &rest[..end];
        if word.contains(['\\', '\'', '"', '$', '`']) { "" } else { word }
    }

    /// The next identifier. Empty if there is none.
    pub(super) fn name(&self) -> &'a str {
        let rest = self.rest();
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let end = rest.bytes().position(|b| !is_name(b)).unwrap_or(rest.len());
        if rest.starts_with(|c: char| c.is_ascii_digit()) { "" } else { &rest[..end] }
    }

    /// Skips the characters that separate words on one line.
    pub(super) fn skip_blanks(&mut self) {
        loop {
            match self.rest().as_bytes() {
                [b' ' | b'\t', ..] => self.at += 1,
                [b'\\', b'\n', ..] => self.at += 2,
                _ => return,
            }
        }
    }

    /// Skips blanks, comments and line ends.
    pub(super) fn skip_lines(&mut self) -> Parsed<()> {
        loop {
            self.skip_blanks();
            match self.peek() {
                Some(b'\n') => self.newline()?,
                Some(b'#') => self.skip_comment(),
                _ => return Ok(()),
            }
        }
    }

    fn skip_comment(&mut self) {
        self.at += self.rest().find('\n').unwrap_or(self.rest().len());
    }

    pub(super) fn newline(&mut self) -> Parsed<()> {
        self.at += 1;
        self.read_documents()
    }

    pub(super) fn enter(&mut self) -> Parsed<()> {
        self.depth += 1;
        if self.depth > MAX_SHELL_NESTING_DEPTH {
            let problem = Problem::Limit("nested too deep to be looked at");
            return Err(Unparsable { offset: self.at, problem });
        }
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    pub(super) fn syntax(&self, what: &'static str) -> Unparsable {
        Unparsable { offset: self.at, problem: Problem::Syntax(what) }
    }
}

/// Whether a byte ends an unquoted word.
pub(super) fn is_meta(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>')
}
