//! Globs over the segments of paths, matched step by step during a walk.
//!
//! A pattern is a list of segments. A [`GlobMatchState`] records how many of these segments the
//! path of a directory has matched. A directory below which nothing can match is not entered. Each
//! file takes only one step. The work for one name is linear in the length of the pattern.

use super::wildcard::Wildcard;

/// Maximum length of a pattern in bytes.
pub(crate) const MAX_GLOB_BYTES: usize = 64 * 1024;
/// Maximum number of alternatives that the braces of one pattern may expand to.
pub(crate) const MAX_GLOB_ALTERNATIVES: usize = 1000;
/// Maximum number of segments of one alternative.
const MAX_SEGMENTS: usize = 63;

/// Whether a wildcard matches names with a leading dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DotfileMatching {
    /// A name with a leading dot matches only if the segment of the pattern also begins with a dot.
    Explicit,
    Any,
}

/// A compiled pattern.
///
/// - A pattern without a slash matches the last name of a path at any depth. A pattern with a slash
///   matches the path from the root of the search. A leading slash has no other effect.
/// - `*` and `?` match within a segment, and `**` matches any number of segments. `[…]` and `{a,b}`
///   have their usual meaning.
#[derive(Clone, Debug)]
pub struct Glob {
    alternatives: Vec<Vec<Segment>>,
    dots: DotfileMatching,
}

/// For each alternative of a [`Glob`], the segments that may match the next name, as a set of bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobMatchState(Vec<u64>);

impl GlobMatchState {
    /// Whether something below the directory could still match.
    pub(crate) fn can_match_below(&self) -> bool {
        self.0.iter().any(|bits| *bits != 0)
    }
}

#[derive(Clone, Debug)]
enum Segment {
    /// `**`
    Deep,
    Name {
        test: NameTest,
        dotted: bool,
    },
}

#[derive(Clone, Debug)]
enum NameTest {
    Anything,
    Literal(String),
    /// Two literals with a star between them. Each literal may be empty.
    Around {
        prefix: String,
        suffix: String,
    },
    Pattern(Wildcard),
}

impl Glob {
    /// Compiles a pattern. If the pattern is invalid, the error says why.
    pub fn new(pattern: &str, dotfiles: DotfileMatching) -> Result<Self, String> {
        if pattern.is_empty() {
            return Err("the pattern is empty".to_owned());
        }
        if pattern.len() > MAX_GLOB_BYTES {
            return Err(format!("the pattern is longer than {MAX_GLOB_BYTES} bytes"));
        }
        let alternatives = expand(pattern)?
            .iter()
            .map(|alternative| segments(alternative))
            .collect::<Result<_, _>>()?;
        Ok(Self { alternatives, dots: dotfiles })
    }

    /// The state at the root of the search.
    pub fn start_state(&self) -> GlobMatchState {
        GlobMatchState(self.alternatives.iter().map(|segments| closure(segments, 1)).collect())
    }

    /// The state inside the directory `name`.
    pub fn next_state(&self, state: &GlobMatchState, name: &str) -> GlobMatchState {
        let steps = self.alternatives.iter().zip(&state.0);
        GlobMatchState(steps.map(|(segments, bits)| self.advance(segments, *bits, name)).collect())
    }

    /// Whether `name` in this directory matches.
    pub fn matches(&self, state: &GlobMatchState, name: &str) -> bool {
        self.alternatives.iter().zip(&state.0).any(|(segments, bits)| {
            *bits != 0 && self.advance(segments, *bits, name) & (1 << segments.len()) != 0
        })
    }

    fn advance(&self, segments: &[Segment], bits: u64, name: &str) -> u64 {
        let mut next = 0;
        let mut rest = bits;
        while rest != 0 {
            let index = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let reached = match segments.get(index) {
                None => None,
                Some(Segment::Deep) => self.visible(name, false).then_some(index),
                Some(Segment::Name { test, dotted }) => {
                    let fits = self.visible(name, *dotted) && test.matches(name);
                    fits.then_some(index + 1)
                }
            };
            next |= reached.map_or(0, |index| 1 << index);
        }
        closure(segments, next)
    }

    fn visible(&self, name: &str, dotted: bool) -> bool {
        dotted || self.dots == DotfileMatching::Any || !name.starts_with('.')
    }
}

