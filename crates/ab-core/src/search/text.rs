//! Searches for text inside one file.

use std::io::Read;

use grep_matcher::{LineTerminator, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish,
    SinkMatch,
};

use super::{
    CaseSensitivity, LineSelection, MatchLineMode, PatternSyntax, SearchLineRole, SearchOutputMode,
    SearchQuery, TextQuery,
};
use crate::call::Verb;
use crate::error::{Error, ErrorKind, Result};

/// Maximum length of a pattern in bytes.
pub(crate) const MAX_TEXT_PATTERN_BYTES: usize = 64 * 1024;
/// Maximum number of bytes of one line in a result.
pub const MAX_SEARCH_LINE_BYTES: usize = 8 * 1024;
/// Maximum number of context lines on each side of a match.
pub const MAX_CONTEXT_LINES: usize = 1000;
/// Maximum memory of a compiled pattern in bytes.
const MAX_COMPILED_BYTES: usize = 16 * 1024 * 1024;
/// Maximum memory for one line in bytes. A longer line is reported as a problem of its file.
const MAX_BUFFER_BYTES: usize = 32 * 1024 * 1024;

/// A file that is shorter than this is read at once and searched as a whole. The searcher first
/// looks for zero bytes in 64 KiB. This value is smaller, so binary files are detected in the same
/// way.
const START_BYTES: usize = 32 * 1024;

/// A compiled text query.
#[derive(Clone, Debug)]
pub struct TextSearch {
    matcher: RegexMatcher,
    query: TextQuery,
}

/// Buffers for searching files. They are reused for the next file.
#[derive(Debug)]
pub struct FileSearchBuffers {
    searcher: Searcher,
    /// A buffer for the beginning of a file, which is often the whole file. The searcher alone
    /// would read three times even for a few bytes.
    start: Box<[u8]>,
}

/// The matches in one file.
#[derive(Clone, Debug, Default)]
pub struct FileMatches {
    pub lines: Vec<SearchLine>,
    /// The number of matching lines, including those that were not kept.
    pub count: u64,
    /// Whether the file seems to be binary. In this case its matches do not count.
    pub binary: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchLine {
    pub line_number: u64,
    pub text: String,
    /// The length of the whole line in bytes, if `text` contains only its beginning.
    pub full_line_bytes: Option<u64>,
    pub role: SearchLineRole,
}

impl TextSearch {
    pub fn compile(query: &SearchQuery, text: &TextQuery) -> Result<Self> {
        let refused = |reason: String| {
            let shown: String = text.pattern.chars().take(100).collect();
            let message =
                format!("pattern '{}': {reason}", crate::error::escape_unprintable(&shown));
            Error::for_path(Verb::Search, &query.root, ErrorKind::Invalid, message)
        };
        if text.pattern.is_empty() {
            return Err(refused("it is empty".to_owned()));
        }
        if text.pattern.len() > MAX_TEXT_PATTERN_BYTES {
            return Err(refused(format!("longer than {MAX_TEXT_PATTERN_BYTES} bytes")));
        }
        if text.context_before > MAX_CONTEXT_LINES || text.context_after > MAX_CONTEXT_LINES {
            return Err(refused(format!("more than {MAX_CONTEXT_LINES} lines of context")));
        }
        if text.line_mode == MatchLineMode::SingleLine && text.pattern.contains('\n') {
            return Err(refused(
                "the pattern must not contain a line break: lines are searched one by one".into(),
            ));
        }
        let matcher = RegexMatcherBuilder::new()
            .fixed_strings(text.syntax == PatternSyntax::Literal)
            .case_insensitive(text.case == CaseSensitivity::Insensitive)
            .multi_line(true)
            .dot_matches_new_line(text.line_mode == MatchLineMode::MultiLine)
            // In CRLF mode a pattern cannot match a line end.
            .crlf(text.line_mode == MatchLineMode::SingleLine)
            .size_limit(MAX_COMPILED_BYTES)
            .dfa_size_limit(MAX_COMPILED_BYTES)
            .build(&text.pattern)
            .map_err(|error| refused(one_line(&error.to_string())))?;
        Ok(Self { matcher, query: text.clone() })
    }

    pub fn output_mode(&self) -> SearchOutputMode {
        self.query.output_mode
    }

