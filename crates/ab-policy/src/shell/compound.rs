//! Parses compound commands, which begin with a reserved word or a parenthesis.

use super::Dialect;
use super::parser::{Parsed, Parser, Stop};
use super::tree::*;
use super::words::WordMode;

impl Parser<'_> {
    /// Parses the compound command at this position. `None` if there is none.
    pub(super) fn compound(&mut self) -> Parsed<Option<Body>> {
        let bash = self.dialect == Dialect::Bash;
        if self.peek() == Some(b'(') {
            if bash
                && self.rest().starts_with("((")
                && let Some(end) = self.arithmetic_end(self.at + 2)
            {
                return self.arithmetic_command(end).map(Some);
            }
            return self.subshell().map(Some);
        }
        let word = self.plain_word();
        let body = match word {
            "{" => {
                self.at += 1;
                let script = self.body(Stop::Words(&["}"]))?;
                self.expect_word("}")?;
                Body::Group(script)
            }
            "if" => self.conditional()?,
            "while" | "until" => {
                self.at += word.len();
                let condition = self.body(Stop::Words(&["do"]))?;
                let body = self.do_group()?;
                Body::Loop { until: word == "until", condition, body }
            }
            "for" => self.for_loop()?,
            "select" if bash => self.for_loop()?,
            "case" => self.case()?,
            "function" if bash => {
                self.at += word.len();
                self.skip_blanks();
                let name = self.plain_word().to_owned();
                if name.is_empty() {
                    return Err(self.syntax("a function without a plain name"));
                }
                self.at += name.len();
                self.skip_blanks();
                if self.peek() == Some(b'(') {
                    self.at += 1;
                    self.skip_blanks();
                    self.expect(b')')?;
                }
                self.skip_lines()?;
                self.function_body(name)?.body
            }
            "coproc" if bash => self.coprocess()?,
            "[[" if bash => self.test()?,
            _ => return Ok(None),
        };
        Ok(Some(body))
    }

    fn subshell(&mut self) -> Parsed<Body> {
        self.at += 1;
        let script = self.body(Stop::Parenthesis)?;
        self.expect(b')')?;
        Ok(Body::Subshell(script))
    }

    fn conditional(&mut self) -> Parsed<Body> {
        self.at += 2;
        let mut arms = Vec::new();
        loop {
            let condition = self.body(Stop::Words(&["then"]))?;
            self.expect_word("then")?;
            let body = self.body(Stop::Words(&["elif", "else", "fi"]))?;
            arms.push((condition, body));
            match self.plain_word() {
                "elif" => self.at += 4,
                "else" => {
                    self.at += 4;
                    let otherwise = Some(self.body(Stop::Words(&["fi"]))?);
                    self.expect_word("fi")?;
                    return Ok(Body::If { arms, otherwise });
                }
                _ => {
                    self.expect_word("fi")?;
                    return Ok(Body::If { arms, otherwise: None });
                }
            }
        }
    }

    fn do_group(&mut self) -> Parsed<Script> {
        self.skip_lines()?;
        self.expect_word("do")?;
        let body = self.body(Stop::Words(&["done"]))?;
        self.expect_word("done")?;
        Ok(body)
    }

    fn for_loop(&mut self) -> Parsed<Body> {
        self.at += self.plain_word().len();
        self.skip_blanks();
        if self.rest().starts_with("((") && self.dialect == Dialect::Bash {
            let start = self.at + 2;
            let Some(end) = self.arithmetic_end(start) else {
                return Err(self.syntax("a for loop without an end"));
            };
            let clauses: Vec<&str> = self.text[start..end].split(';').collect();
            let endless = clauses.get(1).is_none_or(|test| matches!(test.trim(), "" | "1"));
            let head = self.arithmetic_word(start, end)?;
            self.skip_blanks();
            if self.peek() == Some(b';') {
                self.at += 1;
            }
            let body = self.do_group_or_braces()?;
            return Ok(Body::ArithmeticFor { head, endless, body });
        }
        let name = self.name().to_owned();
        if name.is_empty() || name != self.plain_word() {
            return Err(self.syntax("a loop without a variable"));
        }
        self.at += name.len();
        self.skip_lines()?;
        let mut words = Vec::new();
        if self.plain_word() == "in" {
            self.at += 2;
            loop {
                self.skip_blanks();
                match self.peek() {
                    Some(b';') => {
                        self.at += 1;
                        break;
                    }
                    Some(b'\n') => break,
                    Some(b'&' | b'|' | b'(' | b')') | None => {
                        return Err(self.syntax("unexpected text in a loop"));
                    }
                    Some(_) => words.push(self.word(WordMode::Plain)?),
                }
            }
        } else if self.peek() == Some(b';') {
            self.at += 1;
        }
        let body = self.do_group_or_braces()?;
        Ok(Body::For { name, words, body })
    }

    /// Parses the body of a `for` loop, which may be in braces instead of `do` and `done`.
    fn do_group_or_braces(&mut self) -> Parsed<Script> {
        self.skip_lines()?;
        if self.plain_word() != "{" {
            return self.do_group();
        }
        self.at += 1;
        let body = self.body(Stop::Words(&["}"]))?;
        self.expect_word("}")?;
        Ok(body)
    }

    fn case(&mut self) -> Parsed<Body> {
        self.at += 4;
        self.skip_blanks();
        let subject = self.word(WordMode::Plain)?;
        self.skip_lines()?;
        self.expect_word("in")?;
        let mut arms = Vec::new();
        loop {
            self.skip_lines()?;
            if self.plain_word() == "esac" {
                self.at += 4;
                return Ok(Body::Case { subject, arms });
            }
            if self.peek() == Some(b'(') {
                self.at += 1;
            }
            let mut patterns = Vec::new();
            loop {
                self.skip_blanks();
                patterns.push(self.word(WordMode::Plain)?);
                self.skip_blanks();
                match self.peek() {
                    Some(b'|') => self.at += 1,
                    Some(b')') => break,
                    _ => return Err(self.syntax("a pattern without an end")),
                }
            }
            self.at += 1;
            let script = self.script(Stop::Arm)?;
            arms.push((patterns, script));
            let rest = self.rest();
            let end = [";;&", ";;", ";&"].iter().find(|end| rest.starts_with(**end));
            self.at += end.map_or(0, |end| end.len());
        }
    }

    fn coprocess(&mut self) -> Parsed<Body> {
        self.at += "coproc".len();
        self.skip_blanks();
        self.enter()?;
        // Only a compound command may have a name in front of it.
        let start = self.at;
        let name = self.name();
        if !name.is_empty() && name == self.plain_word() {
            self.at += name.len();
            self.skip_blanks();
            let begins = |word| {
                matches!(word, "{" | "if" | "while" | "until" | "for" | "case" | "[[" | "select")
            };
            let compound = self.peek() == Some(b'(') || begins(self.plain_word());
            let reserved =
                matches!(name, "if" | "while" | "until" | "for" | "case" | "select" | "function");
            if !compound || reserved {
                self.at = start;
            }
        }
        let body = self.command()?;
        self.leave();
        Ok(Body::Coprocess(Box::new(body)))
    }

    fn test(&mut self) -> Parsed<Body> {
        self.at += 2;
        self.enter()?;
        let mut operands = Vec::new();
        let mut mode = WordMode::Operand;
        let mut open = 0usize;
        loop {
            self.skip_lines()?;
            match self.rest().as_bytes() {
                [] => return Err(self.syntax("a test without an end")),
                [b'&', b'&', ..] | [b'|', b'|', ..] => self.at += 2,
                [b'(', ..] if mode == WordMode::Operand => {
                    self.at += 1;
                    open += 1;
                }
                [b')', ..] if open > 0 => {
                    self.at += 1;
                    open -= 1;
                }
                [b'<' | b'>', next, ..] if *next != b'(' => self.at += 1,
                [b';' | b'&' | b'|' | b')', ..] => {
                    return Err(self.syntax("unexpected text in a test"));
                }
                _ => {
                    let word = self.plain_word();
                    if word == "]]" {
                        if open > 0 {
                            return Err(self.syntax("a test with an open parenthesis"));
                        }
                        self.at += 2;
                        self.leave();
                        return Ok(Body::Test(operands));
                    }
                    operands.push(self.word(mode)?);
                    mode = match word {
                        "=~" | "==" | "!=" | "=" => WordMode::Pattern,
                        _ => WordMode::Operand,
                    };
                }
            }
        }
    }

    fn arithmetic_command(&mut self, end: usize) -> Parsed<Body> {
        let start = self.at + 2;
        Ok(Body::Arithmetic(self.arithmetic_word(start, end)?))
    }
}