/// Adds the states that are reached without consuming a name, because `**` may match no segment.
fn closure(segments: &[Segment], mut bits: u64) -> u64 {
    for (index, segment) in segments.iter().enumerate() {
        if matches!(segment, Segment::Deep) && bits & (1 << index) != 0 {
            bits |= 1 << (index + 1);
        }
    }
    bits
}

impl NameTest {
    fn matches(&self, name: &str) -> bool {
        match self {
            NameTest::Anything => true,
            NameTest::Literal(text) => name == text,
            NameTest::Around { prefix, suffix } => {
                name.len() >= prefix.len() + suffix.len()
                    && name.starts_with(prefix.as_str())
                    && name.ends_with(suffix.as_str())
            }
            NameTest::Pattern(wildcard) => wildcard.matches(name),
        }
    }
}

fn segments(pattern: &str) -> Result<Vec<Segment>, String> {
    let anchored = pattern.contains('/');
    let parts: Vec<&str> =
        pattern.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.is_empty() {
        return Err("the pattern matches nothing".to_owned());
    }
    if parts.contains(&"..") {
        return Err("the pattern must not contain '..'".to_owned());
    }
    let mut out: Vec<Segment> = Vec::new();
    // A trailing slash only requires a directory. It does not bind the pattern to the root.
    if !anchored || pattern.trim_end_matches('/').find('/').is_none() {
        out.push(Segment::Deep);
    }
    for part in parts {
        match part {
            "**" if matches!(out.last(), Some(Segment::Deep)) => {}
            "**" => out.push(Segment::Deep),
            name => out.push(Segment::Name { test: name_test(name)?, dotted: is_dotted(name) }),
        }
    }
    // A pattern that ends in `**` matches the entries below a directory, but not the directory
    // itself.
    if matches!(out.last(), Some(Segment::Deep)) {
        out.push(Segment::Name { test: NameTest::Anything, dotted: false });
    }
    if out.len() > MAX_SEGMENTS {
        return Err(format!("the pattern has more than {MAX_SEGMENTS} segments"));
    }
    Ok(out)
}

fn is_dotted(segment: &str) -> bool {
    segment.starts_with('.') || segment.starts_with("\\.")
}

fn name_test(segment: &str) -> Result<NameTest, String> {
    let special = |c: char| matches!(c, '?' | '[' | ']' | '{' | '}' | '\\' | '*');
    if segment == "*" {
        return Ok(NameTest::Anything);
    }
    if !segment.contains(special) {
        return Ok(NameTest::Literal(segment.to_owned()));
    }
    if let Some((prefix, suffix)) = segment.split_once('*')
        && !prefix.contains(special)
        && !suffix.contains(special)
    {
        return Ok(NameTest::Around { prefix: prefix.to_owned(), suffix: suffix.to_owned() });
    }
    Ok(NameTest::Pattern(Wildcard::new(segment)?))
}

/// Expands the braces of a pattern. The order is kept.
fn expand(pattern: &str) -> Result<Vec<String>, String> {
    let mut done = Vec::new();
    let mut pending = vec![pattern.to_owned()];
    while let Some(text) = pending.pop() {
        match first_braces(&text)? {
            None => done.push(text),
            Some((start, end, commas)) => {
                let mut cuts = vec![start];
                cuts.extend(commas);
                cuts.push(end);
                for pair in cuts.windows(2).rev() {
                    let choice = &text[pair[0] + 1..pair[1]];
                    pending.push([&text[..start], choice, &text[end + 1..]].concat());
                }
            }
        }
        if done.len() + pending.len() > MAX_GLOB_ALTERNATIVES {
            return Err(format!("the braces expand to more than {MAX_GLOB_ALTERNATIVES} patterns"));
        }
    }
    Ok(done)
}