    pub fn new_buffers(&self) -> FileSearchBuffers {
        let context =
            |lines| if self.query.output_mode == SearchOutputMode::Lines { lines } else { 0 };
        let searcher = SearcherBuilder::new()
            .line_terminator(LineTerminator::crlf())
            .line_number(true)
            .multi_line(self.query.line_mode == MatchLineMode::MultiLine)
            .before_context(context(self.query.context_before))
            .after_context(context(self.query.context_after))
            .invert_match(self.query.lines == LineSelection::NonMatching)
            .max_matches(self.query.max_lines_per_file)
            .binary_detection(BinaryDetection::quit(0))
            .memory_map(MmapChoice::never())
            .heap_limit(Some(MAX_BUFFER_BYTES))
            .build();
        FileSearchBuffers { searcher, start: vec![0; START_BYTES].into() }
    }

    /// Searches one file. Keeps at most `most` matching lines.
    pub fn search_file(
        &self,
        buffers: &mut FileSearchBuffers,
        mut file: impl Read,
        max_matches: usize,
    ) -> std::io::Result<FileMatches> {
        let mut collector = Collector {
            matcher: &self.matcher,
            answer: self.query.output_mode,
            most: max_matches,
            hits: FileMatches::default(),
        };
        let FileSearchBuffers { searcher, start } = buffers;
        let filled = fill(&mut file, start)?;
        if filled < start.len() {
            searcher.search_slice(&self.matcher, &start[..filled], &mut collector)?;
        } else {
            searcher.search_reader(&self.matcher, start.chain(file), &mut collector)?;
        }
        let mut hits = collector.hits;
        if hits.binary {
            hits = FileMatches { binary: true, ..FileMatches::default() };
        }
        Ok(hits)
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Shortens an error of the regex engine, which has several lines, to one line.
fn one_line(text: &str) -> String {
    let reason = text.lines().rev().find_map(|line| line.strip_prefix("error: "));
    reason.unwrap_or(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

struct Collector<'m> {
    matcher: &'m RegexMatcher,
    answer: SearchOutputMode,
    most: usize,
    hits: FileMatches,
}

impl Collector<'_> {
    /// Keeps the matched parts of the lines in `found`.
    fn keep_parts(&mut self, found: &SinkMatch<'_>) -> std::io::Result<()> {
        let bytes = found.bytes();
        let (mut line, mut seen) = (found.line_number(), 0);
        let matcher = self.matcher;
        matcher.find_iter(bytes, |part| {
            if part.is_empty() {
                return true;
            }
            let is_line_end = |byte: &&u8| **byte == b'\n';
            let before = bytes[seen..part.start()].iter().filter(is_line_end).count() as u64;
            line = line.map(|line| line + before);
            seen = part.start();
            // A match may span several lines.
            let lines = bytes[part].split_inclusive(|byte| *byte == b'\n');
            for (offset, text) in (0..).zip(lines) {
                self.keep(line.map(|line| line + offset), text, SearchLineRole::Match);
            }
            self.hits.lines.len() < self.most
        })?;
        Ok(())
    }

    fn keep(&mut self, line: Option<u64>, bytes: &[u8], role: SearchLineRole) {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let cut = (bytes.len() > MAX_SEARCH_LINE_BYTES).then_some(bytes.len() as u64);
        let mut end = bytes.len().min(MAX_SEARCH_LINE_BYTES);
        while cut.is_some() && end > 0 && bytes[end] & 0b1100_0000 == 0b1000_0000 {
            end -= 1;
        }
        let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
        self.hits.lines.push(SearchLine {
            line_number: line.unwrap_or(0),
            text,
            full_line_bytes: cut,
            role,
        });
    }
}

impl Sink for Collector<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        self.hits.count += 1;
        match self.answer {
            SearchOutputMode::Files | SearchOutputMode::FilesWithoutMatch => Ok(false),
            SearchOutputMode::MatchedParts => {
                self.keep_parts(found)?;
                Ok(self.hits.lines.len() < self.most)
            }
            SearchOutputMode::Counts => Ok(true),
            SearchOutputMode::Lines => {
                for (line, bytes) in (0..).zip(found.lines()) {
                    let line = found.line_number().map(|first| first + line);
                    self.keep(line, bytes, SearchLineRole::Match);
                }
                Ok(self.hits.count < self.most as u64)
            }
        }
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> Result<bool, Self::Error> {
        self.keep(found.line_number(), found.bytes(), SearchLineRole::Context);
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, Self::Error> {
        self.hits.binary = true;
        Ok(false)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> Result<(), Self::Error> {
        self.hits.binary |= end.binary_byte_offset().is_some();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::WsPath;

    fn search(query: TextQuery, file: &[u8]) -> Result<FileMatches> {
        let whole = SearchQuery::for_text(WsPath::root(), query.clone());
        let search = TextSearch::compile(&whole, &query)?;
        Ok(search.search_file(&mut search.new_buffers(), file, 100).unwrap())
    }

    fn lines(query: TextQuery, file: &str) -> Vec<(u64, String)> {
        let hits = search(query, file.as_bytes()).unwrap();
        hits.lines.into_iter().map(|hit| (hit.line_number, hit.text)).collect()
    }

    #[test]
    fn literal_unless_asked_otherwise() {
        let text = "a.b\naxb\nA.B\r\n";
        let literal = TextQuery::literal("a.b");
        assert_eq!(lines(literal.clone(), text), [(1, "a.b".into())]);
        let any_case = TextQuery { case: CaseSensitivity::Insensitive, ..literal.clone() };
        assert_eq!(lines(any_case, text), [(1, "a.b".into()), (3, "A.B".into())]);
        let regex = TextQuery { syntax: PatternSyntax::Regex, ..literal };
        assert_eq!(lines(regex, text), [(1, "a.b".into()), (2, "axb".into())]);
        let end = TextQuery { syntax: PatternSyntax::Regex, ..TextQuery::literal("(?i)b$") };
        let whole = [(1, "a.b".into()), (2, "axb".into()), (3, "A.B".into())];
        assert_eq!(lines(end, text), whole, "every line has an end, before LF or CR LF");
    }

    #[test]
    fn a_match_may_reach_over_line_ends_when_asked() {
        let text = "fn a(\n  b: u8,\n) {}\nfn c() {}\r\nx\n";
        let lines_only =
            TextQuery { syntax: PatternSyntax::Regex, ..TextQuery::literal(r"fn a\(.*?\)") };
        assert_eq!(lines(lines_only.clone(), text), []);
        let over = TextQuery { line_mode: MatchLineMode::MultiLine, ..lines_only };
        let expect = [(1, "fn a(".into()), (2, "  b: u8,".into()), (3, ") {}".into())];
        assert_eq!(lines(over.clone(), text), expect);
        let hits =
            search(TextQuery { output_mode: SearchOutputMode::Counts, ..over }, text.as_bytes())
                .unwrap();
        assert_eq!(hits.count, 1);
        let literal =
            TextQuery { line_mode: MatchLineMode::MultiLine, ..TextQuery::literal("u8,\n)") };
        assert_eq!(lines(literal, text), [(2, "  b: u8,".into()), (3, ") {}".into())]);
        let everything = TextQuery {
            line_mode: MatchLineMode::MultiLine,
            syntax: PatternSyntax::Regex,
            ..TextQuery::literal("fn c.*")
        };
        assert_eq!(lines(everything, text), [(4, "fn c() {}".into()), (5, "x".into())]);
    }

    #[test]
    fn lines_without_a_match_are_found_when_asked() {
        let others = |query| TextQuery { lines: LineSelection::NonMatching, ..query };
        let expect = [(2, "b".into()), (4, "".into())];
        assert_eq!(lines(others(TextQuery::literal("a")), "a\nb\r\nxa\n\n"), expect);
        let counts =
            TextQuery { output_mode: SearchOutputMode::Counts, ..others(TextQuery::literal("a")) };
        assert_eq!(search(counts, b"a\nb\nc").unwrap().count, 2);
    }

    #[test]
    fn matched_parts_are_lines_of_their_own() {
        let parts = |query| TextQuery { output_mode: SearchOutputMode::MatchedParts, ..query };
        let regex = |pattern: &str| {
            parts(TextQuery { syntax: PatternSyntax::Regex, ..TextQuery::literal(pattern) })
        };
        let text = "a1 b22\nnone\r\nc333\r\n";
        let expect = [(1, "1".into()), (1, "22".into()), (3, "333".into())];
        assert_eq!(lines(regex(r"\d+"), text), expect);
        assert_eq!(lines(regex(r"\d*$"), text), [(1, "22".into()), (3, "333".into())]);
        let over = TextQuery { line_mode: MatchLineMode::MultiLine, ..regex(r"b22.*?o") };
        assert_eq!(lines(over, text), [(1, "b22".into()), (2, "no".into())]);
        let later = TextQuery { line_mode: MatchLineMode::MultiLine, ..regex(r"22\nn|e") };
        let expect = [(1, "22".into()), (2, "n".into()), (2, "e".into())];
        assert_eq!(lines(later, text), expect);
        let whole = SearchQuery::for_text(WsPath::root(), regex(r"\d"));
        let search = TextSearch::compile(&whole, &regex(r"\d")).unwrap();
        let hits = search.search_file(&mut search.new_buffers(), text.as_bytes(), 2).unwrap();
        assert_eq!(hits.lines.len(), 2);
    }

    #[test]
    fn lines_of_one_file_are_limited_with_their_context() {
        let query =
            TextQuery { max_lines_per_file: Some(1), context_after: 1, ..TextQuery::literal("x") };
        assert_eq!(lines(query.clone(), "x1\nx2\nx3\n"), [(1, "x1".into()), (2, "x2".into())]);
        let counts = TextQuery { output_mode: SearchOutputMode::Counts, ..query };
        assert_eq!(search(counts, b"x\nx\nx\n").unwrap().count, 1);
    }

    #[test]
    fn context_counts_and_files() {
        let text = "1\n2 x\n3\n4\n5 x\n6\n";
        let query = TextQuery { context_before: 1, context_after: 1, ..TextQuery::literal("x") };
        let hits = search(query.clone(), text.as_bytes()).unwrap();
        let shown: Vec<_> = hits.lines.iter().map(|hit| (hit.line_number, hit.role)).collect();
        use SearchLineRole::{Context, Match};
        let expect =
            [(1, Context), (2, Match), (3, Context), (4, Context), (5, Match), (6, Context)];
        assert_eq!(shown, expect);
        let counts = TextQuery { output_mode: SearchOutputMode::Counts, ..query.clone() };
        let hits = search(counts, text.as_bytes()).unwrap();
        assert_eq!((hits.count, hits.lines.len()), (2, 0));
        let files = TextQuery { output_mode: SearchOutputMode::Files, ..query };
        assert_eq!(search(files, text.as_bytes()).unwrap().count, 1, "stops at the first");
    }

    #[test]
    fn binary_and_odd_files() {
        assert!(search(TextQuery::literal("x"), b"x\nx\0x\n").unwrap().binary);
        let hits = search(TextQuery::literal("x"), b"caf\xe9 x\n").unwrap();
        assert_eq!(hits.lines[0].text, "caf\u{fffd} x");
        let long = "ä".repeat(MAX_SEARCH_LINE_BYTES) + "x";
        let hits = search(TextQuery::literal("x"), long.as_bytes()).unwrap();
        assert_eq!(hits.lines[0].full_line_bytes, Some(long.len() as u64));
        assert_eq!(hits.lines[0].text.len(), MAX_SEARCH_LINE_BYTES);
        assert!(search(TextQuery::literal("x"), b"").unwrap().lines.is_empty());
    }

    #[test]
    fn small_and_large_files_are_alike() {
        for length in [START_BYTES - 1, START_BYTES, START_BYTES + 1, 3 * START_BYTES] {
            let mut text = "0123456\n".repeat(length / 8);
            text.truncate(length - 9);
            text.push_str("\nneedle 1");
            assert_eq!(text.len(), length);
            let line = text.lines().count() as u64;
            let query = TextQuery::literal("needle");
            assert_eq!(lines(query.clone(), &text), [(line, "needle 1".into())], "{length}");
            let mut binary = text.clone().into_bytes();
            binary[length - 1] = 0;
            for answer in [SearchOutputMode::Lines, SearchOutputMode::Counts] {
                let query = TextQuery { output_mode: answer, ..query.clone() };
                let hits = search(query, &binary).unwrap();
                assert!(hits.binary && hits.count == 0, "{length}");
            }
            let wide: Vec<u8> = "\u{feff}"
                .encode_utf16()
                .chain(text.encode_utf16())
                .flat_map(u16::to_le_bytes)
                .collect();
            assert_eq!(search(query, &wide).unwrap().lines[0].text, "needle 1", "{length}");
        }
    }

    #[test]
    fn senseless_and_explosive_patterns_are_refused() {
        let regex = |pattern: &str| TextQuery {
            syntax: PatternSyntax::Regex,
            ..TextQuery::literal(pattern)
        };
        let long = "a".repeat(MAX_TEXT_PATTERN_BYTES + 1);
        for query in [
            TextQuery::literal(""),
            TextQuery::literal("a\nb"),
            TextQuery::literal(&long),
            regex("("),
            regex("(a{1000}){1000}{1000}"),
            TextQuery { context_before: MAX_CONTEXT_LINES + 1, ..TextQuery::literal("a") },
        ] {
            let error = search(query, b"a").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert_eq!(error.to_string().lines().count(), 1);
        }
        let slow_elsewhere = regex("(a*)*b");
        assert_eq!(search(slow_elsewhere, "a".repeat(100_000).as_bytes()).unwrap().count, 0);
    }
}
