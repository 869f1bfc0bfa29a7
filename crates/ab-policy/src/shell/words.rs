//! Parses the quotes, escapes and expansions of words into parts that are expanded later.

use super::parser::{Parsed, Parser, Stop, is_meta};
use super::tree::*;
use super::{Dialect, Unparsable, ansi, parse};

/// The context of a word. It determines which characters are special.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordMode {
    Plain,
    /// The value of an assignment, without brace expansion.
    Assignment,
    /// Inside `[[ … ]]`.
    Operand,
    /// To the right of a match operator inside `[[ … ]]`, where parentheses belong to the pattern.
    Pattern,
}

/// The meaning of a single quote inside an expansion.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SingleQuotes {
    Quote,
    Text,
}

/// Collects the parts of a word, and joins adjacent plain text.
#[derive(Default)]
struct Gathered {
    parts: Vec<Part>,
    bare: String,
}

impl Gathered {
    fn push(&mut self, part: Part) {
        self.flush();
        self.parts.push(part);
    }

    fn flush(&mut self) {
        if !self.bare.is_empty() {
            self.parts.push(Part::Bare(std::mem::take(&mut self.bare)));
        }
    }

    /// Whether the collected text is an identifier. An equals sign after it would then look like an
    /// assignment.
    fn is_name(&self) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        self.parts.is_empty() && !self.bare.is_empty() && self.bare.chars().all(plain)
    }

    fn finish(mut self) -> Vec<Part> {
        self.flush();
        self.parts
    }
}

