//! Screens a command line where no wall is to be had: words that name places outside of what the
//! command may see are refused before a shell gets the line.
//!
//! This is heuristic. It looks at the words of the line and nothing else: not at links, not at the
//! values of variables, not at what a program opens by itself or is told by its input. It catches
//! mistakes, and it is not a defence against somebody who wants to get out.
//!
//! - Paths are resolved lexically, from every directory that `cd` may have led to by then.
//! - `HOME` is the directory that the command starts in.
//! - What cannot be understood is refused.

mod patterns;
mod words;

use ab_core::error::printable;
use ab_core::{Code, Error, Kind, Verb, WsPath};

use words::{Atom, Redirect, Token, Word};

/// Substitutions and `sh -c` inside of each other.
const DEEPEST: usize = 16;
/// Directories that `cd` may have led to.
const MOST_BASES: usize = 64;
/// A word in an error is cut to this many characters.
const SHOWN_WORD: usize = 120;
const DEVICES: [&str; 9] =
    ["null", "zero", "full", "random", "urandom", "tty", "stdin", "stdout", "stderr"];

const OUTSIDE: &str = "is outside of the workspace";
const READ_ONLY: &str = "may be read but not written to";
const OTHER_HOME: &str = "is the home of another user";
const CLIMBING_GLOB: &str = "may match '..'";
const TOO_MANY: &str = "stands for too many words";
const CLIMBING_LOOP: &str = "changes the directory upwards in a loop or function";
const TOO_MANY_BASES: &str = "is one change of directory too many";

/// Where a command runs and what it may name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// Absolute paths that mean the root of the workspace. Without any, no path can be named.
    pub(crate) roots: &'a [String],
    /// What the command may see.
    pub(crate) fence: &'a WsPath,
    pub(crate) cwd: &'a WsPath,
    /// Directories of the system that may be named, but not as targets of output.
    pub(crate) readable: &'a [&'a str],
}

/// Refuses `line` when a word of it leads out of the place.
pub(crate) fn screen(line: &str, place: &Place<'_>) -> Result<(), Error> {
    let home: Vec<Segments> = place
        .roots
        .iter()
        .map(|root| plain_segments(root).chain(place.cwd.segments()).map(str::to_owned).collect())
        .collect();
    let (bases, chain, seen) = (home.clone(), home.clone(), home.clone());
    let mut screen = Screen { place, home, bases, chain, seen, looped: false };
    screen.line(line, 0).map_err(|refusal| {
        let message = match refusal {
            Refusal::Word(word, reason) => {
                let head: String = word.chars().take(SHOWN_WORD).collect();
                let rest = if head.len() < word.len() { "…" } else { "" };
                format!("the word '{}{rest}' {reason}", printable(&head))
            }
            Refusal::Line(reason) => format!("the command cannot be understood: {reason}"),
        };
        Error::new(Code::UnsafeCommand, Kind::Denied, message)
            .with_verb(Verb::Exec)
            .with_command(line)
            .with_hint("name only paths inside the workspace, relative to the working directory")
    })
}

enum Refusal {
    Word(String, &'static str),
    Line(&'static str),
}

/// An absolute path in parts.
type Segments = Vec<String>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Named,
    Read,
    Written,
}

struct Screen<'a> {
    place: &'a Place<'a>,
    home: Vec<Segments>,
    /// Where the next command may run.
    bases: Vec<Segments>,
    /// Where it may have run since the chain of `&&` began: a chain may end early.
    chain: Vec<Segments>,
    /// Every directory that a command may have run in.
    seen: Vec<Segments>,
    /// Whether something in the line may run more than once.
    looped: bool,
}

