//! Reads a command line from left to right and makes tokens of it.

use super::brackets::closing;
use super::{Atom, Redirect, Token, Word};

/// Expansions inside of each other.
const DEEPEST: usize = 16;

/// Operators, longer ones before their beginnings.
const OPERATORS: [(&str, &str); 12] = [
    ("&&", "&&"),
    ("||", "||"),
    (";;&", ";"),
    (";;", ";"),
    (";&", ";"),
    ("|&", "|"),
    ("\n", ";"),
    (";", ";"),
    ("|", "|"),
    ("&", "&"),
    ("(", "("),
    (")", ")"),
];

/// Redirections, longer ones before their beginnings. Here-documents are read on their own.
const REDIRECTS: [(&str, Redirect); 10] = [
    ("<<<", Redirect::Text),
    ("&>>", Redirect::Write),
    ("&>", Redirect::Write),
    (">>", Redirect::Write),
    (">|", Redirect::Write),
    (">&", Redirect::Duplicate),
    (">", Redirect::Write),
    ("<>", Redirect::Write),
    ("<&", Redirect::Duplicate),
    ("<", Redirect::Read),
];

/// The tokens of `line`, or why it has no meaning.
pub(in super::super) fn split(line: &str) -> Result<Vec<Token>, &'static str> {
    split_at_depth(line, 0)
}

fn split_at_depth(line: &str, depth: usize) -> Result<Vec<Token>, &'static str> {
    let mut scanner = Scanner::new(line, depth)?;
    while !scanner.rest.is_empty() {
        scanner.step()?;
    }
    scanner.end_word();
    Ok(scanner.tokens)
}

struct Scanner<'a> {
    rest: &'a str,
    tokens: Vec<Token>,
    word: Option<Word>,
    /// Here-documents that begin after the end of this line.
    documents: Vec<Document>,
    /// How many expansions this one is inside of.
    depth: usize,
}

struct Document {
    end: String,
    /// Indented with tabs, `<<-`.
    indented: bool,
    /// A quoted end means that nothing in it is expanded.
    literal: bool,
}

impl<'a> Scanner<'a> {
    fn new(rest: &'a str, depth: usize) -> Result<Self, &'static str> {
        if depth > DEEPEST {
            return Err("expansions are nested too deeply");
        }
        Ok(Scanner { rest, tokens: Vec::new(), word: None, documents: Vec::new(), depth })
    }

    /// Takes one thing from the front, outside of quotes.
    fn step(&mut self) -> Result<(), &'static str> {
        if self.take("\\\n") {
            return Ok(());
        }
        if self.take("<(") || self.take(">(") {
            let line = self.until_parenthesis()?;
            self.tokens.push(Token::Inner(line.to_owned()));
            self.push(Atom::Unknown);
            return Ok(());
        }
        if !self.rest.starts_with("<<<") && self.take("<<") {
            return self.document();
        }
        if let Some((_, redirect)) = REDIRECTS.iter().find(|(sign, _)| self.take(sign)) {
            self.end_word();
            self.tokens.push(Token::Redirect(*redirect));
            return Ok(());
        }
        let line_ends = self.rest.starts_with('\n');
        if let Some((_, operator)) = OPERATORS.iter().find(|(sign, _)| self.take(sign)) {
            self.end_word();
            self.tokens.push(Token::Operator(operator));
            return if line_ends { self.document_texts() } else { Ok(()) };
        }
        let Some(c) = self.next() else { return Ok(()) };
        match c {
            ' ' | '\t' | '\r' => self.end_word(),
            '#' if self.word.is_none() => {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.rest = &self.rest[end..];
            }
            '\\' => {
                let escaped = self.next().ok_or("it ends in a backslash")?;
                self.push(Atom::Char(escaped));
            }
            '\'' => {
                let quoted = self.until("'").ok_or("a single quote is not closed")?;
                self.start_word().extend(quoted.chars().map(Atom::Char));
            }
            '"' => self.double_quoted()?,
            '`' => self.backquoted()?,
            '$' if self.take("'") => self.escaped_quoted()?,
            '$' if self.take("\"") => self.double_quoted()?,
            '$' => self.expansion()?,
            '~' if self.may_be_tilde() => self.push(Atom::Tilde),
            '*' | '?' | '[' => self.push(Atom::Glob(c)),
            '{' | ',' | '}' => self.push(Atom::Brace(c)),
            _ => self.push(Atom::Char(c)),
        }
        Ok(())
    }