/// The first outermost pair of braces: the positions of the opening brace, the closing brace and
/// the commas.
fn first_braces(text: &str) -> Result<Option<(usize, usize, Vec<usize>)>, String> {
    let (mut depth, mut start, mut commas) = (0usize, 0, Vec::new());
    let (mut escaped, mut in_class) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' if in_class => in_class = false,
            _ if in_class => {}
            '[' => in_class = true,
            '{' => {
                if depth == 0 {
                    start = at;
                }
                depth += 1;
            }
            ',' if depth == 1 => commas.push(at),
            '}' if depth == 1 => return Ok(Some((start, at, commas))),
            '}' if depth > 1 => depth -= 1,
            '}' => return Err("a closing brace has no opening brace".to_owned()),
            _ => {}
        }
    }
    match depth {
        0 => Ok(None),
        _ => Err("a brace is not closed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, dots: DotfileMatching, path: &str) -> bool {
        let glob = Glob::new(pattern, dots).unwrap();
        let names: Vec<&str> = path.split('/').collect();
        let (last, above) = names.split_last().unwrap();
        let at = above.iter().fold(glob.start_state(), |at, name| glob.next_state(&at, name));
        glob.matches(&at, last)
    }

    #[test]
    fn patterns_match_as_said() {
        for (pattern, yes, no) in [
            ("*.rs", vec!["a.rs", "src/a.rs", "a/b/c.rs"], vec!["a.rst", "rs", ".a.rs", ".d/a.rs"]),
            ("/*.rs", vec!["a.rs"], vec!["src/a.rs"]),
            ("src/*.rs", vec!["src/a.rs"], vec!["src/a/b.rs", "x/src/a.rs", "a.rs"]),
            ("src/**/*.rs", vec!["src/a.rs", "src/a/b/c.rs"], vec!["a.rs", "src/.git/a.rs"]),
            ("**/a", vec!["a", "b/a", "b/c/a"], vec!["ab", "a/b"]),
            ("a/**", vec!["a/b", "a/b/c"], vec!["a", "ab/c", "a/.b"]),
            ("**", vec!["a", "a/b"], vec![".a", ".a/b"]),
            ("a?c", vec!["abc", "x/axc"], vec!["ac", "abbc"]),
            ("[abc].txt", vec!["a.txt"], vec!["d.txt"]),
            ("[!abc].txt", vec!["d.txt"], vec!["a.txt"]),
            ("[^abc].txt", vec!["d.txt"], vec!["a.txt"]),
            ("*.{rs,toml}", vec!["a.rs", "b/Cargo.toml"], vec!["a.md"]),
            ("{src,lib}/**/*.{c,h}", vec!["src/a.c", "lib/x/y.h"], vec!["a.c", "src/a.o"]),
            ("{a,b{c,d}}/x", vec!["a/x", "bc/x", "bd/x"], vec!["b/x", "ac/x"]),
            ("{a/b,c}.txt", vec!["a/b.txt", "c.txt", "x/c.txt"], vec!["x/a/b.txt"]),
            (".github/*.yml", vec![".github/a.yml"], vec![".github/.a.yml", "x/.github/a.yml"]),
            (".*", vec![".a", "x/.env"], vec!["a"]),
            ("node_modules/", vec!["node_modules", "a/node_modules"], vec!["node_modules2"]),
            ("a*b*c", vec!["abc", "aXbYc"], vec!["ab", "acb"]),
            ("\\*", vec!["*"], vec!["a"]),
            ("ä*", vec!["äö", "ä"], vec!["a"]),
        ] {
            for path in yes {
                assert!(
                    matches(pattern, DotfileMatching::Explicit, path),
                    "{pattern} must match {path}"
                );
            }
            for path in no {
                assert!(
                    !matches(pattern, DotfileMatching::Explicit, path),
                    "{pattern} must not match {path}"
                );
            }
        }
        assert!(
            matches("*", DotfileMatching::Any, ".hidden")
                && matches("**/x", DotfileMatching::Any, ".d/x")
        );
    }

    #[test]
    fn senseless_and_explosive_patterns_are_refused() {
        let bomb = "{a,b}".repeat(20);
        let long = "a".repeat(MAX_GLOB_BYTES + 1);
        let deep = "a/".repeat(100);
        for pattern in ["", "/", "a/../b", "[a", "{a", "a}", "[z-a]", &bomb, &long, &deep] {
            assert!(Glob::new(pattern, DotfileMatching::Explicit).is_err(), "{pattern:.20}");
        }
        let stars = Glob::new(&"*a".repeat(5000), DotfileMatching::Explicit).unwrap();
        assert!(!stars.matches(&stars.start_state(), &"a".repeat(255)));
    }

    #[test]
    fn directories_that_cannot_match_are_closed() {
        let glob = Glob::new("src/*/x.rs", DotfileMatching::Explicit).unwrap();
        let open = |path: &str| {
            path.split('/')
                .fold(glob.start_state(), |at, name| glob.next_state(&at, name))
                .can_match_below()
        };
        assert!(open("src") && open("src/a"));
        assert!(!open("lib") && !open("src/a/b") && !open("src/.git"));
    }
}