impl Screen<'_> {
    fn line(&mut self, line: &str, depth: usize) -> Result<(), Refusal> {
        if depth > DEEPEST {
            return Err(Refusal::Line("commands are nested too deeply"));
        }
        let tokens = words::split(line).map_err(Refusal::Line)?;
        self.looped |= patterns::may_repeat(&tokens);
        let mut command: Vec<Word> = Vec::new();
        let mut target = None;
        // A line break or a parenthesis right after an operator ends nothing.
        let mut begun = false;
        for token in tokens {
            let ended = matches!(token, Token::Operator(_));
            match token {
                Token::Inner(inner) => self.inside(&inner, depth)?,
                Token::Redirect(redirect) => target = Some(redirect),
                Token::Word(word) => match target.take() {
                    Some(redirect) => self.redirect(redirect, &word)?,
                    None => command.push(word),
                },
                Token::Operator(operator) if begun => {
                    self.command(&command, operator, depth)?;
                    command.clear();
                }
                Token::Operator(_) => {}
            }
            begun = !ended;
        }
        self.command(&command, ";", depth)
    }

    /// A line that runs in a shell of its own: where it goes does not matter afterwards.
    fn inside(&mut self, line: &str, depth: usize) -> Result<(), Refusal> {
        let bases = self.bases.clone();
        let chain = std::mem::replace(&mut self.chain, bases.clone());
        let screened = self.line(line, depth + 1);
        (self.bases, self.chain) = (bases, chain);
        screened
    }

    fn redirect(&self, redirect: Redirect, target: &[Atom]) -> Result<(), Refusal> {
        match redirect {
            Redirect::Text => Ok(()),
            Redirect::Read => self.word(target, Use::Read),
            Redirect::Write => self.word(target, Use::Written),
            Redirect::Duplicate => {
                let text = words::text(target);
                let number = text.strip_suffix('-').unwrap_or(&text);
                match number.chars().all(|c| c.is_ascii_digit()) {
                    true => Ok(()),
                    false => self.word(target, Use::Written),
                }
            }
        }
    }

    /// A simple command, with the operator that ends it.
    fn command(&mut self, words: &[Word], end: &str, depth: usize) -> Result<(), Refusal> {
        let start = patterns::command_start(words);
        let harmless = patterns::harmless(&words[start..]);
        for (at, word) in words.iter().enumerate() {
            if !at.checked_sub(start).is_some_and(|at| harmless.contains(&at)) {
                self.word(word, Use::Named)?;
            }
        }
        if let Some(line) = patterns::shell_line(&words[start..]) {
            self.inside(&line, depth)?;
        }
        let mut after = self.bases.clone();
        if let Some(moved) = patterns::moved(&words[start..]) {
            after = self.moved(moved)?;
            add(&mut self.seen, &after);
        }
        if end == "&&" {
            self.bases = after;
            return Ok(());
        }
        add(&mut self.chain, &self.bases);
        add(&mut self.chain, &after);
        self.bases.clone_from(&self.chain);
        Ok(())
    }

    /// Where a change of directory leads to.
    fn moved(&self, moved: patterns::Moved<'_>) -> Result<Vec<Segments>, Refusal> {
        let target = match moved {
            patterns::Moved::Home => return Ok(self.home.clone()),
            patterns::Moved::Back => return Ok(self.seen.clone()),
            patterns::Moved::To(target) => target,
        };
        let refused = |reason| Refusal::Word(words::text(target), reason);
        if self.looped && has_climb(target) {
            return Err(refused(CLIMBING_LOOP));
        }
        // What is not known may be where it was before, as in `cd $OLDPWD`.
        let known = !target.contains(&Atom::Unknown);
        let mut after = if known { Vec::new() } else { self.seen.clone() };
        for word in words::alternatives(target).ok_or_else(|| refused(TOO_MANY))? {
            let reached = self.reached(&word).map_err(refused)?;
            after.extend(reached.unwrap_or_default());
        }
        match after.len() <= MOST_BASES && self.seen.len() <= MOST_BASES {
            true => Ok(after),
            false => Err(refused(TOO_MANY_BASES)),
        }
    }

    fn word(&self, word: &[Atom], used: Use) -> Result<(), Refusal> {
        let refused = |reason| Refusal::Word(words::text(word), reason);
        for word in words::alternatives(word).ok_or_else(|| refused(TOO_MANY))? {
            self.path(&word, used).map_err(refused)?;
            let Some(equals) = word.iter().position(|atom| *atom == Atom::Char('=')) else {
                continue;
            };
            let value = &word[equals + 1..];
            self.path(value, used).map_err(refused)?;
            // A list of directories, as in PATH.
            if patterns::is_assignment(&word) && !has_scheme(value) {
                for part in value.split(|atom| *atom == Atom::Char(':')) {
                    self.path(part, used).map_err(refused)?;
                }
            }
        }
        Ok(())
    }

    /// Judges a word that may be a path.
    fn path(&self, word: &[Atom], used: Use) -> Result<(), &'static str> {
        let local = patterns::after(word, "file://");
        if local.is_none() && has_scheme(word) {
            return Ok(());
        }
        let word = local.unwrap_or(word);
        let suspicious = match word.first() {
            Some(Atom::Char('/') | Atom::Tilde | Atom::Home | Atom::Here) => true,
            _ => used != Use::Named || has_climb(word),
        };
        if !suspicious {
            return Ok(());
        }
        if self.place.roots.is_empty() {
            return Err(OUTSIDE);
        }
        for path in self.reached(word)?.unwrap_or_default() {
            self.judge(&path, used)?;
        }
        Ok(())
    }

    /// The absolute paths that the word may mean; nothing when it is empty.
    fn reached(&self, word: &[Atom]) -> Result<Option<Vec<Segments>>, &'static str> {
        let nowhere = [Segments::new()];
        let (bases, rest): (&[Segments], _) = match word.split_first() {
            None => return Ok(None),
            Some((Atom::Char('/'), _)) => (&nowhere, word),
            Some((Atom::Tilde, rest)) => match rest.first() {
                None | Some(Atom::Char('/')) => (&self.home, rest),
                _ => return Err(OTHER_HOME),
            },
            Some((Atom::Home, rest)) => (&self.home, rest),
            Some((Atom::Here, rest)) => (&self.bases, rest),
            _ => (&self.bases, word),
        };
        let joined = rest.len() < word.len();
        bases.iter().map(|base| resolve(base, rest, joined)).collect::<Result<_, _>>().map(Some)
    }

    fn judge(&self, path: &[String], used: Use) -> Result<(), &'static str> {
        let below = |top: &str| {
            let mut rest = path.iter();
            plain_segments(top)
                .all(|part| rest.next().is_some_and(|each| each == part))
                .then_some(rest)
        };
        let roots = self.place.roots.iter().filter_map(|root| below(root));
        if let Some(mut inside) = roots.min_by_key(ExactSizeIterator::len) {
            let mut fence = self.place.fence.segments();
            return match fence.all(|part| inside.next().is_some_and(|each| each == part)) {
                true => Ok(()),
                false => Err(OUTSIDE),
            };
        }
        match path {
            [dev, device] if dev == "dev" && DEVICES.contains(&device.as_str()) => return Ok(()),
            [dev, fd, _] if dev == "dev" && fd == "fd" => return Ok(()),
            _ => {}
        }
        match self.place.readable.iter().any(|top| below(top).is_some()) {
            true if used == Use::Written => Err(READ_ONLY),
            true => Ok(()),
            false => Err(OUTSIDE),
        }
    }
}