impl Parser<'_> {
    /// Parses the next word. A word must not be empty, except as the value of an assignment.
    pub(super) fn word(&mut self, mode: WordMode) -> Parsed<Word> {
        let start = self.at;
        let mut out = Gathered::default();
        if self.peek() == Some(b'~') {
            self.tilde(&mut out);
        }
        while let Some(byte) = self.peek() {
            match byte {
                b'(' if mode == WordMode::Pattern => self.group(&mut out)?,
                b'|' if mode == WordMode::Pattern && !self.rest().starts_with("||") => {
                    self.copy(&mut out.bare);
                }
                // An extended pattern of bash, such as `!(*.txt)`.
                b'(' if mode == WordMode::Plain && self.opens_pattern(start) => {
                    self.group(&mut out)?;
                }
                b'<' | b'>' if self.is_process() => {
                    let part = self.process()?;
                    out.push(part);
                }
                _ if is_meta(byte) => break,
                b'\\' => self.escape(&mut out)?,
                b'\'' => {
                    let text = self.single_quoted()?;
                    out.push(Part::Quoted(text));
                }
                b'"' => self.double_quoted(&mut out)?,
                b'$' => self.dollar(&mut out, false)?,
                b'`' => {
                    let part = self.backticks(false)?;
                    out.push(part);
                }
                b'{' | b',' | b'}' if mode == WordMode::Plain => {
                    self.at += 1;
                    out.push(Part::Brace(byte as char));
                }
                b'=' | b':' if mode == WordMode::Assignment || (byte == b'=' && out.is_name()) => {
                    self.at += 1;
                    out.bare.push(byte as char);
                    if self.peek() == Some(b'~') {
                        self.tilde(&mut out);
                    }
                }
                _ => self.copy(&mut out.bare),
            }
        }
        if self.at == start && mode != WordMode::Assignment {
            return Err(self.syntax("a word is missing"));
        }
        self.spend(self.at - start)?;
        Ok(Word { parts: out.finish(), source: self.text[start..self.at].to_owned() })
    }

    /// Whether the parenthesis at this position belongs to a pattern in the word that began at
    /// `start`.
    fn opens_pattern(&self, start: usize) -> bool {
        let before = self.at.checked_sub(1).filter(|at| *at >= start);
        let before = before.and_then(|at| self.text.as_bytes().get(at));
        self.dialect == Dialect::Bash && matches!(before, Some(b'?' | b'*' | b'+' | b'@' | b'!'))
    }

    /// Parses text up to an unquoted `close`, which is consumed. If `open` is given, pairs of
    /// `open` and `close` can be nested.
    pub(super) fn enclosed(&mut self, close: u8, open: Option<u8>) -> Parsed<Vec<Part>> {
        self.enclosed_with(close, open, SingleQuotes::Quote)
    }

    fn enclosed_with(
        &mut self,
        close: u8,
        open: Option<u8>,
        quotes: SingleQuotes,
    ) -> Parsed<Vec<Part>> {
        self.enter()?;
        let start = self.at;
        let mut out = Gathered::default();
        let mut nested = 0usize;
        loop {
            match self.peek() {
                None => return Err(self.syntax("an expansion without an end")),
                Some(byte) if byte == close && nested == 0 => {
                    self.at += 1;
                    self.spend(self.at - start)?;
                    self.leave();
                    return Ok(out.finish());
                }
                Some(byte) if byte == close => {
                    nested -= 1;
                    self.copy(&mut out.bare);
                }
                Some(byte) if Some(byte) == open => {
                    nested += 1;
                    self.copy(&mut out.bare);
                }
                Some(b'\\') => self.escape(&mut out)?,
                Some(b'\'') if quotes == SingleQuotes::Text => self.copy(&mut out.bare),
                Some(b'\'') => {
                    let text = self.single_quoted()?;
                    out.push(Part::Quoted(text));
                }
                Some(b'"') => self.double_quoted(&mut out)?,
                Some(b'$') => self.dollar(&mut out, false)?,
                Some(b'`') => {
                    let part = self.backticks(false)?;
                    out.push(part);
                }
                Some(_) => self.copy(&mut out.bare),
            }
        }
    }

    /// Parses the whole text as the body of a here-document, in which only `$`, backticks and
    /// backslashes are special.
    pub(super) fn expanded_text(&mut self) -> Parsed<Vec<Part>> {
        let mut out = Gathered::default();
        while let Some(byte) = self.peek() {
            self.in_quotes(byte, &mut out, false)?;
        }
        let parts = out.finish().into_iter();
        Ok(parts
            .map(|part| match part {
                Part::Bare(text) => Part::Quoted(text),
                part => part,
            })
            .collect())
    }

    fn double_quoted(&mut self, out: &mut Gathered) -> Parsed<()> {
        self.enter()?;
        self.at += 1;
        let mut quoted = Gathered::default();
        loop {
            match self.peek() {
                None => return Err(self.syntax("a quote without an end")),
                Some(b'"') => break,
                Some(byte) => self.in_quotes(byte, &mut quoted, true)?,
            }
        }
        self.at += 1;
        self.leave();
        let parts = quoted.finish();
        if parts.is_empty() {
            out.push(Part::Quoted(String::new()));
        }
        for part in parts {
            out.push(match part {
                Part::Bare(text) => Part::Quoted(text),
                part => part,
            });
        }
        Ok(())
    }

    /// Parses one item in double quotes or in a here-document.
    fn in_quotes(&mut self, byte: u8, out: &mut Gathered, string: bool) -> Parsed<()> {
        match byte {
            b'\\' => {
                let next = self.text.as_bytes().get(self.at + 1).copied();
                match next {
                    Some(b'\n') => self.at += 2,
                    Some(b'$' | b'`' | b'\\') => {
                        self.at += 1;
                        self.copy(&mut out.bare);
                    }
                    Some(b'"') if string => {
                        self.at += 1;
                        self.copy(&mut out.bare);
                    }
                    Some(_) | None => self.copy(&mut out.bare),
                }
            }
            b'$' => self.dollar(out, true)?,
            b'`' => {
                let part = self.backticks(string)?;
                out.push(quoted(part));
            }
            _ => self.copy(&mut out.bare),
        }
        Ok(())
    }

    /// Parses an expansion that begins with a dollar sign.
    fn dollar(&mut self, out: &mut Gathered, quoted: bool) -> Parsed<()> {
        let start = self.at;
        let rest = self.rest().as_bytes();
        let bash = self.dialect == Dialect::Bash;
        match rest {
            [b'$', b'(', b'(', ..] if let Some(end) = self.arithmetic_end(start + 3) => {
                let word = self.arithmetic_word(start + 3, end)?;
                let source = self.text[start..self.at].to_owned();
                out.push(Part::Arithmetic { inner: word.parts, source });
            }
            [b'$', b'(', ..] => {
                self.at += 2;
                let script = self.nested_script()?;
                let source = self.text[start..self.at].to_owned();
                out.push(Part::Substitution { script, quoted, source });
            }
            [b'$', b'{', ..] => {
                let part = self.parameter(quoted)?;
                out.push(part);
            }
            [b'$', b'[', ..] if bash => {
                self.at += 2;
                let inner = self.enclosed(b']', Some(b'['))?;
                let source = self.text[start..self.at].to_owned();
                out.push(Part::Arithmetic { inner, source });
            }
            [b'$', b'\'', ..] if bash && !quoted => {
                self.at += 2;
                let text = self.ansi_quoted()?;
                out.push(Part::Quoted(text));
            }
            [b'$', b'"', ..] if bash && !quoted => {
                self.at += 1;
                self.double_quoted(out)?;
            }
            [b'$', b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!' | b'0'..=b'9', ..] => {
                self.at += 2;
                let source = &self.text[start..self.at];
                out.push(variable(&source[1..], quoted, source));
            }
            _ => {
                self.at += 1;
                let name = self.name();
                self.at += name.len();
                let source = &self.text[start..self.at];
                if name.is_empty() {
                    out.bare.push('$');
                } else {
                    out.push(variable(name, quoted, source));
                }
            }
        }
        Ok(())
    }

    /// Parses `${ … }`.
    fn parameter(&mut self, quoted: bool) -> Parsed<Part> {
        let start = self.at;
        self.at += 2;
        let mut altered = false;
        if matches!(self.peek(), Some(b'!' | b'#')) && !self.rest()[1..].starts_with('}') {
            altered = true;
            self.at += 1;
        }
        let name = match self.peek() {
            Some(b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!') => &self.rest()[..1],
            Some(b'0'..=b'9') => {
                let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
                &self.rest()[..digits]
            }
            _ => self.name(),
        };
        if name.is_empty() {
            return Err(self.syntax("an expansion without a name"));
        }
        let name = name.to_owned();
        self.at += name.len();
        let inner = if self.peek() == Some(b'}') {
            self.at += 1;
            Vec::new()
        } else {
            altered = true;
            // In double quotes, a single quote in the word of `:-` and similar operators is plain
            // text.
            let operator = self.rest().trim_start_matches(':').as_bytes().first();
            let quotes = match operator {
                Some(b'-' | b'=' | b'+' | b'?') if quoted => SingleQuotes::Text,
                _ => SingleQuotes::Quote,
            };
            self.enclosed_with(b'}', None, quotes)?
        };
        let source = self.text[start..self.at].to_owned();
        Ok(Part::Variable { name, quoted, altered, inner, source })
    }

    /// Parses commands up to the closing parenthesis, which is consumed.
    fn nested_script(&mut self) -> Parsed<Script> {
        let outer = std::mem::take(&mut self.pending);
        let script = self.script(Stop::Parenthesis)?;
        self.documents_are_read()?;
        self.pending = outer;
        self.expect(b')')?;
        Ok(script)
    }

    fn is_process(&self) -> bool {
        self.dialect == Dialect::Bash && self.rest().as_bytes().get(1) == Some(&b'(')
    }

    fn process(&mut self) -> Parsed<Part> {
        let start = self.at;
        self.at += 2;
        let script = self.nested_script()?;
        Ok(Part::Process { script, source: self.text[start..self.at].to_owned() })
    }

    fn backticks(&mut self, in_string: bool) -> Parsed<Part> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            match self.rest().as_bytes() {
                [] => return Err(self.syntax("backticks without an end")),
                [b'`', ..] => break,
                [b'\\', b'`' | b'\\' | b'$', ..] => {
                    self.at += 1;
                    self.copy(&mut text);
                }
                [b'\\', b'"', ..] if in_string => {
                    self.at += 1;
                    self.copy(&mut text);
                }
                [b'\\', ..] => {
                    self.at += 1;
                    text.push('\\');
                    if self.peek().is_some() {
                        self.copy(&mut text);
                    }
                }
                _ => self.copy(&mut text),
            }
        }
        self.at += 1;
        self.enter()?;
        let script = parse(&text, self.dialect, self.depth, self.meter)
            .map_err(|error| Unparsable { offset: start, ..error })?;
        self.leave();
        let source = self.text[start..self.at].to_owned();
        Ok(Part::Substitution { script, quoted: false, source })
    }

    fn single_quoted(&mut self) -> Parsed<String> {
        let body = &self.rest()[1..];
        let Some(end) = body.find('\'') else {
            return Err(self.syntax("a quote without an end"));
        };
        self.at += end + 2;
        Ok(body[..end].to_owned())
    }

    /// Parses the text after `$'`.
    fn ansi_quoted(&mut self) -> Parsed<String> {
        let body = self.rest();
        let mut at = 0;
        let bytes = body.as_bytes();
        let end = loop {
            match bytes.get(at) {
                None => return Err(self.syntax("a quote without an end")),
                Some(b'\'') => break at,
                // A POSIX shell ends the text at an escaped quote. That reading is judged too.
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
            }
        };
        let text = ansi::decode(&body[..end]);
        self.at += end + 1;
        Ok(text)
    }

    fn escape(&mut self, out: &mut Gathered) -> Parsed<()> {
        self.at += 1;
        match self.peek() {
            None => return Err(self.syntax("a backslash at the end")),
            Some(b'\n') => self.at += 1,
            Some(_) => {
                let mut text = String::new();
                self.copy(&mut text);
                out.push(Part::Quoted(text));
            }
        }
        Ok(())
    }

    /// Adds the parentheses of a pattern and their content as text.
    fn group(&mut self, out: &mut Gathered) -> Parsed<()> {
        self.at += 1;
        let parts = self.enclosed(b')', Some(b'('))?;
        out.bare.push('(');
        for part in parts {
            out.push(part);
        }
        out.bare.push(')');
        Ok(())
    }

    fn tilde(&mut self, out: &mut Gathered) {
        self.at += 1;
        let rest = self.rest();
        let end =
            rest.bytes().position(|b| is_meta(b) || b == b'/' || b == b':').unwrap_or(rest.len());
        let name = &rest[..end];
        // A quoted name is not a login name, so the tilde is plain text.
        if name.contains(['\\', '\'', '"', '$', '`']) {
            out.bare.push('~');
            return;
        }
        self.at += end;
        out.push(Part::Tilde(name.to_owned()));
    }

    /// Copies one character of the text to `out`, and continues after it.
    fn copy(&mut self, out: &mut String) {
        if let Some(c) = self.rest().chars().next() {
            out.push(c);
            self.at += c.len_utf8();
        }
    }
}

fn variable(name: &str, quoted: bool, source: &str) -> Part {
    Part::Variable {
        name: name.to_owned(),
        quoted,
        altered: false,
        inner: Vec::new(),
        source: source.to_owned(),
    }
}

fn quoted(part: Part) -> Part {
    match part {
        Part::Substitution { script, source, .. } => {
            Part::Substitution { script, quoted: true, source }
        }
        part => part,
    }
}