    fn may_be_tilde(&self) -> bool {
        let before = self.word.as_ref().map(|word| word.last());
        matches!(before, None | Some(None | Some(Atom::Char('=' | ':') | Atom::Brace(_))))
    }

    fn double_quoted(&mut self) -> Result<(), &'static str> {
        self.start_word();
        loop {
            match self.next().ok_or("a double quote is not closed")? {
                '"' => return Ok(()),
                c => self.quoted_char(c)?,
            }
        }
    }

    /// A character of text in which only `\`, `$` and backquotes mean something.
    fn quoted_char(&mut self, c: char) -> Result<(), &'static str> {
        match c {
            '\\' => match self.next() {
                Some(c @ ('$' | '`' | '"' | '\\')) => self.push(Atom::Char(c)),
                Some('\n') => {}
                Some(c) => self.start_word().extend([Atom::Char('\\'), Atom::Char(c)]),
                None => return Err("it ends in a backslash"),
            },
            '$' => self.expansion()?,
            '`' => self.backquoted()?,
            c => self.push(Atom::Char(c)),
        }
        Ok(())
    }

    fn backquoted(&mut self) -> Result<(), &'static str> {
        let mut line = String::new();
        loop {
            match self.next().ok_or("a backquote is not closed")? {
                '`' => break,
                '\\' => match self.next() {
                    Some(c @ ('$' | '`' | '\\')) => line.push(c),
                    Some(c) => line.extend(['\\', c]),
                    None => return Err("a backquote is not closed"),
                },
                c => line.push(c),
            }
        }
        self.substitution(&line);
        Ok(())
    }

    fn substitution(&mut self, line: &str) {
        if line.trim() == "pwd" {
            return self.push(Atom::Here);
        }
        self.tokens.push(Token::Inner(line.to_owned()));
        self.push(Atom::Unknown);
    }

    /// What follows a `$`.
    fn expansion(&mut self) -> Result<(), &'static str> {
        if self.take("(") {
            let line = self.until_parenthesis()?;
            let inside = line.strip_prefix('(').and_then(|inside| inside.strip_suffix(')'));
            match inside {
                Some(arithmetic) => {
                    self.substitutions_in(arithmetic)?;
                    self.push(Atom::Unknown);
                }
                None => self.substitution(line),
            }
            return Ok(());
        }
        if self.take("{") {
            let inside = self.until_brace()?;
            return self.parameter(inside);
        }
        let name = self.rest.len() - self.rest.trim_start_matches(in_name).len();
        let name = match self.rest.chars().next() {
            Some(c) if c.is_ascii_digit() || "@*#?-$!".contains(c) => &self.rest[..1],
            _ => &self.rest[..name],
        };
        self.rest = &self.rest[name.len()..];
        self.push(match name {
            "" => Atom::Char('$'),
            "HOME" => Atom::Home,
            "PWD" => Atom::Here,
            _ => Atom::Unknown,
        });
        Ok(())
    }

    /// `${inside}`.
    fn parameter(&mut self, inside: &str) -> Result<(), &'static str> {
        let operation = inside.trim_start_matches(in_name);
        let name = &inside[..inside.len() - operation.len()];
        let place = match name {
            "HOME" => Some(Atom::Home),
            "PWD" => Some(Atom::Here),
            _ => None,
        };
        if let (Some(place), true) = (place, operation.is_empty()) {
            self.push(place);
            return Ok(());
        }
        if place.is_some() && operation.starts_with(['%', '/', ':']) {
            return Err("a part of HOME or PWD cannot be followed");
        }
        // The word in its place, as in `${NAME:-word}`.
        let other = operation.strip_prefix(':').unwrap_or(operation);
        match other.strip_prefix(['-', '=', '+']) {
            Some(other) => {
                let inside = split_at_depth(other, self.depth + 1)?;
                let useful = |token: &Token| matches!(token, Token::Word(_) | Token::Inner(_));
                self.tokens.extend(inside.into_iter().filter(useful));
            }
            None => self.substitutions_in(operation)?,
        }
        self.push(Atom::Unknown);
        Ok(())
    }

    /// Takes the substitutions out of text whose other characters do not matter.
    fn substitutions_in(&mut self, text: &str) -> Result<(), &'static str> {
        let mut inner = Scanner::new(text, self.depth + 1)?;
        while let Some(c) = inner.next() {
            match inner.quoted_char(c) {
                // A backslash or a dollar at the very end stands for itself.
                Err(_) if inner.rest.is_empty() && c == '\\' => {}
                done => done?,
            }
        }
        let found = inner.tokens.into_iter().filter(|token| matches!(token, Token::Inner(_)));
        self.tokens.extend(found);
        Ok(())
    }

    /// `$'…'`.
    fn escaped_quoted(&mut self) -> Result<(), &'static str> {
        const OPEN: &str = "a single quote is not closed";
        self.start_word();
        loop {
            let c = match self.next().ok_or(OPEN)? {
                '\'' => return Ok(()),
                '\\' if self.rest.starts_with(|c: char| c.is_digit(8)) => self.number(8, 3),
                '\\' => match self.next().ok_or(OPEN)? {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'a' | 'b' | 'e' | 'E' | 'f' | 'v' => ' ',
                    'x' => self.number(16, 2),
                    'u' => self.number(16, 4),
                    'U' => self.number(16, 8),
                    'c' => return Err("a control character in quotes"),
                    c => c,
                },
                c => c,
            };
            self.push(Atom::Char(c));
        }
    }

    /// A character given by up to `most` digits.
    fn number(&mut self, radix: u32, most: usize) -> char {
        let digits = self.rest.chars().take(most).take_while(|c| c.is_digit(radix)).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        u32::from_str_radix(number, radix).ok().and_then(char::from_u32).unwrap_or('\u{fffd}')
    }

    /// `<<`: the end of the text, which begins on the next line.
    fn document(&mut self) -> Result<(), &'static str> {
        self.end_word();
        let indented = self.take("-");
        self.rest = self.rest.trim_start_matches([' ', '\t']);
        let length = self.rest.find(|c: char| c.is_whitespace() || ";|&()<>".contains(c));
        let (raw, rest) = self.rest.split_at(length.unwrap_or(self.rest.len()));
        if raw.is_empty() {
            return Err("a here-document has no end");
        }
        self.rest = rest;
        let literal = raw.contains(['\'', '"', '\\']);
        let end = raw.replace(['\'', '"', '\\'], "");
        self.documents.push(Document { end, indented, literal });
        Ok(())
    }

    /// The texts of the here-documents, which are not commands.
    fn document_texts(&mut self) -> Result<(), &'static str> {
        for document in std::mem::take(&mut self.documents) {
            let mut text = String::new();
            loop {
                if self.rest.is_empty() {
                    // Shells take what there is.
                    break;
                }
                let end = self.rest.find('\n').map_or(self.rest.len(), |end| end + 1);
                let (line, rest) = self.rest.split_at(end);
                self.rest = rest;
                let plain = line.strip_suffix('\n').unwrap_or(line);
                let plain = if document.indented { plain.trim_start_matches('\t') } else { plain };
                if plain == document.end {
                    break;
                }
                text.push_str(line);
            }
            if !document.literal {
                self.substitutions_in(&text)?;
            }
        }
        Ok(())
    }

    /// The text up to the parenthesis that closes the one just taken.
    fn until_parenthesis(&mut self) -> Result<&'a str, &'static str> {
        let end = closing(self.rest, ('(', ')')).ok_or("a parenthesis is not closed")?;
        let (inside, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        Ok(inside)
    }

    fn until_brace(&mut self) -> Result<&'a str, &'static str> {
        let end = closing(self.rest, ('{', '}')).ok_or("a brace is not closed")?;
        let (inside, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        Ok(inside)
    }

    fn until(&mut self, end: &str) -> Option<&'a str> {
        let (before, rest) = self.rest.split_once(end)?;
        self.rest = rest;
        Some(before)
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        Some(c)
    }

    fn take(&mut self, sign: &str) -> bool {
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn push(&mut self, atom: Atom) {
        self.start_word().push(atom);
    }

    fn start_word(&mut self) -> &mut Word {
        self.word.get_or_insert_default()
    }

    fn end_word(&mut self) {
        if let Some(word) = self.word.take() {
            self.tokens.push(Token::Word(word));
        }
    }
}

fn in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    /// The tokens on one line: words in brackets, substitutions in parentheses.
    fn shown(line: &str) -> String {
        let show = |token: Token| match token {
            Token::Word(word) => format!("[{}]", text(&word)),
            Token::Redirect(redirect) => format!("{redirect:?}"),
            Token::Operator(operator) => operator.to_owned(),
            Token::Inner(line) => format!("({line})"),
        };
        match split(line) {
            Ok(tokens) => tokens.into_iter().map(show).collect::<Vec<_>>().join(" "),
            Err(reason) => format!("error: {reason}"),
        }
    }

    #[test]
    fn lines_are_split_as_a_shell_does() {
        for (line, expect) in [
            ("", ""),
            ("a  b\tc", "[a] [b] [c]"),
            ("a'b c'\"d e\"f", "[ab cd ef]"),
            ("a\\ b \\'c", "[a b] ['c]"),
            ("\"a\\\"b\\n\" '' x", "[a\"b\\n] [] [x]"),
            ("$'a\\x2fb\\057c\\'d'", "[a/b/c'd]"),
            ("a && b||c;d\ne&f|g |& h", "[a] && [b] || [c] ; [d] ; [e] & [f] | [g] | [h]"),
            ("a # b'c\nd#e", "[a] ; [d#e]"),
            (
                "a >b 2>&1 <c >>d &>e <>f",
                "[a] Write [b] [2] Duplicate [1] Read [c] Write [d] Write [e] Write [f]",
            ),
            ("~ ~/x a~ \"~\" X=~/y", "[~] [~/x] [a~] [~] [X=~/y]"),
            (
                "$HOME/${HOME} $PWD $(pwd) '$HOME' \\$HOME",
                "[$HOME/$HOME] [$PWD] [$PWD] [$HOME] [$HOME]",
            ),
            ("$x$1$@ $ a$", "[$…$…$…] [$] [a$]"),
            ("a$(b 'c)' \"$(d)\")e", "(b 'c)' \"$(d)\") [a$…e]"),
            ("\"`a \\`b\\``\"", "(a `b`) [$…]"),
            ("$((1 + $(a)))", "(a) [$…]"),
            ("${x:-/a/b} ${x##*/}", "[/a/b] [$…] [$…]"),
            ("diff <(a) >(b)", "[diff] (a) [$…] (b) [$…]"),
            ("cat <<E x\nit's $(a)\nE\nb", "[cat] [x] ; (a) [b]"),
            ("cat <<'E'\nit's $(a)\nE\nb", "[cat] ; [b]"),
            ("cat <<-E\n\tx\n\tE\nb", "[cat] ; [b]"),
            ("cat <<< \"x\"", "[cat] Text [x]"),
            ("a \\\n b", "[a] [b]"),
            ("'a", "error: a single quote is not closed"),
            ("\"a", "error: a double quote is not closed"),
            ("`a", "error: a backquote is not closed"),
            ("$(a", "error: a parenthesis is not closed"),
            ("${a", "error: a brace is not closed"),
            ("a\\", "error: it ends in a backslash"),
            ("${HOME%/*}", "error: a part of HOME or PWD cannot be followed"),
        ] {
            assert_eq!(shown(line), expect, "{line}");
        }
    }

    #[test]
    fn quotes_hide_what_shells_would_expand() {
        let atoms = |line: &str| match &split(line).unwrap()[..] {
            [Token::Word(word)] => word.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(atoms("*'*'"), [Atom::Glob('*'), Atom::Char('*')]);
        assert_eq!(atoms("\\~"), [Atom::Char('~')]);
        assert_eq!(atoms("{\"{\""), [Atom::Brace('{'), Atom::Char('{')]);
    }

    #[test]
    fn nesting_is_bounded() {
        let deep =
            |open: &str, close: &str| format!("{}{}", open.repeat(20_000), close.repeat(20_000));
        assert!(shown(&deep("${a:-", "}")).starts_with("error: expansions"));
        assert!(shown(&deep("${a#", "}")).starts_with("error: expansions"));
        assert!(shown(&deep("$(", ")")).starts_with('('));
    }
}