fn add(all: &mut Vec<Segments>, more: &[Segments]) {
    for each in more {
        if !all.contains(each) {
            all.push(each.clone());
        }
    }
}

/// `rest` from `base`, lexically. Parts that are not known count as nothing, so that `..` after them
/// climbs. `joined` means that `rest` follows the base without a separator of its own.
fn resolve(base: &[String], rest: &[Atom], joined: bool) -> Result<Segments, &'static str> {
    let mut path = base.to_vec();
    for (at, segment) in rest.split(|atom| *atom == Atom::Char('/')).enumerate() {
        if patterns::may_match_parent(segment, rest) {
            return Err(CLIMBING_GLOB);
        }
        let known = |atom: &Atom| matches!(atom, Atom::Char(_) | Atom::Glob(_) | Atom::Brace(_));
        let text = words::text(segment);
        match text.as_str() {
            "" => {}
            _ if at == 0 && joined => match path.last_mut() {
                Some(last) => last.push_str(&text),
                None => path.push(text),
            },
            "." => {}
            ".." => drop(path.pop()),
            _ if segment.iter().all(known) => path.push(text),
            _ => {}
        }
    }
    Ok(path)
}

fn has_climb(word: &[Atom]) -> bool {
    word.split(|atom| *atom == Atom::Char('/')).any(|segment| {
        segment == [Atom::Char('.'), Atom::Char('.')] || patterns::may_match_parent(segment, word)
    })
}

fn has_scheme(word: &[Atom]) -> bool {
    let text = words::text(word);
    text.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
    })
}

fn plain_segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty() && *segment != ".")
}

#[cfg(test)]
mod tests;
