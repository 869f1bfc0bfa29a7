//! A command line taken apart as a shell would: words, operators, redirections, and the lines inside
//! substitutions.
//!
//! - Quotes and escapes are gone from the words; what a shell would still expand is kept as an
//!   [`Atom`] of its own, so that a quoted star is no star.
//! - What does not end (a quote, a substitution) is an error: its meaning is not known.

mod braces;
mod brackets;
mod scanner;

pub(super) use braces::alternatives;
pub(super) use scanner::split;

/// A part of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Atom {
    Char(char),
    /// An unquoted `*`, `?` or `[`.
    Glob(char),
    /// An unquoted `{`, `,` or `}`.
    Brace(char),
    /// An unquoted `~` where a shell may expand it.
    Tilde,
    /// The value of `HOME`.
    Home,
    /// The value of `PWD`.
    Here,
    /// An expansion whose value is not known.
    Unknown,
}

pub(super) type Word = Vec<Atom>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    Read,
    Write,
    /// `>&` and `<&`, which take a number or a file.
    Duplicate,
    /// `<<<`, whose word is the text itself.
    Text,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(Word),
    /// The word that follows is its target.
    Redirect(Redirect),
    /// What stands between commands; a line break is `;`.
    Operator(&'static str),
    /// The line of a substitution in the word that follows.
    Inner(String),
}

/// The word as text, with expansions shown by their names.
pub(super) fn text(word: &[Atom]) -> String {
    word.iter().fold(String::new(), |mut out, atom| {
        match atom {
            Atom::Char(c) | Atom::Glob(c) | Atom::Brace(c) => out.push(*c),
            Atom::Tilde => out.push('~'),
            Atom::Home => out.push_str("$HOME"),
            Atom::Here => out.push_str("$PWD"),
            Atom::Unknown => out.push_str("$…"),
        }
        out
    })
}
