//! Parses here-documents: the delimiters in the command, and the bodies after the end of its line.

use std::cell::OnceCell;
use std::rc::Rc;

use super::parser::{Parsed, Parser};
use super::tree::*;
use super::words::WordMode;

/// A here-document whose body has not been read yet.
pub(super) struct Pending {
    delimiter: String,
    /// Whether the body is expanded in the same way as text in double quotes.
    expands: bool,
    strips_tabs: bool,
    body: Document,
}

impl Parser<'_> {
    /// Parses the delimiter after `<<`.
    pub(super) fn document(&mut self, strips_tabs: bool) -> Parsed<Redirect> {
        self.skip_blanks();
        let word = self.word(WordMode::Assignment)?;
        let mut delimiter = String::new();
        let mut expands = true;
        for part in &word.parts {
            match part {
                Part::Bare(text) => delimiter.push_str(text),
                Part::Quoted(text) => {
                    expands = false;
                    delimiter.push_str(text);
                }
                Part::Brace(c) => delimiter.push(*c),
                Part::Tilde(_)
                | Part::Variable { .. }
                | Part::Substitution { .. }
                | Part::Process { .. }
                | Part::Arithmetic { .. } => {
                    return Err(self.syntax("a delimiter that is not plain"));
                }
            }
        }
        if delimiter.is_empty() || delimiter.contains('\n') {
            return Err(self.syntax("a here-document without a delimiter"));
        }
        let body = Rc::new(OnceCell::new());
        self.pending.push(Pending { delimiter, expands, strips_tabs, body: body.clone() });
        Ok(Redirect::document(body))
    }

    /// Reads the bodies that begin at this position, which is the start of a line.
    pub(super) fn read_documents(&mut self) -> Parsed<()> {
        for pending in std::mem::take(&mut self.pending) {
            let mut lines = String::new();
            loop {
                // Shells accept a body that ends with the text.
                if self.at >= self.text.len() {
                    break;
                }
                let rest = self.rest();
                let length = rest.find('\n').unwrap_or(rest.len());
                let line = &rest[..length];
                self.at = (self.at + length + 1).min(self.text.len());
                let line = if pending.strips_tabs { line.trim_start_matches('\t') } else { line };
                if line == pending.delimiter {
                    break;
                }
                lines.push_str(line);
                lines.push('\n');
            }
            self.spend(lines.len())?;
            let parts = if pending.expands {
                let mut inner = Parser::new(&lines, self.dialect, self.depth, self.meter);
                inner.enter()?;
                // Refuse a backslash that joins the last line to the delimiter, because the body
                // would then end at a different place.
                if lines.ends_with("\\\n") {
                    return Err(self.syntax("a here-document whose end is joined to it"));
                }
                inner
                    .expanded_text()
                    .map_err(|error| super::Unparsable { offset: self.at, ..error })?
            } else {
                vec![Part::Quoted(lines.clone())]
            };
            // This cannot fail, because each body is read once.
            let _ = pending.body.set(Word { parts, source: lines });
        }
        Ok(())
    }

    /// Fails if the text ends before the bodies of all here-documents were read.
    pub(super) fn documents_are_read(&self) -> Parsed<()> {
        if self.pending.is_empty() {
            Ok(())
        } else {
            Err(self.syntax("a here-document without a body"))
        }
    }
}
