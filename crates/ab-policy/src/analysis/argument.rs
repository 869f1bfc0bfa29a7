//! A word after expansion: its text, and which parts of it are known.

use std::ops::Range;

use crate::place::{CommandCheckContext, CommandPathLocation};

/// A word in the form in which a program would receive it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Arg {
    /// The text. Parts whose value is not known are included as source text.
    pub(super) text: String,
    /// Whether the whole text is known.
    pub(super) known: bool,
    /// The length in bytes of the text before the first part that is not known.
    pub(super) prefix: usize,
    /// The ranges of the text that are not known, in order.
    pub(super) gaps: Vec<Range<usize>>,
    /// Whether the word has an unquoted wildcard, so that the shell may replace it by other words.
    pub(super) glob: bool,
    /// Whether the word may expand to no word at all.
    pub(super) vanishes: bool,
    /// Whether the word begins with a home directory other than the workspace.
    pub(super) home: bool,
    /// Whether the word is a process substitution, which makes the output of commands available as
    /// a file.
    pub(super) stream: bool,
    /// Whether the expansion of the word downloads something.
    pub(super) fetches: bool,
}

impl Arg {
    pub(super) fn literal(text: &str) -> Self {
        Self { text: text.to_owned(), known: true, prefix: text.len(), ..Self::default() }
    }

    pub(super) fn unknown(source: &str) -> Self {
        let mut unknown = Self::default();
        unknown.push_unknown(source);
        unknown
    }

    /// Adds a part whose value is not known.
    pub(super) fn push_unknown(&mut self, source: &str) {
        let start = self.text.len();
        self.text.push_str(source);
        self.known = false;
        self.gaps.push(start..self.text.len());
    }

    /// The text, with a NUL in place of each part that is not known. A NUL never occurs in a word.
    pub(super) fn shape(&self) -> String {
        let mut shape = String::with_capacity(self.text.len());
        let mut at = 0;
        for gap in &self.gaps {
            shape.push_str(self.text.get(at..gap.start).unwrap_or_default());
            shape.push('\0');
            at = gap.end;
        }
        shape.push_str(self.text.get(at..).unwrap_or_default());
        shape
    }

    /// The text, or `None` if it is not certain which text the program receives.
    pub(super) fn exact(&self) -> Option<&str> {
        (self.known && !self.glob && !self.home && !self.stream).then_some(self.text.as_str())
    }

    pub(super) fn is_option(&self) -> bool {
        self.text.len() > 1 && self.text.starts_with('-') && self.prefix > 0
    }

    /// The word without its first `bytes` bytes.
    pub(super) fn after(&self, bytes: usize) -> Arg {
        Arg {
            text: self.text.get(bytes..).unwrap_or_default().to_owned(),
            prefix: self.prefix.saturating_sub(bytes),
            gaps: self
                .gaps
                .iter()
                .filter(|gap| gap.end > bytes)
                .map(|gap| gap.start.saturating_sub(bytes)..gap.end - bytes)
                .collect(),
            ..self.clone()
        }
    }

    /// Whether the text contains a `..` component.
    pub(super) fn climbs(&self) -> bool {
        self.text.split('/').any(|part| part == "..")
    }

    /// The path to which the word leads from the directory `cwd`.
    pub(super) fn target(&self, scene: &CommandCheckContext, cwd: &CommandPathLocation) -> Target {
        if self.stream {
            return Target {
                place: CommandPathLocation::Outside("/dev/fd".to_owned()),
                whole: false,
            };
        }
        if self.home {
            return Target { place: CommandPathLocation::Outside("~".to_owned()), whole: true };
        }
        let certain = &self.text[..self.prefix.min(self.text.len())];
        let (certain, whole) = match (self.known, self.glob) {
            (true, false) => return Target { place: scene.resolve(&self.text, cwd), whole: false },
            (true, true) => split_wildcard(&self.text),
            (false, _) => (certain, false),
        };
        let Some(slash) = certain.rfind('/') else {
            // If the path is not known, only its start directory is certain.
            let place = match (self.known, whole) {
                (true, true) => cwd.clone(),
                (true, false) => scene.resolve("*", cwd),
                (false, _) => CommandPathLocation::Unknown,
            };
            return Target { place, whole };
        };
        let directory = &certain[..=slash];
        let place = scene.resolve(directory, cwd);
        match (whole, self.known) {
            (true, _) => Target { place, whole },
            (false, true) => Target { place: scene.resolve(&format!("{directory}*"), cwd), whole },
            // `build/$X` is certainly below `build`, but `./$X` may be any file here.
            (false, false) if place == *cwd => {
                Target { place: CommandPathLocation::Unknown, whole }
            }
            (false, false) if place == CommandPathLocation::Inside(String::new()) => {
                Target { place: CommandPathLocation::Unknown, whole }
            }
            (false, false) => Target { place: scene.resolve(&format!("{directory}?"), cwd), whole },
        }
    }
}

/// The location that a word leads to if it is used as a path.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) place: CommandPathLocation,
    /// Whether the word stands for everything in that directory.
    pub(super) whole: bool,
}

/// Splits the text before the segment with the first wildcard. Also returns whether this segment
/// matches every name.
fn split_wildcard(text: &str) -> (&str, bool) {
    let first = text.find(['*', '?', '[']).unwrap_or(text.len());
    let start = text[..first].rfind('/').map_or(0, |slash| slash + 1);
    let rest = &text[start..];
    let whole = rest.chars().all(|c| matches!(c, '*' | '.' | '/' | '?')) && rest.contains('*');
    (&text[..start], whole)
}

/// The name of a program without its directory.
pub(super) fn base_name(text: &str) -> &str {
    text.trim_end_matches('/').rsplit('/').next().unwrap_or(text)
}
